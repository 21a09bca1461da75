"""Whether a network adds to the level: on origins that neither has seen.

The level of the rows before the held-out ones forecasts from each origin as it would
for the user; so does the network; and what is best weighs the two.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from sklode import nn
from sklode.data.arrays import Array, Numbers
from sklode.data.errors import SolverError
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.data.ticks import ticks_between
from sklode.data.windows import Questions, Rows, count_up, spread
from sklode.levels.level import Level
from sklode.levels.table import Table
from sklode.nn.modes import own_modes
from sklode.prediction.ahead import Stacking, batch_of
from sklode.prediction.calibration import normal_scale

_FEWEST_ROWS = 300  # of which a network can be trained and validated
_HELD_OUT = 0.2
_MANY_SERIES, _SHORT = 20, 200
"""Of so many series that are shorter than this on average whole ones are held out."""

_BLOCKS = 6
"""Parts of a few series' held-out rows: errors in one of them count as one."""

_ORIGINS, _IN_A_SERIES, _ROWS_AFTER = 240, 96, 30
"""Origins in all, in one long series, and rows after each that are looked at."""

_MOST_ROWS, _AT_ONCE = 2_000_000, 64
"""Rows that the level filters, and origins that the network forecasts from at once."""

_KNOTS = 4
_NEXT, _OTHERS, _ALL = 0.25, 0.1, 0.5
"""How much the next shorter and longer leads count beside a weight's own, and all; and
all channels beside one, of which something has to be proved first."""

_FEWEST_CLUSTERS, _CONFIDENCE = 4, 0.95
_WHOLE, _PROSPECT = 0.5, 0.1
"""A weight that may well be one, and is more than the first for sure, is one. A network
whose best weight is no larger than the second in any channel is given up."""

_CLIPPED, _FEWEST_ERRORS = 6.0, 30
_TO_DEVIATION = 3.29  # of the middle 90 % of a normal distribution


def can_validate(observations: Observations) -> bool:
    """Return whether rows are enough to train a network and to validate it."""
    return len(observations.ticks) >= _FEWEST_ROWS


def held_out_rows(
    observations: Observations, rng: np.random.RandomState, share: float = _HELD_OUT
) -> tuple[Numbers, bool]:
    """Return each series' first held-out row, and whether whole series are held out.

    The last ``share`` of each, or of many short series that share.
    """
    first, end = observations.bounds[:-1], observations.bounds[1:]
    n_series = len(first)
    if n_series >= _MANY_SERIES and observations.lengths.mean() < _SHORT:
        cut = end.copy()
        chosen = rng.permutation(n_series)[: round(share * n_series)]
        cut[chosen] = first[chosen]
        return cut, True
    return end - np.maximum(np.round(share * (end - first)), 1).astype(np.int64), False


def best_weight(products: Array, squares: Array) -> tuple[float, float, float]:
    r"""Return the best weight as clusters estimate it, with its lower and upper bound.

    With the level's errors e and what the network would change, d, it is

    .. math:: a = \sum_b p_b / \sum_b q_b, \quad p_b = e_b \cdot d_b, \quad
        q_b = d_b \cdot d_b

    over clusters b, ``products`` and ``squares`` (cluster,). First and last are ends
    of its 90 % interval; it is 0 between infinite ends where nothing can be said.
    """
    some = squares > 0
    products, squares = products[some], squares[some]
    total, n = squares.sum(), len(squares)
    if n < _FEWEST_CLUSTERS or not np.isfinite(products).all():
        return -np.inf, 0.0, np.inf
    best = products.sum() / total
    error = np.sqrt(n / (n - 1) * ((products - best * squares) ** 2).sum()) / total
    doubt = stdtrit(n - 1, _CONFIDENCE) * error
    return float(best - doubt), float(best), float(best + doubt)


class Validation:
    """Values after held-out origins: what the level forecasts, and a network.

    ``level`` is one of the rows before the held-out ones; forecasts are what a user
    would get who had seen the rows up to each origin.

    ``asked`` are the values; beside it, all (answer,): ``cluster`` of errors that count
    as one, the level's ``median`` and ``deviation`` in units of `Move`, and the
    median's ``error`` in deviations.
    """

    def __init__(
        self,
        observations: Observations,
        cut: Numbers,
        whole: bool,
        level: Level,
        units: Units,
        n_rows: int,
        reach: float,
    ) -> None:
        self._n_rows = n_rows
        rows = _origins(observations, cut, whole)
        full = Rows(observations, units)
        self.asked = asked = _spread_rows(full.after(rows, reach), rows)
        if not len(asked.window):
            return
        before = _until(observations, rows)
        self.origins = Rows(before, units)
        self.last = before.bounds[1:] - 1
        self._path = full.path(rows, reach)
        self.cluster = observations.series[rows][asked.window]
        if len(cut) < _BLOCKS:  # by when values were observed
            first, last = full.times[cut], full.times[observations.bounds[1:] - 1]
            since = full.times[asked.row] - first[self.cluster]
            width = np.maximum(last - first, 1e-9)[self.cluster] / _BLOCKS
            block = np.clip(since / width, 0, _BLOCKS - 1).astype(np.int64)
            self.cluster = self.cluster * _BLOCKS + block
        self._forecast(observations, level, units, before)

    def _forecast(
        self,
        observations: Observations,
        level: Level,
        units: Units,
        before: Observations,
    ) -> None:
        """Let the level forecast from each origin."""
        asked, filtered = self.asked, level.filtered(before)
        first = before.ticks[before.bounds[:-1]][asked.window]
        times = ticks_between(first, observations.ticks[asked.row]) / level.unit
        inputs = level.inputs(observations)[asked.row]
        table = np.empty((len(times), 4))
        table[:, 3] = observations.values[asked.row, asked.channel]
        for k in range(observations.values.shape[1]):
            mine = asked.channel == k
            if not mine.any():
                continue
            rows = asked.window[mine], times[mine], np.nan, inputs[mine]
            queries = Table.of(*rows, len(before.keys))
            quantiles = np.array([0.05, 0.5, 0.95])
            table[mine, :3] = filtered.answered(k, queries).quantiles(quantiles)
            if not np.isnan(units.least[k]):
                table[mine] = np.log(np.maximum(table[mine], units.least[k]))
        low, self.median, high, truth = table.T
        deviation = (high - low) / _TO_DEVIATION
        least = 1e-9 * np.abs(self.median) + 1e-300
        self.deviation = np.maximum(deviation, least)
        error = (truth - self.median) / self.deviation
        self.error = np.clip(error, -_CLIPPED, _CLIPPED)

    def change(self, network: nn.AheadODE) -> Array:
        """Return what a network would change, (answer,), in the level's deviations.

        NaN where it cannot be solved.
        """
        asked, found = self.asked, np.empty(len(self.median))
        for low in range(0, len(self.last), _AT_ONCE):
            high = low + _AT_ONCE
            mine = slice(*np.searchsorted(asked.window, [low, high]))
            part = asked.part(mine)
            if not len(part.window):
                continue
            batch = batch_of(
                self.origins,
                self.last[low:high],
                self._n_rows,
                part._replace(window=part.window - low),
                self._path and (self._path[0][low:high], self._path[1][low:high]),
                network,
            )
            try:
                with own_modes(gradients=False):
                    found[mine] = network.predict(batch).double().cpu().numpy()
            except SolverError:
                found[mine] = np.nan
        place = asked.window, asked.channel
        found = self.origins.location[place] + self.origins.scale[place] * found
        change = (found - self.median) / self.deviation
        return np.clip(change, -_CLIPPED, _CLIPPED)

    def has_prospects(self, network: nn.AheadODE) -> bool:
        """Return whether some weight of a network might be worth it."""
        if not len(self.asked.window):
            return False
        sums = self._sums(self.change(network))[0]
        if not np.isfinite(sums).all():
            return False
        of_channel = np.moveaxis(sums.sum(3), 2, 0)
        ends = [best_weight(*sums.sum((2, 3))), *(best_weight(*x) for x in of_channel)]
        return max(best for _, best, _ in ends) > _PROSPECT

    def stacking(self, network: nn.AheadODE) -> Stacking | None:
        """Return the stacking weights; None where none is above zero for sure."""
        if not len(self.asked.window):
            return None
        change = self.change(network)
        sums, knots, place = self._sums(change)
        _, n_clusters, n_channels, n_knots = sums.shape
        pooled = sums + _OTHERS * sums.mean(3, keepdims=True)
        pooled[..., 1:] += _NEXT * sums[..., :-1]
        pooled[..., :-1] += _NEXT * sums[..., 1:]
        of_channel = sums.mean(3) + _ALL * sums.mean((2, 3))[..., None]
        weights = np.zeros((n_knots, n_channels))
        for k in range(n_channels):
            if best_weight(*of_channel[..., k])[0] > 0:
                for j in range(n_knots):
                    low, best, high = best_weight(*pooled[..., k, j])
                    is_one = low > _WHOLE and high >= 1
                    weights[j, k] = 1.0 if is_one else min(max(best, 0.0), 1.0)
        if not weights.any():
            return None
        channel = self.asked.channel
        left = np.abs(self.error - weights[place, channel] * change)
        factors = _factors(left, place, channel, weights)
        factors = np.where(weights > 0, factors * (1 + 0.5 / n_clusters), 1.0)
        return Stacking(knots, weights, factors, float(self.asked.lead.max()))

    def _sums(self, change: Array) -> tuple[Array, Array, Numbers]:
        """Return products and squares by cluster, channel and part of the leads.

        They are (2, cluster, channel, part); with the parts' leads, and each answer's.
        """
        lead, channel = self.asked.lead, self.asked.channel
        edges = np.unique(np.quantile(lead, np.arange(_KNOTS) / _KNOTS, method="lower"))
        place = np.searchsorted(edges, lead, side="right") - 1
        knots = np.array([np.median(lead[place == j]) for j in range(len(edges))])
        names, cluster = np.unique(self.cluster, return_inverse=True)
        sums = np.zeros((2, len(names), self.origins.values.shape[1], len(knots)))
        np.add.at(sums[0], (cluster, channel, place), self.error * change)
        np.add.at(sums[1], (cluster, channel, place), change**2)
        return sums, knots, place


def _origins(observations: Observations, cut: Numbers, whole: bool) -> Numbers:
    """Return rows to forecast from: before held-out ones, with some rows after."""
    first, end = observations.bounds[:-1], observations.bounds[1:]
    low = np.where(cut > first, cut - 1, first + 2)
    chosen = [np.arange(a, b - 1) for a, b in zip(low, end, strict=True) if a < b - 1]
    most = 4 if whole else _IN_A_SERIES
    rows = [spread(part, most) for part in chosen]
    found = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    return spread(found, _ORIGINS)


def _until(observations: Observations, rows: Numbers) -> Observations:
    """Return the rows up to each origin as a series."""
    first = observations.bounds[:-1][observations.series[rows]]
    most = max(_MOST_ROWS // max(len(rows), 1), 1)
    first = np.maximum(first, rows + 1 - most)
    lengths = rows + 1 - first
    bounds = np.append(0, np.cumsum(lengths))
    place = np.repeat(first, lengths) + count_up(lengths)
    return observations.rows(place, bounds, tuple((k,) for k in range(len(rows))))


def _spread_rows(asked: Questions, rows: Numbers) -> Questions:
    """Return the values of some rows after each origin, evenly spread."""
    after = asked.row - rows[asked.window]
    most = np.zeros(len(rows))
    np.maximum.at(most, asked.window, after)
    step = np.maximum(most / _ROWS_AFTER, 1.0)[asked.window]
    kept = np.floor(after / step) > np.floor((after - 1) / step)
    return asked.part(kept)


def _factors(left: Array, place: Numbers, channel: Numbers, weights: Array) -> Array:
    """Return the scale of what is left, (part, channel); of all where few are."""
    factors = np.ones_like(weights)
    for j, k in np.argwhere(weights > 0):
        own = left[(place == j) & (channel == k)]
        if len(own) < _FEWEST_ERRORS:
            own = left[(place == j) & (weights[j, channel] > 0)]
        factors[j, k] = normal_scale(own)
    return np.maximum(factors, 1e-3)
