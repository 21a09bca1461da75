"""Forecasting horizons as sktime's own class cannot hold or must not change them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

__all__ = ["FreeHorizon", "as_horizon", "steps_ahead"]


class FreeHorizon(ForecastingHorizon):
    """A horizon of values that sktime's own class refuses.

    Parameters
    ----------
    values : Index
        Relative calendar offsets (of type object), or absolute stamps of any kind,
        timedeltas among them.
    is_relative : bool
        Whether the values count from the last stamp.
    """

    def __init__(self, values: pd.Index, is_relative: bool) -> None:
        self._values = values
        self._is_relative = is_relative
        self._freq = None


def as_horizon(fh: Any, cutoff: pd.Index | None) -> Any:
    """Return a horizon that may be changed; one of offsets where ``fh`` holds any.

    sktime writes the frequency of a forecaster's data into the caller's horizon, which
    then fits no other forecaster. And it knows no step on stamps without a frequency:
    there, the horizon's own ``freq`` is the step.

    Parameters
    ----------
    fh : object
        What the user passed.
    cutoff : Index or None
        Last stamp seen.
    """
    if isinstance(fh, ForecastingHorizon):
        steps = fh.to_pandas()
        without_freq = isinstance(cutoff, pd.DatetimeIndex) and cutoff.freq is None
        countable = fh.is_relative and pd.api.types.is_integer_dtype(steps.dtype)
        if without_freq and countable and fh.freq is not None:
            step = pd.tseries.frequencies.to_offset(fh.freq)
            return _of_offsets([int(k) * step if k else pd.Timedelta(0) for k in steps])
        return copy.copy(fh)
    items = [fh] if isinstance(fh, pd.DateOffset) else fh
    if isinstance(items, list | tuple | np.ndarray | pd.Index) and len(items):
        timelike = all(isinstance(item, pd.DateOffset | pd.Timedelta) for item in items)
        if timelike and any(isinstance(item, pd.DateOffset) for item in items):
            return _of_offsets(items)
    return fh


def _of_offsets(offsets: Iterable[Any]) -> FreeHorizon:
    return FreeHorizon(pd.Index(list(offsets), dtype=object), is_relative=True)


def steps_ahead(fh: ForecastingHorizon | None) -> int | None:
    """Return the farthest step of a horizon that counts steps."""
    if fh is None or not fh.is_relative:
        return None
    steps = fh.to_pandas()
    if not pd.api.types.is_integer_dtype(steps.dtype):
        return None
    return int(steps.max()) if steps.max() > 0 else None
