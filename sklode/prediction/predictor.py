"""Answer queries at any times: choose a window, encode it once, decode everywhere.

A stamp inside a series is answered by a window around it: of those that begin at every
quarter of a window, the one whose middle is nearest. Stamps near the ends, and beyond
them, are answered by the first window, backward in time, and by the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.ticks import rows_before
from sklode.data.windows import WindowSet
from sklode.nn import ControlPath, LatentODE, Posterior
from sklode.nn.modes import own_modes
from sklode.prediction.calibration import Calibration
from sklode.prediction.randomness import normals

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_WINDOWS_AT_ONCE = 512
_ANSWERS_AT_ONCE = 2**20
"""Bounds on a pass: its windows, and windows times stamps times draws."""

_STATES_AT_ONCE = 2**17
_FEWEST_ROWS = 16
"""Bounds on a solve: its windows times draws times steps (or stamps, if more), and the
windows times draws that it has nevertheless: the fused engine takes so many at a time.
"""

_WINDOWS_PER_LENGTH = 4
"""Windows begin at every quarter of a window from the series' first row.

Every row then lies near the middle of one of them, and many stamps share a window.
"""


class KnownControls(NamedTuple):
    """Controls given with a question, by series and time; perhaps at other stamps.

    Of two rows at one time the first counts.
    """

    series: Numbers  # (row,)
    times: Array  # (row,), in time units since the series' first stamp
    values: Array  # (row, control), normalised


class Queries(NamedTuple):
    """What is asked: rows of (series, time), and the controls known for them."""

    series: Numbers  # (query,)
    times: Array  # (query,), in time units since the series' first stamp
    known: KnownControls | None


class _Task(NamedTuple):
    """A batch of windows with all that is asked of each; padded slots ask at t0."""

    windows: Numbers  # (window,): their numbers
    posterior: Posterior
    times: Tensor  # (window, slot), since each window's first row
    path: ControlPath | None
    query: Numbers  # the query in each filled slot
    window: Numbers  # the slot's place
    slot: Numbers


class Predictor:
    """A fitted network with the windows of the history that it forecasts from.

    The windows have no rows after those that the encoder sees. Answers are in
    normalised units.
    """

    def __init__(
        self, network: LatentODE, windows: WindowSet, calibration: Calibration
    ) -> None:
        self.network = network
        self.windows = windows
        self.calibration = calibration

    def means(self, queries: Queries) -> Iterator[tuple[Numbers, Array]]:
        """Yield numbers of queries and x^ at the mean of q(z0), (query, channel)."""
        for task in self._tasks(queries, n_draws=1):
            mean = self._decode(task, task.posterior.q_z0.mean.unsqueeze(0))
            yield task.query, mean[0][task.window, task.slot]

    def draws(
        self, queries: Queries, n_draws: int, seed: int, noise: bool
    ) -> Iterator[tuple[Numbers, Array, Array]]:
        """Yield numbers of queries, sample paths, and the noise's standard deviation.

        Paths are (sample, query, channel), the deviation (query, channel). All queries
        of a window share a draw's z0: each path is one trajectory. What is drawn for a
        window or a stamp does not depend on what else is asked. Deviations of the
        trajectories from their mean, and the noise, are multiplied by the calibration's
        scale.
        """
        noise_scale = self.network.emission.noise_scale.detach().cpu().numpy()
        for task in self._tasks(queries, n_draws):
            decoded = self._decode(task, self._drawn(task, n_draws, seed))
            first = self.windows.times[self.windows.start[task.windows]]
            last = self.windows.times[self.windows.end[task.windows] - 1]
            n_parts = -(-n_draws * len(task.query) // _ANSWERS_AT_ONCE)
            for part in np.array_split(np.arange(len(task.query)), n_parts):
                query, window = task.query[part], task.window[part]
                paths = decoded[:, window, task.slot[part]].astype(np.float64)
                series, times = queries.series[query], queries.times[query]
                outside = np.maximum(times - last[window], first[window] - times)
                scale = self.calibration.at(outside)
                mean = paths.mean(axis=0)
                paths = mean + scale * (paths - mean)
                if noise:
                    white = normals(seed, 1, series, times, n_draws, paths.shape[-1])
                    paths += scale * noise_scale * white
                yield query, paths, scale * noise_scale

    def _drawn(self, task: _Task, n_draws: int, seed: int) -> Tensor:
        """Return draws from q(z0), (sample, window, latent)."""
        q_z0, windows = task.posterior.q_z0, self.windows
        series = windows.series[task.windows]
        first = windows.times[windows.start[task.windows]]
        white = normals(seed, 0, series, first, n_draws, self.network.latent_size)
        return q_z0.mean + q_z0.stddev * self._tensor(white)

    def _decode(self, task: _Task, z0: Tensor) -> Array:
        """Decode draws (sample, window, latent) to (sample, window, slot, channel)."""
        n_windows, n_slots = task.times.shape
        spacing = self.network.decoder.solver.grid_spacing
        n_steps = int(np.ceil(float(task.times.abs().max()) / spacing))
        fewest = -(-_FEWEST_ROWS // n_windows)
        at_once = max(_STATES_AT_ONCE // (n_windows * max(n_slots, n_steps)), fewest)
        with own_modes(gradients=False):
            means = [
                self.network.decode_draws(part, task.posterior, task.times, task.path)
                for part in z0.split(at_once)
            ]
        paths: Array = torch.cat(means).cpu().numpy()
        return paths

    def _tasks(self, queries: Queries, n_draws: int) -> Iterator[_Task]:
        """Yield windows with what is asked of them, as many as a pass may have.

        Those that take most come first: all windows of a pass take as much as its
        largest.
        """
        windows, place = np.unique(self._windows_of(queries), return_inverse=True)
        counts = np.bincount(place)
        origin = self.windows.times[self.windows.start[windows]]
        spacing = self.network.decoder.solver.grid_spacing
        steps = np.abs(queries.times - origin[place]) / spacing
        states = counts.astype(float)
        np.maximum.at(states, place, np.ceil(steps))
        answers = counts * n_draws / _ANSWERS_AT_ONCE
        share = np.maximum(answers, states / _STATES_AT_ONCE)  # of a pass
        by_share = np.argsort(-share, kind="stable")
        place = np.argsort(by_share)[place]
        order = np.argsort(place, kind="stable")
        place_in_order = place[order]
        low = 0
        while low < len(windows):
            largest = share[by_share[low]]
            high = low + int(np.clip(1 / largest, 1, _WINDOWS_AT_ONCE))
            begin, end = np.searchsorted(place_in_order, [low, high])
            query = order[begin:end]
            chunk = windows[by_share[low:high]]
            yield self._task(queries, chunk, query, place[query] - low)
            low = high

    def _task(
        self, queries: Queries, windows: Numbers, query: Numbers, window: Numbers
    ) -> _Task:
        """Encode windows and lay out their queries, sorted by window."""
        origin = self.windows.times[self.windows.start[windows]]
        slot = np.arange(len(window)) - np.searchsorted(window, window)
        asked = np.zeros((len(windows), int(slot.max()) + 1))
        asked[window, slot] = queries.times[query] - origin[window]
        seen = self.windows.gather(windows)
        tensor = self._tensor
        path = None
        if queries.known is not None:
            path = self._path(queries.known, windows, asked)
        with own_modes(gradients=False):
            posterior = self.network.posterior(
                tensor(seen.times),
                tensor(seen.values),
                tensor(seen.mask).bool(),
                None if seen.controls is None else tensor(seen.controls),
            )
        return _Task(windows, posterior, tensor(asked), path, query, window, slot)

    def _windows_of(self, queries: Queries) -> Numbers:
        """Return the number of the window that answers each query."""
        windows, series = self.windows, queries.series
        length = windows.window_length
        spacing = -(-length // _WINDOWS_PER_LENGTH)
        first = windows.bounds[:-1][series]
        last = np.maximum(windows.bounds[1:][series] - length, first)
        row = rows_before(windows.bounds, windows.times, series, queries.times)
        centred = row - (length - 1) // 2
        n_spacings = (centred - first + spacing // 2) // spacing
        start = np.clip(first + n_spacings * spacing, first, last)
        return np.searchsorted(windows.start, start)

    def _path(
        self, known: KnownControls, windows: Numbers, asked: Array
    ) -> ControlPath:
        """Return the controls known to each window: those given, and its own.

        Of those given the ones between which no time is read are left out.
        """
        row_times = self.windows.times
        controls: Any = self.windows.rows()[2]
        spacing = self.network.decoder.solver.grid_spacing
        times, values = [], []
        for number, since in zip(windows, asked, strict=True):
            own = slice(self.windows.start[number], self.windows.end[number])
            origin, series = row_times[own.start], self.windows.series[number]
            begin, end = np.searchsorted(known.series, [series, series + 1])
            read = origin + np.append(since, 0.0)  # from t0 on
            reach = read.min() - spacing, read.max() + spacing
            low, high = begin + np.searchsorted(known.times[begin:end], reach)
            given = slice(max(low - 1, begin), min(high + 1, end))
            both = np.concatenate([known.times[given], row_times[own]])
            both, row = np.unique(both, return_index=True)  # of equal ones the first
            times.append(both - origin)
            values.append(np.concatenate([known.values[given], controls[own]])[row])
        return ControlPath(self._tensor(_padded(times)), self._tensor(_padded(values)))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        like = next(self.network.parameters())
        return torch.as_tensor(array, dtype=like.dtype, device=like.device)


def _padded(parts: list[Array]) -> Array:
    """Return arrays side by side, of which shorter ones repeat their last row."""
    rows = np.arange(max(map(len, parts)))
    return np.stack([part[np.minimum(rows, len(part) - 1)] for part in parts])
