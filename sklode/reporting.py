"""Who is told how a training goes: a progress bar, a log, callbacks."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["CALLBACK_METHODS", "Reporter"]

CALLBACK_METHODS = ("on_fit_begin", "on_epoch_end", "on_fit_end")
"""What a callback may have, see `Reporter`."""


class Reporter:
    """Say how training goes: nothing, a progress bar or a line per epoch.

    Parameters
    ----------
    verbose : {0, 1, 2}
        0: silent; 1: a bar with loss, gradient norm and time left (tqdm); 2: a line per
        epoch on standard output.
    callbacks : sequence of objects
        Each may have ``on_fit_begin(owner)``, ``on_epoch_end(owner, row)``, which stops
        the training by returning True, and ``on_fit_end(owner)``.
    owner : object
        What the callbacks are told is being fitted.

    Raises
    ------
    ImportError
        If ``verbose`` is 1 and tqdm is not installed.
    """

    def __init__(
        self, verbose: int = 0, callbacks: Sequence[Any] = (), owner: object = None
    ) -> None:
        self.verbose = verbose
        self.callbacks = callbacks
        self.owner = owner
        self._bar: Any = None
        self._make_bar = _import_tqdm() if verbose == 1 else None

    def begin(self, n_epochs: int, n_before: int = 0) -> None:
        """Training up to epoch ``n_epochs`` begins; ``n_before`` are done already."""
        if self._make_bar is not None:
            self._bar = self._make_bar(
                total=n_epochs, initial=n_before, unit="epoch", leave=True
            )
        self._call("on_fit_begin")

    def compiling(self) -> None:
        """Say why the first epoch takes long."""
        if self._bar is not None:
            self._bar.set_description("compiling the fused engine, once a machine")
        if self.verbose == 2:
            sys.stdout.write(
                "Compiling the fused engine: once a machine, for about half a minute.\n"
            )
            sys.stdout.flush()

    def epoch_end(self, row: dict[str, float]) -> bool:
        """Take the history's new row; return whether to stop."""
        shown = {
            name: f"{row[name]:.4g}"
            for name in ("loss", "validation_loss", "grad_norm")
            if not math.isnan(row[name])
        }
        if self._bar is not None:
            self._bar.set_description(refresh=False)
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update()
        if self.verbose == 2:
            parts = [f"epoch {row['epoch']}", *(f"{k} {v}" for k, v in shown.items())]
            sys.stdout.write(", ".join(parts) + f", {row['seconds']:.3g} s\n")
        return any(self._call("on_epoch_end", row))

    def end(self) -> None:
        """Training is over, or was broken off."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._call("on_fit_end")

    def _call(self, name: str, *args: object) -> list[bool]:
        called = [c for c in self.callbacks if hasattr(c, name)]
        return [bool(getattr(c, name)(self.owner, *args)) for c in called]


def _import_tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose=1 shows a progress bar and needs tqdm, which is not installed. "
            "Run pip install 'sklode[progress]', or use verbose=2 for a line per epoch."
        ) from error
    return tqdm
