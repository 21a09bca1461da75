"""The choice between the engines."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["choose", "is_compiled", "keeps_compiled"]

_COMPILE_SECONDS = 30.0
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
        If "fused" is wanted and numba is not installed, or cannot be used.
    """
    if wanted in ("unrolled", "eager"):
        return wanted
    lacking = _what_numba_lacks()
    if lacking and wanted == "fused":
        raise ImportError(
            f"engine='fused' needs numba, which is not usable: {lacking}. Install "
            'it with pip install "sklode[fast]", or use engine="auto".'
        )
    if wanted == "fused":
        return "fused"
    seconds = n_iterations * n_stamps * _UNROLLED_SECONDS
    if not lacking and (
        seconds > _COMPILE_SECONDS or _was_compiled(np.dtype("float32"), layout)
    ):
        return "fused"
    return "unrolled"


def _what_numba_lacks() -> str | None:
    """Return why numba cannot compile, or None; it may refuse an installed numpy."""
    try:
        import numba
    except ImportError as error:
        return str(error).rstrip(".")
    disabled = getattr(numba.config, "DISABLE_JIT", False)
    return "NUMBA_DISABLE_JIT is set" if disabled else None


def is_compiled(dtype: np.dtype, layout: str) -> bool:
    """Return whether the fused engine need not be compiled any more, as of now."""
    from sklode.engine import decoding, encoding
    from sklode.engine.cache import Cache

    first = "none" if layout == "lanes" else "int"
    for kernel in (decoding.decode, encoding.encode_backward):
        known = [signature.args for signature in kernel.nopython_signatures]
        if isinstance(kernel._cache, Cache):  # numba's own where nothing can be kept
            known += kernel._cache.signatures(kernel.targetctx)
        if not any(  # the methods' coefficients are float64 in every precision
            str(args[0]).startswith(first) and str(args[3][0].dtype) == str(dtype)
            for args in known
        ):
            return False
    return True


def keeps_compiled() -> bool:
    """Return whether what is compiled can be kept on disk."""
    from sklode.engine import decoding
    from sklode.engine.cache import Cache

    return isinstance(decoding.decode._cache, Cache)


@functools.cache
def _was_compiled(dtype: np.dtype, layout: str) -> bool:
    """Return a process' first answer, so that equal fits in it take the same engine."""
    return is_compiled(dtype, layout)
