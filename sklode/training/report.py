"""Who is told how a training goes: a progress bar, lines in a log, callbacks."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["CALLBACK_METHODS", "Reporter"]

CALLBACK_METHODS = ("on_fit_begin", "on_epoch_end", "on_fit_end")
"""What a callback may have, see `Reporter`."""

_SHOWN = {"loss": "loss", "validation_loss": "val", "grad_norm": "grad"}
"""Columns of the history that are shown, and their short names."""

_SECONDS_BETWEEN_LINES = 30.0


class Reporter:
    """Say how training goes: nothing, a progress bar or a line per epoch.

    Parameters
    ----------
    verbose : {0, 1, 2}
        0: silent; 1: a bar with loss, gradient norm and time left (tqdm) or, where
        none can be drawn, a line now and then on standard error; 2: a line per epoch on
        standard output.
    callbacks : sequence of objects
        Each may have ``on_fit_begin(owner)``, ``on_epoch_end(owner, row)``, which stops
        the training by returning True, and ``on_fit_end(owner)``. Each gets a row of
        its own.
    owner : object
        What the callbacks are told is being fitted.
    prefix : str, default=""
        What all that is written begins with.

    Raises
    ------
    ImportError
        If ``verbose`` is 1 and tqdm is not installed.
    """

    def __init__(
        self,
        verbose: int = 0,
        callbacks: Sequence[Any] = (),
        owner: object = None,
        prefix: str = "",
    ) -> None:
        self.verbose = verbose
        self.callbacks = list(callbacks)
        self.owner = owner
        self.prefix = prefix
        self._tqdm = _import_tqdm() if verbose == 1 else None
        self._bar: Any = None
        self._costs: Sequence[float] = ()
        self._unwritten = ""
        self._due = 0.0

    def of_trial(self) -> Reporter:
        """Return one for a training that is thrown away: callbacks hear nothing."""
        return Reporter(self.verbose, (), self.owner, "trial ")

    def begin(self, costs: Sequence[float], n_before: int = 0) -> None:
        """Training begins.

        Parameters
        ----------
        costs : sequence of float
            What each epoch takes, in any unit; the time left is reckoned in it.
        n_before : int, default=0
            Epochs that are done already.
        """
        self._costs = costs
        self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        if self._tqdm is not None and costs:
            self._bar = self._tqdm(
                total=sum(costs),
                initial=sum(costs[:n_before]),
                disable=not _draws_bars(),
                smoothing=0,
                desc=f"{self.prefix}epoch {n_before}/{len(costs)}",
                bar_format="{desc} |{bar}| {elapsed}<{remaining}{postfix}",
                dynamic_ncols=True,
                leave=False if self.prefix else None,  # None: unless inside another bar
            )
        for callback in self._having("on_fit_begin"):
            callback.on_fit_begin(self.owner)

    def compiling(self) -> None:
        """Say that the fused engine is about to be compiled, which takes a while."""
        self.say("Compiling the fused engine: once a machine, for some seconds.")

    def epoch_end(self, row: dict[str, float]) -> bool:
        """Take the history's new row; return whether to stop."""
        self._show(row)
        stops = False
        for callback in self._having("on_epoch_end"):  # all of them, also if one stops
            stops |= bool(callback.on_epoch_end(self.owner, dict(row)))
        return stops

    def _show(self, row: dict[str, float]) -> None:
        epoch = int(row["epoch"])
        place = f"{self.prefix}epoch {epoch}/{len(self._costs)}"
        shown = ", ".join(
            f"{short}={row[name]:.4g}"
            for name, short in _SHOWN.items()
            if not (name == "validation_loss" and math.isnan(row[name]))
        )
        if self.verbose == 2:
            _say(sys.stdout, f"{place}, {shown}, {row['seconds']:.3g} s")
        elif self._bar is not None and not self._bar.disable:
            self._bar.set_description_str(place, refresh=False)
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update(self._costs[epoch - 1])
        elif self._bar is not None:
            self._unwritten = f"{type(self.owner).__name__} {place}: {shown}"
            if time.monotonic() >= self._due:
                self._write()

    def _write(self) -> None:
        """Write the latest line."""
        if self._unwritten:
            _say(sys.stderr, self._unwritten)
            self._due = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._unwritten = ""

    def say(self, text: str) -> None:
        """Write a line beside the bar, unless silent."""
        if self.verbose:
            _say(sys.stdout if self.verbose == 2 else sys.stderr, text)

    def close(self) -> None:
        """Leave the bar as it is, for what else is to be written."""
        if self._bar is not None:
            self._bar.close()
        self._write()
        self._bar = None

    def end(self) -> None:
        """Training is over, or was broken off."""
        self.close()
        with contextlib.ExitStack() as stack:  # if one raises, the others still hear
            for callback in reversed(self._having("on_fit_end")):
                stack.callback(callback.on_fit_end, self.owner)

    def _having(self, name: str) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, name)]


def _say(stream: Any, text: str) -> None:
    """Write a line as one piece: other processes may write to the same stream."""
    if stream is not None:  # as in a program without a console
        stream.write(f"{text}\n")
        stream.flush()


def _draws_bars() -> bool:
    """Return whether a bar can be drawn here, on a line that nobody else draws on."""
    if multiprocessing.parent_process() is not None:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    is_notebook = type(sys.stdout).__module__.partition(".")[0] == "ipykernel"
    return is_notebook or (sys.stderr is not None and sys.stderr.isatty())


def _import_tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose=1 shows a progress bar and needs tqdm, which is not installed. "
            "Run pip install 'sklode[progress]', or use verbose=2 for a line per epoch."
        ) from error
    return tqdm
