"""Whether a network adds to the level: on origins that neither has seen.

The level of the rows before the held-out ones forecasts from each origin as it would
for the user; so does the network; and what is best weighs the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sklode import nn
from sklode.data.errors import SolverError
from sklode.data.observations import Observations
from sklode.data.ticks import ticks_between
from sklode.data.windows import Origins, Questions, Units, spread
from sklode.levels.structural import StructuralLevel
from sklode.levels.tables import Queries
from sklode.nn.modes import own_modes
from sklode.prediction.ahead import Stacking, batch_of

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_FEWEST_ROWS = 300
"""Fewer observed rows train no network that could be proved on some more of them."""

_HELD_OUT = 0.2
_MANY_SERIES, _SHORT = 20, 200
"""Of so many series that are shorter than this on average whole ones are held out."""

_BLOCKS = 6
"""Parts of a few series' held-out rows: errors in one of them count as one."""

_ORIGINS, _IN_A_SERIES, _ROWS_AFTER = 240, 96, 30
"""Origins in all, in one long series, and rows after each that are looked at."""

_MOST_ROWS = 2_000_000  # that the level filters
_KNOTS = 4
_NEXT, _OTHERS, _ALL = 0.25, 0.1, 0.5
"""How much the next shorter and longer leads count beside a weight's own, and all; and
all channels beside one, of which something has to be proved first."""

_FEWEST_CLUSTERS = 4
_CONFIDENCE = 0.95
_WHOLE = 0.5
"""A weight that may well be one, and is more than this for sure, is one."""

_PROSPECT = 0.1
"""A network whose best weight is no larger than this in any channel is given up."""

_CLIPPED = 6.0
_FEWEST_ERRORS = 30
_QUANTILES, _NORMAL = (0.5, 0.9), (0.6745, 1.6449)
_TO_DEVIATION = 3.29  # of the middle 90 % of a normal distribution


def can_prove(observations: Observations) -> bool:
    """Return whether rows are enough to train a network and to prove it."""
    return len(observations.ticks) >= _FEWEST_ROWS


def held_out_rows(
    observations: Observations, rng: np.random.RandomState, share: float = _HELD_OUT
) -> tuple[Numbers, bool]:
    """Return each series' first held-out row, and whether whole series are held out.

    The last fifth of each; of many short series every fifth.
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


def _weight(low: float, best: float, high: float) -> float:
    """Return the weight to take: one, where it may well be that."""
    return 1.0 if low > _WHOLE and high >= 1 else min(max(best, 0.0), 1.0)


@dataclass
class _Asked:
    """Values after origins, with what the level forecasts of them."""

    questions: Questions
    cluster: Numbers  # (answer,)
    median: Array  # of the level, in units of `Move`
    deviation: Array
    error: Array  # of the median, in deviations


class Proof:
    """The origins of a proof, and what the level forecasts from there.

    ``level`` is one of the rows before the held-out ones; forecasts are what a user
    would get who had seen the rows up to each origin.
    """

    def __init__(
        self,
        observations: Observations,
        cut: Numbers,
        whole: bool,
        level: StructuralLevel,
        units: Units,
        n_rows: int,
        reach: float,
    ) -> None:
        self._n_rows = n_rows
        rows = _origins(observations, cut, whole)
        full = Origins(observations, units)
        asked = _spread_rows(full.after(rows, reach), rows)
        self._is_empty = not len(asked.window)
        if self._is_empty:
            return
        before = _until(observations, rows)
        self._origins = Origins(before, units)
        self._last = before.bounds[1:] - 1
        self._path = full.path(rows, reach)
        series = observations.series[rows]
        cluster = series[asked.window]
        if len(cut) < _BLOCKS:  # by when values were observed
            first, last = full.times[cut], full.times[observations.bounds[1:] - 1]
            since = full.times[asked.row] - first[cluster]
            width = np.maximum(last - first, 1e-9)[cluster] / _BLOCKS
            block = np.clip(since / width, 0, _BLOCKS - 1).astype(np.int64)
            cluster = cluster * _BLOCKS + block
        self._judge(observations, level, units, asked, cluster, before)

    def _judge(
        self,
        observations: Observations,
        level: StructuralLevel,
        units: Units,
        asked: Questions,
        cluster: Numbers,
        before: Observations,
    ) -> None:
        """Let the level forecast from each origin."""
        filtered = level.filtered(before)
        first = before.ticks[before.bounds[:-1]][asked.window]
        times = ticks_between(first, observations.ticks[asked.row]) / level.unit
        inputs = level.inputs(observations)[asked.row]
        median, deviation, truth = np.empty((3, len(times)))
        for k in range(observations.values.shape[1]):
            mine = np.flatnonzero(asked.channel == k)
            if not len(mine):
                continue
            queries = Queries(asked.window[mine], times[mine], inputs[mine])
            mixture = filtered.answered(k, queries)
            found = mixture.quantiles(np.array([0.05, 0.5, 0.95]))
            values = observations.values[asked.row[mine], k]
            table: Array = np.column_stack([found, values])
            if not np.isnan(units.least[k]):
                table = np.log(np.maximum(table, units.least[k]))
            median[mine], truth[mine] = table[:, 1], table[:, 3]
            deviation[mine] = (table[:, 2] - table[:, 0]) / _TO_DEVIATION
        deviation = np.maximum(deviation, 1e-9 * np.abs(median) + 1e-300)
        error = np.clip((truth - median) / deviation, -_CLIPPED, _CLIPPED)
        self._asked = _Asked(asked, cluster, median, deviation, error)

    def change(self, network: nn.AheadODE) -> Array:
        """Return what a network would change, (answer,), in the level's deviations.

        NaN where it cannot be solved.
        """
        asked = self._asked
        found = np.empty(len(asked.median))
        window = asked.questions.window
        for low in range(0, len(self._last), 64):
            mine = slice(*np.searchsorted(window, [low, low + 64]))
            part = asked.questions.part(mine)
            if not len(part.window):
                continue
            path = self._path and tuple(x[low : low + 64] for x in self._path)
            batch = batch_of(
                self._origins,
                self._last[low : low + 64],
                self._n_rows,
                part._replace(window=part.window - low),
                path,  # type: ignore[arg-type]
                network,
            )
            try:
                with own_modes(gradients=False):
                    found[mine] = network.predict(batch).double().cpu().numpy()
            except SolverError:
                found[mine] = np.nan
        place = window, asked.questions.channel
        found = self._origins.location[place] + self._origins.scale[place] * found
        change = (found - asked.median) / asked.deviation
        return np.clip(change, -_CLIPPED, _CLIPPED)

    def has_prospects(self, network: nn.AheadODE) -> bool:
        """Return whether some weight of a network might be worth it."""
        if self._is_empty:
            return False
        sums = self._sums(self.change(network))[0]
        if not np.isfinite(sums).all():
            return False
        together = sums.sum((2, 3))
        ends = [best_weight(*together)]
        ends += [best_weight(*sums[:, :, k].sum(2)) for k in range(sums.shape[2])]
        return max(best for _, best, _ in ends) > _PROSPECT

    def stacking(self, network: nn.AheadODE) -> Stacking | None:
        """Return the weights that are proved; None where none is."""
        if self._is_empty:
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
                parts = (pooled[..., k, j] for j in range(n_knots))
                weights[:, k] = [_weight(*best_weight(*part)) for part in parts]
        if not weights.any():
            return None
        asked = self._asked
        used = weights[place, asked.questions.channel]
        left = np.abs(asked.error - used * change)
        factors = _factors(left, place, asked.questions.channel, weights)
        factors = np.where(weights > 0, factors * (1 + 0.5 / n_clusters), 1.0)
        return Stacking(knots, weights, factors, float(asked.questions.lead.max()))

    def _sums(self, change: Array) -> tuple[Array, Array, Numbers]:
        """Return products and squares by cluster, channel and part of the leads.

        They are (2, cluster, channel, part); with the parts' leads, and each answer's.
        """
        asked = self._asked
        lead, channel = asked.questions.lead, asked.questions.channel
        edges = np.unique(np.quantile(lead, np.arange(_KNOTS) / _KNOTS, method="lower"))
        place = np.searchsorted(edges, lead, side="right") - 1
        knots = np.array([np.median(lead[place == j]) for j in range(len(edges))])
        names, cluster = np.unique(asked.cluster, return_inverse=True)
        n_channels = self._origins.values.shape[1]
        sums = np.zeros((2, len(names), n_channels, len(knots)))
        np.add.at(sums[0], (cluster, channel, place), asked.error * change)
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
    place = np.arange(bounds[-1]) - np.repeat(bounds[:-1] - first, lengths)
    controls = observations.controls
    return Observations(
        observations.ticks[place],
        observations.values[place],
        None if controls is None else controls[place],
        bounds,
        tuple((k,) for k in range(len(rows))),
        observations.like,
    )


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
        factors[j, k] = np.mean(np.quantile(own, _QUANTILES) / np.array(_NORMAL))
    return np.maximum(factors, 1e-3)
