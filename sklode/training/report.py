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

    def begin(self, n_epochs: int) -> None:
        """Training begins."""
        self._n_epochs, self._due = n_epochs, time.monotonic() + _SECONDS_BETWEEN_LINES
        if self.verbose != 1 or not n_epochs:
            return
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError(
                "verbose=1 shows a progress bar and needs tqdm, which is not "
                "installed. Run pip install 'sklode[progress]', or use verbose=2 for a "
                "line per epoch."
            ) from error
        if _draws_bars():
            self._bar = tqdm(
                total=n_epochs,
                desc=f"{self._prefix}epoch 0/{n_epochs}",
                bar_format="{desc} |{bar}| {elapsed}<{remaining}{postfix}",
                dynamic_ncols=True,
                leave=False if self._prefix else None,  # None: unless inside another
            )

    def epoch_end(self, row: dict[str, float]) -> None:
        """Take the history's new row."""
        place = f"{self._prefix}epoch {row['epoch']:g}/{self._n_epochs}"
        validated = not math.isnan(row["validation_loss"])
        names = [n for n in _SHOWN if validated or n != "validation_loss"]
        shown = ", ".join(f"{_SHOWN[name]}={row[name]:.4g}" for name in names)
        if self._bar is not None:
            self._bar.set_description_str(place, refresh=False)
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update()
            return
        self._unwritten = f"{place}, {shown}, {row['seconds']:.3g} s"
        if self.verbose == 2 or time.monotonic() >= self._due:
            self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
            self.close()

    def say(self, text: str) -> None:
        """Write a line beside the bar, unless silent."""
        stream = sys.stdout if self.verbose == 2 else sys.stderr
        if self.verbose and stream is not None:  # as in a program without a console
            stream.write(f"{text}\n")  # at once: other processes may write there too
            stream.flush()

    def close(self) -> None:
        """Write the latest line, or leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
        elif self._unwritten:
            self.say(self._unwritten)
        self._bar, self._unwritten = None, ""


def _draws_bars() -> bool:
    """Return whether a bar can be drawn here, on a line that nobody else draws on."""
    is_main = threading.current_thread() is threading.main_thread()
    is_alone = is_main and multiprocessing.parent_process() is None
    is_notebook = type(sys.stdout).__module__.partition(".")[0] == "ipykernel"
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_alone and (is_notebook or is_terminal)
