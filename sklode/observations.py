"""From pandas to observations: times, values and masks, and back to horizon stamps.

This module knows indexes, frequencies and units; everything after it sees
dimensionless times. A missing value is NaN at this border and False in the mask behind
it; zero is an observation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = [
    "Normalisation",
    "Observations",
    "WindowSet",
    "check_index",
    "check_same_kind",
    "check_values",
    "choose_anchor",
    "default_step",
    "deviation_scale",
    "future_stamps",
    "median_gap",
    "ticks_of",
]

Array = NDArray[np.floating]

_CALENDAR = ("MS", "ME", "QS", "QE", "YS", "YE", "B", "W")
"""Calendar frequencies that a series with holes may lie on, tried in this order."""


@dataclass(frozen=True)
class Observations:
    """One or more series, end to end; every row has at least one observed value.

    Attributes
    ----------
    ticks : ndarray of shape (row,), int64
        Time stamps as whole ticks of the index: ns of datetimes and timedeltas,
        ordinals of periods, the integers themselves.
    values : ndarray of shape (row, channel), float64
        NaN where missing.
    controls : ndarray of shape (row, control), float64, or None
        Exogenous values at the same stamps.
    bounds : ndarray of shape (series + 1,), int64
        Series k holds the rows ``bounds[k]`` to ``bounds[k + 1]``.
    keys : tuple of tuple
        The instance levels of each series' index; ``((),)`` for a single series.
    lone_gap : int
        Ticks of what counts as one gap where there is none: a day, or one.
    """

    ticks: NDArray[np.int64]
    values: Array
    controls: Array | None
    bounds: NDArray[np.int64]
    keys: tuple[tuple[Hashable, ...], ...]
    lone_gap: int = 1

    @classmethod
    def from_frame(cls, y: pd.DataFrame, X: pd.DataFrame | None) -> Observations:
        """Read series from ``y``, whose last index level is time.

        Rows without any observed value are dropped.

        Parameters
        ----------
        y : DataFrame
            One series, or more under a MultiIndex (instance levels..., time).
        X : DataFrame, optional
            Controls, with a row at every row of ``y``.

        Raises
        ------
        ValueError
            If a value is infinite, a control is missing, or a series has no observed
            value at all.
        """
        check_values(y)
        series, keys = series_of(y.index)
        values = y.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        controls = None if X is None else controls_at(X, y.index)
        ticks = ticks_of(y.index.get_level_values(-1))
        kept = np.flatnonzero(~np.isnan(values).all(axis=1))
        order = kept[np.lexsort((ticks[kept], series[kept]))]
        counts = np.bincount(series[order], minlength=len(keys))
        if not counts.all():
            which = keys[int(np.argmin(counts))]
            name = f" of series {which}" if which else ""
            raise ValueError(
                "y must hold at least one observed value in every series; got "
                f"{int((series == np.argmin(counts)).sum())} rows{name} that are all "
                "missing. Drop that series or give it a value."
            )
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(
            ticks[order],
            values[order],
            None if controls is None else controls[order],
            bounds,
            keys,
            lone_gap_of(y.index.get_level_values(-1)),
        )

    def check_channels(self, names: Sequence[Hashable]) -> None:
        """Check that every channel was observed at all.

        Raises
        ------
        ValueError
            Naming the first column without an observed value.
        """
        empty = np.isnan(self.values).all(axis=0)
        if empty.any():
            raise ValueError(
                "y must hold at least one observed value in every column; got none in "
                f"column {names[int(np.argmax(empty))]!r}. Drop that column."
            )

    def locate(self, index: pd.Index) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the series of each row of an index, and its ticks since their start.

        The series is -1, and the ticks mean nothing, where it is not among these.
        """
        series, keys = series_of(index)
        numbers = {key: k for k, key in enumerate(self.keys)}
        number = np.array([numbers.get(key, -1) for key in keys], dtype=np.int64)
        series = number[series]
        start = self.ticks[self.bounds[:-1]][series]
        return series, ticks_of(index.get_level_values(-1)) - start

    def ticks_of_series(self, k: int) -> NDArray[np.int64]:
        """Return the stamps of series ``k``."""
        return self.ticks[self.bounds[k] : self.bounds[k + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each series."""
        return np.diff(self.bounds)

    def times(self, time_unit: float) -> Array:
        """Time of each row since its series' first stamp, in units of ``time_unit``."""
        start = np.repeat(self.ticks[self.bounds[:-1]], self.lengths)
        return (self.ticks - start) / time_unit

    def extended(self, new: Observations) -> Observations:
        """Return these series with later rows of ``new`` appended, matched by key."""
        frames = []
        for source in (self, new):
            keys = {key: k for k, key in enumerate(self.keys)}
            series = np.repeat([keys[key] for key in source.keys], source.lengths)
            frames.append((series, source))
        series = np.concatenate([part for part, _ in frames])
        order = np.argsort(series, kind="stable")
        controls = None
        if self.controls is not None and new.controls is not None:
            controls = np.concatenate([self.controls, new.controls])[order]
        counts = np.bincount(series, minlength=len(self.keys))
        return replace(
            self,
            ticks=np.concatenate([self.ticks, new.ticks])[order],
            values=np.concatenate([self.values, new.values])[order],
            controls=controls,
            bounds=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        )


def series_of(
    index: pd.Index,
) -> tuple[NDArray[np.int64], tuple[tuple[Hashable, ...], ...]]:
    """Return the series' number of each row, and the key of each series."""
    if index.nlevels == 1:
        return np.zeros(len(index), np.int64), ((),)
    codes, uniques = pd.factorize(index.droplevel(-1))
    keys = tuple(key if isinstance(key, tuple) else (key,) for key in uniques)
    return codes.astype(np.int64), keys


def ticks_of(index: pd.Index) -> NDArray[np.int64]:
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


def lone_gap_of(times: pd.Index) -> int:
    """Return the ticks of what counts as one gap of a single stamp."""
    timelike = isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex)
    return pd.Timedelta(1, unit="D").as_unit("ns").value if timelike else 1


def check_index(index: pd.Index, name: str = "y") -> None:
    """Check that stamps are finite and strictly increasing within each series.

    Parameters
    ----------
    index : Index
        The last level is time.
    name : str, default="y"
        What the message calls the data.

    Raises
    ------
    ValueError
        Naming the first offending row.
    """
    times = index.get_level_values(-1)
    missing = np.flatnonzero(np.asarray(times.isna()))
    if len(missing):
        raise ValueError(
            f"the time index of {name} must hold finite times; got "
            f"{times[missing[0]]} at row {missing[0]}. Drop that row or give it a time."
        )
    if pd.api.types.is_float_dtype(times.dtype):
        infinite = np.flatnonzero(~np.isfinite(np.asarray(times, dtype=float)))
        if len(infinite):
            raise ValueError(
                f"the time index of {name} must hold finite times; got "
                f"{times[infinite[0]]} at row {infinite[0]}. Drop that row or give it "
                "a time."
            )
        return
    supported = isinstance(times, pd.DatetimeIndex | pd.TimedeltaIndex | pd.PeriodIndex)
    if not supported and not pd.api.types.is_integer_dtype(times.dtype):
        return  # sktime refuses these types with a message of its own
    ticks = ticks_of(times)
    series, _ = series_of(index)
    order = np.argsort(series, kind="stable")
    same = series[order][1:] == series[order][:-1]
    offenders = np.flatnonzero(same & (np.diff(ticks[order]) <= 0))
    if not len(offenders):
        return
    before, row = order[offenders[0]], order[offenders[0] + 1]
    if ticks[row] == ticks[before]:
        remedy = f"Keep one row per stamp: {name}[~{name}.index.duplicated()]."
    else:
        remedy = f"Sort {name} by its index first: {name}.sort_index()."
    raise ValueError(
        f"times of {name} must be strictly increasing; got {times[row]} after "
        f"{times[before]} at row {row}. {remedy}"
    )


def check_same_kind(
    times: pd.Index, known: pd.Index, name: str = "the horizon"
) -> None:
    """Check that stamps are of the kind of those seen in fit, time zone included.

    Raises
    ------
    TypeError
        If the two kinds differ.
    """

    def kind(index: pd.Index) -> str:
        if isinstance(index, pd.DatetimeIndex):
            return (
                "datetimes"
                + (" without" if index.tz is None else " with")
                + (" a time zone")
            )
        if isinstance(index, pd.PeriodIndex):
            return f"periods of frequency {index.freqstr}"
        if isinstance(index, pd.TimedeltaIndex):
            return "timedeltas"
        return "integers" if pd.api.types.is_integer_dtype(index.dtype) else str(index)

    if kind(times) != kind(known):
        raise TypeError(
            f"{name} must be of the kind of y's index, {kind(known)}; got "
            f"{kind(times)}. Convert it first."
        )


def check_values(y: pd.DataFrame, name: str = "y") -> None:
    """Check that no value is infinite.

    Raises
    ------
    ValueError
        Naming the first offending row and column.
    """
    infinite = np.isinf(y.to_numpy(dtype=np.float64, na_value=np.nan))
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise ValueError(
            f"values of {name} must be finite or NaN (missing); got "
            f"{y.iloc[row, column]} in column {y.columns[column]!r} at row {row} "
            f"({y.index[row]}). Replace it by NaN to treat it as missing."
        )


def controls_at(X: pd.DataFrame, index: pd.Index) -> Array:
    """Return the rows of X at ``index``.

    Raises
    ------
    ValueError
        If a stamp or a value is missing.
    """
    check_values(X, "X")
    absent = ~index.isin(X.index)
    if absent.any():
        raise ValueError(
            f"X must have a row at every stamp of y and of the horizon; got none at "
            f"{index[int(np.argmax(absent))]}. Extend X to cover it."
        )
    values = X.loc[index].to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isnan(values).any():
        row, column = np.argwhere(np.isnan(values))[0]
        raise ValueError(
            "X must not have missing values; got NaN in column "
            f"{X.columns[column]!r} at {index[row]}. Fill it first."
        )
    return values


def median_gap(observations: Observations) -> float:
    """Return the median positive gap in ticks, pooled over series.

    Without any gap it is one day, or one tick where ticks are not time.
    """
    gaps = np.diff(observations.ticks)
    inner = observations.bounds[1:-1] - 1
    gaps = np.delete(gaps, inner[(inner >= 0) & (inner < len(gaps))])
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else float(observations.lone_gap)


def default_step(
    times: pd.Index, freq: str | pd.DateOffset | pd.Timedelta | None
) -> Any:
    """Return the length of one step of a relative horizon.

    For integers and periods it is 1. For datetimes and timedeltas it is ``freq`` where
    given; else the index's own frequency; else the inferred one; else a calendar
    frequency that every stamp lies on; else the median gap; else, with a single stamp,
    one day.
    """
    if isinstance(times, pd.PeriodIndex) or pd.api.types.is_integer_dtype(times.dtype):
        return 1
    if freq is not None:
        return pd.tseries.frequencies.to_offset(freq)
    own = getattr(times, "freq", None)
    if own is not None:
        return own
    inferred = pd.infer_freq(times) if len(times) >= 3 else None
    if inferred is not None:
        return pd.tseries.frequencies.to_offset(inferred)
    if len(times) < 2:
        return pd.Timedelta(1, unit="D")
    gap = pd.Timedelta(int(np.median(np.diff(ticks_of(times)))), unit="ns")
    if isinstance(times, pd.DatetimeIndex) and len(times) >= 3:
        for name in _CALENDAR:
            offset = pd.tseries.frequencies.to_offset(name)
            dozen = times[0] + 12 * offset - times[0]  # business days skip weekends
            similar = 0.5 * dozen <= 12 * gap <= 2 * dozen
            if similar and all(offset.is_on_offset(stamp) for stamp in times):
                return offset
    return gap.as_unit(times.unit)


def future_stamps(steps: pd.Index, last: pd.Index, step: Any) -> pd.Index:
    """Return the stamps that lie ``steps`` after the single stamp in ``last``.

    Parameters
    ----------
    steps : Index
        Whole numbers of steps, or timedeltas or offsets.
    last : Index of length 1
        The series' last stamp.
    step : int, offset or Timedelta
        Length of one step, from `default_step`.
    """
    timelike = isinstance(last, pd.DatetimeIndex | pd.TimedeltaIndex)
    if not timelike or not pd.api.types.is_integer_dtype(steps.dtype):
        return last[[0] * len(steps)] + steps
    return type(last)([last[0] + int(k) * step for k in steps])


@dataclass(frozen=True)
class Normalisation:
    """Location and scale of channels and controls, from the training rows.

    Attributes
    ----------
    location, scale : ndarray of shape (channel,)
        Training mean and standard deviation over observed values; for a constant
        channel its size, 1 where it is zero.
    control_location, control_scale : ndarray of shape (control,)
        The same for the controls.
    """

    location: Array
    scale: Array
    control_location: Array
    control_scale: Array

    @classmethod
    def of(cls, observations: Observations, rescale: bool = True) -> Normalisation:
        """Measure ``observations``; without ``rescale`` y is left as it is."""
        n_channels = observations.values.shape[1]
        location: Array = np.zeros(n_channels)
        scale: Array = np.ones(n_channels)
        if rescale:
            location, scale = _location_and_scale(observations.values)
        if observations.controls is None:
            return cls(location, scale, np.zeros(0), np.ones(0))
        return cls(location, scale, *_location_and_scale(observations.controls))

    def rescaled(self, factor: Array) -> Normalisation:
        """Return the same with y's scale multiplied by ``factor``, (channel,)."""
        return replace(self, scale=self.scale * factor)

    def values(self, values: Array) -> Array:
        """Return y's values in normalised units."""
        return (values - self.location) / self.scale

    def controls(self, controls: Array) -> Array:
        """Return X's values in normalised units."""
        return (controls - self.control_location) / self.control_scale

    def original(self, values: Array) -> Array:
        """Return normalised values of y in original units."""
        return values * self.scale + self.location


def _location_and_scale(values: Array) -> tuple[Array, Array]:
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(0), 1)
    # divided first: the sum of values near the largest float must not overflow
    location = np.where(observed, values / count, 0.0).sum(0)
    deviation = np.where(observed, values - location, 0.0)
    largest = np.abs(deviation).max(0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    scale = unit * np.sqrt(((deviation / unit) ** 2).sum(0) / count)
    # what rounding leaves of a constant channel is no scale; its size is one
    constant = scale <= 1e-12 * np.abs(location)
    scale = np.where(constant, np.abs(location), scale)
    return location, np.where(scale == 0, 1.0, scale)


class WindowArrays(NamedTuple):
    """Windows side by side, (batch, time, ...); times count from each first row."""

    times: Array
    values: Array
    mask: NDArray[np.bool_]
    controls: Array | None
    scored: NDArray[np.bool_] | None


class WindowSet:
    """Every training window of one or more series, gathered without a loop.

    A window is ``window_length`` rows that the encoder sees and ``horizon`` rows after
    them; a series shorter than that is one window of all its rows.

    Parameters
    ----------
    times : ndarray of shape (row,)
        In time units, since each series' start.
    values : ndarray of shape (row, channel)
        Normalised; NaN where missing.
    controls : ndarray of shape (row, control) or None
        Normalised.
    bounds : ndarray of shape (series + 1,)
        Rows of each series, see `Observations`.
    window_length, horizon : int
        Numbers of rows.
    """

    def __init__(
        self,
        times: Array,
        values: Array,
        controls: Array | None,
        bounds: NDArray[np.int64],
        window_length: int,
        horizon: int,
    ) -> None:
        self._times = times
        self._mask = ~np.isnan(values)
        self._values = np.where(self._mask, values, 0.0).astype(np.float32)
        self._controls = None if controls is None else controls.astype(np.float32)
        self._bounds = bounds
        self._lay_out(window_length, horizon)

    def shortened(self, share: float) -> WindowSet:
        """Return windows of a share of these lengths over the same rows."""
        windows = copy.copy(self)
        seen = max(math.ceil(share * self.window_length), 1)
        windows._lay_out(seen, math.ceil(share * self.horizon))
        return windows

    def _lay_out(self, window_length: int, horizon: int) -> None:
        self.window_length = window_length
        self.horizon = horizon
        bounds = self._bounds
        lengths = np.diff(bounds)
        counts = np.maximum(lengths - window_length - horizon + 1, 1)
        series = np.repeat(np.arange(len(lengths)), counts)
        within = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.series = series
        self.start = bounds[series] + within
        self.end = np.minimum(self.start + window_length + horizon, bounds[1:][series])
        self.span = int((self.end - self.start).max())

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.start)

    def gather(
        self, which: NDArray[np.int64], scored_from: NDArray[np.int64] | None = None
    ) -> WindowArrays:
        """Return windows as arrays of shape (batch, time, ...).

        Padded stamps repeat the window's last row with a mask of False.

        Parameters
        ----------
        which : ndarray of shape (batch,)
            Numbers of windows.
        scored_from : ndarray of shape (batch,), optional
            ``scored`` marks the observed entries after the seen part from this row on;
            without it, it is None.
        """
        start, end = self.start[which, None], self.end[which, None]
        span = np.arange(self.span)
        inside = start + span < end
        rows = np.minimum(start + span, end - 1)
        times = self._times[rows]
        mask = self._mask[rows] & inside[..., None]
        scored = None
        if scored_from is not None:
            later = (span >= self.window_length) & (rows >= scored_from[:, None])
            scored = mask & later[..., None]
        return WindowArrays(
            (times - times[:, :1]).astype(np.float32),
            self._values[rows],
            mask,
            None if self._controls is None else self._controls[rows],
            scored,
        )


def deviation_scale(values: Array, mask: NDArray[np.bool_], n_seen: int) -> Array:
    """Return the root mean square of windows' deviations from their own means.

    Relative to its level a series that drifts moves far less than its overall spread
    says; 1 where a channel does not move at all.

    Parameters
    ----------
    values, mask, n_seen
        As in `choose_anchor`.

    Returns
    -------
    ndarray of shape (channel,)
    """
    seen = mask[:, :n_seen]
    mean = np.where(seen, values[:, :n_seen], 0).sum(1) / np.maximum(seen.sum(1), 1)
    deviation = np.where(mask, values - mean[:, None], 0)
    scale = np.sqrt((deviation**2).sum((0, 1)) / np.maximum(mask.sum((0, 1)), 1))
    return np.where(scale > 1e-6, scale, 1.0).astype(np.float64)


def choose_anchor(values: Array, mask: NDArray[np.bool_], n_seen: int) -> str:
    """Choose the level that windows are best described relative to.

    The level alone, without any model, forecasts what follows the seen part: the
    series' mean, the window's mean, its last value, or the best blend of these two
    (fitted on every other window). The first in that order whose error over the
    remaining windows is within one standard error of the least is chosen.

    Parameters
    ----------
    values : ndarray of shape (batch, time, channel)
        Windows in normalised units, the series' mean at zero.
    mask : ndarray of shape (batch, time, channel), bool
        True where observed.
    n_seen : int
        Stamps of the seen part.

    Returns
    -------
    {"series", "window", "last", "blend"}
    """
    seen, later = mask[:, :n_seen], mask[:, n_seen:]
    usable = seen.any((1, 2)) & later.any((1, 2))
    if usable.sum() < 4:
        return "series"
    values, seen, later = values[usable], seen[usable], later[usable]
    truth = values[:, n_seen:]
    mean = np.where(seen, values[:, :n_seen], 0).sum(1) / np.maximum(seen.sum(1), 1)
    latest = np.where(seen, np.arange(n_seen)[:, None], 0).max(1)
    last = np.take_along_axis(values, latest[:, None], 1)[:, 0]
    blend = np.zeros_like(mean)
    for channel in range(values.shape[2]):
        design = np.stack([last[:, channel], mean[:, channel]], axis=1)
        count = later[::2, :, channel].sum(1)
        goal = np.where(later[::2, :, channel], truth[::2, :, channel], 0).sum(1)
        weight = np.sqrt(count)[:, None]
        solution, *_ = np.linalg.lstsq(
            design[::2] * weight, goal / np.maximum(weight[:, 0], 1), rcond=None
        )
        blend[:, channel] = design @ solution
    levels = {
        "series": np.zeros_like(mean),
        "window": mean,
        "last": last,
        "blend": blend,
    }
    errors = {}
    for name, level in levels.items():
        squares = np.where(later, (truth - level[:, None]) ** 2, 0)[1::2]
        errors[name] = squares.sum((1, 2)) / np.maximum(later[1::2].sum((1, 2)), 1)
    best = min(errors, key=lambda name: errors[name].mean())
    margin = errors[best].std() / np.sqrt(len(errors[best]))
    return next(n for n in levels if errors[n].mean() <= errors[best].mean() + margin)
