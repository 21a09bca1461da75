"""The pages of the documentation as files: their code, headings and links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {"README.md": ROOT / "README.md"} | {
    path.name: path for path in sorted(DOCS.glob("*.md"))
}

_FENCE = re.compile(r" *(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r"#{1,6} +(.+?) *#*")
_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?\)")


class Fence(NamedTuple):
    """A fenced part of a page; lines count from 1, at the opening fence."""

    line: int
    info: str
    text: str


class Parts(NamedTuple):
    """A page's fences, and the lines outside of them with their numbers."""

    fences: list[Fence]
    prose: list[tuple[int, str]]


def parts(page: str) -> Parts:
    """Return what is fenced in a page, and what is not."""
    fences: list[Fence] = []
    prose: list[tuple[int, str]] = []
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    for number, line in enumerate(PAGES[page].read_text("utf-8").splitlines(), 1):
        found = _FENCE.fullmatch(line)
        if opened is None and found:
            opened = number, found[1], found[2].strip()
            body = []
        elif opened is None:
            prose.append((number, line))
        elif found and found[1].startswith(opened[1]) and not found[2].strip():
            fences.append(Fence(opened[0], opened[2], "\n".join(body) + "\n"))
            opened = None
        else:
            body.append(line)
    assert opened is None, f"{page}:{opened and opened[0]}: a fence that never ends"
    return Parts(fences, prose)


def python_of(page: str) -> list[Fence]:
    """Return the blocks of a page that its test runs, in order."""
    return [fence for fence in parts(page).fences if fence.info == "python"]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and MyST make them."""
    found = (_HEADING.fullmatch(line) for _, line in parts(page).prose)
    titles = [heading[1].lower() for heading in found if heading]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def links(page: str) -> Iterator[tuple[int, str]]:
    """Yield the targets of a page's links and pictures, with their lines."""
    prose = parts(page).prose
    # code is no link, but may be a link's text; a text may go on in the next line
    text = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in prose)
    for link in _LINK.finditer(text):
        yield prose[text.count("\n", 0, link.start())][0], link[1]


def toctree(page: str) -> list[str]:
    """Return the entries of a page's tables of contents."""
    trees = [f.text for f in parts(page).fences if f.info.startswith("{toctree}")]
    lines = [line.strip() for tree in trees for line in tree.splitlines()]
    entries = [line for line in lines if line and not line.startswith(":")]
    return [re.sub(r".*<(.*)>", r"\1", entry) for entry in entries]
