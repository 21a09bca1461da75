"""What sphinx-gallery is told by name: the order of the scripts and their arguments."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from sklode import StructuralForecaster
from sklode.data import load_co2

ORDER = (
    "quickstart",
    "trust",
    "irregular_against_arima",
    "intervals",
    "load",
    "solar",
    "avocados",
    "retail",
    "growth",
    "impute_gaps",
    "missing_values",
    "regressors",
    "sample_paths",
    "grid_search",
    "panel_transfer",
    "phase_portrait",
)

# where a page that is being made names its picture
FOLDER = re.compile(r"\S*[/\\]gallery[/\\](?=\w+\.png)")


class AsListed:
    """Sort scripts as ORDER lists them; one that it does not list is an error."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __call__(self, filename: str) -> int:
        """Return the place of a script."""
        name = Path(filename).stem
        if name not in ORDER:
            raise ValueError(
                "every script of the gallery must be listed in ORDER of "
                f"docs/_ext/gallery_settings.py; got {filename}. Add it there."
            )
        return ORDER.index(name)


def output_elsewhere(conf: dict[str, Any], script: dict[str, Any]) -> list[str]:
    """Return arguments under which a script writes beside its page, not beside itself.

    The folder of the pages is made by the build, and git ignores it.
    """
    return ["--output", str(Path(script["target_file"]).with_suffix(".png"))]


@functools.cache
def _compiled() -> None:
    StructuralForecaster().fit(load_co2()["2000":])


def compile_first(conf: dict[str, Any], script: str) -> None:
    """Compile before the clock of a process' first script runs."""
    _compiled()


def without_folder(app: Any, docname: str, source: list[str]) -> None:
    """Let a page of the gallery name its picture as a run by hand does."""
    if docname.startswith("gallery/"):
        source[0] = FOLDER.sub("", source[0])


def setup(app: Any) -> dict[str, Any]:
    """Read the gallery's pages without the name of their folder."""
    app.connect("source-read", without_folder)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
