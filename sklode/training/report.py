"""Who is told how a training goes: a progress bar, a log, callbacks."""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

__all__ = ["CALLBACK_METHODS", "Reporter"]

CALLBACK_METHODS = ("on_fit_begin", "on_epoch_end", "on_fit_end")
"""What a callback may have, see `Reporter`."""

_SHORT = {"loss": "loss", "validation_loss": "val", "grad_norm": "grad"}
"""What a bar calls these columns of the history: a line has 80 characters."""

_SECONDS_BETWEEN_LINES = 30.0
_SHARE_BETWEEN_LINES = 0.05
"""Where no bar can be drawn: the least time between two lines, and its least share of
the time since the training began, so that a night leaves a hundred of them."""


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
        self._display: _Display = _Nothing()
        self._tqdm = _import_tqdm() if verbose == 1 else None

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
        if costs and self._tqdm is not None:
            clock = _Clock(costs, n_before)
            if _draws_bars():
                self._display = _Bar(self._tqdm, clock, self.prefix)
            else:
                name = f"{type(self.owner).__name__} {self.prefix}"
                self._display = _Lines(clock, name)
        elif costs and self.verbose == 2:
            self._display = _Log(len(costs), self.prefix)
        for callback in self._having("on_fit_begin"):
            callback.on_fit_begin(self.owner)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Say why the first epoch takes long, while it is so."""
        self._display.compiling()
        yield
        self._display.compiled()

    def epoch_end(self, row: dict[str, float]) -> bool:
        """Take the history's new row; return whether to stop."""
        self._display.epoch(row)
        stops = False
        for callback in self._having("on_epoch_end"):  # all of them, also if one stops
            stops |= bool(callback.on_epoch_end(self.owner, dict(row)))
        return stops

    def say(self, text: str) -> None:
        """Write a line beside the bar, unless silent."""
        if self.verbose:
            is_log = self.verbose == 2 or _is_notebook()
            _write(sys.stdout if is_log else sys.stderr, text)

    def close(self) -> None:
        """Leave the bar as it is, for what else is to be written."""
        self._display.close()
        self._display = _Nothing()

    def end(self) -> None:
        """Training is over, or was broken off."""
        self.close()
        with contextlib.ExitStack() as stack:  # if one raises, the others still hear
            for callback in reversed(self._having("on_fit_end")):
                stack.callback(callback.on_fit_end, self.owner)

    def _having(self, name: str) -> list[Any]:
        return [callback for callback in self.callbacks if hasattr(callback, name)]


class _Clock:
    """How long a training has taken and, reckoned from it, will take."""

    def __init__(self, costs: Sequence[float], n_before: int) -> None:
        self.n_epochs, self.n_before = len(costs), n_before
        self._done = [0.0, *itertools.accumulate(costs)]
        self._since = self._since_first = time.monotonic()

    def elapsed(self) -> float:
        """Return seconds since the training began."""
        return time.monotonic() - self._since

    def left(self, row: dict[str, float]) -> float:
        """Return seconds until the end of the training, after the epoch of a row.

        What comes before the first epoch, such as imports and compiling, comes once.
        """
        epoch, before = int(row["epoch"]), self.n_before
        seconds = row["seconds"]
        if epoch == before + 1:
            self._since_first = time.monotonic()
        else:
            before, seconds = before + 1, time.monotonic() - self._since_first
        done, ahead = self._done[epoch], self._done[-1] - self._done[epoch]
        return seconds * ahead / (done - self._done[before])


class _Display(Protocol):
    """Where a training is shown."""

    def compiling(self) -> None: ...

    def compiled(self) -> None: ...

    def epoch(self, row: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class _Nothing:
    """No display."""

    def compiling(self) -> None:
        pass

    def compiled(self) -> None:
        pass

    def epoch(self, row: dict[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    """A bar of tqdm in a terminal or a notebook."""

    def __init__(self, tqdm: Any, clock: _Clock, prefix: str) -> None:
        self._clock, self._prefix = clock, prefix

        class Bar(tqdm):
            """A bar whose time left is the clock's."""

            remaining = "?"

            @property
            def format_dict(self) -> dict[str, Any]:
                return {**super().format_dict, "remaining": self.remaining}

        self._bar: Any = Bar(
            total=clock.n_epochs,
            initial=clock.n_before,
            desc=self._description(),
            bar_format="{desc}{n_fmt}/{total_fmt} |{bar}| "
            "{elapsed}<{remaining}{postfix}",
            leave=False if prefix else None,  # None: unless inside another bar
            **_output_cell(tqdm),
        )

    def _description(self) -> str:
        return f"{self._prefix}epoch "

    def compiling(self) -> None:
        self._bar.set_description_str("compiling the fused engine, once a machine: ")

    def compiled(self) -> None:
        self._bar.set_description_str(self._description())

    def epoch(self, row: dict[str, float]) -> None:
        self._bar.remaining = self._bar.format_interval(self._clock.left(row))
        self._bar.set_postfix_str(", ".join(_short(row)), refresh=False)
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


class _Lines:
    """A line now and then, and at the end, for log files and parallel fits."""

    def __init__(self, clock: _Clock, prefix: str) -> None:
        self._clock, self._prefix = clock, prefix
        self._due = _SECONDS_BETWEEN_LINES
        self._unwritten: str | None = None

    def compiling(self) -> None:
        _write(sys.stderr, f"{self._prefix}compiling the fused engine, once a machine")

    def compiled(self) -> None:
        pass

    def epoch(self, row: dict[str, float]) -> None:
        from tqdm import tqdm

        elapsed, left = self._clock.elapsed(), self._clock.left(row)
        times = f"{tqdm.format_interval(elapsed)}<{tqdm.format_interval(left)}"
        parts = [times, *_short(row)]
        place = f"{self._prefix}epoch {row['epoch']:g}/{self._clock.n_epochs}"
        self._unwritten = f"{place}: {', '.join(parts)}"
        if elapsed >= self._due:
            pause = max(_SECONDS_BETWEEN_LINES, _SHARE_BETWEEN_LINES * elapsed)
            self._due = elapsed + pause
            self.close()

    def close(self) -> None:
        if self._unwritten is not None:
            _write(sys.stderr, self._unwritten)
            self._unwritten = None


class _Log:
    """A line per epoch on standard output."""

    def __init__(self, n_epochs: int, prefix: str) -> None:
        self._n_epochs, self._prefix = n_epochs, prefix

    def compiling(self) -> None:
        _write(
            sys.stdout,
            "Compiling the fused engine: once a machine, for some seconds.",
        )

    def compiled(self) -> None:
        pass

    def epoch(self, row: dict[str, float]) -> None:
        parts = [f"{self._prefix}epoch {row['epoch']:g}/{self._n_epochs}"]
        parts += [f"{name} {value}" for name, value in _shown(row).items()]
        _write(sys.stdout, f"{', '.join(parts)}, {row['seconds']:.3g} s")

    def close(self) -> None:
        pass


def _shown(row: dict[str, float]) -> dict[str, str]:
    """Return what is shown of a row; without early stopping it has no validation."""
    names = list(_SHORT)
    if math.isnan(row["validation_loss"]):
        names.remove("validation_loss")
    return {name: f"{row[name]:.4g}" for name in names}


def _short(row: dict[str, float]) -> list[str]:
    return [f"{_SHORT[name]}={value}" for name, value in _shown(row).items()]


def _write(stream: Any, text: str) -> None:
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
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _is_notebook() -> bool:
    return type(sys.stdout).__module__.partition(".")[0] == "ipykernel"


class _OutputCell:
    """A file for a bar of text in a notebook: what is written replaces what was.

    The notebook so keeps the last state of the bar only.
    """

    def __init__(self) -> None:
        self._handle: Any = None

    def write(self, text: str) -> None:
        from IPython.display import display

        shown = {"text/plain": text.strip()}
        if text == "\n":  # the bar's last
            return
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def flush(self) -> None:
        """Do nothing: `write` has shown it."""


def _output_cell(tqdm: Any) -> dict[str, Any]:
    """Return where a bar of text goes in a notebook, in which tqdm has no widgets."""
    has_widgets = any(k.__module__ == "tqdm.notebook" for k in tqdm.__mro__)
    if has_widgets or not _is_notebook():
        return {"dynamic_ncols": True}
    return {"file": _OutputCell(), "ncols": 80, "ascii": False}


def _import_tqdm() -> Any:
    try:
        with warnings.catch_warnings():
            # in a notebook without ipywidgets: the bar is then one of text
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "verbose=1 shows a progress bar and needs tqdm, which is not installed. "
            "Run pip install 'sklode[progress]', or use verbose=2 for a line per epoch."
        ) from error
    return tqdm
