"""Time stamps: the ticks of an index, and the steps of a horizon on it.

Tested in tests/data/test_horizons.py, test_clock.py and test_history.py.
"""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Array, Key, Numbers

TIMELIKE = "datetimes or timedeltas"  # the clock that ticks in nanoseconds
DAY = 86_400 * 10**9  # nanoseconds

Freq: TypeAlias = str | pd.DateOffset | pd.Timedelta | None
"""A frequency as users tell it; None: that of the index."""
Step: TypeAlias = int | pd.Timedelta | pd.DateOffset
"""Length of a step: of integers and periods a number, else of time."""

UNITS = {"d": DAY, "h": 36e11, "min": 6e10, "s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
"""Nanoseconds of what lengths of time are told in, the longest first."""


def series_of(index: pd.Index) -> tuple[Numbers, tuple[Key, ...]]:
    """Return each row's series, by number, and each series' key."""
    if index.nlevels == 1:
        return np.zeros(len(index), np.int64), ((),)
    codes, uniques = pd.factorize(index.droplevel(-1))
    keys = tuple(uniques) if index.nlevels > 2 else tuple((key,) for key in uniques)
    return codes.astype(np.int64), keys


def ticks_of(index: pd.Index) -> Numbers:
    """Return the stamps of ``index`` as whole ticks, see `Observations`."""
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
        try:
            return index.as_unit("ns").asi8
        except pd.errors.OutOfBoundsDatetime as error:
            raise ValueError(
                "times must lie where nanoseconds reach, from 1677 to 2262; got "
                f"{index.min()} to {index.max()}. Use a PeriodIndex for others."
            ) from error
    if isinstance(index, pd.PeriodIndex):
        return index.asi8
    return index.to_numpy().astype(np.int64)


def ticks_between(start: Numbers, stop: Numbers) -> NDArray[np.float64]:
    """Return the ticks from ``start`` to ``stop``, negative backward."""
    # modulo 2**64: three centuries of nanoseconds overflow
    distance = stop.view(np.uint64) - start.view(np.uint64)
    forward = stop >= start
    size = np.where(forward, distance, -distance).astype(np.float64)
    return np.where(forward, size, -size)


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
    rounded = stamps.as_unit(like.unit)
    return rounded if np.array_equal(ticks_of(rounded), ticks) else stamps


def length_of_time(ticks: float, like: pd.Index) -> str:
    """Return a number of ticks as a reader would say it."""
    if isinstance(like, pd.PeriodIndex):
        return f"{ticks:.4g} periods"
    if not isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex):
        return f"{ticks:.4g}"
    # what rounds to a whole unit in three digits is told in that
    name = next((name for name, n in UNITS.items() if ticks >= 0.995 * n), "s")
    return f"{ticks / UNITS[name]:.4g} {name}"


def clock_ahead(ticks: Numbers, like: pd.Index) -> NDArray[np.float64]:
    """Return by how many ticks the clock on the wall is ahead of UTC."""
    if getattr(like, "tz", None) is None:
        return np.zeros(len(ticks))
    return ticks_between(ticks, ticks_of(stamps_of(ticks, like).tz_localize(None)))


def day_and_week(like: pd.Index) -> tuple[float, float] | None:
    """Return how many ticks a day and a week have; None without a calendar."""
    if isinstance(like, pd.PeriodIndex):
        day = DAY / (nanoseconds(like.freq) / like.freq.n)
        return (day, 7 * day) if day > 1 else None
    return (DAY, 7 * DAY) if isinstance(like, pd.DatetimeIndex) else None


def place_in(
    cycle: tuple[float, float], ticks: Numbers, like: pd.Index
) -> NDArray[np.float64]:
    """Return the share of the shorter period that has passed, and its number.

    A day's and its number in the week, from Monday = 0 on; (row, 2). Days begin at
    midnight on the wall; other periods at tick zero.
    """
    short, long = cycle
    ticks = ticks + clock_ahead(ticks, like).astype(np.int64)
    monday = 3 * short if cycle == day_and_week(like) else 0  # 1970: a Thursday
    passed = np.mod(ticks, long) if short % 1 else np.mod(ticks, np.int64(long))
    number, passed = np.divmod(np.mod(passed + monday, long), short)
    return np.column_stack([passed / short, number])


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

    Series k has the stamps ``known[bounds[k]:bounds[k + 1]]``; those ``asked`` are of
    the ``series``. Before the first stamp of its own it is the row before that, or -1.
    """
    if len(bounds) == 2:  # a lone series: many rows take long in steps
        return np.searchsorted(known, asked, side="right") - 1
    # bisection of all at once; n rows are halved as often as n has binary digits
    low, high = bounds[series], bounds[series + 1]
    for _ in range(len(known).bit_length()):
        middle = np.minimum((low + high) // 2, len(known) - 1)
        is_later = (low >= high) | (known[middle] > asked)
        low = np.where(is_later, low, middle + 1)
        high = np.where(is_later, middle, high)
    return low - 1


def default_step(times: pd.Index, freq: Freq) -> Step:
    """Return the length of one step of a relative horizon.

    Of integers and periods a number; else a Timedelta, or an offset of the calendar:
    ``freq``, or the first there is of the index's own or inferred frequency,
    `_calendar_step`, the median gap, and one day.
    """
    if isinstance(times, pd.PeriodIndex):
        return times.freq.n  # ordinals count without it
    if not isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex):
        return 1
    step = freq if freq is not None else times.freq
    if step is None and len(times) >= 3:
        step = pd.infer_freq(times)
        if step is None and isinstance(times, pd.DatetimeIndex):
            step = _calendar_step(times)
    if step is None and len(times) > 1:
        return pd.Timedelta(int(np.median(np.diff(ticks_of(times)))), unit="ns")
    step = pd.tseries.frequencies.to_offset("D" if step is None else step)
    if isinstance(step, pd.offsets.Day):
        is_local = getattr(times, "tz", None) is not None  # where a day may have 23 h
        return pd.DateOffset(days=step.n) if is_local else pd.Timedelta(days=step.n)
    try:
        return pd.Timedelta(step)
    except (TypeError, ValueError):
        if isinstance(times, pd.DatetimeIndex):
            return step
    raise ValueError(
        "freq must have a fixed length where y's index holds timedeltas; got "
        f"{freq!r}. Use for example freq='7D' or freq='12h'."
    )


def _calendar_step(times: pd.DatetimeIndex) -> pd.DateOffset | None:
    """Return the median gap's months, or days, if every stamp fits."""
    local = times.tz_localize(None)
    if len(np.unique(ticks_of(local) % DAY)) > 1:
        return None
    months = np.median(np.diff(12 * local.year + local.month))
    if months >= 1 and months == int(months):
        if local.is_month_end.all():
            return int(months) * pd.offsets.MonthEnd()
        if len(local.day.unique()) == 1:
            return pd.DateOffset(months=int(months))
        for offset in (pd.offsets.BMonthBegin(), pd.offsets.BMonthEnd()):
            if all(offset.is_on_offset(stamp) for stamp in local):
                return int(months) * offset
    dates = local.to_numpy().astype("M8[D]")
    days = np.median(np.diff(dates).astype(int))
    # five rows may be a working week of a record of every day
    working = np.busday_count(dates[:-1], dates[1:])
    if np.is_busday(dates).all() and np.median(working) == 1 and len(times) > 5:
        return pd.offsets.BDay()
    return pd.offsets.Day(int(days)) if days >= 1 and days == int(days) else None


_ONE_BY_ONE = (
    pd.offsets.BusinessHour,
    pd.offsets.CustomBusinessHour,
    pd.offsets.CustomBusinessDay,
    pd.offsets.CustomBusinessMonthBegin,
    pd.offsets.CustomBusinessMonthEnd,
)
"""Offsets that pandas adds to one stamp only, or warns that it is slow."""


def future_stamps(
    steps: pd.Index, last: pd.Index, lengths: list[Step]
) -> tuple[pd.Index, Numbers]:
    """Return the stamps ``steps`` after each series' last one, by series, and ticks.

    They are whole numbers of steps of each series' length, or timedeltas.
    """
    if isinstance(steps, pd.TimedeltaIndex) and clock_of(last) == TIMELIKE:
        steps, lengths = pd.Index(ticks_of(steps)), [1] * len(last)
    if not pd.api.types.is_integer_dtype(steps.dtype):
        raise TypeError(
            "steps of a horizon must be whole numbers or, of datetimes and timedeltas, "
            f"lengths of time; got {list(steps)[:3]} on {clock_of(last)} such as "
            f"{last[0]}. Use whole numbers of steps, or the stamps themselves."
        )
    counts = steps.to_numpy().astype(np.int64)
    if not any(isinstance(length, pd.offsets.BaseOffset) for length in lengths):
        ticks = [x if isinstance(x, int) else x.as_unit("ns").value for x in lengths]
        start, each = ticks_of(last)[:, None], np.array(ticks)[:, None]
        # in floats, which do not wrap around where whole numbers overflow
        farthest = np.abs(start + each * counts.astype(float)).max(initial=0)
        if farthest >= 2.0**63:
            raise ValueError(
                "a horizon must end where stamps reach, which is 1677 to 2262 for "
                f"datetimes; got step {counts[np.argmax(np.abs(counts))]} after "
                f"{last[0]}. Ask for fewer steps."
            )
        found = (start + each * counts).ravel()
        return stamps_of(found, last), found
    stamps = np.empty((len(last), len(counts)), dtype=object)
    for length in set(lengths):
        mine = np.array([other == length for other in lengths])
        for place, k in enumerate(counts.tolist()):
            # k steps are k times one offset: each month has its own length
            if k == 0:  # the last stamp itself, which an offset would roll forward
                stamps[mine, place] = last[mine].astype(object)
            elif isinstance(length, _ONE_BY_ONE):
                own = last[mine].astype(object)
                stamps[mine, place] = [stamp + k * length for stamp in own]
            else:
                stamps[mine, place] = (last[mine] + k * length).astype(object)
    index = type(last)(stamps.ravel(), dtype=last.dtype)
    return index, ticks_of(index)


def nanoseconds(length: object) -> float:
    """Return how long something lasts on average; NaN if it does not say."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        if not isinstance(length, timedelta | np.timedelta64):
            offset = pd.tseries.frequencies.to_offset(length)
            start = offset.rollforward(pd.Timestamp("1950-01-01"))
            usual = (start + 100 * offset - start).total_seconds() / 100
            # over a century of 36 525 days: fewer months hold too few leap years
            n = max(int(36_525 * 86_400 / usual), 1) if usual else 1
            return (start + n * offset - start).total_seconds() * 1e9 / n
    with contextlib.suppress(TypeError, ValueError):
        if not str(length).isdigit():  # which pandas takes for nanoseconds
            return pd.Timedelta(length).total_seconds() * 1e9  # knows fractions
    return math.nan
