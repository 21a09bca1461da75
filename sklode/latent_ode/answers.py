"""What a network of whole windows says of series, in y's own units.

A stamp inside a series is answered by a window around it: of those from every
quarter of a window on, the one whose middle is nearest. The first, backward
in time, and the last answer what lies near the ends, and beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from sklode.data.arrays import Array, Numbers
from sklode.data.checks import finite
from sklode.data.errors import SolverError
from sklode.data.history import Asked, History
from sklode.data.scaled_rows import KnownControls
from sklode.data.ticks import ticks_between
from sklode.engine.threads import own_modes
from sklode.latent_ode.calibration import scales_at
from sklode.latent_ode.network import make_batch
from sklode.latent_ode.randomness import normals
from sklode.nn import ControlPath

if TYPE_CHECKING:
    from sklode.latent_ode.model import LatentODEModel

_WINDOWS_AT_ONCE = 512
_STATES_AT_ONCE = 2**17  # windows times draws times steps, or stamps if more
_FEWEST_ROWS = 16  # windows times draws, which the engine takes together
_WINDOWS_PER_LENGTH = 4  # begin so that many stamps share one


class LatentODEAnswers:
    """A fitted model with its history: rows in, finite tables out.

    Methods raise `SolverError` where an equation cannot be solved or an answer is not
    finite. ``seed`` is that of all draws.
    """

    def __init__(self, model: LatentODEModel, history: History, seed: int) -> None:
        self._model = model
        self._history = history
        self._seed = seed
        self._windows = model.windows(history.observations).reaching(0)

    def means(self, asked: Asked) -> Array:
        """Return forecasts, (row, channel): x^ at the mean of q(z0)."""
        table = np.empty((len(asked.index), len(self._history.channels)))
        for rows, paths, _ in self._parts(asked, 0):
            table[rows] = self._model.units.original(paths[0])
        return table

    def variances(self, asked: Asked, n: int) -> Array:
        """Return variances over ``n`` draws and of the noise, (row, channel)."""
        deviation = np.empty((len(asked.index), len(self._history.channels)))
        for rows, paths, noise in self._parts(asked, n):
            deviation[rows] = np.sqrt(paths.var(axis=0) + noise**2)
        deviation *= self._model.units.scale
        with np.errstate(over="ignore"):
            return finite(deviation**2)

    def quantiles(self, asked: Asked, n: int, alpha: list[float]) -> Array:
        """Return quantiles of ``n`` draws with noise, (row, channel, alpha)."""
        table = np.empty((len(asked.index), len(self._history.channels), len(alpha)))
        for rows, paths, _ in self._parts(asked, n, noisy=True):
            found = np.quantile(self._model.units.original(paths), alpha, 0)
            table[rows] = np.moveaxis(found, 0, -1)
        return table

    def paths(self, asked: Asked, n: int, noise: bool) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        table = np.empty((n, len(asked.index), len(self._history.channels)))
        for rows, paths, _ in self._parts(asked, n, noise):
            table[:, rows] = self._model.units.original(paths)
        return table

    def _parts(
        self, asked: Asked, n: int, noisy: bool = False
    ) -> Iterator[tuple[Numbers, Array, Array]]:
        """Yield rows' numbers, paths, and the noise's standard deviation.

        Paths are (sample, row, channel), in the network's units; of ``n`` 0 that of the
        mean of q(z0). All rows of a window share a draw's z0.
        """
        window, times = self._placed(asked.series, asked.ticks)
        known, windows = self._known(asked), self._windows
        noise: Array = self._model.network.noise_scale.detach().numpy()
        first = windows.times[windows.start[window]]
        last = windows.times[windows.end[window] - 1]
        outside = np.maximum(times - last, first - times)
        try:
            for rows in self._passes(window, times - first, max(n, 1)):
                paths = self._solved(window[rows], times[rows], known, n)
                mean = paths.mean(axis=0)
                scale = scales_at(self._model.scales, outside[rows])
                if n:
                    paths = mean + scale * (paths - mean)
                if noisy:
                    place = windows.series[window[rows]], times[rows]
                    white = normals(self._seed, 1, *place, n, len(noise))
                    paths += scale * noise * white
                self._check_finite(paths, asked.index[rows])
                yield rows, paths, scale * noise
        except SolverError as error:
            stamps = asked.index.get_level_values(-1)
            reach = f"Asked were stamps from {stamps.min()} to {stamps.max()}."
            raise SolverError(f"{error} {reach}") from error

    def _placed(self, series: Numbers, ticks: Numbers) -> tuple[Numbers, Array]:
        """Return windows that answer stamps, and times since pieces began."""
        seen, windows = self._history.observations, self._windows
        before = seen.at_or_before(series, ticks)
        after = np.minimum(before + 1, seen.bounds[1:][series] - 1)
        pieces = np.searchsorted(windows.bounds, [before, after], side="right") - 1
        until = ticks_between(ticks, seen.ticks[after])
        is_after = until < ticks_between(seen.ticks[before], ticks)
        is_after &= pieces[0] < pieces[1]
        piece = np.where(is_after, pieces[1], pieces[0])
        first, length = windows.bounds[piece], windows.window_length
        last = np.maximum(windows.bounds[piece + 1] - length, first)
        spacing = -(-length // _WINDOWS_PER_LENGTH)
        centred = np.where(is_after, after, before) - (length - 1) // 2
        n_spacings = (centred - first + spacing // 2) // spacing
        start = np.clip(first + n_spacings * spacing, first, last)
        times = ticks_between(seen.ticks[first], ticks) / self._model.units.time
        return np.searchsorted(windows.start, start), times

    def _known(self, asked: Asked) -> KnownControls | None:
        known, windows = asked.known, self._windows
        if not known.controls.shape[1]:
            return None
        window, times = self._placed(known.series, known.ticks)
        bounds = np.searchsorted(windows.series[window], np.arange(len(windows.bounds)))
        return KnownControls(bounds, times, self._model.units.controls(known.controls))

    def _passes(self, window: Numbers, since: Array, n_draws: int) -> Iterator[Numbers]:
        """Yield queries, by window, that are solved together, largest first."""
        _, place, counts = np.unique(window, return_inverse=True, return_counts=True)
        size = counts.astype(float)
        spacing = self._model.network.decoder.solver.grid_spacing
        np.maximum.at(size, place, np.abs(since) / spacing)
        largest = np.argsort(-size, kind="stable")
        order = np.argsort(np.argsort(largest)[place], kind="stable")
        ends = np.append(0, np.cumsum(counts[largest]))
        low = 0
        while low < len(counts):
            most = _STATES_AT_ONCE / (size[largest[low]] * n_draws)
            high = min(low + int(np.clip(most, 1, _WINDOWS_AT_ONCE)), len(counts))
            yield order[ends[low] : ends[high]]
            low = high

    def _solved(
        self, window: Numbers, times: Array, known: KnownControls | None, n: int
    ) -> Array:
        """Return x^ of draws of z0, or its mean, (sample, query, channel)."""
        network, windows = self._model.network, self._windows
        spacing = network.decoder.solver.grid_spacing
        begin = np.flatnonzero(np.diff(window, prepend=-1))
        counts = np.diff(begin, append=len(window))
        place, numbers = np.repeat(np.arange(len(begin)), counts), window[begin]
        slot = np.arange(len(window)) - begin[place]
        origin, piece = windows.times[windows.start[numbers]], windows.series[numbers]
        asked = np.zeros((len(numbers), int(counts.max())))
        asked[place, slot] = times - origin[place]
        like = next(network.parameters())

        def tensor(array: NDArray[Any]) -> torch.Tensor:
            return torch.as_tensor(array, dtype=like.dtype)

        path = None
        if known is not None:
            low = np.minimum(asked.min(1), 0.0) - spacing  # read from t0 on
            high = np.maximum(asked.max(1), 0.0) + spacing
            at, values = known.paths(piece, origin + low, origin + high)
            path = ControlPath(tensor(at - origin[:, None]), tensor(values))
        size = max(asked.shape[1], int(np.ceil(np.abs(asked).max() / spacing)))
        fewest = -(-_FEWEST_ROWS // len(numbers))
        at_once = max(_STATES_AT_ONCE // (len(numbers) * size), fewest)
        with own_modes(gradients=False):
            posterior = network.encode(make_batch(windows, numbers, like.device))
            z0 = posterior.q_z0.mean.unsqueeze(0)
            if n:
                white = normals(self._seed, 0, piece, origin, n, network.latent_size)
                z0 = z0 + posterior.q_z0.stddev * tensor(white)
            means = [
                network.decode(part, posterior, tensor(asked), path)
                for part in z0.split(at_once)
            ]
        paths: Array = torch.cat(means).double().numpy()
        return paths[:, place, slot]

    def _check_finite(self, paths: Array, index: pd.Index) -> None:
        good: Any = np.isfinite(paths).all(axis=(0, 2))
        if good.all():
            return
        first, n_bad = index[np.argmin(good)], int((~good).sum())
        settings = self._model.architecture
        raise SolverError(
            f"a forecast must be finite; got {n_bad} of {len(good)} rows that are not, "
            f"the first at {first}: the latent trajectory overflows "
            f"(method={settings['method']!r}, step_size={settings['step_size']:g}). "
            "Ask for stamps nearer to the observations, or fit again with a lower lr, "
            "a lower clip_norm or a smaller step_size."
        )
