"""Forecasting horizons as sktime's own class cannot hold or must not change them."""

from __future__ import annotations

import copy
import warnings
from datetime import timedelta
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.checks import check_same_kind, check_times
from sklode.data.ticks import default_step


def check_freq_of(
    fh: ForecastingHorizon, cutoff: pd.Index | None, steps: list[Any]
) -> None:
    """Check that a horizon's own ``freq`` is the step, where sktime does not check it.

    That is on timedeltas, and on stamps without a frequency. ``steps`` are those of the
    series, empty where they are not known yet.
    """
    without_freq = isinstance(cutoff, pd.TimedeltaIndex) or (
        isinstance(cutoff, pd.DatetimeIndex) and cutoff.freq is None
    )
    countable = fh.is_relative and pd.api.types.is_integer_dtype(fh.to_pandas())
    if not (without_freq and countable):
        return
    step = default_step(cutoff, fh.freq)
    if not steps or any(known != step for known in steps):
        raise ValueError(
            "a step of fh must be as long as one of the forecaster; got a horizon with "
            f"freq={fh.freq!r} for steps of {steps[0] if steps else 'the index'}. Pass "
            f"freq={fh.freq!r} to the forecaster, or lengths of time as fh."
        )


def as_horizon(fh: Any, cutoff: pd.Index | None) -> Any:
    """Return a horizon that may be changed.

    sktime writes the frequency of a forecaster's data into the caller's horizon, which
    then fits no other forecaster. It takes the index of a y that follows, where stamps
    are whole numbers, for steps.
    """
    if isinstance(fh, ForecastingHorizon):
        if cutoff is not None and not fh.is_relative:
            check_same_kind(fh.to_pandas(), cutoff)
        return copy.copy(fh)
    if fh is None:
        return None
    if cutoff is not None and _are_later_stamps(fh, cutoff):
        warnings.warn(
            "fh is an index of whole numbers that all come after the last of y, "
            f"{cutoff[0]}; it is read as stamps, not as steps. For steps pass a list: "
            "fh=list(fh); to say so without this warning, "
            "ForecastingHorizon(fh, is_relative=False).",
            stacklevel=4,
        )
        return ForecastingHorizon(fh, is_relative=False)
    several = isinstance(fh, list | tuple | range | np.ndarray | pd.Index)
    given = np.atleast_1d(fh) if isinstance(fh, np.ndarray) else fh
    items = list(given) if several else [fh]
    is_stamps = isinstance(fh, pd.DatetimeIndex | pd.PeriodIndex)
    _check_items(fh, items, is_stamps)
    if cutoff is not None and is_stamps:
        check_same_kind(fh, cutoff)
    return items if isinstance(fh, tuple) else fh


def _are_later_stamps(fh: Any, cutoff: pd.Index) -> bool:
    """Return whether whole numbers in an index begin after the cutoff, also one."""
    if not isinstance(fh, pd.Index) or fh.nlevels > 1 or not len(fh):
        return False
    whole = pd.api.types.is_integer_dtype
    return whole(fh.dtype) and whole(cutoff.dtype) and bool(fh.min() > cutoff[0] > 0)


def _check_items(fh: Any, items: list[Any], is_stamps: bool) -> None:
    """Check what is to become a horizon, for sktime's messages name no offender."""
    if isinstance(fh, pd.MultiIndex):
        raise TypeError(
            "fh must hold steps or time stamps, the same for all series; got a "
            "MultiIndex. Of a panel, predict_at(index) asks each series at its own "
            "stamps; predict_interval, predict_quantiles, predict_var and sample take "
            "the same index. Of a single series, pass index.get_level_values(-1)."
        )
    if not items:
        raise ValueError(
            "fh must hold at least one step or time stamp; got none. Use for example "
            "fh=[1, 2, 3]."
        )
    if isinstance(fh, pd.Index):
        check_times(fh, "fh")
    for item in items:
        if not (is_stamps or _is_step(item)):
            is_table = isinstance(item, pd.Series | pd.DataFrame)
            shown = f"a {type(item).__name__}" if is_table else repr(item)
            raise TypeError(
                "fh must hold whole numbers of steps, lengths of time, or be an index "
                f"of time stamps; got {shown}. Use for example fh=[1, 2, 3], "
                "pd.Timedelta('90min') or pd.DatetimeIndex([...]); to forecast at the "
                "stamps of a y, predict_at(y.index)."
            )
    twice = pd.Index(items, dtype=object).duplicated()
    if twice.any():
        raise ValueError(
            f"fh must not ask for anything twice; got {items[int(np.argmax(twice))]!r} "
            "more than once. Leave the others out."
        )


def _is_step(item: Any) -> bool:
    if isinstance(item, timedelta | np.timedelta64):
        return not pd.isna(item)
    if isinstance(item, Integral):
        return not isinstance(item, bool) and abs(int(item)) < 2**63
    return False


def steps_ahead(fh: ForecastingHorizon | None) -> int | None:
    """Return the farthest step of a horizon that counts steps."""
    if fh is None or not fh.is_relative:
        return None
    steps = fh.to_pandas()
    if not pd.api.types.is_integer_dtype(steps.dtype):
        return None
    return int(steps.max()) if steps.max() > 0 else None
