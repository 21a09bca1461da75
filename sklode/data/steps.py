"""Steps: how long one is on an index, and the stamps that steps of a horizon reach.

Tested in tests/data/test_horizons.py.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd

from sklode.data.arrays import Numbers
from sklode.data.ticks import DAY, TIMELIKE, clock_of, stamps_of, ticks_of

Freq: TypeAlias = str | pd.DateOffset | pd.Timedelta | None
"""A frequency as users give it; None: that of the index."""
Step: TypeAlias = int | pd.Timedelta | pd.DateOffset
"""Length of a step: of integers and periods a number, else of time."""


def default_step(times: pd.Index, freq: Freq) -> Step:
    """Return the length of one step of a relative horizon.

    Of integers and periods a number; else a Timedelta, or an offset of
    the calendar: ``freq``, or the first there is of the index's own or
    inferred frequency, `_calendar_step`, the median gap, and one day.
    """
    if isinstance(times, pd.PeriodIndex):
        return times.freq.n  # ordinals count without it
    if not isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex):
        return 1
    step = times.freq if freq is None else freq
    # pandas infers from three stamps on: two fit any frequency
    if step is None and len(times) >= 3:
        step = pd.infer_freq(times)
        if step is None and isinstance(times, pd.DatetimeIndex):
            step = _calendar_step(times)
    if step is None and len(times) > 1:
        median_gap = np.median(np.diff(ticks_of(times)))
        return pd.Timedelta(int(median_gap), unit="ns")
    offset = pd.tseries.frequencies.to_offset("D" if step is None else step)
    if isinstance(offset, pd.offsets.Day):
        # in a zone a day may have 23 or 25 hours, which no Timedelta has
        is_local = getattr(times, "tz", None) is not None
        days = pd.DateOffset if is_local else pd.Timedelta
        return days(days=offset.n)
    try:
        return pd.Timedelta(offset)
    except (TypeError, ValueError):
        # an offset of the calendar, which only dates can add
        if isinstance(times, pd.DatetimeIndex):
            return offset
    raise ValueError(
        "freq must have a fixed length where y's index holds timedeltas; "
        f"got {freq!r}. "
        "Use for example freq='7D' or freq='12h'."
    )


def _calendar_step(times: pd.DatetimeIndex) -> pd.DateOffset | None:
    """Return a step of months or days that every stamp fits, if there is one."""
    local = times.tz_localize(None)
    times_of_day = np.unique(ticks_of(local) % DAY)
    if len(times_of_day) > 1:
        return None
    in_months = _step_in_months(local)
    return _step_in_days(local) if in_months is None else in_months


def _step_in_months(local: pd.DatetimeIndex) -> pd.DateOffset | None:
    """Return the median gap's months, if every stamp fits."""
    # a median of an even count may lie between two numbers of months
    months = np.median(np.diff(12 * local.year + local.month))
    if months < 1 or months != int(months):
        return None
    n_months = int(months)
    # first, for ends of months that are all a 30th
    # are one day of the month too
    if local.is_month_end.all():
        return n_months * pd.offsets.MonthEnd()
    if len(local.day.unique()) == 1:
        return pd.DateOffset(months=n_months)
    for offset in (pd.offsets.BMonthBegin(), pd.offsets.BMonthEnd()):
        if all(offset.is_on_offset(stamp) for stamp in local):
            return n_months * offset
    return None


def _step_in_days(local: pd.DatetimeIndex) -> pd.DateOffset | None:
    """Return one working day, or the median gap's days."""
    dates = local.to_numpy().astype("M8[D]")
    working_gaps = np.busday_count(dates[:-1], dates[1:])
    # five rows may be a working week of a record of every day
    is_long = len(dates) > 5
    if np.is_busday(dates).all() and np.median(working_gaps) == 1 and is_long:
        return pd.offsets.BDay()
    days = np.median(np.diff(dates).astype(int))
    if days < 1 or days != int(days):
        return None
    return pd.offsets.Day(int(days))


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

    They are whole numbers of steps of
    each series' length, or timedeltas.
    """
    if isinstance(steps, pd.TimedeltaIndex) and clock_of(last) == TIMELIKE:
        steps, lengths = pd.Index(ticks_of(steps)), [1] * len(last)
    if not pd.api.types.is_integer_dtype(steps.dtype):
        raise TypeError(
            "steps of a horizon must be whole numbers or, "
            "of datetimes and timedeltas, lengths of time; "
            f"got {list(steps)[:3]} on {clock_of(last)} such as {last[0]}. "
            "Use whole numbers of steps, or the stamps themselves."
        )
    counts = steps.to_numpy().astype(np.int64)
    if any(isinstance(length, pd.offsets.BaseOffset) for length in lengths):
        try:
            stamps = _stamps_by_offsets(counts, last, lengths)
            return stamps, ticks_of(stamps)
        # pandas' own error of bounds is a ValueError, as that of ticks is
        except (OverflowError, ValueError) as error:
            raise _too_far(counts, last) from error
    ticks = _ticks_by_lengths(counts, last, lengths)
    return stamps_of(ticks, last), ticks


def _ticks_by_lengths(
    counts: Numbers,
    last: pd.Index,
    lengths: list[Step],
) -> Numbers:
    """Return the ticks after each last stamp, by steps of fixed lengths."""
    in_ticks = [
        length if isinstance(length, int) else length.as_unit("ns").value
        for length in lengths
    ]
    # a column of series against a row of counts: (series, count), by series
    start = ticks_of(last)[:, None]
    each = np.array(in_ticks, dtype=np.int64)[:, None]
    # in floats, which do not wrap around where whole numbers overflow
    farthest = np.abs(start + each * counts.astype(float)).max(initial=0)
    if farthest >= 2.0**63:
        raise _too_far(counts, last)
    return (start + each * counts).ravel()


def _too_far(counts: Numbers, last: pd.Index) -> ValueError:
    return ValueError(
        "a horizon must end where stamps reach, "
        "which is 1677 to 2262 for datetimes; "
        f"got step {counts[np.argmax(np.abs(counts))]} after {last[0]}. "
        "Ask for fewer steps; a date is a text, fh='2030-01-31'."
    )


def _stamps_by_offsets(
    counts: Numbers, last: pd.Index, lengths: list[Step]
) -> pd.Index:
    """Return the stamps after each last one, by steps of the calendar."""
    stamps = np.empty((len(last), len(counts)), dtype=object)
    # series of one step go together:
    # pandas adds an offset to many stamps at once
    for length in set(lengths):
        is_own = np.array([other == length for other in lengths])
        own = last[is_own]
        for place, k in enumerate(counts.tolist()):
            if k == 0:
                # the last stamp itself, which an offset would roll forward
                stamps[is_own, place] = own.astype(object)
                continue
            # k months are not k times one month: each has its own length
            whole = k * length
            if isinstance(length, _ONE_BY_ONE):
                one_by_one = [stamp + whole for stamp in own.astype(object)]
                stamps[is_own, place] = one_by_one
            else:
                stamps[is_own, place] = (own + whole).astype(object)
    return type(last)(stamps.ravel(), dtype=last.dtype)
