"""Write the page of constants, `constants.md` beside this.

Constants are read from the sources of the package: all numbers that a module gives an
upper-case name, with the comment beside them. `constants.csv` keeps what no source
says: what became of forecasts when one was halved and doubled (`sensitivity.py`), and
figures of other experiments. Its rows go with their constants where these move; a row
goes with its constant, and what was measured of another value is dropped.

    python examples/benchmarks/constants_page.py [--measured TABLE.csv]
        [--panels TABLE.csv]

Both are what `sensitivity.py --out` wrote, of series and of panels, and are taken over
first.
"""

from __future__ import annotations

import argparse
import ast
import csv
import io
import itertools
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("constants.csv")
PAGE = Path(__file__).with_name("constants.md")
PACKAGES = ("structural", "hybrid", "latent_ode", "training", "data")
NO_CHOICE = ("sklode.data.ticks", "sklode.latent_ode.randomness")
"""Modules whose numbers are units, or bits that are mixed."""

NO_CHANGE = "no change"
OF_EXPRESSIONS = {"np", "math", "len", "range"}

HEAD = """\
# Constants

Written by `constants_page.py` from the package's sources and `constants.csv`: edit
those, and run it again.

For those who change the code: the numbers that decide forecasts, intervals and what is
left out, with the comment beside each and what is known of its source. What names none
was set by hand. "0.3 to 0.2" is an error before and after; many figures were seen in
development, so they judge nothing.

Those of the structural model and of `data/` were halved and doubled, each alone (of
shares above one half the odds), and 29 series forecast again by `sensitivity.py`:
made-up ones, one kind for each thing that the model looks for, competition series,
load, rentals and air. The last column is the change of the mean absolute error, a
geometric mean over series, at half and at twice the value; less than 2 % to either side
may be chance. "No change": all 29 forecasts stayed. What follows "panels:" is the same
of six panels (shops with offers, growth by age, walks beside noise, counts,
prescriptions, blood sugar), where it is not that of series. A constant without any
change decides other cases, such as panels of thousands, or intervals alone. "?": no
experiment is kept.
"""


class Constant(NamedTuple):
    """A constant, or in a dictionary of constants an entry, and what sources say."""

    module: str
    name: str
    key: str | None
    value: str
    comment: str

    @property
    def title(self) -> str:
        """What the page calls it."""
        return self.name if self.key is None else f'{self.name}["{self.key}"]'

    @property
    def package(self) -> str:
        """The part of sklode that it belongs to."""
        return self.module.split(".")[1]


class Kept(NamedTuple):
    """What no source says of a constant: a row of the table."""

    module: str
    constant: str
    value: str
    half: str = ""
    twice: str = ""
    note: str = ""
    panels_half: str = ""
    panels_twice: str = ""

    @property
    def package(self) -> str:
        """The part of sklode that it belongs to."""
        return self.module.split(".")[1]

    @property
    def measured(self) -> str:
        """What the page says of it at half and twice its value."""
        series = _pair(self.half, self.twice)
        panels = _pair(self.panels_half, self.panels_twice)
        told = [series] * bool(series)
        told += [f"panels: {panels}"] * bool(panels and panels != series)
        return "; ".join(told) or "?"


def _pair(half: str, twice: str) -> str:
    """Return what is said of half and twice a value."""
    if half == twice == NO_CHANGE:
        return NO_CHANGE
    return f"{half}, {twice}" if half else ""


def constants_of(root: Path = ROOT) -> list[Constant]:
    """Return the constants of the packages, in the order of modules and lines."""
    found: list[Constant] = []
    for package in PACKAGES:
        for path in sorted((root / "sklode" / package).rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            if module not in NO_CHOICE:
                found += constants_in(path.read_text("utf-8"), module)
    return found


def constants_in(text: str, module: str) -> Iterator[Constant]:
    """Yield the constants of a module."""
    comments = comments_of(text)
    body = ast.parse(text).body
    for node, after in itertools.zip_longest(body, body[1:]):
        beside = comments.beside(node) or docstring(after)
        for name, value in numbers_of(node):
            if isinstance(value, ast.Dict) and has_texts_for_keys(value):
                for key, part in zip(value.keys, value.values, strict=True):
                    own = comments.beside(part) or beside
                    yield Constant(
                        module, name, ast.literal_eval(key), source(text, part), own
                    )
            else:
                yield Constant(module, name, None, source(text, value), beside)


class Comments(NamedTuple):
    """Comments by their lines: in lines of code, and in lines of their own."""

    trailing: dict[int, str]
    alone: dict[int, str]

    def beside(self, node: ast.AST) -> str:
        """Return what is said in the last line of a statement, or else above it."""
        if node.end_lineno in self.trailing:
            return self.trailing[node.end_lineno]
        first = node.lineno
        while first - 1 in self.alone:
            first -= 1
        return " ".join(self.alone[line] for line in range(first, node.lineno))


def comments_of(text: str) -> Comments:
    """Return the comments of a module."""
    found = Comments({}, {})
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_alone = token.line.lstrip().startswith("#")
            kind = found.alone if is_alone else found.trailing
            kind[token.start[0]] = token.string.lstrip("# ")
    return found


def docstring(node: ast.stmt | None) -> str:
    """Return the text that a statement is, if it is one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def numbers_of(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield what a statement gives upper-case names, if these are numbers."""
    if isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=True))
        parts = [ast.unparse(part) for part in value.elts]
        if parts in ([str(k + first) for k in range(len(parts))] for first in (0, 1)):
            return  # 0, 1, ... or 1, 2, ...: names of kinds, and nothing's size
    elif isinstance(target, ast.Tuple):
        pairs = [(target.elts[0], value)]
    for name, part in pairs:
        if isinstance(name, ast.Name) and name.id.isupper() and is_numeric(part):
            yield name.id, part


def is_numeric(value: ast.expr) -> bool:
    """Whether an expression is made of numbers and other constants alone."""
    nodes = list(ast.walk(value))
    keys = {id(k) for node in nodes if isinstance(node, ast.Dict) for k in node.keys}
    parts = [node for node in nodes if id(node) not in keys]
    literals = [node.value for node in parts if isinstance(node, ast.Constant)]
    names = [node for node in parts if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    makers = ("range", "slice", "np.zeros")  # of kinds, of places and of nothing
    if isinstance(value, ast.Call) and ast.unparse(value.func) in makers:
        return False
    return (
        len(literals) > 0
        and all(type(literal) in (int, float) for literal in literals)
        and all(x.id.isupper() or x.id in own | OF_EXPRESSIONS for x in names)
    )


def has_texts_for_keys(value: ast.Dict) -> bool:
    """Whether a dictionary is one of constants with a name each."""
    keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
    return all(isinstance(key, str) for key in keys)


def source(text: str, node: ast.expr) -> str:
    """Return an expression as it is written, in one line."""
    return " ".join((ast.get_source_segment(text, node) or "").split())


def kept_of(constants: list[Constant], rows: list[Kept]) -> list[Kept]:
    """Return what is kept of each constant: a row for every one, in their order.

    A row is that of a constant of the same package and name, in a module of the same
    name or, where it has moved into another, of the same value.
    """
    rest = list(rows)
    found: dict[Constant, Kept] = {}
    for by_module in (True, False):
        for one in constants:
            for row in rest if one not in found else ():
                is_there = row.module.split(".")[-1] == one.module.split(".")[-1]
                if (row.package, row.constant) == (one.package, one.title) and (
                    is_there if by_module else row.value == one.value
                ):
                    found[one] = row
                    rest.remove(row)
                    break
    kept = []
    for one in constants:
        row = found.get(one, Kept(one.module, one.title, one.value))
        row = row._replace(module=one.module)
        if row.value != one.value:
            row = Kept(one.module, one.title, one.value, note=row.note)
        kept.append(row)
    return kept


def with_measured(
    rows: list[Kept], table: list[dict[str, str]], prefix: str = ""
) -> list[Kept]:
    """Return rows with the figures of a run of `sensitivity.py`.

    The ``prefix`` of their fields' names is "panels_" of panels.
    """
    told = {(row["in"], row["constant"], float(row["factor"])): row for row in table}
    kept = []
    for row in rows:
        pair = [told.get((row.module, row.constant, factor)) for factor in (0.5, 2.0)]
        said = {
            prefix + name: x["change"] if int(x["otherwise"]) else NO_CHANGE
            for name, x in zip(("half", "twice"), pair, strict=True)
            if x is not None
        }
        kept.append(row._replace(**said))
    return kept


def page(constants: list[Constant], kept: list[Kept]) -> str:
    """Return the page: a table for each package, with a row for each constant."""
    lines = [HEAD]
    package, module, comment = "", "", ""
    for one, row in zip(constants, kept, strict=True):
        if one.package != package:
            lines += [""] * (package != "") + [f"## {one.package}/", ""]
            lines += ["| constant | value | what it is | half, twice |"]
            lines += ["|---|---|---|---|"]
        if one.module != module:
            comment = ""
            lines.append(f"| **{'/'.join(one.module.split('.')[2:])}.py** | | | |")
        said = "likewise" if one.comment and one.comment == comment else one.comment
        package, module, comment = one.package, one.module, one.comment
        text = "; ".join(part.rstrip(".") for part in (said, row.note) if part)
        cells = [f"`{one.title}`", f"`{one.value}`", text, row.measured]
        lines.append("| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |")
    return "\n".join(lines) + "\n"


def read(path: Path = TABLE) -> list[Kept]:
    """Return the rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [Kept(**row) for row in csv.DictReader(file)]


def write(rows: list[Kept], path: Path = TABLE) -> None:
    """Write the rows that say anything."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Kept._fields)
        writer.writerows(row for row in rows if any(row[3:]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Bring table and page up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, help="a table of sensitivity.py")
    parser.add_argument("--panels", type=Path, help="its table of panels")
    given = parser.parse_args(arguments)
    constants = constants_of()
    kept = kept_of(constants, read())
    for path, prefix in ((given.measured, ""), (given.panels, "panels_")):
        if path is not None:
            with path.open(encoding="utf-8", newline="") as file:
                kept = with_measured(kept, list(csv.DictReader(file)), prefix)
    write(kept)
    PAGE.write_text(page(constants, kept), encoding="utf-8")
    n_measured = sum(row.measured != "?" for row in kept)
    print(f"{len(constants)} constants, {n_measured} of them halved and doubled")


if __name__ == "__main__":
    main()
