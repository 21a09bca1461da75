"""Compiling a function when it is first called: imports need not wait for numba.

Tested in tests/structural/components/test_components.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def lazily_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function as `compiling.compiled` does, at its first call."""

    @functools.cache
    def made() -> Callable[P, R]:
        from sklode.engine.compiling import compiled

        found: Callable[P, R] = compiled(function)
        return found

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return made()(*args, **kwargs)

    return call
