"""The calendar as exogenous X: seasons that are longer than the model's window."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.checks import check_choice, check_times
from sklode.data.ticks import DAY

__all__ = ["calendar_features"]

_NAMED = {"year": "Y", "month": "M", "week": "W", "day": "D"}
"""The seasons of the calendar, and numpy's units that begin with them."""

_FROM_THURSDAY = {"week": 3}
"""Days to add, for numpy's weeks begin on Thursdays, as 1970 did, and ours on Mondays.
"""

_UNITS = {
    "D": DAY,
    "h": 3600 * 10**9,
    "min": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
"""Units of a fixed length, and their nanoseconds: the largest that fits names it."""

Period: TypeAlias = str | timedelta | np.timedelta64 | pd.offsets.BaseOffset


def calendar_features(
    index: pd.Index,
    periods: Period | Iterable[Period] = ("year", "week", "day"),
    harmonics: int = 2,
) -> pd.DataFrame:
    r"""Return sines and cosines of the calendar at any stamps, as exogenous X.

    .. math:: \sin(2 \pi k \varphi(t)), \quad \cos(2 \pi k \varphi(t)),
        \quad k = 1, \dots, K

    where :math:`\varphi(t)` is the share of the period that has passed at t. A window
    does not show a season that is longer than itself; with these columns the model
    knows where in the season each stamp lies.

    Parameters
    ----------
    index : DatetimeIndex, PeriodIndex, or MultiIndex whose last level is one
        Stamps, regular or not, in any order. A period counts from its start.
    periods : {"year", "month", "week", "day"}, Timedelta, or several of them
        A named period follows the clock on the wall, also where that is put forward or
        back: a day is from midnight to midnight, a week from Monday, a month and a year
        as long as that one is. A period of fixed length, such as
        ``pd.Timedelta("12h25min")``, is counted in time that has truly passed, from
        1970-01-01 (UTC where the stamps have a time zone).
    harmonics : int, default=2
        K, the number of sine and cosine pairs of each period: one is a pure wave.

    Returns
    -------
    DataFrame
        float64, over ``index``, with the columns "year sin 1", "year cos 1", "year sin
        2"...; those of a fixed length are named like "12h sin 1".

    Raises
    ------
    TypeError
        If the index holds no dates, or a period or number of harmonics is none.
    ValueError
        If a stamp is missing, or periods or harmonics are not as above.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklode import calendar_features
    >>> days = pd.DatetimeIndex(["2026-01-01", "2026-04-02 06:00"])
    >>> X = calendar_features(days, periods="year", harmonics=1)
    >>> X["year sin 1"].tolist()  # at the new year, and a quarter of 365 days later
    [0.0, 1.0]
    """
    times = _times_of(index)
    check_times(index, "index")
    if not isinstance(harmonics, Integral) or isinstance(harmonics, bool):
        raise TypeError(
            f"harmonics must be a whole number; got {harmonics!r}. Use for example "
            "harmonics=2."
        )
    if harmonics < 1:
        raise ValueError(
            f"harmonics must be at least 1; got {harmonics}. Without waves, leave X "
            "out."
        )
    waves = {}
    for name, length in _lengths_of(periods).items():
        if length is None:
            share = _share_of_named(times, name)
        else:
            share = _share_of_length(times, length)
        for k in range(1, int(harmonics) + 1):
            # the whole turns are dropped, which would cost digits
            angle = 2 * np.pi * np.mod(k * share, 1.0)
            waves[f"{name} sin {k}"] = np.sin(angle)
            waves[f"{name} cos {k}"] = np.cos(angle)
    return pd.DataFrame(waves, index)


def _times_of(index: pd.Index) -> pd.DatetimeIndex:
    """Return the time of each row; of a period its start."""
    times = index.get_level_values(-1) if isinstance(index, pd.Index) else index
    if isinstance(times, pd.PeriodIndex):
        return times.to_timestamp(how="start")
    if isinstance(times, pd.DatetimeIndex):
        return times
    dtype = f" of {times.dtype}" if isinstance(times, pd.Index) else ""
    raise TypeError(
        "index must hold datetimes or periods, in its last level; got "
        f"{type(times).__name__}{dtype}. Pass data.index of a table, "
        "pd.to_datetime(dates), or the date that numbers count from: "
        "pd.Timestamp('2026-01-01') + pd.to_timedelta(index, unit='D')."
    )


def _lengths_of(periods: Period | Iterable[Period]) -> dict[str, int | None]:
    """Return the nanoseconds of each period under its name; None where it is named."""
    if isinstance(periods, str) or not isinstance(periods, Iterable):
        periods = [periods]
    lengths: dict[str, int | None] = {}
    for period in periods:
        length = _length_of(period)
        name = str(period)
        if length is not None:
            unit = next(unit for unit, ticks in _UNITS.items() if length % ticks == 0)
            name = f"{length // _UNITS[unit]}{unit}"
        if name in lengths:
            raise ValueError(
                f"periods must differ; got {name!r} twice. Name it once, and ask for "
                "more waves of it by harmonics."
            )
        lengths[name] = length
    if not lengths:
        raise ValueError(
            "periods must name at least one; got none. Use for example "
            "periods=('year', 'week')."
        )
    return lengths


def _length_of(period: Any) -> int | None:
    """Return the nanoseconds of a period; None of one that the calendar names."""
    if isinstance(period, str):
        check_choice("a period, unless it is a pd.Timedelta,", period, _NAMED)
        return None
    try:
        if not isinstance(period, Period):
            raise TypeError
        length = pd.Timedelta(period).as_unit("ns").value
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"a period must be one of {list(_NAMED)}, or a fixed length of time; got "
            f"{period!r}. Write a length as pd.Timedelta('12h')."
        ) from error
    if length <= 0:
        raise ValueError(
            f"a period must be longer than no time; got {period!r}. Use for example "
            "pd.Timedelta('12h')."
        )
    return length


def _days_and_rest(
    times: pd.DatetimeIndex,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the days since 1970 began, and the nanoseconds since each day did."""
    tick = pd.Timedelta(1, unit=times.unit).as_unit("ns").value
    days, ticks = np.divmod(times.asi8, DAY // tick)
    return days, ticks * tick


def _share_of_named(times: pd.DatetimeIndex, name: str) -> NDArray[np.float64]:
    """Return the share of a named period that the clock on the wall says is over."""
    days, rest = _days_and_rest(times.tz_localize(None))
    shift = _FROM_THURSDAY.get(name, 0)
    begun = (days + shift).astype("M8[D]").astype(f"M8[{_NAMED[name]}]")
    first, last = (
        unit.astype("M8[D]").astype(np.int64) - shift for unit in (begun, begun + 1)
    )
    return (days - first + rest / DAY) / (last - first)


def _share_of_length(times: pd.DatetimeIndex, length: int) -> NDArray[np.float64]:
    """Return the share of a period of fixed length that is over."""
    days, rest = _days_and_rest(times)
    # Python's integers: far from 1970, and for odd lengths, 64 bits are too few
    since = days.astype(object) * DAY + rest
    return (since % length / length).astype(np.float64)
