"""The user's clock: the calendar as X, and lengths of seasons as ticks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from numbers import Real
from typing import TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.arrays import Numbers
from sklode.data.checks import check_choice, check_count, check_times
from sklode.data.observations import Observations
from sklode.data.steps import Step
from sklode.data.ticks import (
    DAY,
    clock_of,
    length_of_time,
    nanoseconds,
    ticks_between,
)

# numpy's units that begin with the periods of the calendar
_UNITS = {"year": "Y", "month": "M", "week": "W", "day": "D"}
# rows a period: fewer show a longer wave instead (Nyquist)
_LEAST = 2.0
# quantile of gaps: of uneven ones the short ones show short seasons
_USUAL = 0.1
# of a period: years differ by less, months and quarters by more
_EVEN = 0.01
# share of a length that sums and means of floats may be off by
_ROUNDING = 1e-6
# starts of periods: four years of months, so one leap day
_N_STARTS = 48


def calendar_features(
    index: pd.Index,
    periods: str | Sequence[str] = ("year", "week", "day"),
    harmonics: int = 2,
) -> pd.DataFrame:
    r"""Return sines and cosines of the calendar at any stamps, as exogenous X.

    .. math:: \sin(2 \pi k \varphi(t)), \quad \cos(2 \pi k \varphi(t)),
        \quad k = 1, \dots, K

    where :math:`\varphi(t)` is the share of the period that has passed at t.

    Parameters
    ----------
    index : DatetimeIndex, PeriodIndex, or MultiIndex whose last level is one
        Stamps, regular or not, in any order. A period counts from its start.
    periods : {"year", "month", "week", "day"} or several of them
        On the clock on the wall: a day from midnight,
        a week from Monday, a month and a year as long as that one is.
    harmonics : int, default=2
        K, the number of sine and cosine pairs of each period.

    Returns
    -------
    DataFrame
        float64, over ``index``; columns "year sin 1",
        "year cos 1", "year sin 2"...

    Raises
    ------
    TypeError
        If the index holds no dates.
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
    check_times(index, name="X")
    names = _names_of(periods)
    check_count("harmonics", harmonics)
    waves = {}
    for name in names:
        share = _share_of(times, name)
        for k in range(1, harmonics + 1):
            # without whole turns, of which each would add
            # the rounding of 2 pi
            angle = 2 * np.pi * np.mod(k * share, 1.0)
            waves[f"{name} sin {k}"] = np.sin(angle)
            waves[f"{name} cos {k}"] = np.cos(angle)
    return pd.DataFrame(waves, index)


def _names_of(periods: str | Sequence[str]) -> list[str]:
    """Return the names of periods, of which there must be some, none twice."""
    names = list(periods) if isinstance(periods, list | tuple) else [periods]
    # by their texts, for what is no name may have no hash
    if not names or len(set(map(str, names))) < len(names):
        raise ValueError(
            "periods must name at least one, and none twice; "
            f"got {periods!r}. "
            "Use for example periods=('year', 'week')."
        )
    for name in names:
        check_choice("a period", name, _UNITS)
    return [str(name) for name in names]


def _times_of(index: pd.Index) -> pd.DatetimeIndex:
    times = index.get_level_values(-1) if isinstance(index, pd.Index) else index
    if isinstance(times, pd.PeriodIndex):
        return times.to_timestamp(how="start")
    if isinstance(times, pd.DatetimeIndex):
        return times
    dtype = f" of {times.dtype}" if isinstance(times, pd.Index) else ""
    raise TypeError(
        "index must hold datetimes or periods, in its last level; "
        f"got {type(times).__name__}{dtype}. "
        "Pass data.index of a table, or pd.to_datetime(dates)."
    )


def _share_of(times: pd.DatetimeIndex, name: str) -> NDArray[np.float64]:
    """Return the share of its named period that has passed at each stamp."""
    local = times.tz_localize(None)
    # in the index's own unit, for nanoseconds reach from 1677 to 2262 only
    tick = pd.Timedelta(1, unit=local.unit).as_unit("ns").value
    # days since 1970, and ticks since midnight
    days, ticks = np.divmod(local.asi8, DAY // tick)
    # numpy's weeks begin on Thursdays, as 1970 did, ours on Mondays:
    # three days later, a Monday is a Thursday
    shift = 3 if name == "week" else 0
    period = (days + shift).astype("M8[D]").astype(f"M8[{_UNITS[name]}]")
    first = _days_of(period) - shift
    end = _days_of(period + np.array(1, f"m8[{_UNITS[name]}]")) - shift
    return (days - first + ticks * tick / DAY) / (end - first)


def _days_of(periods: NDArray[np.datetime64]) -> Numbers:
    """Return the first day of each, counted since 1970."""
    return periods.astype("M8[D]").astype(np.int64)


def season_ticks(
    seasons: Sequence[object], like: pd.Index, steps: list[Step]
) -> tuple[float, ...]:
    """Return lengths of time, or numbers of steps, in ticks of an index.

    ``steps`` are lengths of one step of each series.
    """
    is_timelike = isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex)
    # nanoseconds of a tick, of which integers have none
    tick = 1.0 if is_timelike else math.nan
    if isinstance(like, pd.PeriodIndex):
        # ordinals count the frequency without its multiple
        tick = nanoseconds(like.freq) / like.freq.n
    length = nanoseconds if is_timelike else float
    lengths = {length(step) for step in steps}
    found: list[float] = []
    for season in seasons:
        if _counts_steps(season):
            ticks = float(season) * max(lengths)
            if len(lengths) > 1:
                raise ValueError(
                    "seasons in steps need series with one length of a step; "
                    f"got {season!r} for {len(lengths)} lengths. "
                    "Pass lengths of time, such as '1D', or set freq."
                )
        else:
            ticks = nanoseconds(season) / tick
        # NaN, which is no length, is not above zero either
        if not 0 < ticks < math.inf or ticks in found:
            of_time = "" if math.isnan(tick) else "lengths of time or "
            raise ValueError(
                f"seasons must be different {of_time}numbers of "
                f"steps above zero, on an index of {clock_of(like)}; "
                f"got {season!r} in {seasons}. "
                "Use for example seasons=[12], in steps of the index; "
                "of stamps that are dates or periods also "
                "seasons=['1D', pd.DateOffset(years=1)]."
            )
        found.append(ticks)
    return tuple(found)


def _counts_steps(season: object) -> TypeGuard[Real]:
    # numpy counts its durations among the integers
    is_other = isinstance(season, bool | np.timedelta64)
    return isinstance(season, Real) and not is_other


def seasons_shown(
    seasons: Sequence[object], ticks: Sequence[float], rows: Observations
) -> tuple[float, ...]:
    """Return those of the seasons given, in ticks, that rows can show.

    Of the others it warns; seasons finer than two rows are refused.
    """
    kept = []
    gaps = rows.gaps[rows.gaps > 0]
    gap = float(np.quantile(gaps, _USUAL)) if len(gaps) else 0.0
    first = rows.ticks[rows.bounds[:-1]]
    last = rows.ticks[rows.bounds[1:] - 1]
    # the last row stands for the gap after it: 24 hourly rows are a day
    span = float(ticks_between(first, last).max()) + gap
    for season, period in zip(seasons, ticks, strict=True):
        name, length = repr(season), length_of_time(period, rows.like)
        if period < (1 - _ROUNDING) * _LEAST * gap:
            raise ValueError(
                "a season must last at least two rows, of which y's "
                f"are usually {length_of_time(gap, rows.like)} apart; "
                f"got {name}, {length}. "
                "Leave it out, or pass finer rows."
            )
        if period > (1 + _ROUNDING) * span:
            warnings.warn(
                "a season can be learned from rows "
                "over at least its own length; "
                f"got {name}, {length}, "
                f"and rows over {length_of_time(span, rows.like)}. "
                "It is left out. Pass more history, "
                "or pretrain on longer series.",
                UserWarning,
                stacklevel=2,
            )
            continue
        kept.append(period)
        swing = _swing(season) * period
        # by less than half a gap no row is nearer to another's place
        if swing > gap / 2 and swing > _EVEN * period:
            warnings.warn(
                f"a season has one length; those of {name} differ. "
                f"It repeats after their mean, {length}, from which they "
                f"stray by up to {length_of_time(swing, rows.like)}. "
                "For what falls on days of the calendar pass X, "
                "such as sklode.calendar_features(index, 'month').",
                UserWarning,
                stacklevel=2,
            )
    return tuple(kept)


def _swing(season: object) -> float:
    """Return how far a calendar's periods stray, as a share of one."""
    with suppress(AttributeError, TypeError, ValueError):
        offset = pd.tseries.frequencies.to_offset(season)
        start = offset.rollforward(pd.Timestamp("1950-01-01"))
        counts = range(1, _N_STARTS + 1)
        stamps = pd.DatetimeIndex([start + k * offset for k in counts])
        mean = nanoseconds(offset)
        ticks = stamps.as_unit("ns").asi8 - stamps[0].as_unit("ns").value
        # half of the whole range: the best equal periods lie in its middle
        strays = ticks - np.arange(_N_STARTS) * mean
        return float(np.ptp(strays) / 2 / mean)
    return 0.0
