"""What tests do while a training runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from sklode.training.report import Reporter


@contextmanager
def after_each_epoch(do: Callable[[dict[str, float]], Any]) -> Iterator[None]:
    """Call ``do`` with the history's row after each epoch of any training."""
    epoch_end = Reporter.epoch_end

    def told(reporter: Reporter, row: dict[str, float]) -> None:
        epoch_end(reporter, row)
        do(row)

    with mock.patch.object(Reporter, "epoch_end", told):
        yield


def interrupt(error: BaseException, epoch: int = 1) -> Any:
    """Return the context in which trainings break off after an epoch."""

    def press(row: dict[str, float]) -> None:
        if row["epoch"] == epoch:
            raise error

    return after_each_epoch(press)
