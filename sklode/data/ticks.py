"""Time stamps as ticks, whole numbers that an index counts time in.

Tested in tests/data/test_clock.py and test_history.py.
"""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Array, Key, Numbers

TIMELIKE = "datetimes or timedeltas"
"""The clock that ticks in nanoseconds."""
DAY = 86_400 * 10**9  # nanoseconds
WEEK, YEAR = 7 * DAY, 365.2425 * DAY

UNITS = {
    "d": DAY,
    "h": 36e11,
    "min": 6e10,
    "s": 1e9,
    "ms": 1e6,
    "µs": 1e3,
    "ns": 1,
}
"""Nanoseconds of what lengths of time are given in, the longest first."""


def series_of(index: pd.Index) -> tuple[Numbers, tuple[Key, ...]]:
    """Return each row's series, by number, and each series' key."""
    if index.nlevels == 1:
        return np.zeros(len(index), np.int64), ((),)
    codes, uniques = pd.factorize(index.droplevel(-1))
    # of several levels pandas makes tuples, of one its labels
    keys = tuple(uniques)
    if index.nlevels == 2:
        keys = tuple((label,) for label in uniques)
    return codes.astype(np.int64), keys


def shown(label: object) -> str:
    """Return a row's label, or a series' key, as a reader would write it."""
    if not isinstance(label, tuple):
        return str(label)
    parts = [repr(x) if isinstance(x, str) else date_or_time(x) for x in label]
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def date_or_time(stamp: object) -> str:
    """Return a stamp as text; of a day's begin the date, as the hour tells nothing."""
    return str(stamp).removesuffix(" 00:00:00")


def ticks_of(index: pd.Index) -> Numbers:
    """Return the stamps of ``index`` as whole ticks, see `Observations`."""
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
        try:
            return index.as_unit("ns").asi8
        except pd.errors.OutOfBoundsDatetime as error:
            raise ValueError(
                "times must lie where nanoseconds reach, from 1677 to 2262; "
                f"got {index.min()} to {index.max()}. "
                "Use a PeriodIndex for others."
            ) from error
    if isinstance(index, pd.PeriodIndex):
        return index.asi8
    return index.to_numpy().astype(np.int64)


def ticks_between(start: Numbers, stop: Numbers) -> NDArray[np.float64]:
    """Return the ticks from ``start`` to ``stop``, negative backward."""
    # Two int64 may lie 2**64 - 1 apart (nanoseconds: three centuries do),
    # which overflows. Unsigned integers subtract modulo 2**64: forward the
    # difference is the distance itself, backward its negative is.
    difference = stop.view(np.uint64) - start.view(np.uint64)
    is_forward = stop >= start
    distance = np.where(is_forward, difference, -difference)
    size = distance.astype(np.float64)
    return np.where(is_forward, size, -size)


def stamps_of(ticks: Numbers, like: pd.Index) -> pd.Index:
    """Return the stamps at ``ticks``, of the kind, zone and unit of ``like``."""
    if isinstance(like, pd.PeriodIndex):
        return pd.PeriodIndex.from_ordinals(ticks, freq=like.freq)
    if isinstance(like, pd.DatetimeIndex):
        stamps = pd.to_datetime(ticks, utc=True).tz_convert(like.tz)
    elif isinstance(like, pd.TimedeltaIndex):
        stamps = pd.to_timedelta(ticks)
    else:
        return pd.Index(ticks)
    # a coarser unit cuts what it cannot hold: such stamps stay nanoseconds
    rounded = stamps.as_unit(like.unit)
    is_exact = np.array_equal(ticks_of(rounded), ticks)
    return rounded if is_exact else stamps


def length_of_time(ticks: float, like: pd.Index) -> str:
    """Return a number of ticks as a reader would say it."""
    if isinstance(like, pd.PeriodIndex):
        return f"{ticks:.4g} periods"
    if not isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex):
        return f"{ticks:.4g}"
    # what rounds to a whole unit in three digits is given in that
    fitting = (name for name, unit in UNITS.items() if ticks >= 0.995 * unit)
    name = next(fitting, "s")
    return f"{ticks / UNITS[name]:.4g} {name}"


def clock_ahead(ticks: Numbers, like: pd.Index) -> NDArray[np.float64]:
    """Return by how many ticks the clock on the wall is ahead of UTC."""
    if getattr(like, "tz", None) is None:
        return np.zeros(len(ticks))
    # without its zone a stamp keeps the digits of the wall, read as UTC
    on_the_wall = stamps_of(ticks, like).tz_localize(None)
    return ticks_between(ticks, ticks_of(on_the_wall))


def tick_length(like: pd.Index) -> float | None:
    """Return how many nanoseconds a tick has; None without a calendar."""
    if isinstance(like, pd.PeriodIndex):
        # ordinals count single periods: hours, where the frequency is "3h"
        return nanoseconds(like.freq) / like.freq.n
    return 1.0 if isinstance(like, pd.DatetimeIndex) else None


def day_and_week(like: pd.Index) -> tuple[float, float] | None:
    """Return how many ticks a day and a week have; None without a calendar."""
    tick = tick_length(like)
    if tick is None:
        return None
    day = DAY / tick
    # of whole days or longer ones none shows the day
    return (day, 7 * day) if day > 1 else None


def place_in(
    cycle: tuple[float, float], ticks: Numbers, like: pd.Index
) -> NDArray[np.float64]:
    """Return the share of the shorter period that has passed, and its number.

    A day's and its number in the week, from Monday = 0 on; (row, 2).
    Days begin at midnight on the wall; other periods at tick zero.
    """
    short, long = cycle
    ticks = ticks + clock_ahead(ticks, like).astype(np.int64)
    # tick zero, the first of January 1970,
    # was a Thursday: three days after Monday
    since_monday = 3 * short if cycle == day_and_week(like) else 0
    # Whole lengths in whole numbers:
    # nanoseconds since 1970 are above 2**53, where floats skip some.
    divisor = long if short % 1 else np.int64(long)
    passed = np.mod(ticks, divisor)
    passed = np.mod(passed + since_monday, long)
    number, in_short = np.divmod(passed, short)
    return np.column_stack([in_short / short, number])


def clock_of(times: pd.Index) -> str:
    """Return the kind of an index, of which ticks have one length."""
    if isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex):
        return TIMELIKE
    if isinstance(times, pd.PeriodIndex):
        return f"periods of frequency {times.freqstr}"
    is_whole = pd.api.types.is_integer_dtype(times.dtype)
    return "integers" if is_whole else f"of type {times.dtype}"


def rows_before(
    bounds: Numbers,
    known: Numbers | Array,
    series: Numbers,
    asked: Numbers | Array,
) -> Numbers:
    """Return the row of the last stamp at or before each one asked.

    Series k has the stamps ``known[bounds[k]:bounds[k + 1]]``;
    those ``asked`` are of the ``series``.
    Before the first stamp of its own it is the row before that, or -1.
    """
    if len(bounds) == 2:
        # a lone series, of which numpy's own search is faster
        return np.searchsorted(known, asked, side="right") - 1
    # Bisection for all at once. Of each one's series, rows below `low` are
    # not later than the stamp asked, rows from `high` on are; n rows are
    # halved as often as n has binary digits.
    low, high = bounds[series], bounds[series + 1]
    for _ in range(len(known).bit_length()):
        middle = np.minimum((low + high) // 2, len(known) - 1)
        # where both have met, `low` is found and stays
        is_later = (low >= high) | (known[middle] > asked)
        low = np.where(is_later, low, middle + 1)
        high = np.where(is_later, middle, high)
    return low - 1


def nanoseconds(length: object) -> float:
    """Return how long something lasts on average; NaN if it does not say."""
    if not isinstance(length, timedelta | np.timedelta64):
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            return _mean_length(pd.tseries.frequencies.to_offset(length))
    with contextlib.suppress(TypeError, ValueError):
        # pandas takes a number's digits for nanoseconds, which nobody means
        if not str(length).isdigit():
            # seconds, in whatever unit the Timedelta counts
            return pd.Timedelta(length).total_seconds() * 1e9
    return math.nan


def _mean_length(offset: pd.offsets.BaseOffset) -> float:
    """Return how many nanoseconds an offset lasts on average."""
    # from a stamp on the offset, without which the first step is cut short
    start = offset.rollforward(pd.Timestamp("1950-01-01"))
    usual = (start + 100 * offset - start).total_seconds() / 100
    # Over a century of 36 525 days, of which a quarter of the
    # years are leap years: a hundred months hold too few of these.
    n = max(int(36_525 * 86_400 / usual), 1) if usual else 1
    return (start + n * offset - start).total_seconds() * 1e9 / n
