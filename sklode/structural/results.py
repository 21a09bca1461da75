"""What a fit of the structural model alone leaves, and its answers.

Tested in tests/forecasters/test_structural.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklode.data.arrays import Columns
from sklode.data.history import History
from sklode.structural.answers import Adjust, StructuralAnswers
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.model import StructuralModel
from sklode.structural.unknown_x import Unknown


def answers_of(
    structural: StructuralModel,
    history: History,
    seed: int,
    before: object,
    adjust: Adjust | None = None,
) -> StructuralAnswers:
    """Return what a model answers of series, and a network adds by ``adjust``.

    Of series that the answers ``before`` are of, only new rows are read.
    """
    _warn_of_values_beyond(structural, history)
    if isinstance(before, StructuralAnswers) and before.model is structural:
        states = before.states.updated(history.rows)
    else:
        states = FilteredModel.filter(structural, history.rows)
    unknown = None
    if history.controls:
        unknown = Unknown(history, seed, impulses=structural.design.impulses)
    return StructuralAnswers(states, history, seed, adjust, unknown)


def _warn_of_values_beyond(structural: StructuralModel, history: History) -> None:
    """Warn of the first value that y's link has not, where a fit is gone on with."""
    rows = history.rows
    for row, column in np.argwhere(structural.beyond(rows.values))[:1]:
        warnings.warn(
            f"y is modelled on its {structural.columns[column].link.name}, as before; "
            f"{rows.values[row, column]:g} in column {history.channels[column]!r} at "
            f"{rows.named(row)} has none, so that forecasts may be far off. Fit a "
            "fresh clone on all rows, after reset() where it was pretrained.",
            UserWarning,
            stacklevel=2,
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class StructuralFit:
    """A structural model, and what a later fit must share with this one."""

    structural: StructuralModel
    sizes: tuple[int, int]  # numbers of columns of y and of X
    clock: str  # of the index, see `sklode.data.ticks.clock_of`
    architecture: dict[str, Any]  # the settings that it was found by
    columns: Columns
    n_rows: int  # that it was found on

    def answers(self, history: History, seed: int, before: object) -> StructuralAnswers:
        """Return what it answers of series."""
        return answers_of(self.structural, history, seed, before)

    def attributes(self, channels: list[Hashable]) -> dict[str, object]:
        """Return the fitted attributes: none that are not worked out when asked for."""
        return {}
