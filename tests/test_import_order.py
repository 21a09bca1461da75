"""Imports run one way (``ast`` reads them, so that none can hide in a function)."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import sklode
from tests.sources import nodes_of

ROOT = Path(sklode.__file__).parent

# The entries of the package; each may import itself and those after it.
ORDER = [
    "transformers",
    "forecasters",
    "plotting",
    "persistence",
    "model_selection",
    "hybrid",
    "latent_ode",
    "structural",
    "training",
    "nn",
    "engine",
    "data",
]

# The same inside of `structural/`.
STRUCTURAL = [
    "results",
    "answers",
    "unknown_x",
    "fit",
    "interventions",
    "filtered_model",
    "model",
    "coupling",
    "filtered_column",
    "search",
    "predictive",
    "design",
    "effects",
    "candidates",
    "coefficients",
    "scaling",
    "components",
    "filter",
    "rows",
]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def targets(node: ast.AST) -> Iterator[str]:
    """Yield the full names of what an import statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports name the whole path"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(module: str) -> set[str]:
    """Return the full names of all that a module imports, anywhere in it."""
    nodes = nodes_of(MODULES[module])
    return {target for node in nodes for target in targets(node)}


def test_every_entry_has_its_place() -> None:
    entries = {path.stem for path in ROOT.iterdir() if not path.name.startswith("__")}
    assert entries == {*ORDER, "py"}  # py.typed


def test_imports_run_one_way() -> None:
    for module in filter(None, MODULES):
        above = ORDER[: ORDER.index(module.partition(".")[0])]
        names = {target.removeprefix("sklode.") for target in imports(module)}
        assert not {name for name in names if name.partition(".")[0] in above}, module


def test_no_module_imports_itself_by_way_of_others() -> None:
    # also for types alone, and within functions
    graph: dict[str, set[str]] = {}
    for module in filter(None, MODULES):
        names = {target.removeprefix("sklode.") for target in imports(module)}
        # what is imported is a module, or a name in one
        owners = {name.rpartition(".")[0] for name in names - set(MODULES)}
        graph[module] = ((names | owners) & set(MODULES)) - {module, ""}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_layer_of_the_structural_model_has_its_place() -> None:
    inside = (ROOT / "structural").iterdir()
    assert {path.stem for path in inside if path.stem[:2] != "__"} == {*STRUCTURAL}


def test_imports_run_down_the_layers_of_the_structural_model() -> None:
    prefix = "sklode.structural."
    for module in filter(lambda name: name.startswith("structural."), MODULES):
        above = STRUCTURAL[: STRUCTURAL.index(module.split(".")[1])]
        names = {target for target in imports(module) if target.startswith(prefix)}
        parts = {name.removeprefix(prefix).partition(".")[0] for name in names}
        assert not parts & {*above}, module


def test_the_two_networks_do_not_know_of_each_other() -> None:
    for module in filter(lambda name: name.startswith("hybrid"), MODULES):
        assert not any(name.startswith("sklode.latent_ode") for name in imports(module))


def test_nothing_is_moved_by_cuda() -> None:
    for path in MODULES.values():
        for node in nodes_of(path):
            assert getattr(node, "attr", "") != "cuda", path
