"""Time stamps: the ticks of an index, and the steps of a relative horizon on it.

`sklode.data.scaling` divides ticks by the time unit: what is trained has no units.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

try:
    from pandas.errors import IncompatibleFrequency
except ImportError:  # before pandas 3
    from pandas._libs.tslibs.period import IncompatibleFrequency

Ticks = NDArray[np.int64]

TIMELIKE = "datetimes or timedeltas"
"""The clock that ticks in nanoseconds."""

DAY = 86_400 * 10**9
"""Nanoseconds of a day."""


def series_of(index: pd.Index) -> tuple[Ticks, tuple[tuple[Hashable, ...], ...]]:
    """Return the series' number of each row, and the key of each series."""
    if index.nlevels == 1:
        return np.zeros(len(index), np.int64), ((),)
    codes, uniques = pd.factorize(index.droplevel(-1))
    keys = tuple(uniques) if index.nlevels > 2 else tuple((key,) for key in uniques)
    return codes.astype(np.int64), keys


def ticks_of(index: pd.Index) -> Ticks:
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


def ticks_between(start: Ticks, stop: Ticks) -> NDArray[np.float64]:
    """Return how many ticks there are from ``start`` to ``stop``, negative backward."""
    # modulo 2**64: three centuries of nanoseconds are more than a signed integer holds
    distance = stop.view(np.uint64) - start.view(np.uint64)
    forward = stop >= start
    size = np.where(forward, distance, -distance).astype(np.float64)
    return np.where(forward, size, -size)


def stamps_of(ticks: Ticks, like: pd.Index) -> pd.Index:
    """Return the stamps at ``ticks``, of the kind, time zone and unit of ``like``.

    Ticks that the unit cannot hold keep their nanoseconds.
    """
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


def clock_ahead(ticks: Ticks, like: pd.Index) -> NDArray[np.float64]:
    """Return by how many ticks the clock on the wall is ahead of universal time."""
    if getattr(like, "tz", None) is None:
        return np.zeros(len(ticks))
    return ticks_between(ticks, ticks_of(stamps_of(ticks, like).tz_localize(None)))


def clock_of(times: pd.Index) -> str:
    """Return the kind of an index, of which ticks have one length."""
    if isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex):
        return TIMELIKE
    if isinstance(times, pd.PeriodIndex):
        return f"periods of frequency {times.freqstr}"
    is_whole = pd.api.types.is_integer_dtype(times.dtype)
    return "integers" if is_whole else f"of type {times.dtype}"


def rows_before(
    bounds: Ticks, known: NDArray[Any], series: Ticks, asked: NDArray[Any]
) -> Ticks:
    """Return the row of the last stamp at or before each one that is asked.

    Series k has the rows ``bounds[k]`` to ``bounds[k + 1]``, with increasing stamps
    ``known``; ``series`` are the numbers of the series of those that are ``asked``. The
    row is one of the series before, or -1, where a stamp comes before all of its own.
    """
    n_rows = len(known)
    of_row = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    owner = np.concatenate([of_row, series])
    order = np.lexsort((np.concatenate([known, asked]), owner))  # stable: rows first
    row = np.empty(len(order), dtype=np.int64)
    row[order] = np.cumsum(order < n_rows) - 1
    return row[n_rows:]


def default_step(
    times: pd.Index, freq: str | pd.DateOffset | pd.Timedelta | None
) -> Any:
    """Return the length of one step of a relative horizon.

    For integers it is 1, for periods one period. For datetimes and timedeltas it is
    ``freq`` where given; else the index's own frequency; else the inferred one; else
    the `_calendar_step`; else the median gap; else, with a single stamp, one day.
    """
    if isinstance(times, pd.PeriodIndex):
        return times.freq.n  # ordinals count the frequency without its multiple
    if not isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex):
        return 1
    step = freq if freq is not None else getattr(times, "freq", None)
    if step is None and len(times) >= 3:
        step = pd.infer_freq(times)
    if step is None and len(times) >= 3 and isinstance(times, pd.DatetimeIndex):
        step = _calendar_step(times)
    if step is None and len(times) > 1:
        gap = int(np.median(np.diff(ticks_of(times))))
        return pd.Timedelta(gap, unit="ns").as_unit(times.unit)
    step = pd.tseries.frequencies.to_offset("D" if step is None else step)
    if isinstance(step, pd.offsets.Day) and getattr(times, "tz", None) is not None:
        step = pd.DateOffset(days=step.n)  # a local day may have 23 hours
    if isinstance(times, pd.TimedeltaIndex) and _fixed_ticks(step) is None:
        raise ValueError(
            "freq must have a fixed length where y's index holds timedeltas; got "
            f"{freq!r}. Use for example freq='7D' or freq='12h'."
        )
    return step


def _calendar_step(times: pd.DatetimeIndex) -> pd.DateOffset | None:
    """Return a calendar step that every stamp lies on, with holes between them.

    The stamps have one time of the day in common, in their own time zone. In this
    order: month ends; one day of the month (month, quarter and year starts among them);
    first or last working days of a month; working days next to each other; days. The
    step is as many months or days as the median gap has.
    """
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
    working = np.busday_count(dates[:-1], dates[1:])
    if np.is_busday(dates).all() and np.median(working) == 1 and len(times) > 5:
        return pd.offsets.BDay()
    return pd.offsets.Day(int(days)) if days >= 1 and days == int(days) else None


def _fixed_ticks(step: Any) -> int | None:
    """Return the ticks of a step; None where only the calendar knows its length."""
    if isinstance(step, int):
        return step
    if isinstance(step, pd.offsets.Day):
        return step.n * DAY
    try:
        return pd.Timedelta(step).as_unit("ns").value
    except (TypeError, ValueError):
        return None


def future_stamps(steps: pd.Index, last: pd.Index, lengths: list[Any]) -> pd.Index:
    """Return the stamps that lie ``steps`` after each series' last one.

    Steps are whole numbers, of which each series has its own length from
    `default_step`; timedeltas; or calendar offsets (of type object). All of the first
    series' stamps come first, increasing, then those of the second...
    """
    try:
        if pd.api.types.is_integer_dtype(steps.dtype):
            return _counted(steps.to_numpy().astype(np.int64), last, lengths)
        ticks = ticks_of(_added(list(steps), last))
    except (TypeError, IncompatibleFrequency) as error:
        raise TypeError(
            f"steps of a horizon must be whole numbers or fit the index of y; got "
            f"{list(steps)[:3]} on {clock_of(last)} such as {last[0]}. Use whole "
            "numbers of steps, or the stamps themselves."
        ) from error
    if (np.diff(ticks.reshape(len(last), len(steps))) == 0).any():
        raise ValueError(
            f"steps of a horizon must lead to different stamps; got {list(steps)}. "
            "Leave out those that are equal."
        )
    return stamps_of(ticks, last)


def _counted(counts: Ticks, last: pd.Index, lengths: list[Any]) -> pd.Index:
    """Return the stamps that whole numbers of steps lead to."""
    fixed: list[Any] = [_fixed_ticks(length) for length in lengths]
    if None not in fixed:
        farthest = np.multiply.outer(np.array(fixed, float), counts.astype(float))
        if np.abs(farthest + ticks_of(last)[:, None]).max(initial=0) >= 2.0**63:
            raise ValueError(
                "a horizon must end where stamps reach, which is 1677 to 2262 for "
                f"datetimes; got step {counts[np.argmax(np.abs(counts))]} after "
                f"{last[0]}. Ask for fewer steps."
            )
        distance = np.multiply.outer(np.array(fixed, dtype=np.int64), counts)
        return stamps_of((ticks_of(last)[:, None] + distance).ravel(), last)
    # k steps of a calendar are k times one offset: each month has its own length
    stamps = np.empty((len(last), len(counts)), dtype=object)
    for length in set(lengths):
        mine = [k for k, other in enumerate(lengths) if other == length]
        ahead = [int(k) * length if k else pd.Timedelta(0) for k in counts]
        part = _added(ahead, last[mine]).astype(object).to_numpy()
        stamps[mine] = part.reshape(len(mine), len(counts))
    return type(last)(stamps.ravel(), dtype=last.dtype)


def _added(ahead: list[Any], last: pd.Index) -> pd.Index:
    """Add every offset to each stamp: its stamps, increasing, then the next one's."""
    parts = [last + offset for offset in ahead]
    stamps = parts[0].append(parts[1:])
    place = np.arange(len(stamps)).reshape(len(ahead), len(last))
    rank = ticks_of(stamps)[place].argsort(axis=0, kind="stable")
    return stamps[np.take_along_axis(place, rank, axis=0).T.ravel()]
