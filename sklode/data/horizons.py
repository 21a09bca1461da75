"""Forecasting horizons, checked beyond what sktime checks of them.

Steps become stamps in `sklode.data.steps.future_stamps`.
"""

from __future__ import annotations

import copy
import warnings
from datetime import date, timedelta
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.checks import check_same_kind, check_times
from sklode.data.remedies import TIMES
from sklode.data.steps import Step, default_step, future_stamps

# times the last stamp: whole numbers from it up to this look like stamps,
# not like steps, which would reach beyond twice the record's end
_NEAR = 1.1
_is_whole = pd.api.types.is_integer_dtype


def as_horizon(fh: Any, cutoff: pd.Index, steps: list[Step]) -> Any:
    """Return a horizon of its own, which sktime may change, for these ``steps``.

    The index of a y that follows,
    also of whole numbers, is read as stamps.
    """
    if isinstance(fh, ForecastingHorizon):
        if fh.is_relative:
            check_step(fh, cutoff, steps)
        else:
            check_same_kind(fh.to_pandas(), cutoff)
        return copy.copy(fh)
    fh = _stamps(fh, cutoff)
    if _are_whole_stamps(fh, cutoff):
        warnings.warn(
            "fh is an index of whole numbers that all come after "
            f"the last of y, {cutoff[0]}; it is read as stamps. "
            "For steps pass a list, fh=list(fh); to say so yourself, "
            "ForecastingHorizon(fh, is_relative=False).",
            stacklevel=5,  # the line that calls fit or predict
        )
        return ForecastingHorizon(fh, is_relative=False)
    _check_reach(fh, cutoff, steps)
    if fh is not None:
        _check_items(fh)
    if _look_like_stamps(fh, cutoff):
        warnings.warn(
            f"fh counts steps after the last of y, {cutoff[0]}; "
            f"got {min(fh)} steps. "
            "For stamps pass ForecastingHorizon(fh, is_relative=False).",
            stacklevel=5,
        )
    if isinstance(fh, pd.DatetimeIndex | pd.PeriodIndex):
        check_same_kind(fh, cutoff)
    return list(fh) if isinstance(fh, tuple) else fh


def _check_reach(fh: object, cutoff: pd.Index, steps: list[Step]) -> None:
    """Check that a number of steps, or a range, ends where stamps reach.

    It is asked of the last step alone: all of them may be more than memory holds.
    """
    farthest = fh
    if isinstance(fh, range | pd.RangeIndex):
        farthest = max(fh[0], fh[-1], key=abs) if len(fh) else None
    if steps and _is_step(farthest) and isinstance(farthest, Integral):
        each = cutoff.repeat(len(steps))
        future_stamps(pd.Index([int(farthest)]), each, steps)


def _are_whole_stamps(fh: object, cutoff: pd.Index) -> bool:
    """Return whether an index of whole numbers lies after the last stamp."""
    if not isinstance(fh, pd.Index) or fh.nlevels > 1 or not len(fh):
        return False
    if not _is_whole(fh.dtype) or not _is_whole(cutoff.dtype):
        return False
    return bool(fh.min() > cutoff[0] > 0)


def _look_like_stamps(fh: object, cutoff: pd.Index) -> bool:
    """Return whether listed steps may be meant as stamps."""
    if not isinstance(fh, list | tuple) or not _is_whole(cutoff.dtype):
        return False
    if not _is_whole(pd.Index(fh).dtype):
        return False
    return bool(0 < cutoff[0] < min(fh) < _NEAR * cutoff[0])


def _stamps(fh: Any, cutoff: pd.Index) -> Any:
    """Return an index in place of stamps, or of dates as strings."""
    items = fh if isinstance(fh, list | tuple) else [fh]
    # pandas' Timestamp is a date too
    are_stamps = all(isinstance(x, str | date | pd.Period) for x in items)
    if not items or not are_stamps:
        return fh
    if isinstance(cutoff, pd.PeriodIndex) or isinstance(items[0], pd.Period):
        return pd.PeriodIndex(items, freq=getattr(cutoff, "freq", None))
    try:
        stamps = pd.to_datetime(pd.Index(items))
    except ValueError as error:
        raise ValueError(
            "fh as text must be a date; "
            f"got {items[0]!r}. "
            "A length of time is pd.Timedelta('30D'), "
            "steps are whole numbers."
        ) from error
    zone = getattr(cutoff, "tz", None)
    return stamps.tz_localize(zone) if stamps.tz is None else stamps


def check_step(
    fh: ForecastingHorizon | None, cutoff: pd.Index, steps: list[Step]
) -> None:
    """Check that a horizon's own ``freq`` is the step, where sktime does not."""
    # where an index knows its frequency sktime compares both
    is_compared = isinstance(cutoff, pd.DatetimeIndex) and cutoff.freq is not None
    if fh is None or is_compared or fh.freq is None or not fh.is_relative:
        return
    if not _is_whole(fh.to_pandas().dtype):
        return
    wanted = default_step(cutoff, fh.freq)
    if any(default_step(cutoff, step) != wanted for step in steps):
        raise ValueError(
            "a step of fh must be as long as one of the forecaster; "
            f"got a horizon with freq={fh.freq!r} for steps of {steps[0]}. "
            f"Pass freq={fh.freq!r} to the forecaster, "
            "or lengths of time as fh."
        )


def _check_items(fh: Any) -> None:
    """Check what is to become a horizon, for sktime's messages name no offender."""
    if isinstance(fh, pd.MultiIndex):
        raise TypeError(
            "fh must hold steps or time stamps, the same for all series; "
            "got a MultiIndex. "
            "It asks each series at its own stamps where y was a panel; "
            "of a single series, pass index.get_level_values(-1)."
        )
    if isinstance(fh, pd.Series | pd.DataFrame):
        has_times = isinstance(fh.index.get_level_values(-1), TIMES)
        stamps = "table.index" if has_times else "pd.DatetimeIndex(table)"
        raise TypeError(
            f"fh must hold steps or time stamps; got a {type(fh).__name__}. Pass its "
            f"stamps, predict_at({stamps}), and X by its name: "
            "predict_at(X.index, X=X)."
        )
    # an array without an axis, such as np.array(3), is no list of items
    given = np.atleast_1d(fh) if isinstance(fh, np.ndarray) else fh
    several = isinstance(given, list | tuple | range | np.ndarray | pd.Index)
    items = list(given) if several else [fh]
    if isinstance(fh, pd.Index):
        check_times(fh, name="fh")
    holds_stamps = isinstance(fh, pd.DatetimeIndex | pd.PeriodIndex)
    for item in items:
        if holds_stamps or _is_step(item):
            continue
        raise TypeError(
            "fh must hold whole numbers of steps, "
            "lengths of time, or be an index of time stamps; "
            f"got {item!r:.80}. "
            "Use for example fh=[1, 2, 3], "
            "pd.Timedelta('90min') or pd.DatetimeIndex([...]); "
            "to forecast at the stamps of a y, predict_at(y.index)."
        )
    is_again = pd.Index(items, dtype=object).duplicated()
    if is_again.any() or not items:
        got = "none"
        if items:
            got = f"{items[int(np.argmax(is_again))]!r} more than once"
        raise ValueError(
            "fh must hold at least one step or time stamp, and none twice; "
            f"got {got}. "
            "Use for example fh=[1, 2, 3]."
        )


def _is_step(item: object) -> bool:
    if isinstance(item, timedelta | np.timedelta64):
        return not pd.isna(item)
    # a bool is one of Python's integers
    if not isinstance(item, Integral) or isinstance(item, bool):
        return False
    return abs(int(item)) < 2**63  # what int64 holds


def steps_ahead(fh: ForecastingHorizon | None) -> int | None:
    """Return the farthest step of a horizon of whole steps ahead."""
    if fh is None or not fh.is_relative:
        return None
    steps = fh.to_pandas()
    # lengths of time are relative too
    if not _is_whole(steps.dtype):
        return None
    farthest = int(steps.max())
    return farthest if farthest > 0 else None
