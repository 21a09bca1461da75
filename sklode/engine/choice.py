"""Whether the fused engine is wanted, and can run here."""

from __future__ import annotations

__all__ = ["choose"]


def choose(wanted: str) -> str:
    """Return the engine for a training: "fused" or "eager".

    "auto" takes the fused engine wherever numba can be used, whatever has been compiled
    before: equal fits give equal numbers.

    Parameters
    ----------
    wanted : {"auto", "fused", "eager"}
        The user's choice.

    Raises
    ------
    ImportError
        If "fused" is wanted and numba is not installed, or cannot be used.
    """
    if wanted == "eager":
        return wanted
    lacking = _what_numba_lacks()
    if lacking and wanted == "fused":
        raise ImportError(
            f"engine='fused' needs numba, which is not usable: {lacking}. Install "
            'it with pip install "sklode[fast]", or use engine="auto".'
        )
    return "eager" if lacking else "fused"


def _what_numba_lacks() -> str | None:
    """Return why numba cannot compile, or None; it may refuse an installed numpy."""
    try:
        import numba
    except ImportError as error:
        return str(error).rstrip(".")
    disabled = getattr(numba.config, "DISABLE_JIT", False)
    return "NUMBA_DISABLE_JIT is set" if disabled else None
