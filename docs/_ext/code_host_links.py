"""Links that lead out of docs: right on a code host as written, and here by this map.

Pages link to files of the repository by relative paths. Where such a file has become a
page of the site, the link is turned into one to that page before it is read; MyST makes
a download of any other file that is linked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# README's sections that have pages of their own
SECTIONS = {
    "#install-and-see-it-work": "install.md",
    "#quick-start": "tour.md",
    "#the-estimators": "model.md",
    "#how-fast": "benchmarks.md#a-training-step",
    "#how-accurate": "paper.md",
    "#honest-limits": "limits.md",
}
LINK = re.compile(r"\]\(\.\./([\w./-]+)(#[\w-]+)?\)")


def page_of(path: str, anchor: str, scripts: tuple[str, ...]) -> str | None:
    """Return the page that shows a file of the repository, None if there is none."""
    if path == "README.md":
        return SECTIONS[anchor] if anchor else "index.md"
    if path == "CHANGELOG.md":
        return "changelog.md" + anchor
    if path == "examples":
        return "gallery/index.rst"
    folder, _, name = path.rpartition("/")
    if folder == "examples" and Path(name).stem in scripts:
        return f"gallery/{Path(name).stem}.rst"
    return None


def redirected(text: str, scripts: tuple[str, ...]) -> str:
    """Return a page's text with the links that `page_of` knows led elsewhere."""

    def page(link: re.Match[str]) -> str:
        target = page_of(link[1].rstrip("/"), link[2] or "", scripts)
        return link[0] if target is None else f"]({target})"

    return LINK.sub(page, text)


def redirect(app: Any, docname: str, source: list[str]) -> None:
    """Read a page with its links redirected; the gallery's own pages have none."""
    from gallery_settings import ORDER

    if Path(app.env.doc2path(docname)).suffix == ".md":
        source[0] = redirected(source[0], ORDER)


def setup(app: Any) -> dict[str, Any]:
    """Read every page through the map."""
    app.connect("source-read", redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
