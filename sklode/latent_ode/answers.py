"""What a network of whole windows says of series, in y's own units.

A stamp inside a series is answered by a window around it: of those from every
quarter of a window on, the one whose middle is nearest. The first, backward
in time, and the last answer what lies near the ends, and beyond.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from sklode.data.arrays import Array, Numbers
from sklode.data.checks import finite
from sklode.data.errors import SolverError
from sklode.data.history import History, QueryRows
from sklode.data.scaled_rows import KnownControls
from sklode.data.scaling import Units
from sklode.data.ticks import length_of_time, shown, ticks_between
from sklode.engine.threads import own_modes
from sklode.latent_ode.calibration import scales_at
from sklode.latent_ode.network import LatentODE
from sklode.latent_ode.randomness import normals
from sklode.latent_ode.windows import WindowSet
from sklode.nn import ControlPath
from sklode.nn.autoencoder import cubature_points
from sklode.nn.encoders import advice_on

_WINDOWS_AT_ONCE = 512  # that are encoded: memory
# windows times draws times steps, or stamps if they are more
_STATES_AT_ONCE = 2**17
_FEWEST_ROWS = 16  # windows times draws, which the engine takes together
_WINDOWS_PER_LENGTH = 4  # begin so that many stamps share one


class Solution(NamedTuple):
    """Answers that were solved together, in the network's units."""

    place: Numbers  # (query,): among all queries
    paths: Array  # (sample, query, channel)
    noise: Array  # (query, channel): its standard deviation


@dataclass(frozen=True, eq=False, repr=False)
class LatentODEAnswers:
    """A trained network with a history: rows in, finite tables out.

    ``windows`` are those of what is seen alone: what lies ahead needs no rows.
    ``scales`` is a table, see `scales_at`; ``seed`` is that of all draws. Training
    looked ``reach_ahead`` past the rows seen and ``reach_back`` before them. Methods
    raise `SolverError` where an equation cannot be solved or an answer is not finite,
    and warn where most of what is asked lies farther.
    """

    description = None  # its forecasts have no parts
    leaves_weeks_open = False  # and know no holidays
    drift = 0.0  # nothing is expected row by row

    network: LatentODE
    history: History
    windows: WindowSet
    units: Units
    scales: Array
    seed: int
    reach_ahead: float
    reach_back: float

    def _shape(self, queries: QueryRows) -> tuple[int, int]:
        return len(queries.index), len(self.history.channels)

    def means(self, queries: QueryRows) -> Array:
        """Return forecasts, (row, channel): x^ at the mean of q(z0)."""
        table = np.empty(self._shape(queries))
        for solution in self._solutions(queries, n=0):
            table[solution.place] = self.units.original(solution.paths[0])
        return table

    def variances(self, queries: QueryRows, n: int) -> Array:
        """Return variances over ``n`` draws and of the noise, (row, channel)."""
        deviation = np.empty(self._shape(queries))
        for solution in self._solutions(queries, n):
            variance = solution.paths.var(axis=0) + solution.noise**2
            deviation[solution.place] = np.sqrt(variance)
        # squared last, and finite or an error: the scale's square may overflow
        deviation *= self.units.scale
        with np.errstate(over="ignore"):
            return finite(deviation**2)

    def quantiles(self, queries: QueryRows, n: int, alpha: list[float]) -> Array:
        """Return quantiles of ``n`` draws with noise, (row, channel, alpha)."""
        table = np.empty((*self._shape(queries), len(alpha)))
        for solution in self._solutions(queries, n, noisy=True):
            paths = self.units.original(solution.paths)
            found = np.quantile(paths, alpha, axis=0)
            table[solution.place] = np.moveaxis(found, 0, -1)
        return table

    def paths(self, queries: QueryRows, n: int, noise: bool) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        table = np.empty((n, *self._shape(queries)))
        for solution in self._solutions(queries, n, noisy=noise):
            table[:, solution.place] = self.units.original(solution.paths)
        return table

    def parts(self, queries: QueryRows) -> pd.DataFrame:
        """Refuse: a network's forecasts have no parts."""
        raise ValueError(
            "components need model=\"hybrid\"; got model='paper', which has none. Fit "
            'with model="hybrid", or a StructuralForecaster.'
        )

    def states(self, queries: QueryRows) -> tuple[Array, Array]:
        """Return z at stamps from the mean of q(z0), and its deviation, (row, state).

        See `cubature_points`.
        """
        window, times = self._placed(queries.series, queries.ticks)
        first = self.windows.times[self.windows.start[window]]
        known, n = self._known(queries), 1 + 2 * self.network.latent_size
        mean, deviation = np.empty((2, len(window), self.network.latent_size))
        for place in self._passes(window, times - first, n):
            paths = self._solved(window[place], times=times[place], known=known, n=None)
            mean[place] = paths[0]
            deviation[place] = np.sqrt(((paths[1:] - paths[0]) ** 2).mean(0))
        return mean, deviation

    def _solutions(
        self, queries: QueryRows, n: int, noisy: bool = False
    ) -> Iterator[Solution]:
        """Yield paths of ``n`` draws; of none, that of the mean of q(z0).

        All stamps that a window answers share a draw's z0.
        """
        window, times = self._placed(queries.series, queries.ticks)
        known, windows = self._known(queries), self.windows
        noise: Array = self.network.noise_scale.detach().numpy()
        first = windows.times[windows.start[window]]
        last = windows.times[windows.end[window] - 1]
        self._warn_beyond(ahead=times - last, back=first - times)
        # since what was seen, on whichever side; at most 0 inside
        outside = np.maximum(times - last, first - times)
        try:
            for place in self._passes(window, times - first, max(n, 1)):
                paths = self._solved(
                    window[place], times=times[place], known=known, n=n
                )
                mean = paths.mean(axis=0)
                scale = scales_at(self.scales, outside[place])
                # the scale is one of deviations: of draws, and of the noise
                if n:
                    paths = mean + scale * (paths - mean)
                if noisy:
                    white = normals(
                        seed=self.seed,
                        kind=1,
                        series=windows.series[window[place]],
                        times=times[place],
                        n_draws=n,
                        width=len(noise),
                    )
                    paths += scale * noise * white
                self._check_finite(paths, queries.index[place])
                yield Solution(place=place, paths=paths, noise=scale * noise)
        except SolverError as error:
            stamps = queries.index.get_level_values(-1)
            reach = f"Asked were stamps from {stamps.min()} to {stamps.max()}."
            raise SolverError(f"{error} {reach}") from error

    def _warn_beyond(self, ahead: Array, back: Array) -> None:
        """Say where most stamps lie farther outside of windows than training looked."""
        # a difference of times is exact to some digits only
        beyond = ahead - self.reach_ahead > 1e-6
        beyond |= back - self.reach_back > 1e-6
        if beyond.sum() <= len(beyond) / 2:
            return
        like = self.history.observations.like
        learned = [
            length_of_time(reach * self.units.time, like)
            for reach in (self.reach_ahead, self.reach_back)
        ]
        warnings.warn(
            f"the network learned to look {learned[0]} ahead of the rows that it sees, "
            f"and {learned[1]} back from them; {beyond.sum()} of {len(beyond)} rows "
            "asked lie beyond, where forecasts may be far off. Fit with a larger "
            "horizon (to look back also with thinning > 0) or on longer series, or "
            "ask for nearer stamps.",
            RuntimeWarning,
            stacklevel=2,
        )

    def _placed(self, series: Numbers, ticks: Numbers) -> tuple[Numbers, Array]:
        """Return windows that answer stamps, and times since pieces began."""
        seen, windows = self.history.observations, self.windows
        before = seen.at_or_before(series, ticks)
        after = np.minimum(before + 1, seen.bounds[1:][series] - 1)
        # a stamp within a long gap belongs to the piece whose end is nearer
        rows = [before, after]
        earlier, later = np.searchsorted(windows.bounds, rows, side="right") - 1
        since = ticks_between(seen.ticks[before], ticks)
        until = ticks_between(ticks, seen.ticks[after])
        is_later = (until < since) & (earlier < later)
        piece = np.where(is_later, later, earlier)
        row = np.where(is_later, after, before)
        first, length = windows.bounds[piece], windows.window_length
        last = np.maximum(windows.bounds[piece + 1] - length, first)
        # Windows begin at each multiple of the spacing (a quarter, rounded up) from
        # the piece's first row on: of these the one that begins nearest to where a
        # window with the row in its middle would, within the piece.
        spacing = -(-length // _WINDOWS_PER_LENGTH)
        centred = row - (length - 1) // 2
        n_spacings = (centred - first + spacing // 2) // spacing
        start = np.clip(first + n_spacings * spacing, first, last)
        ticks_since = ticks_between(seen.ticks[first], ticks)
        times = ticks_since / self.units.time
        # starts of all windows rise by one within a piece: each start is among them
        return np.searchsorted(windows.start, start), times

    def _known(self, queries: QueryRows) -> KnownControls | None:
        """Return X around queries, by pieces of series; None without any."""
        known, windows = queries.known, self.windows
        if not known.controls.shape[1]:
            return None
        window, times = self._placed(known.series, known.ticks)
        # rows come by series and time, and so by pieces
        pieces = np.arange(len(windows.bounds))
        return KnownControls(
            bounds=np.searchsorted(windows.series[window], pieces),
            times=times,
            values=self.units.controls(known.controls),
        )

    def _passes(self, window: Numbers, since: Array, n_draws: int) -> Iterator[Numbers]:
        """Yield places of queries that are solved together, by window, largest first.

        A batch is padded to its largest window, so that those alike go together.
        """
        _, number = np.unique(window, return_inverse=True)
        counts = np.bincount(number)
        # states of a window: one at each query, and one at each step
        size = counts.astype(float)
        spacing = self.network.decoder.solver.grid_spacing
        np.maximum.at(size, number, np.abs(since) / spacing)
        largest = np.argsort(-size, kind="stable")
        # the inverse of a permutation, its argsort, is each window's rank
        rank = np.argsort(largest)
        order = np.argsort(rank[number], kind="stable")
        ends = np.append(0, np.cumsum(counts[largest]))
        low = 0
        while low < len(counts):
            most = _STATES_AT_ONCE / (size[largest[low]] * n_draws)
            n_windows = int(np.clip(most, 1, _WINDOWS_AT_ONCE))
            high = min(low + n_windows, len(counts))
            yield order[ends[low] : ends[high]]
            low = high

    def _solved(
        self,
        window: Numbers,
        times: Array,
        known: KnownControls | None,
        n: int | None,
    ) -> Array:
        """Return x^ of draws of z0, or its mean, (sample, query, channel).

        Of no number, z of `cubature_points`.
        """
        network, windows = self.network, self.windows
        spacing = network.decoder.solver.grid_spacing
        # queries come by window: a row of ``elapsed`` each, from where numbers change
        begin = np.flatnonzero(np.diff(window, prepend=-1))
        counts = np.diff(begin, append=len(window))
        place = np.repeat(np.arange(len(begin)), counts)
        numbers = window[begin]
        slot = np.arange(len(window)) - begin[place]
        origin = windows.times[windows.start[numbers]]
        piece = windows.series[numbers]
        elapsed = np.zeros((len(numbers), int(counts.max())))
        elapsed[place, slot] = times - origin[place]
        like = next(network.parameters())

        tensor = functools.partial(torch.as_tensor, dtype=like.dtype)
        path = None
        if known is not None:
            # from t0 on; a step's control is that of its middle, which may lie beyond
            low = np.minimum(elapsed.min(1), 0.0) - spacing
            high = np.maximum(elapsed.max(1), 0.0) + spacing
            at, values = known.paths(piece, low=origin + low, high=origin + high)
            since = at - origin[:, None]
            path = ControlPath(times=tensor(since), values=tensor(values))
        # draws, too, are split, into as many as the memory holds
        n_steps = int(np.ceil(np.abs(elapsed).max() / spacing))
        size = max(elapsed.shape[1], n_steps)
        fewest = math.ceil(_FEWEST_ROWS / len(numbers))
        at_once = max(_STATES_AT_ONCE // (len(numbers) * size), fewest)
        with own_modes(gradients=False):
            batch = windows.gather(numbers, device=like.device)
            posterior = network.encode(batch)
            z0, decode = posterior.q_z0.mean.unsqueeze(0), network.decode
            if n is None:
                z0 = cubature_points(z0[0], posterior.q_z0.stddev)
                decode = network.trajectory
            elif n:
                white = normals(
                    seed=self.seed,
                    kind=0,
                    series=piece,
                    times=origin,
                    n_draws=n,
                    width=network.latent_size,
                )
                z0 = z0 + posterior.q_z0.stddev * tensor(white)
            means = [
                decode(part, posterior, times=tensor(elapsed), controls=path)
                for part in z0.split(at_once)
            ]
        paths: Array = torch.cat(means).double().numpy()
        return paths[:, place, slot]

    def _check_finite(self, paths: Array, index: pd.Index) -> None:
        """Check paths of stamps; name what would help."""
        bad = np.flatnonzero(~np.isfinite(paths).all(axis=(0, 2)))
        if not len(bad):
            return
        solver = self.network.decoder.solver
        raise SolverError(
            f"a forecast must be finite; got {len(bad)} of {len(index)} rows that are "
            f"not, the first at {shown(index[bad[0]])}: the latent trajectory "
            f"overflows (method={solver.method!r}, step_size={solver.step_size:g}). "
            "Ask for stamps nearer to the observations, or fit again with a lower lr, "
            f"a lower clip_norm or a smaller step_size.{advice_on(self.network)}"
        )
