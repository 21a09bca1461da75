"""What a user knows of series beside their rows."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array
from sklode.data.calendars import Calendar
from sklode.data.history import History

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster

_NO_BOUNDS = np.array([-np.inf, np.inf])
KNOWN = ("bounds", "error", "holidays")
"""Parameters that tell it; the paper's model has no place for them."""


def told(settings: BaseForecaster) -> dict[str, Any]:
    """Return what is told, as what can be compared: tables as text."""
    found = {name: getattr(settings, name) for name in KNOWN}
    if isinstance(found["holidays"], pd.Series | pd.DataFrame):
        found["holidays"] = found["holidays"].to_string()
    return found


class Known(NamedTuple):
    """What is known of series beside their rows."""

    bounds: Array  # (channel, 2), least and greatest value; infinite: none
    calendar: Calendar | None = None  # named days
    blocks: tuple[tuple[int, int], ...] = ()
    """First control and count, of each category of X that has more than one."""
    is_measured: bool = True  # whether errors are of measurement, also ahead

    @classmethod
    def nothing(cls, n_channels: int) -> Known:
        """Return what is known where nothing is told."""
        return cls(np.tile(_NO_BOUNDS, (n_channels, 1)))

    @classmethod
    def of(cls, settings: BaseForecaster, history: History) -> Known:
        """Read a forecaster's parameters, and check them on its series."""
        calendar = None
        if settings.holidays is not None:
            rows = history.rows
            calendar = Calendar.of(settings.holidays, rows.ticks, rows.like)
        return cls(
            bounds=bounds_of(settings.bounds, history),
            calendar=calendar,
            blocks=tuple((k, n) for k, n in history.columns.blocks if n > 1),
            is_measured=bool(history.errors),
        )


def bounds_of(told: object, history: History) -> Array:
    """Return the bounds of each channel, (channel, 2)."""
    channels, values = history.channels, history.observations.values
    by_column = told if isinstance(told, dict) else dict.fromkeys(channels, told)
    for column in by_column:
        if column not in channels:
            raise ValueError(
                f"bounds must name columns of y, {channels}; got {column!r}. Use one "
                "pair for all columns, or a dict of them."
            )
    bounds = np.stack([_pair(by_column.get(channel)) for channel in channels])
    wrong = (values < bounds[:, 0]) | (values > bounds[:, 1])
    for row, channel in np.argwhere(wrong):
        low, high = bounds[channel]
        raise ValueError(
            f"values of y must lie within their bounds, {low:g} to {high:g}; got "
            f"{values[row, channel]:g} in column {channels[channel]!r} at "
            f"{history.observations.named(row)}. Use wider bounds, None for an end "
            "without one, or replace the value by NaN."
        )
    # what was never below zero, and is told where it ends, begins there
    is_above = np.isinf(bounds[:, 0]) & ~(values < 0).any(axis=0)
    bounds[is_above & np.isfinite(bounds[:, 1]) & (bounds[:, 1] > 0), 0] = 0.0
    return bounds


def _pair(told: object) -> Array:
    """Return a lower and an upper bound."""
    if told is None:
        return _NO_BOUNDS
    low = high = 0.0  # which are refused, as is what is no pair
    if isinstance(told, tuple | list) and len(told) == 2:
        if all(isinstance(end, Real | None) for end in told):
            low = -np.inf if told[0] is None else told[0]
            high = np.inf if told[1] is None else told[1]
    if not low < high:
        raise ValueError(
            "bounds must be a lower and an upper number, the first below the second, "
            f"or None where there is no end, such as (0, 100) or (0, None); got "
            f"{told!r}. For columns of y use a dict of such pairs."
        )
    return np.array([low, high], dtype=np.float64)
