"""Training windows: rows of one or more series side by side, in normalised units.

A window is what the encoder sees and what follows it. Nothing here loops over series
or windows.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations

__all__ = [
    "SCORED_WINDOWS",
    "Normalisation",
    "WindowArrays",
    "WindowSet",
    "choose_anchor",
    "constants_of",
    "deviation_scale",
    "spread",
]

Array = NDArray[np.floating]

SCORED_WINDOWS = 64
"""Held-out windows that are scored after each epoch, and that choose the anchor."""


@dataclass(frozen=True)
class Normalisation:
    """Location and scale of channels and controls, from the training rows.

    Attributes
    ----------
    location, scale : ndarray of shape (channel,)
        Training mean and standard deviation over observed values; for a constant
        channel its size, 1 where it is zero. Not for ``normalize=None``.
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


def constants_of(values: Array) -> Array:
    """Return the constants of the channels of (row, channel); NaN where one varies.

    Or where it was never observed. Rounding is no variation.
    """
    missing = np.isnan(values)
    low = np.where(missing, np.inf, values).min(0, initial=np.inf)
    high = np.where(missing, -np.inf, values).max(0, initial=-np.inf)
    size = np.maximum(np.abs(low), np.abs(high))
    # halved, so that the distance of two large numbers is one
    constant = ~missing.all(0) & (high / 2 - low / 2 <= _ROUNDING * size)
    return np.where(constant, high, np.nan)


_ROUNDING = 4 * np.finfo(np.float64).eps
"""Relative differences of this size are what is left of equal numbers."""


def _location_and_scale(values: Array) -> tuple[Array, Array]:
    observed = ~np.isnan(values)
    count = np.maximum(observed.sum(0), 1)
    # divided first: the sum of values near the largest float must not overflow
    location = np.where(observed, values / count, 0.0).sum(0)
    constants = constants_of(values)
    constant = ~np.isnan(constants)
    location = np.where(constant, constants, location)
    deviation = np.where(observed, values - location, 0.0)
    largest = np.abs(deviation).max(0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    scale = unit * np.sqrt(((deviation / unit) ** 2).sum(0) / count)
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
    them; a series shorter than that is one window of all its rows. Every row that
    `Observations` keeps has an observed value, of some channel: so no window has an
    empty seen part, nor one that reaches beyond it nothing to score there, however
    much of any one channel is missing.

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
        self._counts = np.full(values.shape[1], True)
        self.bounds = bounds
        self._lay_out(window_length, horizon)

    def without(self, channels: NDArray[np.bool_]) -> WindowSet:
        """Return the same windows, in which some channels are never scored."""
        windows = copy.copy(self)
        windows._counts = ~channels
        return windows

    def shortened(self, share: float) -> WindowSet:
        """Return windows of a share of these lengths over the same rows."""
        windows = copy.copy(self)
        seen = max(math.ceil(share * self.window_length), 1)
        windows._lay_out(seen, math.ceil(share * self.horizon))
        return windows

    def reaching(self, horizon: int) -> WindowSet:
        """Return windows from every row that another follows what is seen.

        They end after ``horizon`` more rows, or where their series does.
        """
        windows = copy.copy(self)
        windows._lay_out(self.window_length, min(horizon, 1))
        end = windows.start + self.window_length + horizon
        windows.horizon = horizon
        windows.end = np.minimum(end, self.bounds[1:][windows.series])
        windows.span = int((windows.end - windows.start).max())
        return windows

    def _lay_out(self, window_length: int, horizon: int) -> None:
        self.window_length = window_length
        self.horizon = horizon
        bounds = self.bounds
        lengths = np.diff(bounds)
        counts = np.maximum(lengths - window_length - horizon + 1, 1)
        series = np.repeat(np.arange(len(lengths)), counts)
        within = np.arange(len(series)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.series = series
        self.start = bounds[series] + within
        self.end = np.minimum(self.start + window_length + horizon, bounds[1:][series])
        self.span = int((self.end - self.start).max())

    def rows(self) -> tuple[Array, NDArray[np.bool_], Array | None]:
        """Return all rows' values (zero where missing), mask and controls."""
        return self._values, self._mask, self._controls

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
            without it, and where every channel counts, it is None.
        """
        start, end = self.start[which, None], self.end[which, None]
        span = np.arange(self.span)
        inside = start + span < end
        rows = np.minimum(start + span, end - 1)
        times = self._times[rows]
        mask = self._mask[rows] & inside[..., None]
        scored = None
        if not self._counts.all():
            scored = mask & self._counts
        if scored_from is not None:
            later = (span >= self.window_length) & (rows >= scored_from[:, None])
            scored = mask & later[..., None] & self._counts
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
    says; 1 where a channel does not move at all. A window that has not seen a channel
    has no level of it and does not count for it.

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
    mask = mask & np.any(seen, axis=1, keepdims=True)
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
    # of a channel that it has not seen a window has no level
    later = later & np.any(seen, axis=1, keepdims=True)
    usable = later.any((1, 2))
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


def spread(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most that many items, evenly spaced, the last one among them."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(np.int64)]
