"""The pages hang together: contents, links, the names of code and the gallery."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

import sklode
from tests.pages import DOCS, PAGES, ROOT, anchors, links, parts, toctree

PUBLIC = ("data", "hybrid", "latent_ode", "model_selection", "nn", "plotting")
SCRIPTS = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def extension(name: str) -> ModuleType:
    """Import one of the site's own extensions of Sphinx."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_one_table_of_contents() -> None:
    site = [page for page in PAGES if page != "README.md"]
    entries = Counter(entry for page in site for entry in toctree(page))
    own = {page.removesuffix(".md"): 1 for page in site if page != "index.md"}
    assert entries == Counter({**own, "gallery/index": 1})


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page: str) -> None:
    for number, target in links(page):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        place = f"{page}:{number}: {target}"
        found = (PAGES[page].parent / path).resolve() if path else PAGES[page]
        assert found.exists(), place
        assert found.is_relative_to(ROOT), place
        if anchor and found.suffix == ".md" and found.name in PAGES:
            assert anchor in anchors(found.name), place


@pytest.mark.parametrize("page", PAGES)
def test_names_of_code_in_a_page_exist(page: str) -> None:
    for number, line in parts(page).prose:
        for code in re.findall(r"`([^`]+)`", line):
            place = f"{page}:{number}: {code}"
            if name := re.fullmatch(r"(sklode(?:\.\w+)+)(\(.*\))?", code):
                resolve(name[1], place)
            elif re.fullmatch(r"(sklode|examples|tests|docs)/[\w./-]+", code):
                assert (ROOT / code).exists(), place


def test_every_equation_of_the_paper_has_its_place_in_the_code() -> None:
    paper = ROOT.parent / "shared" / "paper.tex"
    if not paper.exists():
        pytest.skip(f"the paper's source is not at {paper}")
    labels = re.findall(r"\\label\{((?:eq|alg):[^}]+)\}", paper.read_text("utf-8"))
    page = PAGES["model.md"].read_text("utf-8")
    missing = [label for label in labels if f"`{label}`" not in page]
    assert len(labels) > 40
    assert missing == []


def resolve(dotted: str, place: str) -> Any:
    """Return what a dotted name names; modules are imported on the way."""
    found: Any = importlib.import_module("sklode")
    for part in dotted.split(".")[1:]:
        if inspect.ismodule(found) and not hasattr(found, part):
            found = importlib.import_module(f"{found.__name__}.{part}")
        else:
            assert hasattr(found, part), place
            found = getattr(found, part)
    return found


def test_the_gallery_lists_every_script() -> None:
    assert sorted(extension("gallery_settings").ORDER) == SCRIPTS


def test_everything_public_is_in_the_reference() -> None:
    listed: set[str] = set()
    for fence in parts("api.md").fences:
        module = ""
        for line in fence.text.splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.fullmatch(r"   (\w+)", line):
                listed.add(f"{module}.{found[1]}")
    of_sklode = {f"sklode.{name}" for name in sklode.__all__}
    again = {
        "sklode.AbsoluteHorizon",
        "sklode.AlignedMetric",
        "sklode.__version__",
        "sklode.data.calendar_features",
        "sklode.make_batch",
    }
    below = {
        f"sklode.{module}.{name}"
        for module in PUBLIC
        for name in importlib.import_module(f"sklode.{module}").__all__
    }
    assert listed == (of_sklode | below) - again
