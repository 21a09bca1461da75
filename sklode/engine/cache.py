"""Compiled code on disk."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache

__all__ = ["Cache"]

_SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


class Cache(FunctionCache):
    """A function's compiled code on disk, without which a fit takes longer, no more.

    Numba's own lets out whatever goes wrong with its files: a full disk, a folder that
    may no longer be written to, a file that was cut off. Where there is no folder to
    write to it raises RuntimeError.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        # numba looks for changes in a function's own file only, and would go on with
        # what it compiled from the others, or without checks, before
        kept = self._cache_file
        kept._source_stamp = (
            kept._source_stamp,
            _SOURCES,
            getattr(config, "BOUNDSCHECK", None),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature; None where there is none of use."""
        try:
            code = super().load_overload(sig, target_context)
        except Exception:  # what unpickling a broken file raises can be anything
            with contextlib.suppress(OSError):
                self.flush()
            return None
        # processes that compile at once may have given two signatures the same file
        return code if code is None or code.signature.args == sig else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature, where it can be kept."""
        with contextlib.suppress(Exception):  # it reads a broken file first
            super().save_overload(sig, data)

    def holds(self, sig: Any, target_context: Any) -> bool:
        """Return whether the code for a signature is here, for this processor."""
        files = self._cache_file
        try:
            name = files._load_index().get(
                self._index_key(sig, target_context.codegen())
            )
        except Exception:  # as above
            return False
        return name is not None and Path(files._data_path(name)).exists()
