"""What a network that describes whole windows says of series, in y's own units.

A stamp inside a series is answered by a window around it: of those that begin at every
quarter of a window, the one whose middle is nearest. Stamps near the ends, and beyond
them, are answered by the first window, backward in time, and by the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from sklode.data.errors import SolverError
from sklode.data.history import Asked, History
from sklode.data.scaling import split_at_gaps
from sklode.data.ticks import rows_before, ticks_between
from sklode.engine.threads import n_threads
from sklode.nn import ControlPath, make_batch
from sklode.nn.modes import own_modes
from sklode.prediction.calibration import Calibration
from sklode.prediction.controls import KnownControls
from sklode.prediction.model import FittedModel
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


class _Queries(NamedTuple):
    """Where stamps lie among the pieces of series, see `split_at_gaps`."""

    piece: Numbers  # (query,)
    row: Numbers  # (query,): the last one up to the stamp, or the piece's first
    times: Array  # (query,), in time units since the piece's first row


class Predictor:
    """A fitted model with its history: rows that are asked for in, finite tables out.

    Every method raises `SolverError` where an equation cannot be solved or an answer is
    not finite; it names the stamps, the method, and what to change. ``seed`` is that of
    all draws.
    """

    def __init__(self, model: FittedModel, history: History, seed: int) -> None:
        n_threads()  # a thread's first, as in a training
        self._model = model
        self._history = history
        self._seed = seed
        self._pieces = split_at_gaps(history.observations, model.time_unit)
        self._windows = model.windows(history.observations).reaching(0)
        none = Calibration.none(len(history.channels))
        self._calibration = model.calibration or none

    def means(self, asked: Asked) -> Array:
        """Return forecasts, (row, channel): x^ at the mean of q(z0)."""
        table = np.empty((len(asked.index), len(self._history.channels)))
        for rows, paths, _ in self._parts(asked, 0):
            table[rows] = self._model.normalisation.original(paths[0])
        return table

    def variances(self, asked: Asked, n: int) -> Array:
        """Return variances over ``n`` draws and of the noise, (row, channel)."""
        deviation = np.empty((len(asked.index), len(self._history.channels)))
        for rows, paths, noise in self._parts(asked, n):
            deviation[rows] = np.sqrt(paths.var(axis=0) + noise**2)
        deviation *= self._model.normalisation.scale
        with np.errstate(over="ignore"):
            squared = deviation**2
        if np.isinf(squared).any():
            raise ValueError(
                "a variance must be a finite number; got squares of values of up to "
                f"{deviation.max():.2g}, which no float holds. Fit on y in larger "
                "units, or ask for predict_interval."
            )
        return squared

    def quantiles(self, asked: Asked, n: int, alpha: list[float]) -> Array:
        """Return quantiles of ``n`` draws with noise, (row, channel, alpha)."""
        table = np.empty((len(asked.index), len(self._history.channels), len(alpha)))
        for rows, paths, _ in self._parts(asked, n, noisy=True):
            found = np.quantile(self._model.normalisation.original(paths), alpha, 0)
            table[rows] = np.moveaxis(found, 0, -1)
        return table

    def paths(self, asked: Asked, n: int, noise: bool) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        table = np.empty((n, len(asked.index), len(self._history.channels)))
        for rows, paths, _ in self._parts(asked, n, noise):
            table[:, rows] = self._model.normalisation.original(paths)
        return table

    def _parts(
        self, asked: Asked, n: int, noisy: bool = False
    ) -> Iterator[tuple[Numbers, Array, Array]]:
        """Yield numbers of rows, paths, and the noise's standard deviation.

        Paths are (sample, row, channel), in normalised units, the deviation (row,
        channel). With ``n`` of 0 the one path is that of the mean of q(z0). All rows of
        a window share a draw's z0: each path is one trajectory. What is drawn for a
        window or a stamp does not depend on what else is asked. Deviations of the
        trajectories from their mean, and the noise, are multiplied by the calibration's
        scale.
        """
        queries = self._placed(asked.series, asked.ticks)
        known, windows = self._known(asked), self._windows
        noise: Array = self._model.network.noise_scale.detach().cpu().numpy()
        try:
            for numbers, rows, place in self._passes(queries, max(n, 1)):
                solved = self._solved(queries, known, numbers, rows, place, n)
                first = windows.times[windows.start[numbers]][place]
                last = windows.times[windows.end[numbers] - 1][place]
                for part in np.array_split(
                    np.arange(len(rows)), -(-solved[..., 0].size // _ANSWERS_AT_ONCE)
                ):
                    paths = solved[:, part].astype(np.float64)
                    row, mean = rows[part], paths.mean(axis=0)
                    piece, times = queries.piece[row], queries.times[row]
                    outside = np.maximum(times - last[part], first[part] - times)
                    scale = self._calibration.at(outside)
                    if n:
                        paths = mean + scale * (paths - mean)
                    if noisy:
                        white = normals(self._seed, 1, piece, times, n, len(noise))
                        paths += scale * noise * white
                    self._check_finite(paths, asked.index[row])
                    yield row, paths, scale * noise
        except SolverError as error:
            stamps = asked.index.get_level_values(-1)
            reach = f"Asked were stamps from {stamps.min()} to {stamps.max()}."
            raise SolverError(f"{error} {reach}") from error

    def _placed(self, series: Numbers, ticks: Numbers) -> _Queries:
        """Return the pieces that stamps are nearest to, and their places there."""
        seen = self._history.observations
        before = rows_before(seen.bounds, seen.ticks, series, ticks)
        before = np.maximum(before, seen.bounds[:-1][series])
        after = np.minimum(before + 1, seen.bounds[1:][series] - 1)
        bounds = self._pieces.bounds
        of_row = np.searchsorted(bounds, [before, after], side="right") - 1
        until = ticks_between(ticks, seen.ticks[after])
        is_after = until < ticks_between(seen.ticks[before], ticks)
        is_after &= of_row[0] < of_row[1]
        piece = np.where(is_after, of_row[1], of_row[0])
        times = ticks_between(seen.ticks[bounds[:-1][piece]], ticks)
        row = np.where(is_after, after, before)
        return _Queries(piece, row, times / self._model.time_unit)

    def _known(self, asked: Asked) -> KnownControls | None:
        """Return all controls that are known, each in the piece it is nearest to."""
        if asked.known is None or asked.known.controls is None:
            return None
        placed = self._placed(asked.known.series, asked.known.ticks)
        values = self._model.normalisation.controls(asked.known.controls)
        return KnownControls.of(placed.piece, placed.times, values)

    def _passes(
        self, queries: _Queries, n_draws: int
    ) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        """Yield windows, the queries that they answer, sorted by window, and of which.

        Windows that take most come first: all of a pass take as much as its largest.
        """
        windows, place = np.unique(self._windows_of(queries), return_inverse=True)
        counts = np.bincount(place)
        origin = self._windows.times[self._windows.start[windows]]
        spacing = self._model.network.decoder.solver.grid_spacing
        states = counts.astype(float)
        np.maximum.at(states, place, np.abs(queries.times - origin[place]) / spacing)
        answers = counts * n_draws
        share = np.maximum(answers / _ANSWERS_AT_ONCE, states / _STATES_AT_ONCE)
        by_share = np.argsort(-share, kind="stable")
        rank = np.argsort(by_share)[place]
        order = np.argsort(rank, kind="stable")
        ends = np.append(0, np.cumsum(counts[by_share]))
        low = 0
        while low < len(windows):
            most = int(np.clip(1 / share[by_share[low]], 1, _WINDOWS_AT_ONCE))
            high = min(low + most, len(windows))
            rows = order[ends[low] : ends[high]]
            yield windows[by_share[low:high]], rows, rank[rows] - low
            low = high

    def _windows_of(self, queries: _Queries) -> Numbers:
        """Return the number of the window that answers each query."""
        windows = self._windows
        length = windows.window_length
        spacing = -(-length // _WINDOWS_PER_LENGTH)
        first = windows.bounds[:-1][queries.piece]
        last = np.maximum(windows.bounds[1:][queries.piece] - length, first)
        centred = queries.row - (length - 1) // 2
        n_spacings = (centred - first + spacing // 2) // spacing
        start = np.clip(first + n_spacings * spacing, first, last)
        return np.searchsorted(windows.start, start)

    def _solved(
        self,
        queries: _Queries,
        known: KnownControls | None,
        numbers: Numbers,
        rows: Numbers,
        place: Numbers,
        n: int,
    ) -> Array:
        """Return x^ of draws, or of the mean, of q(z0) of windows, see `_passes`.

        Of shape (sample, query, channel). Padded slots of a window ask at t0.
        """
        network, windows = self._model.network, self._windows
        spacing = network.decoder.solver.grid_spacing
        origin, piece = windows.times[windows.start[numbers]], windows.series[numbers]
        slot = np.arange(len(place)) - np.searchsorted(place, place)
        asked = np.zeros((len(numbers), int(slot.max()) + 1))
        asked[place, slot] = queries.times[rows] - origin[place]
        like = next(network.parameters())

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.as_tensor(array, dtype=like.dtype, device=like.device)

        path = None
        if known is not None:
            low = np.minimum(asked.min(1), 0.0) - spacing  # read from t0 on
            high = np.maximum(asked.max(1), 0.0) + spacing
            times, values = known.paths(piece, origin + low, origin + high)
            path = ControlPath(tensor(times - origin[:, None]), tensor(values))
        n_steps = int(np.ceil(np.abs(asked).max() / spacing))
        most = _STATES_AT_ONCE // (len(numbers) * max(asked.shape[1], n_steps))
        at_once = max(most, -(-_FEWEST_ROWS // len(numbers)))
        with own_modes(gradients=False):
            posterior = network.encode(make_batch(windows, numbers, like.device))
            z0 = posterior.q_z0.mean.unsqueeze(0)
            if n:
                size = network.latent_size
                white = normals(self._seed, 0, piece, origin, n, size)
                z0 = z0 + posterior.q_z0.stddev * tensor(white)
            means = [
                network.decode(part, posterior, tensor(asked), path)
                for part in z0.split(at_once)
            ]
        paths: Array = torch.cat(means).cpu().numpy()
        return paths[:, place, slot]

    def _check_finite(self, paths: Array, index: pd.Index) -> None:
        good: Any = np.isfinite(paths).all(axis=(0, 2))
        if good.all():
            return
        first, n_bad = index[np.argmin(good)], int((~good).sum())
        if isinstance(first, tuple):
            first = ", ".join(map(str, first))
        solver = self._model.network.decoder.solver
        raise SolverError(
            f"a forecast must be finite; got {n_bad} of {len(good)} rows that are not, "
            f"the first at {first}: the latent trajectory overflows "
            f"(method={solver.method!r}, step_size={solver.step_size:g}). Ask for "
            "stamps nearer to the observations, or fit again with a lower lr, a lower "
            "clip_norm or a smaller step_size."
        )
