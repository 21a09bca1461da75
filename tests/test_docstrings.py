"""The docstrings of the forecasters are whole, in whatever form Python keeps them."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import sklode
from tests.series import FORECASTERS
from tests.sources import nodes_of

NETWORKS = (
    sklode.LatentODEForecaster,
    sklode.LatentODERNNForecaster,
    sklode.LatentODELSTMForecaster,
)
SECTIONS = ["Parameters", "Attributes", "References", "Examples"]


def names_under(section: str, text: str) -> set[str]:
    """Return the names that a numpydoc section describes."""
    _, _, after = text.partition(f"\n{section}\n{'-' * len(section)}\n")
    body = re.split(r"\n\w+\n-+\n", after)[0]
    heads = re.findall(r"^(\w[\w, ]*) : ", body, re.MULTILINE)
    return {name for head in heads for name in head.split(", ")}


@pytest.mark.parametrize("cls", FORECASTERS)
def test_every_parameter_is_documented_in_the_order_of_numpydoc(cls: type) -> None:
    text = inspect.getdoc(cls) or ""
    assert re.findall(r"\n(\w+)\n-+\n", text) == SECTIONS
    assert names_under("Parameters", text) == set(cls().get_params())
    assert "history_" in names_under("Attributes", text)


def test_the_networks_forecasters_describe_what_they_share_alike() -> None:
    shared = set()
    for cls in NETWORKS:
        text = inspect.getdoc(cls) or ""
        first, last = text.index("Parameters\n"), text.index("References\n")
        shared.add(text[first:last])
    assert len(shared) == 1


def definitions_of(path: Path) -> set[str]:
    """Return what a module defines or names, methods as ``Class.method`` and alone."""
    found: set[str] = set()
    module = nodes_of(path)[0]
    assert isinstance(module, ast.Module)
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {x.id for x in targets if isinstance(x, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = {x.name for x in node.body if isinstance(x, ast.FunctionDef)}
            found |= methods | {f"{node.name}.{method}" for method in methods}
    return found


PLACE = re.compile(r"\b([\w/]+\.py)`?(?: +`?([A-Za-z_][\w.]*\w))?")


def test_the_page_for_developers_names_places_that_there_are() -> None:
    root = Path(sklode.__file__).parent
    page = (root.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    n_places, n_names = 0, 0
    for line in page.splitlines():
        # of a line of a drawing the name is last; of prose, in quotes after the file
        for file, name in PLACE.findall(line):
            if "/" not in file or file.startswith("tests/"):
                continue
            n_places += 1
            path = root / file
            assert path.exists(), line
            is_drawn = "│" in line or line.startswith("a frame")
            if name and (is_drawn or f"{file}` `{name}`" in line):
                n_names += 1
                assert name in definitions_of(path), line
    assert n_places > 50
    assert n_names > 30


def test_the_page_for_developers_lists_every_entry_of_the_structural_model() -> None:
    root = Path(sklode.__file__).parent
    page = (root.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for path in (root / "structural").iterdir():
        if not path.name.startswith("__"):
            entry = path.name if path.suffix else f"{path.name}/"
            assert f"`{entry}`" in page, entry


def test_the_words_of_the_code_are_those_of_the_code() -> None:
    root = Path(sklode.__file__).parent
    page = (root.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    words = page[page.index("## Words of the code") : page.index("## The engine")]
    defined = set().union(*(definitions_of(path) for path in root.rglob("*.py")))
    assert set(re.findall(r"`(\w+)`", words)) <= defined


def test_every_module_has_a_test_file_of_its_name_or_says_where_it_is_tested() -> None:
    root = Path(sklode.__file__).parent
    tests = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        module, *nodes = nodes_of(path)
        assert isinstance(module, ast.Module)
        has_functions = any(isinstance(x, ast.FunctionDef) for x in nodes)
        own = tests / path.relative_to(root).parent / f"test_{path.name}"
        if path.name == "__init__.py" or not has_functions or own.exists():
            continue
        told = re.search(r"Tested in\s+(\S+\.py)", ast.get_docstring(module) or "")
        assert told, f"{path.relative_to(root)} has no test file and names none"
        assert (root.parent / told[1].rstrip(".")).exists(), told[1]


NETWORKS_ROOMS = {"nn", "engine", "hybrid", "latent_ode"}
OTHER_ROOMS = {"data", "structural", "training", "forecasters", "model_selection"}
ROOMS_WITHOUT = {
    "fh": NETWORKS_ROOMS | {"structural", "training"},
    "freq": NETWORKS_ROOMS | {"training"},
    "h": OTHER_ROOMS,
    "z0": OTHER_ROOMS,
    "lr": NETWORKS_ROOMS | {"data", "structural", "model_selection"},
}


@pytest.mark.parametrize("name", ROOMS_WITHOUT)
def test_a_name_is_kept_to_the_rooms_that_the_page_for_contributors_says(
    name: str,
) -> None:
    root = Path(sklode.__file__).parent
    for room in ROOMS_WITHOUT[name]:
        for path in sorted((root / room).rglob("*.py")):
            nodes = nodes_of(path)
            names = {x.id for x in nodes if isinstance(x, ast.Name)}
            names |= {x.arg for x in nodes if isinstance(x, ast.arg)}
            assert name not in names, path.relative_to(root)


def test_files_are_of_up_to_700_lines() -> None:
    root = Path(sklode.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    assert {path for path, text in texts.items() if text.count("\n") > 700} == set()
