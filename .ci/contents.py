"""Check what is in a wheel or an sdist: valid metadata, and all files that it needs."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata

ROOT = Path(__file__).parents[1]
SOURCES = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "sklode").rglob("*")
    if path.suffix == ".py" or path.name == "py.typed"
}
BESIDE = {
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "constraints.txt",
    "docs/conf.py",
    "docs/structural.png",
    "examples/quickstart.py",
    "pyproject.toml",
    "setup.cfg",
    "tests/conftest.py",
}


def files_in(path: Path) -> dict[str, bytes]:
    """Return the files in a wheel, or in an sdist below its one folder."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if not name.endswith("/")]
            return {name: wheel.read(name) for name in names}
    with tarfile.open(path) as sdist:
        files = [member for member in sdist.getmembers() if member.isfile()]
        contents = [(member.name, sdist.extractfile(member)) for member in files]
        return {n.split("/", 1)[1]: f.read() for n, f in contents if f is not None}


def is_beside_package(name: str) -> bool:
    """Return whether a file of a wheel is its metadata."""
    return name.split("/", 1)[0].endswith(".dist-info")


def complaints(path: Path) -> list[str]:
    """Return what is wrong with an archive."""
    files = files_in(path)
    is_wheel = path.suffix == ".whl"
    wanted = SOURCES if is_wheel else SOURCES | BESIDE
    found = [f"{path.name} lacks {name}" for name in sorted(wanted - files.keys())]
    for name in sorted(files):
        alien = "__pycache__" in name or name.endswith((".nbi", ".nbc", ".so"))
        if is_wheel and name not in SOURCES and not is_beside_package(name):
            alien = True
        if alien:
            found.append(f"{path.name} has {name}")
    (metadata,) = (
        text
        for name, text in files.items()
        if name == "PKG-INFO" or (is_wheel and name.endswith(".dist-info/METADATA"))
    )
    try:
        parsed = Metadata.from_email(metadata)
    except ExceptionGroup as error:
        return found + [f"{path.name}: {each}" for each in error.exceptions]
    for field in ("summary", "description", "license_expression", "classifiers"):
        if not getattr(parsed, field):
            found.append(f"{path.name} has no {field}")
    return found


if __name__ == "__main__":
    wrong = [line for name in sys.argv[1:] for line in complaints(Path(name))]
    sys.exit("\n".join(wrong) or 0)
