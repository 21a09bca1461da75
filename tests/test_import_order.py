"""Imports run one way (``ast`` reads them, so that none can hide in a function)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sklode

ROOT = Path(sklode.__file__).parent

# What each module may import of the package. A package stands for all its modules;
# a module that is not listed may be imported by no listed one, except forecasters.
MAY_IMPORT: dict[str, set[str]] = {
    "_flat": set(),
    "_shapes": set(),
    "_threads": set(),
    "_torch_modes": set(),
    "exceptions": set(),
    "plain_data": {"exceptions"},
    "weights_file": {"exceptions"},
    "outliers": {"observations", "stamps"},
    "places": set(),
    "timelines": {"observations", "places", "stamps"},
    "choices": set(),
    "rollback": set(),
    "stamps": set(),
    "remedies": {"exceptions"},
    "index_checks": {"remedies", "stamps"},
    "tables": {"remedies"},
    "observations": {"index_checks", "stamps", "tables"},
    "revisions": {"exceptions", "observations", "places", "stamps"},
    "history": {"index_checks", "observations", "outliers", "revisions", "stamps"},
    "horizons": {"index_checks"},
    "seasons": {"choices", "index_checks"},
    "windows": {"observations"},
    "model_selection": set(),
    "engine": {"_threads", "engine"},
    "nn.anchors": {"_shapes", "choices"},
    "nn.linear_anchors": {"_shapes", "nn.anchors"},
    "nn.vector_fields": {"_shapes", "choices"},
    "nn.objectives": {"_shapes"},
    "nn.solvers": {"_shapes", "choices", "exceptions", "nn.vector_fields"},
    "nn.encoders": {"_shapes", "nn.solvers", "nn.vector_fields"},
    "nn.decoders": {"_shapes", "exceptions", "nn.solvers", "nn.vector_fields"},
    "datasets": set(),
    "diagnostics": {"_shapes", "batches", "forecasters", "nn", "observations"},
    "plotting": {
        "_torch_modes",
        "choices",
        "diagnostics",
        "index_checks",
        "plotting",
        "prediction",
        "stamps",
        "tables",
    },
    "nn.latent_ode": {"_shapes", "engine", "nn"},
    "nn": {"nn"},
    "distributed": set(),
    "recovery": set(),
    "resuming": set(),
    "reporting": set(),
    "representation": set(),
    "fit_callbacks": set(),
    "training": {
        "_flat",
        "distributed",
        "exceptions",
        "nn.objectives",
        "recovery",
        "reporting",
        "resuming",
    },
    "answers": {"exceptions", "nn"},
    "randomness": set(),
    "calibration": {"nn", "randomness"},
    "prediction": {"_torch_modes", "calibration", "nn", "places", "randomness"},
    "prior": {"_torch_modes", "batches", "nn", "windows"},
    "levels": {"batches", "nn", "windows"},
    "batches": {"distributed", "nn", "windows"},
    "compiling": {"engine", "nn"},
    "guard": {"batches", "exceptions", "nn", "windows"},
    "models": {
        "_threads",
        "_torch_modes",
        "batches",
        "calibration",
        "distributed",
        "levels",
        "nn",
        "observations",
        "prediction",
        "resuming",
        "timelines",
        "windows",
    },
    "interval_scales": {"batches", "calibration", "exceptions", "models", "windows"},
    "further": {"models"},
    "fitting": {
        "_threads",
        "_torch_modes",
        "batches",
        "compiling",
        "distributed",
        "engine",
        "further",
        "guard",
        "interval_scales",
        "models",
        "nn",
        "observations",
        "reporting",
        "resuming",
        "training",
        "windows",
    },
    "parameters": {"choices", "models", "nn", "reporting", "training"},
    "stored_history": {
        "history",
        "observations",
        "plain_data",
        "stamps",
        "weights_file",
    },
    "stored_model": {
        "calibration",
        "exceptions",
        "models",
        "nn",
        "parameters",
        "plain_data",
        "weights_file",
        "windows",
    },
    "storage": {
        "exceptions",
        "models",
        "history",
        "horizons",
        "parameters",
        "plain_data",
        "stored_history",
        "stored_model",
        "weights_file",
    },
}

# Which modules alone may import a package; the others must not name it.
ONLY_IMPORTERS = {
    "torchdiffeq": {"nn.solvers"},
    "sktime": {"forecasters", "horizons", "model_selection", "storage"},
}

MAY_NOT_IMPORT = [
    ("training", "pandas"),
    ("resuming", "pandas"),
    ("prediction", "pandas"),
    ("prior", "pandas"),
    ("calibration", "pandas"),
    ("randomness", "pandas"),
    ("nn", "pandas"),
    ("engine", "pandas"),
    ("nn", "sklearn"),
    ("stamps", "torch"),
    ("index_checks", "torch"),
    ("tables", "torch"),
    ("observations", "torch"),
    ("seasons", "torch"),
    ("history", "torch"),
    ("windows", "torch"),
    ("windows", "pandas"),
    ("_shapes", "pandas"),
    ("plain_data", "torch"),
    ("stored_history", "torch"),
    ("weights_file", "pandas"),
    ("weights_file", "torch"),
]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def targets(node: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Yield the full names of what an import statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            above = ["sklode", *module.split(".")]
            above = above[: len(above) + int(is_package) - node.level]
            source = ".".join([*above, source] if source else above)
        for alias in node.names:
            name = f"{source}.{alias.name}"
            is_module = name.removeprefix("sklode.") in MODULES
            yield name if is_module else source


def imports(module: str) -> set[str]:
    """Return the full names of all modules that a module imports, anywhere in it."""
    path = MODULES[module]
    is_package = path.name == "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        target
        for node in ast.walk(tree)
        for target in targets(node, module, is_package)
    }


def imports_within_the_package(module: str) -> set[str]:
    return {
        target.removeprefix("sklode").removeprefix(".")
        for target in imports(module)
        if within(target, "sklode")
    }


def rule_for(module: str) -> str | None:
    """Return the most special entry of the table that speaks of a module."""
    rules = [rule for rule in MAY_IMPORT if within(module, rule)]
    return max(rules, key=len, default=None)


def test_every_rule_speaks_of_a_module() -> None:
    named = set(MAY_IMPORT).union(*MAY_IMPORT.values(), *ONLY_IMPORTERS.values())
    assert named <= set(MODULES)
    assert {rule for rule, _ in MAY_NOT_IMPORT} <= set(MODULES)


@pytest.mark.parametrize("module", [m for m in MODULES if rule_for(m) is not None])
def test_imports_run_one_way(module: str) -> None:
    allowed = MAY_IMPORT[rule_for(module) or ""]
    wrong = {
        target
        for target in imports_within_the_package(module)
        if not any(within(target, one) for one in allowed)
    }
    assert not wrong


def test_encoders_and_decoders_never_import_each_other() -> None:
    assert "nn.decoders" not in imports_within_the_package("nn.encoders")
    assert "nn.encoders" not in imports_within_the_package("nn.decoders")


@pytest.mark.parametrize(("package", "importers"), ONLY_IMPORTERS.items())
def test_package_is_imported_by_its_importers_only(
    package: str, importers: set[str]
) -> None:
    found = {
        module
        for module in MODULES
        if any(within(target, package) for target in imports(module))
    }
    assert found == importers


@pytest.mark.parametrize(("room", "package"), MAY_NOT_IMPORT)
def test_room_does_without(room: str, package: str) -> None:
    users = {
        module
        for module in MODULES
        if within(module, room)
        and any(within(target, package) for target in imports(module))
    }
    assert not users


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_moved_by_cuda(module: str) -> None:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [f.attr for f in calls if isinstance(f, ast.Attribute)]
    assert "cuda" not in named
