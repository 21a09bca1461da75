"""Where time stamps lie on an axis, whatever the index, and how its ticks read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.checks import (
    check_increasing,
    check_index,
    check_same_kind,
    check_times,
)

__all__ = ["Places", "TimeAxis", "pieces"]

Places = NDArray[np.float64]

_UNITS = {"d": 864e11, "h": 36e11, "min": 6e10, "s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
"""Nanoseconds of what durations are counted in, the longest first."""

_LONG_GAP = 3.0
"""A line ends where a gap is this many times what nine in ten gaps are at most."""

_NARROW = 4.0
"""Inches of axes below which eight dates would touch."""


@dataclass(frozen=True)
class TimeAxis:
    """The horizontal axis of a picture of series.

    Datetimes and the starts of periods lie at matplotlib's dates, durations at
    multiples of a unit, numbers at themselves.

    Attributes
    ----------
    like : Index
        Stamps of the kind that all must be of; a time zone is that of the ticks.
    unit : str or None
        Of durations.
    """

    like: pd.Index
    unit: str | None

    @classmethod
    def of(cls, times: pd.Index, others: Iterable[pd.Index], axes: Any) -> TimeAxis:
        """Choose the axis for stamps; axes that have a unit of durations keep it."""
        if not isinstance(times, pd.TimedeltaIndex):
            return cls(times, None)
        if axes is not None and axes.xaxis.get_units() in _UNITS:
            return cls(times, axes.xaxis.get_units())
        stamps = [*others, times]
        largest = max(
            (abs(t.total_seconds()) * 1e9 for s in stamps for t in (s.min(), s.max())),
            default=0.0,
        )
        fits = [name for name, length in _UNITS.items() if largest >= 5 * length]
        return cls(times, fits[0] if fits else "ns")

    def places(self, times: pd.Index) -> Places:
        """Return where stamps lie."""
        if isinstance(times, pd.DatetimeIndex | pd.PeriodIndex):
            from matplotlib.dates import date2num

            if isinstance(times, pd.PeriodIndex):  # ordinals reach farther than dates
                days = times.asfreq("us", how="start").asi8 / 864e8
                return days + float(date2num(np.datetime64(0, "s")))
            if times.tz is not None:
                times = times.tz_convert("UTC").tz_localize(None)
            return np.asarray(date2num(times.to_numpy()), dtype=float)
        if isinstance(times, pd.TimedeltaIndex):
            return times.as_unit("ns").asi8 / _UNITS[self.unit or "ns"]
        return times.to_numpy(dtype=float, na_value=np.nan)

    def dress(self, axes: Any) -> None:
        """Let the ticks of axes read as stamps, unless they read as such already."""
        axis = axes.xaxis
        if axis.have_units():
            return
        if self.unit is not None:
            axis.set_units(self.unit)
            axis.set_major_formatter(f"{{x:g}} {self.unit}")
        elif isinstance(self.like, pd.DatetimeIndex | pd.PeriodIndex):
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            # a date without a zone is shown as it is, whatever matplotlib's own zone
            zone = getattr(self.like, "tz", None) or "UTC"
            axis.axis_date(zone)
            is_narrow = axes.bbox.width < _NARROW * axes.figure.dpi
            # below 2 n + 1 for at least n, some spans would have no fitting interval
            fewest, most = (2, 5) if is_narrow else (3, 8)
            locator = AutoDateLocator(tz=zone, minticks=fewest, maxticks=most)
            axis.set_major_locator(locator)
            axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))


def check_stamps(index: pd.Index, name: str, like: pd.Index | None = None) -> None:
    """Check that the last level of an index holds times, of the kind of ``like``.

    Raises
    ------
    TypeError
        If it does not.
    ValueError
        If a time is missing, or comes after a later one of its series.
    """
    times = index.get_level_values(-1)
    if like is None:
        if _is_number(times):
            check_times(index, name)
            check_increasing(index, name)
        else:
            check_index(index, name)
        return
    check_times(index, name)
    if not (_is_number(times) and _is_number(like)):
        check_same_kind(times, like, f"the index of {name}")


def _is_number(times: pd.Index) -> bool:
    """Return whether stamps are numbers, fractions among them."""
    dtype = times.dtype
    return pd.api.types.is_numeric_dtype(dtype) and not (
        pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_complex_dtype(dtype)
    )


def pieces(places: Places) -> list[slice]:
    """Cut increasing places where nothing is known for long.

    That is at gaps of more than three times what nine in ten gaps are at most: a
    weekend between working days is bridged, a season without data is not.
    """
    gaps = np.diff(places)
    if not len(gaps):
        return [slice(0, len(places))] if len(places) else []
    usual = np.quantile(gaps, 0.9, method="lower")
    ends = np.flatnonzero(gaps > _LONG_GAP * usual) + 1
    bounds = [0, *ends.tolist(), len(places)]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]
