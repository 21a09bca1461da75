"""What a user knows of series beside their rows."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array
from sklode.data.calendars import Calendar
from sklode.data.history import History

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster

_NO_BOUNDS = np.array([-np.inf, np.inf])
KNOWN = ("bounds", "error", "holidays")
"""Parameters that say it; the paper's model has no place for them."""


def known_settings(settings: BaseForecaster) -> dict[str, object]:
    """Return these parameters, as what can be compared: tables as text."""
    found = {name: getattr(settings, name) for name in KNOWN}
    if isinstance(found["holidays"], pd.Series | pd.DataFrame):
        found["holidays"] = found["holidays"].to_string()
    return found


class Known(NamedTuple):
    """What is known of series beside their rows."""

    bounds: Array
    """Least and greatest values, (channel, 2); infinite where there are none."""
    calendar: Calendar | None = None  # named days
    blocks: tuple[tuple[int, int], ...] = ()
    """First control and count, of each category of X that has more than one."""
    is_measured: bool = True
    """Whether errors are of measurement, also ahead."""
    is_of_family: bool = False
    """Whether other series will be forecast by what these show: young ones, too."""

    @classmethod
    def nothing(cls, n_channels: int) -> Known:
        """Return what is known where nothing is given."""
        return cls(bounds=np.tile(_NO_BOUNDS, (n_channels, 1)))

    @classmethod
    def of(cls, settings: BaseForecaster, history: History) -> Known:
        """Read a forecaster's parameters, and check them on its series."""
        calendar = None
        if settings.holidays is not None:
            rows = history.rows
            calendar = Calendar.of(settings.holidays, rows.ticks, rows.like)
        blocks = [(start, n) for start, n in history.columns.blocks if n > 1]
        return cls(
            bounds=bounds_of(settings.bounds, history),
            calendar=calendar,
            blocks=tuple(blocks),
            is_measured=bool(history.errors),
        )


def bounds_of(given: object, history: History) -> Array:
    """Return the bounds of each channel, (channel, 2)."""
    channels, values = history.channels, history.observations.values
    by_channel = given if isinstance(given, dict) else dict.fromkeys(channels, given)
    for channel in by_channel:
        if channel not in channels:
            raise ValueError(
                f"bounds must name columns of y, {channels}; "
                f"got {channel!r}. "
                "Use one pair for all columns, or a dict of them."
            )
    pairs = [_pair(by_channel.get(channel)) for channel in channels]
    bounds = np.stack(pairs)
    # a view of each end, (channel,)
    low, high = bounds.T
    # of a value that is missing neither is true
    is_beyond = (values < low) | (values > high)
    for row, k in np.argwhere(is_beyond):
        raise ValueError(
            "values of y must lie within their bounds, "
            f"{low[k]:g} to {high[k]:g}; "
            f"got {values[row, k]:g} in column {channels[k]!r} "
            f"at {history.observations.named(row)}. "
            "Use wider bounds, None for an end without one, "
            "or replace the value by NaN."
        )
    # what was never below zero, and has an upper end, begins there
    is_open_below = np.isinf(low) & ~(values < 0).any(axis=0)
    ends_above_zero = np.isfinite(high) & (high > 0)
    low[is_open_below & ends_above_zero] = 0.0
    return bounds


def _pair(given: object) -> Array:
    """Return a lower and an upper bound."""
    if given is None:
        return _NO_BOUNDS
    # two equal ends are refused, and stand for what is no pair of numbers
    low = high = 0.0
    if isinstance(given, tuple | list) and len(given) == 2:
        if all(isinstance(end, Real | None) for end in given):
            low = -np.inf if given[0] is None else given[0]
            high = np.inf if given[1] is None else given[1]
    # nor is NaN below anything
    if not low < high:
        raise ValueError(
            "bounds must be a lower and an upper number, "
            "the first below the second, or None where there is no end, "
            "such as (0, 100) or (0, None); "
            f"got {given!r}. "
            "For columns of y use a dict of such pairs."
        )
    return np.array([low, high], dtype=np.float64)
