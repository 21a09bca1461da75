"""The calendar as exogenous X: seasons that are longer than the model's window."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.checks import check_choice, check_times
from sklode.data.ticks import DAY

_UNITS = {"year": "Y", "month": "M", "week": "W", "day": "D"}
"""The periods of the calendar, and numpy's units that begin with them."""


def calendar_features(
    index: pd.Index,
    periods: str | Sequence[str] = ("year", "week", "day"),
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
    periods : {"year", "month", "week", "day"} or several of them
        They follow the clock on the wall, also where that is put forward or back: a day
        is from midnight to midnight, a week from Monday, a month and a year as long as
        that one is.
    harmonics : int, default=2
        K, the number of sine and cosine pairs of each period: one is a pure wave.

    Returns
    -------
    DataFrame
        float64, over ``index``, with the columns "year sin 1", "year cos 1", "year sin
        2"...

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
    check_times(index, "X")
    names: list[Any] = list(periods) if isinstance(periods, list | tuple) else [periods]
    if not names or len(set(map(str, names))) < len(names):
        raise ValueError(
            f"periods must name at least one, and none twice; got {periods!r}. Use for "
            "example periods=('year', 'week')."
        )
    is_whole = isinstance(harmonics, Integral) and not isinstance(harmonics, bool)
    if not is_whole or harmonics < 1:
        raise ValueError(
            f"harmonics must be a whole number of at least 1; got {harmonics!r}. Use "
            "for example harmonics=2."
        )
    waves = {}
    for name in names:
        check_choice("a period", name, _UNITS)
        share = _share_of(times, name)
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
        f"{type(times).__name__}{dtype}. Pass data.index of a table, or "
        "pd.to_datetime(dates)."
    )


def _share_of(times: pd.DatetimeIndex, name: str) -> NDArray[np.float64]:
    """Return the share of a named period that the clock on the wall says is over."""
    local = times.tz_localize(None)
    tick = pd.Timedelta(1, unit=local.unit).as_unit("ns").value
    days, ticks = np.divmod(local.asi8, DAY // tick)  # since 1970 and midnight began
    # numpy's weeks begin on Thursdays, as 1970 did, and ours on Mondays
    shift = 3 if name == "week" else 0
    begun = (days + shift).astype("M8[D]").astype(f"M8[{_UNITS[name]}]")
    first, last = (
        unit.astype("M8[D]").astype(np.int64) - shift for unit in (begun, begun + 1)
    )
    return (days - first + ticks * tick / DAY) / (last - first)
