"""Forecasting horizons as sktime's own class cannot hold or must not change them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

__all__ = ["OffsetHorizon", "as_horizon", "steps_ahead"]


class OffsetHorizon(ForecastingHorizon):
    """A relative horizon of calendar offsets, which sktime's own class refuses.

    Parameters
    ----------
    offsets : iterable of DateOffset or Timedelta
        Each is added to the last stamp.
    """

    def __init__(self, offsets: Iterable[Any]) -> None:
        self._values = pd.Index(list(offsets), dtype=object)
        self._is_relative = True
        self._freq = None


def as_horizon(fh: Any, cutoff: pd.Index | None) -> Any:
    """Return a horizon that may be changed; one of offsets where ``fh`` holds any.

    sktime writes the frequency of a forecaster's data into the caller's horizon, which
    then fits no other forecaster. And it knows no step on timedeltas, nor on stamps
    without a frequency: there, the horizon's own ``freq`` is the step.

    Parameters
    ----------
    fh : object
        What the user passed.
    cutoff : Index or None
        Last stamp seen.
    """
    if isinstance(fh, ForecastingHorizon):
        steps = fh.to_pandas()
        without_freq = isinstance(cutoff, pd.TimedeltaIndex) or (
            isinstance(cutoff, pd.DatetimeIndex) and cutoff.freq is None
        )
        countable = fh.is_relative and pd.api.types.is_integer_dtype(steps.dtype)
        if without_freq and countable and fh.freq is not None:
            step = pd.tseries.frequencies.to_offset(fh.freq)
            return OffsetHorizon(
                [int(k) * step if k else pd.Timedelta(0) for k in steps]
            )
        return copy.copy(fh)
    items = [fh] if isinstance(fh, pd.DateOffset) else fh
    if isinstance(items, list | tuple | np.ndarray | pd.Index) and len(items):
        timelike = all(isinstance(item, pd.DateOffset | pd.Timedelta) for item in items)
        if timelike and any(isinstance(item, pd.DateOffset) for item in items):
            return OffsetHorizon(items)
    return fh


def steps_ahead(fh: ForecastingHorizon | None) -> int | None:
    """Return the farthest step of a horizon that counts steps."""
    if fh is None or not fh.is_relative:
        return None
    steps = fh.to_pandas()
    if not pd.api.types.is_integer_dtype(steps.dtype):
        return None
    return int(steps.max()) if steps.max() > 0 else None
