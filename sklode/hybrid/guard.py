"""Whether a network adds to the structural model, on origins that neither has seen.

From each origin forecast the structural model of the rows before the held-out ones, and
the network; what is best weighs the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Numbers
from sklode.data.observations import Observations
from sklode.data.scaled_rows import count_up, spread
from sklode.data.scaling import normal_scale
from sklode.data.ticks import ticks_between
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.hybrid.origins import Origins
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.filtered_model import N_PATHS, FilteredModel
from sklode.structural.mixture import TO_DEVIATION
from sklode.structural.model import StructuralModel

_BLOCKS = 6
"""Parts of a few series' held-out rows: errors in one count as one."""

_ORIGINS, _IN_ONE, _ROWS_AFTER = 480, 96, 30
"""Origins in all, in a long series, and rows looked at after each."""

_MOST_ROWS = 2_000_000  # that the structural model filters

_KNOTS = 4
_NEXT, _OTHERS, _ALL = 0.25, 0.1, 0.5
"""How much neighbouring leads count beside one, all, and all channels."""

_FEWEST_CLUSTERS, _CONFIDENCE, _PRIOR = 4, 0.9, 8
_WHOLE, _PROSPECT = 0.5, 0.1
"""When a weight counts whole, and when a network is given up.

A weight is one where its interval reaches one and begins above `_WHOLE`. A network of
which no weight may be above `_PROSPECT` has no prospects.
"""

_FAR = 6.0  # deviations of y, beyond which an error or a change counts for no more
_FEWEST_ERRORS = 30


def best_weight(products: Array, squares: Array) -> tuple[float, float, float]:
    r"""Return the best weight of clusters, with its lower and upper bound.

    With the structural model's errors e and what the network would change, d, it is

    .. math:: a = \sum_b p_b / \sum_b q_b, \quad p_b = e_b \cdot d_b, \quad
        q_b = d_b \cdot d_b

    over clusters b, ``products`` and ``squares`` (cluster,). First and last are ends
    of its 80 % interval; it is 0 between infinite ends where nothing can be said.
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


class Evidence(NamedTuple):
    """What a structural model misses, and what a network changes there, (answer,)."""

    cluster: Numbers  # errors of one count as one
    channel: Numbers
    lead: Array  # in units of time
    error: Array  # of the structural model's median, in its deviations
    change: Array  # in the same; NaN where the network has no answer
    deviation: Array  # the structural model's, in units of what all series share

    @classmethod
    def joined(cls, stretches: list[Evidence]) -> Evidence:
        """Return the evidence of several stretches of time, with clusters of each."""
        parts = []
        for number, one in enumerate(stretches):
            named = one.cluster * len(stretches) + number
            parts.append(one._replace(cluster=named))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class Validation:
    """Values after held-out origins, forecast by the structural model and a network.

    ``cut`` are each series' first held-out rows; ``structural`` is a model of those
    before.

    ``asked`` are the values; beside it, all (answer,): ``cluster`` of errors that count
    as one, that model's ``median`` and ``deviation`` as of `Adjustment`, and the
    median's ``error`` in deviations.
    """

    def __init__(
        self,
        observations: Observations,
        cut: Numbers,
        structural: StructuralModel,
        model: HybridModel,
    ) -> None:
        self._model = model
        rows = _origins(observations, cut)
        full = Origins(observations, model.units)
        asked = full.after(rows, model.network.reach)
        after, most = asked.row - rows[asked.window], np.zeros(len(rows), np.int64)
        np.maximum.at(most, asked.window, after)
        step = np.maximum(most / _ROWS_AFTER, 1.0)[asked.window]
        kept = np.floor(after / step) > np.floor((after - 1) / step)
        self.asked = asked = asked.part(kept)
        if not len(asked.window):
            return
        series = observations.series[rows]
        first, end = observations.bounds[:-1][series], observations.bounds[1:][series]
        first = np.maximum(first, rows + 1 - max(_MOST_ROWS // len(rows), 1))
        self.before = _parts(observations, first, rows + 1)
        self._known = _parts(observations, rows, np.minimum(rows + most + 2, end))
        self.cluster = series[asked.window]
        self.scale = full.scale[self.cluster, asked.channel]
        if len(cut) < _BLOCKS:  # by when values were observed
            last_row = observations.bounds[1:] - 1
            begin, last = full.times[np.minimum(cut, last_row)], full.times[last_row]
            since = full.times[asked.row] - begin[self.cluster]
            width = np.maximum(last - begin, 1e-9)[self.cluster] / _BLOCKS
            block = np.clip(since / width, 0, _BLOCKS - 1).astype(np.int64)
            self.cluster = self.cluster * _BLOCKS + block
        self._forecast(observations, structural)

    def _forecast(
        self, observations: Observations, structural: StructuralModel
    ) -> None:
        asked, before = self.asked, self.before
        filtered = FilteredModel.of(structural, before)
        ticks = observations.ticks[asked.row]
        first = before.ticks[before.bounds[:-1]][asked.window]
        times = ticks_between(first, ticks) / structural.unit
        given = asked.window, ticks, observations, asked.row
        inputs, changes = filtered.inputs(*given, N_PATHS)
        table = np.empty((len(times), 4))
        table[:, 3] = observations.values[asked.row, asked.channel]
        for k in np.unique(asked.channel):
            mine = asked.channel == k
            rows = asked.window[mine], times[mine], np.nan, inputs[mine]
            queries = ChannelRows.of(*rows, len(before.keys))
            if changes is not None:
                queries = queries._replace(changes=changes[:, mine])
            quantiles = np.array([0.05, 0.5, 0.95])
            for _, place in filtered.channels[k].split(queries):
                one = filtered.answered(k, queries.where(place))
                table[np.flatnonzero(mine)[place], :3] = one.quantiles(quantiles)
            table[mine] = self._model.units.links[k].of(table[mine])
        low, self.median, high, truth = table.T
        deviation = (high - low) / TO_DEVIATION
        self.deviation = np.maximum(deviation, 1e-9 * np.abs(self.median) + 1e-300)
        self.error = (truth - self.median) / self.deviation

    def evidence(self) -> Evidence:
        """Return what the network changes, beside what the structural model misses."""
        asked = self.asked
        if not len(asked.window):
            places, numbers = np.empty(0, np.int64), np.empty(0)
            return Evidence(places, places, numbers, numbers, numbers, numbers)
        row = asked.window * (asked.row.max() + 1) + asked.row
        _, first, place = np.unique(row, return_index=True, return_inverse=True)
        queries = asked.window[first], asked.lead[first]
        table = self._model.forecasts(self.before, *queries, self._known)
        change = (table[place, asked.channel] - self.median) / self.deviation
        return Evidence(
            cluster=self.cluster,
            channel=asked.channel,
            lead=asked.lead,
            error=self.error,
            change=change,
            deviation=self.deviation / self.scale,
        )


def has_prospects(evidence: Evidence, n_channels: int) -> bool:
    """Return whether some weight might be worth it."""
    if not len(evidence.lead):
        return False
    sums = _sums(evidence, n_channels)[0].sum(3)
    every = [sums.sum(2), *np.moveaxis(sums, 2, 0)]
    return max(best_weight(*one)[1] for one in every) > _PROSPECT


def network_weights_of(
    stretches: list[Evidence], n_channels: int, of_blocks: bool
) -> NetworkWeights | None:
    """Return stacking weights; None where none is above zero for sure.

    A weight is the least of what each stretch of time calls best: one stretch alone
    may be like what a network has learned by chance. Clusters that are blocks of time
    are shrunk, as if there were some more where the network tells nothing; series that
    it has not seen are not.
    """
    evidence = Evidence.joined(stretches)
    if not len(evidence.lead):
        return None
    sums, knots, place = _sums(evidence, n_channels)
    n_clusters, n_knots = sums.shape[1], len(knots)
    # of each cluster, see `Evidence.joined`
    stretch = np.unique(evidence.cluster) % len(stretches)
    pooled = sums + _OTHERS * sums.mean(3, keepdims=True)
    pooled[..., 1:] += _NEXT * sums[..., :-1]
    pooled[..., :-1] += _NEXT * sums[..., 1:]
    of_channel = sums.mean(3) + _ALL * sums.mean((2, 3))[..., None]
    weights = np.zeros((n_knots, n_channels))
    kept = n_clusters / (n_clusters + _PRIOR) if of_blocks else 1.0
    for k in range(n_channels):
        if best_weight(*of_channel[..., k])[0] > 0:
            for j in range(n_knots):
                each = pooled[..., k, j]
                mine = [each[:, stretch == one] for one in range(len(stretches))]
                least = min(_weight(*own) for own in mine)
                weights[j, k] = least if least == 1 else least * kept
    if not weights.any():
        return None
    channel, change = evidence.channel, evidence.change
    weight = weights[place, channel]
    usual = np.ones_like(weights)
    for j, k in np.ndindex(usual.shape):
        mine = evidence.deviation[(place == j) & (channel == k)]
        usual[j, k] = np.median(mine) if len(mine) else np.nan
    # what is left, in the deviations that `Mixture.limited` makes
    ratio = evidence.deviation / usual[place, channel]
    left, counts = np.abs(evidence.error - weight * change) * ratio**weight, weight > 0
    factors = _factors(left, place, channel, weights)
    factors = np.where(weights > 0, factors * (1 + 0.5 / n_clusters), 1.0)
    most = np.zeros(n_channels)
    np.maximum.at(most, channel[counts], np.abs(change[counts]))
    reach = float(evidence.lead.max())
    return NetworkWeights(knots, weights, factors, usual, most, reach)


def _weight(products: Array, squares: Array) -> float:
    """Return the best weight of clusters, from 0 to 1; 1 where it may well be."""
    low, best, high = best_weight(products, squares)
    return 1.0 if low > _WHOLE and high >= 1 else min(max(best, 0.0), 1.0)


def _sums(evidence: Evidence, n_channels: int) -> tuple[Array, Array, Numbers]:
    """Return sums, (2, cluster, channel, part), with leads and parts."""
    lead, channel, change = evidence.lead, evidence.channel, evidence.change
    edges = np.unique(np.quantile(lead, np.arange(_KNOTS) / _KNOTS, method="lower"))
    place = np.searchsorted(edges, lead, side="right") - 1
    knots = np.array([np.median(lead[place == j]) for j in range(len(edges))])
    names, cluster = np.unique(evidence.cluster, return_inverse=True)
    sums = np.zeros((2, len(names), n_channels, len(knots)))
    error, change = evidence.deviation * np.stack([evidence.error, change])
    # of what is far both are shrunk alike, so that their ratio stays
    far = np.maximum(np.maximum(np.abs(error), np.abs(change)) / _FAR, 1.0)
    error, change = error / far, change / far
    np.add.at(sums[0], (cluster, channel, place), error * change)
    np.add.at(sums[1], (cluster, channel, place), change**2)
    # leads count alike, however much harder some are
    squares, n = np.zeros((2, n_channels, len(knots)))
    np.add.at(squares, (channel, place), error**2)
    np.add.at(n, (channel, place), 1.0)
    sums /= np.where(squares > 0, squares / np.maximum(n, 1.0), 1.0)
    return sums, knots, place


def _origins(observations: Observations, cut: Numbers) -> Numbers:
    first, end = observations.bounds[:-1], observations.bounds[1:]
    is_whole = cut == first
    # who forecasts a whole series has seen some of it
    early = first + np.maximum((end - first) // 3, 2)
    low, most = np.where(is_whole, early, cut - 1), np.where(is_whole, 4, _IN_ONE)
    each = zip(low, end - 1, most, strict=True)
    rows = [spread(np.arange(a, b), n) for a, b, n in each]
    return spread(np.concatenate(rows), _ORIGINS)


def _parts(observations: Observations, first: Numbers, end: Numbers) -> Observations:
    lengths = end - first
    place = np.repeat(first, lengths) + count_up(lengths)
    bounds, keys = np.append(0, np.cumsum(lengths)), [(k,) for k in range(len(first))]
    return observations.rows(place, bounds, tuple(keys))


def _factors(left: Array, place: Numbers, channel: Numbers, weights: Array) -> Array:
    """Return the scale of what is left, (part, channel)."""
    factors = np.ones_like(weights)
    for j, k in np.argwhere(weights > 0):
        own = left[(place == j) & (channel == k)]
        if len(own) < _FEWEST_ERRORS:
            own = left[(place == j) & (weights[j, channel] > 0)]
        factors[j, k] = normal_scale(own)
    return np.maximum(factors, 1e-3)
