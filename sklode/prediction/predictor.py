"""Answer queries at any times: choose a window, encode it once, decode everywhere.

A stamp inside a series is answered by a window around it: of those that begin at every
quarter of a window, the one whose middle is nearest. Stamps near the ends, and beyond
them, are answered by the first window, backward in time, and by the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.ticks import rows_before
from sklode.nn import ControlPath, LatentODE, Posterior
from sklode.nn.modes import own_modes
from sklode.prediction.calibration import Calibration
from sklode.prediction.randomness import normals

__all__ = ["KnownControls", "LatentPaths", "Predictor", "Queries"]

Array = NDArray[np.floating]

_WINDOWS_AT_ONCE = 512
_ANSWERS_AT_ONCE = 2**20
"""Bounds on a pass: its windows, and windows times stamps times draws."""

_STATES_AT_ONCE = 2**17
_FEWEST_ROWS = 16
"""Bounds on a solve: its windows times draws times steps (or stamps, if more), and the
windows times draws that it has nevertheless: the fused engine takes so many at a time.
"""

_PATH_POINTS = 400
"""Times at which a latent path is given."""

_WINDOWS_PER_LENGTH = 4
"""Windows begin at every quarter of a window from the series' first row.

Every row then lies near the middle of one of them, and many stamps share a window.
"""


class KnownControls(NamedTuple):
    """Controls given with a question, at the stamps asked and perhaps at others."""

    series: NDArray[np.int64]  # (row,)
    times: Array  # (row,), in time units since the series' first stamp
    values: Array  # (row, control), normalised

    def sorted(self) -> KnownControls:
        """Return the same by series and time."""
        order = np.lexsort((self.times, self.series))
        return KnownControls(self.series[order], self.times[order], self.values[order])


class LatentPaths(NamedTuple):
    """Paths of z(t) through the last window of a series and on, at even times."""

    mean: Array  # (time, latent): from the mean of q(z0)
    draws: Array  # (sample, time, latent)
    n_seen: int  # times up to the last observation
    velocities: Callable[[Array], Array]  # dz/dt at states, (row, latent), under the
    # control that acts at the last observation


class Queries(NamedTuple):
    """What is asked: rows of (series, time), and the controls known for them."""

    series: NDArray[np.int64]  # (query,)
    times: Array  # (query,), in time units since the series' first stamp
    known: KnownControls | None


class _Task(NamedTuple):
    """A batch of windows with all that is asked of each; padded queries ask at t0."""

    posterior: Posterior
    times: Tensor  # (window, slot)
    path: ControlPath | None
    n_states: int  # of a draw of all windows, that a solve holds
    query: NDArray[np.int64]  # the query in each filled slot
    window: NDArray[np.int64]  # the slot's place
    slot: NDArray[np.int64]
    series: NDArray[np.int64]  # (window,)
    first: Array  # (window,): the times of its first and last row
    last: Array


class Predictor:
    """A fitted network with the history that it forecasts from.

    Parameters
    ----------
    network : LatentODE
        Fitted.
    times : ndarray of shape (row,)
        In time units since each series' first stamp.
    values : ndarray of shape (row, channel)
        Normalised; NaN where missing.
    controls : ndarray of shape (row, control) or None
        Normalised.
    bounds : ndarray of shape (series + 1,)
        Rows of each series.
    window_length : int
        Rows that the encoder sees.
    calibration : Calibration, optional
        Of the draws' spread; None: the model's own.
    """

    def __init__(
        self,
        network: LatentODE,
        times: Array,
        values: Array,
        controls: Array | None,
        bounds: NDArray[np.int64],
        window_length: int,
        calibration: Calibration | None = None,
    ) -> None:
        self.calibration = calibration or Calibration.none(values.shape[1])
        self.network = network
        self.times = times
        self.values = values
        self.controls = controls
        self.bounds = bounds
        self.window_length = window_length

    def means(self, queries: Queries) -> Array:
        """Return x^ at the mean of q(z0), (query, channel), normalised."""
        result = np.empty((len(queries.times), self.values.shape[1]))
        for task in self._tasks(queries, n_draws=1):
            mean = self._decode(task, task.posterior.q_z0.mean.unsqueeze(0))
            result[task.query] = mean[0, task.window, task.slot]
        return result

    def draws(
        self, queries: Queries, n_draws: int, seed: int, noise: bool
    ) -> Iterator[tuple[NDArray[np.int64], Array]]:
        """Yield numbers of queries and their sample paths, (sample, query, channel).

        All queries of a window share a draw's z0: each path is one trajectory. What is
        drawn for a window or a stamp does not depend on what else is asked. Deviations
        of the trajectories from their mean, and the noise, are multiplied by the
        calibration's scale.

        Parameters
        ----------
        queries : Queries
            What is asked.
        n_draws : int
            Number of draws of z0.
        seed : int
            Of all random numbers.
        noise : bool
            Whether the emission's noise is added.
        """
        n_channels = self.values.shape[1]
        for query, paths, deviation in self._trajectories(queries, n_draws, seed):
            if noise:
                stamps = queries.series[query], queries.times[query]
                paths += deviation * normals(seed, 1, *stamps, n_draws, n_channels)
            yield query, paths

    def variances(self, queries: Queries, n_draws: int, seed: int) -> Array:
        """Return the draws' variance plus that of the noise, (query, channel).

        Parameters
        ----------
        queries, n_draws, seed
            As in `draws`.
        """
        result = np.empty((len(queries.times), self.values.shape[1]))
        for query, paths, deviation in self._trajectories(queries, n_draws, seed):
            result[query] = paths.var(axis=0) + deviation**2
        return result

    def latent_paths(
        self,
        series: int,
        end: float,
        known: KnownControls | None,
        n_draws: int,
        seed: int,
    ) -> LatentPaths:
        """Return z(t) from the start of a series' last window on, with draws.

        Parameters
        ----------
        series : int
            Its number.
        end : float
            Where the paths end, in time units since the series' first stamp, but not
            before the last observation.
        known : KnownControls or None
            As in `Queries`.
        n_draws, seed
            As in `draws`.
        """
        stop = int(self.bounds[series + 1])
        start = max(stop - self.window_length, int(self.bounds[series]))
        first, last = float(self.times[start]), float(self.times[stop - 1])
        end = max(end, last)
        n_seen = max(2, round(_PATH_POINTS * (last - first) / max(end - first, 1e-9)))
        times = np.linspace(first, last, n_seen)
        if end > last:
            n_ahead = max(2, _PATH_POINTS - n_seen)
            times = np.append(times, np.linspace(last, end, n_ahead + 1)[1:])
        query = np.arange(len(times))
        place = np.zeros_like(query)
        known = None if known is None else known.sorted()
        queries = Queries(np.full(len(times), series), times, known)
        windows = np.array([start])
        task = self._task(queries, windows, query, place, query, len(query))
        q_z0 = task.posterior.q_z0
        size = self.network.latent_size
        white = normals(seed, 0, task.series, task.first, n_draws, size)
        mean = q_z0.mean.unsqueeze(0)
        z0 = torch.cat([mean, mean + q_z0.stddev * self._tensor(white)])
        decoder, path = self.network.decoder, task.path
        with own_modes(gradients=False):
            states = [
                decoder(one, task.posterior.t0, task.times, path).cpu() for one in z0
            ]
            u = None if path is None else path.at(task.times)[0]
        paths = torch.cat(states).numpy()

        def velocities(states: Array) -> Array:
            held = None if u is None else u[n_seen - 1].expand(len(states), -1)
            with own_modes(gradients=False):
                slopes = decoder.vector_field(self._tensor(states), held)
            result: Array = slopes.cpu().numpy()
            return result

        return LatentPaths(paths[0], paths[1:], n_seen, velocities)

    def _trajectories(
        self, queries: Queries, n_draws: int, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], Array, Array]]:
        """Yield numbers of queries, calibrated paths and the noise's deviation."""
        noise_scale = self.network.emission.noise_scale.detach().cpu().numpy()
        latent_size = self.network.latent_size
        for task in self._tasks(queries, n_draws):
            q_z0 = task.posterior.q_z0
            white = normals(seed, 0, task.series, task.first, n_draws, latent_size)
            z0 = q_z0.mean + q_z0.stddev * self._tensor(white)
            decoded = self._decode(task, z0)
            n_parts = -(-n_draws * len(task.query) // _ANSWERS_AT_ONCE)
            for part in np.array_split(np.arange(len(task.query)), n_parts):
                query, window = task.query[part], task.window[part]
                paths = decoded[:, window, task.slot[part]].astype(np.float64)
                outside = queries.times[query] - task.last[window]
                before = task.first[window] - queries.times[query]
                scale = self.calibration.at(np.maximum(outside, before))
                mean = paths.mean(axis=0)
                yield query, mean + scale * (paths - mean), scale * noise_scale

    def _decode(self, task: _Task, z0: Tensor) -> Array:
        """Decode draws (sample, window, latent) to (sample, window, slot, channel)."""
        fewest = -(-_FEWEST_ROWS // len(task.times))
        at_once = max(_STATES_AT_ONCE // task.n_states, fewest)
        with own_modes(gradients=False):
            means = [
                self.network.decode_draws(part, task.posterior, task.times, task.path)
                for part in z0.split(at_once)
            ]
        paths: Array = torch.cat(means).cpu().numpy()
        return paths

    def _tasks(self, queries: Queries, n_draws: int) -> Iterator[_Task]:
        if queries.known is not None:
            queries = queries._replace(known=queries.known.sorted())
        windows, place = np.unique(self._window_starts(queries), return_inverse=True)
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place)
        slots = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = np.concatenate([[0], np.cumsum(counts)])
        spacing = self.network.decoder.solver.grid_spacing
        steps = np.abs(queries.times - self.times[windows][place]) / spacing
        states = counts.astype(np.int64)
        np.maximum.at(states, place, np.ceil(steps).astype(np.int64))
        for chunk in _chunks(counts * n_draws, states):
            part = slice(first[chunk.start], first[chunk.stop])
            members = order[part]
            yield self._task(
                queries,
                windows[chunk],
                members,
                place[members] - chunk.start,
                slots[part],
                int(states[chunk].max()) * (chunk.stop - chunk.start),
            )

    def _task(
        self,
        queries: Queries,
        windows: NDArray[np.int64],
        members: NDArray[np.int64],
        place: NDArray[np.int64],
        slot: NDArray[np.int64],
        n_states: int,
    ) -> _Task:
        """Encode windows, given by their first rows, and lay out their queries."""
        series = np.searchsorted(self.bounds, windows, side="right") - 1
        end = np.minimum(windows + self.window_length, self.bounds[series + 1])
        span = np.arange(int((end - windows).max()))
        inside = windows[:, None] + span < end[:, None]
        rows = np.minimum(windows[:, None] + span, end[:, None] - 1)
        origin = self.times[windows]
        values = self.values[rows]
        asked = np.zeros((len(windows), int(slot.max()) + 1))
        asked[place, slot] = queries.times[members] - origin[place]
        tensor = self._tensor
        seen_controls = path = None
        if self.controls is not None and queries.known is not None:
            seen_controls = tensor(self.controls[rows])
            path = self._path(self.controls, queries.known, windows, end, series, asked)
        with own_modes(gradients=False):
            posterior = self.network.posterior(
                tensor(self.times[rows] - origin[:, None]),
                tensor(np.nan_to_num(values)),
                torch.from_numpy(~np.isnan(values) & inside[..., None]).to(
                    self._device
                ),
                seen_controls,
            )
        return _Task(
            posterior,
            tensor(asked),
            path,
            n_states,
            members,
            place,
            slot,
            series,
            origin,
            self.times[end - 1],
        )

    def _window_starts(self, queries: Queries) -> NDArray[np.int64]:
        """Return the first row of the window that answers each query."""
        length = self.window_length
        spacing = -(-length // _WINDOWS_PER_LENGTH)
        first = self.bounds[:-1][queries.series]
        last = np.maximum(self.bounds[1:][queries.series] - length, first)
        row = rows_before(self.bounds, self.times, queries.series, queries.times)
        centred = row - (length - 1) // 2
        n_spacings = (centred - first + spacing // 2) // spacing
        return np.clip(first + n_spacings * spacing, first, last)

    def _path(
        self,
        seen: Array,
        known: KnownControls,
        windows: NDArray[np.int64],
        end: NDArray[np.int64],
        series: NDArray[np.int64],
        asked: Array,
    ) -> ControlPath:
        """Return the controls known to each window: those given, and its own.

        Of those given, sorted, the ones between which no time is read are left out.
        """
        spacing = self.network.decoder.solver.grid_spacing
        low = self.times[windows] + asked.min(1, initial=0) - spacing
        high = self.times[windows] + asked.max(1, initial=0) + spacing
        first = np.searchsorted(known.series, series)
        stop = np.searchsorted(known.series, series, side="right")
        for i, (begin, finish) in enumerate(zip(first, stop, strict=True)):
            given = known.times[begin:finish]
            first[i] += max(np.searchsorted(given, low[i], side="right") - 1, 0)
            stop[i] = min(begin + np.searchsorted(given, high[i]) + 1, finish)
        other, other_row = _ranges(first, stop)
        own, own_row = _ranges(windows, end)
        window = np.concatenate([other, own])
        times = np.concatenate([known.times[other_row], self.times[own_row]])
        values = np.concatenate([known.values[other_row], seen[own_row]])
        order = np.lexsort((times, window))  # stable: what is given comes first
        is_new = (np.diff(window[order]) != 0) | (np.diff(times[order]) != 0)
        order = order[np.append(True, is_new)]
        length = np.bincount(window[order], minlength=len(windows))
        span = np.arange(int(length.max()))
        inside = np.minimum(span, length[:, None] - 1)
        place = order[(np.cumsum(length) - length)[:, None] + inside]
        return ControlPath(
            self._tensor(times[place] - self.times[windows][:, None]),
            self._tensor(values[place]),
        )

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device

    def _tensor(self, array: Array) -> Tensor:
        dtype = next(self.network.parameters()).dtype
        return torch.as_tensor(array, dtype=dtype, device=self._device)


def _chunks(answers: NDArray[np.int64], states: NDArray[np.int64]) -> Iterator[slice]:
    """Yield consecutive windows for a pass each, within the bounds where they can be.

    Parameters
    ----------
    answers, states : ndarray of shape (window,)
        Of each window: what is asked of all draws, and what a solve of one holds. All
        windows of a pass take as much as the largest.
    """
    low = 0
    while low < len(answers):
        part = slice(low, low + _WINDOWS_AT_ONCE)
        most_answers = np.maximum.accumulate(answers[part])
        most_states = np.maximum.accumulate(states[part])
        number = np.arange(1, len(most_answers) + 1)
        fits = number * most_answers <= _ANSWERS_AT_ONCE
        fits &= number * most_states <= _STATES_AT_ONCE
        high = low + max(int(fits.sum()), 1)
        yield slice(low, high)
        low = high


def _ranges(
    start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers from each start to its stop, and whose they are."""
    length = stop - start
    owner = np.repeat(np.arange(len(start)), length)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length)
    return owner, start[owner] + within
