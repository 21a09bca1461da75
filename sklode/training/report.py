"""How a training goes, for who asks: a progress bar, or lines of text."""

from __future__ import annotations

import math
import multiprocessing
import sys
from typing import Any

_SHOWN = {"loss": "loss", "validation_loss": "val", "grad_norm": "grad"}


class Reporter:
    """Say how training goes, as the parameter ``verbose`` asks."""

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose
        self._bar: Any = None

    def begin(self, n_epochs: int) -> None:
        """Training begins."""
        self._n_epochs = n_epochs
        if self.verbose != 1 or not n_epochs:
            return
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError(
                "verbose=1 shows a progress bar and needs tqdm, which is not "
                "installed. Run pip install tqdm, or use verbose=2 for a line each "
                "epoch."
            ) from error
        # A bar redraws its line: in a log, or from many processes, each would be a line
        # of its own, and comes twice a minute only.
        is_main = multiprocessing.parent_process() is None
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        redraws = (is_terminal and is_main) or "ipykernel" in sys.modules
        self._bar = tqdm(
            total=n_epochs,
            bar_format="epoch {n}/{total} |{bar}| {elapsed}<{remaining}{postfix}",
            dynamic_ncols=True,
            leave=None,  # unless inside another
            mininterval=0.1 if redraws else 30.0,
            disable=sys.stderr is None,  # as in a program without a console
        )

    def epoch_end(self, row: dict[str, float]) -> None:
        """Take the history's new row."""
        values = [(short, row[name]) for name, short in _SHOWN.items()]
        # without a validation batch its loss is NaN
        shown = ", ".join(f"{k}={v:.4g}" for k, v in values if not math.isnan(v))
        if self._bar is not None:
            self._bar.set_postfix_str(shown, refresh=False)
            self._bar.update()
        elif self.verbose == 2:
            place = f"epoch {row['epoch']:g}/{self._n_epochs}"
            self.say(f"{place}, {shown}, {row['seconds']:.3g} s")

    def say(self, text: str) -> None:
        """Write a line beside the bar, unless silent."""
        stream = sys.stdout if self.verbose == 2 else sys.stderr
        if self.verbose and stream is not None:
            stream.write(f"{text}\n")  # at once: other processes may write there too
            stream.flush()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
