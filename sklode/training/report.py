"""How a training goes, for who asks: a progress bar, or lines of text."""

from __future__ import annotations

import math
import multiprocessing
import sys
import threading
import time
from typing import Any

_SECONDS_BETWEEN_LINES = 30.0
_SHOWN = {"loss": "loss", "validation_loss": "val", "grad_norm": "grad"}


class Reporter:
    """Say how training goes, as the parameter ``verbose`` asks.

    ``prefix`` begins whatever is said of an epoch.
    """

    def __init__(self, verbose: int = 0, prefix: str = "") -> None:
        self.verbose, self._prefix = verbose, prefix
        self._bar: Any = None
        self._unwritten = ""  # the latest line
        self._n_epochs, self._due = 0, 0.0
        self._tqdm = _tqdm() if verbose == 1 else None

    def begin(self, n_epochs: int) -> None:
        """Training begins."""
        self._n_epochs = n_epochs
        self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        if self._tqdm and n_epochs and _draws_bars():
            self._bar = self._tqdm(
                total=n_epochs,
                desc=f"{self._prefix}epoch 0/{n_epochs}",
                bar_format="{desc} |{bar}| {elapsed}<{remaining}{postfix}",
                dynamic_ncols=True,
                leave=False if self._prefix else None,  # None: unless inside another
            )

    def epoch_end(self, row: dict[str, float]) -> None:
        """Take the history's new row."""
        place = f"{self._prefix}epoch {row['epoch']:g}/{self._n_epochs}"
        names = _SHOWN.copy()
        if math.isnan(row["validation_loss"]):
            del names["validation_loss"]
        shown = ", ".join(f"{short}={row[name]:.4g}" for name, short in names.items())
        if self._bar is not None:
            self._bar.set_description_str(place, refresh=False)
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update()
            return
        self._unwritten = f"{place}, {shown}, {row['seconds']:.3g} s"
        if self.verbose == 2 or time.monotonic() >= self._due:
            self._write()

    def _write(self) -> None:
        if self._unwritten:
            self.say(self._unwritten)
            self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._unwritten = ""

    def say(self, text: str) -> None:
        """Write a line beside the bar, unless silent."""
        stream = sys.stdout if self.verbose == 2 else sys.stderr
        if self.verbose and stream is not None:  # as in a program without a console
            stream.write(f"{text}\n")  # at once: other processes may write there too
            stream.flush()

    def close(self) -> None:
        """Leave the bar as it is, for what else is to be written."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None
        self._write()


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose=1 shows a progress bar and needs tqdm, which is not installed. "
            "Run pip install 'sklode[progress]', or use verbose=2 for a line per epoch."
        ) from error
    return tqdm


def _draws_bars() -> bool:
    """Return whether a bar can be drawn here, on a line that nobody else draws on."""
    is_main = threading.current_thread() is threading.main_thread()
    is_alone = is_main and multiprocessing.parent_process() is None
    is_notebook = type(sys.stdout).__module__.partition(".")[0] == "ipykernel"
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_alone and (is_notebook or is_terminal)
