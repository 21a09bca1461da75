"""The choice between the engines."""

from __future__ import annotations

import functools
import importlib.util

import numpy as np

__all__ = ["choose", "is_compiled"]

_COMPILE_SECONDS = 40.0
"""What compiling the fused engine for a precision and layout may take."""

_UNROLLED_SECONDS = 3e-4
"""What a stamp of a training window takes the unrolled engine, forward and backward."""


def choose(wanted: str, n_iterations: int, n_stamps: int, layout: str) -> str:
    """Return the engine for a training: "fused", "unrolled" or "eager".

    "auto" takes the fused engine if numba is there and it is compiled already, on disk
    or in this process, or if the work ahead takes the unrolled one longer than
    compiling.

    Parameters
    ----------
    wanted : {"auto", "fused", "unrolled", "eager"}
        The user's choice.
    n_iterations : int
        Optimiser steps ahead.
    n_stamps : int
        Stamps of a window.
    layout : {"lanes", "single"}
        See `sklode.engine.simd`.

    Raises
    ------
    ImportError
        If "fused" is wanted and numba is not installed.
    """
    has_numba = importlib.util.find_spec("numba") is not None
    if wanted == "fused" and not has_numba:
        raise ImportError(
            "engine='fused' needs numba, which is not installed. Install it with pip "
            'install "sklode[fast]", or use engine="auto".'
        )
    if wanted != "auto":
        return wanted
    if not has_numba:
        return "unrolled"
    seconds = n_iterations * n_stamps * _UNROLLED_SECONDS
    if seconds > _COMPILE_SECONDS or is_compiled(np.dtype("float32"), layout):
        return "fused"
    return "unrolled"


@functools.cache
def is_compiled(dtype: np.dtype, layout: str) -> bool:
    """Return whether the fused engine need not be compiled any more.

    A process keeps its first answer, so that equal fits in it take the same engine.
    """
    from sklode.engine import decoding, encoding

    first = "none" if layout == "lanes" else "int"
    for kernel in (decoding.decode, encoding.encode_backward):
        signatures = list(kernel.nopython_signatures)
        try:  # numba has no public question for what its cache holds
            index = kernel._cache._cache_file._load_index()
            signatures += [key[0] for key in index]
        except (AttributeError, OSError, EOFError):
            pass
        known = [getattr(s, "args", s) for s in signatures]
        if not any(
            str(args[0]).startswith(first) and str(dtype) in str(args) for args in known
        ):
            return False
    return True
