"""The files of the package, each parsed once."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's syntax tree, its module first."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
