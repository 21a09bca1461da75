"""Whether a network adds to the structural model, on origins that neither has seen.

From each origin both forecast: the structural model, of the rows before the held-out
ones, and the network. The weight of the network is the one that makes errors least, by
least squares, as far as it is sure; and where it counts, intervals are as wide as what
is left of the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.links import Link
from sklode.data.observations import Observations
from sklode.data.scaled_rows import count_up, spread
from sklode.data.scaling import normal_scale
from sklode.data.ticks import ticks_between
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.hybrid.origins import Origins
from sklode.hybrid.restarts import stage
from sklode.hybrid.windows import Queries
from sklode.structural.filtered_model import N_PATHS, FilteredModel
from sklode.structural.model import StructuralModel
from sklode.structural.predictive.scale_by_lead import parts_of
from sklode.structural.predictive.steps import TO_DEVIATION, Inflated
from sklode.structural.rows import ChannelRows

_BLOCKS = 6
"""Parts of a few series' held-out rows: errors in one count as one."""

_ORIGINS, _IN_ONE, _ROWS_AFTER = 480, 96, 30
"""Origins in all, in a long series, and rows looked at after each."""

_SHORTEST_GAP = 0.1  # that it is judged in, of as far as it learns
_FARTHER = 4.0  # times as far as a network learns, that it is judged after restarts
_MOST_ROWS = 2_000_000  # that the structural model filters

_NEXT, _OTHERS, _ALL = 0.25, 0.1, 0.5
"""How much neighbouring leads count beside one, all, and all channels."""

_FEWEST_CLUSTERS, _CONFIDENCE, _PRIOR = 4, 0.9, 8
_OF_ALL = 20  # series, as which what all channels tell counts for each
_WHOLE, _PROSPECT = 0.5, 0.1
"""When a weight counts whole, and when a network is given up.

A weight is one where its interval reaches one and begins above `_WHOLE`. A network of
which no weight may be above `_PROSPECT` has no prospects.
"""

_WIDE, _LEAST_WIDTH = 0.9, 0.01
"""Quantile of a channel's deviations, of which all count as this part at least."""

# deviations of y, beyond which an error or a change counts for no more
_FAR = 6.0

_FEWEST_ERRORS, _TAIL = 30, 0.9
"""Errors that tell a channel's width by themselves, and how many of them it holds."""


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
    # least squares: the slope of e on d, through 0
    total, n = squares.sum(), len(squares)
    if n < _FEWEST_CLUSTERS or not np.isfinite(products).all():
        return -np.inf, 0.0, np.inf
    best = products.sum() / total
    # The error of a ratio of sums over clusters is that of its residuals p - a q
    # (Cochran 1977, Sampling Techniques, chapter 6): no model of errors within them.
    residuals = products - best * squares
    error = np.sqrt(n / (n - 1) * (residuals**2).sum()) / total
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

    def part(self, which: Flags) -> Evidence:
        """Return some of it."""
        return Evidence._make(column[which] for column in self)

    @classmethod
    def joined(cls, folds: list[Evidence]) -> Evidence:
        """Return the evidence of several folds, with clusters of each."""
        # numbers of clusters modulo how many folds there are tell the fold
        parts = []
        for number, one in enumerate(folds):
            clusters = one.cluster * len(folds) + number
            parts.append(one._replace(cluster=clusters))
        columns = zip(*parts, strict=True)
        return cls._make(np.concatenate(column) for column in columns)


@dataclass(frozen=True)
class Validation:
    """Values after held-out origins, as the structural model forecasts them.

    The network of ``model`` may learn on: `evidence` is that of the moment.
    """

    model: HybridModel
    queries: Queries
    ticks: Numbers  # (answer,)
    before: Observations  # up to each origin, a series each
    known: Observations  # the same, and what follows of X
    cluster: Numbers  # (answer,): errors of one count as one
    distance: Array  # (answer,): the lead; in gaps that of the nearest row
    scale: Array  # (answer,): what all series share, in units of a channel's link
    median: Array  # (answer,): the structural model's, in the same
    deviation: Array
    error: Array  # (answer,): of the median, in deviations

    @classmethod
    def of(
        cls,
        observations: Observations,
        every: Observations,
        cut: Numbers,
        structural: StructuralModel,
        model: HybridModel,
        in_gaps: bool = False,
    ) -> Validation:
        """Ask a ``structural`` model of the rows before ``cut`` for those after.

        That is each series' first held-out row; the network of ``model`` is judged.
        ``every`` has rows of X without y, too. With ``in_gaps`` what comes after some
        of the rows asked is known, too.
        """
        origins = proving_origins(observations, cut)
        # times and values alone: a column of X may be several controls
        bare = replace(observations, controls=observations.controls[:, :0])
        scaled = Origins(bare, model.units)
        series, ticks = observations.series[origins], observations.ticks
        asked = scaled.after(origins, _FARTHER * model.reach)
        end = observations.bounds[1:][series]
        resumes = end  # the row from which on all are known again
        if in_gaps:
            n_left_out = scaled.n_after(origins, _gaps(len(origins), model.reach))
            resumes = origins + 1 + n_left_out
            is_inside = (resumes < end)[asked.window]
            asked = asked.part(is_inside & (asked.row < resumes[asked.window]))
        queries, n_after = _thinned(asked, origins, model.reach)
        # each origin's history is filtered by itself, over so many rows that all of
        # them together have at most _MOST_ROWS
        longest = max(_MOST_ROWS // max(len(origins), 1), 1)
        last = every.bounds[1:][series]
        ends = every.at_or_before(series, ticks[origins]) + 1
        begins = np.maximum(every.bounds[:-1][series], ends - longest)
        before = _parts(every, begins, ends)
        # the row after the last query lets controls be interpolated to it
        until = every.at_or_before(series, ticks[origins + n_after]) + 2
        if model.forms.runs_back:
            until = last  # what was given first fades through all that follows
        distance = queries.lead
        if in_gaps:
            later = np.minimum(resumes, end - 1)
            left = scaled.times[later][queries.window] - scaled.times[queries.row]
            distance = np.minimum(distance, left)
            begins_again = every.at_or_before(series, ticks[later])
            until = np.minimum(begins_again + longest, last)
            before = _parts(
                every,
                np.stack([begins, begins_again], axis=1),
                np.stack([ends, until], axis=1),
            )
        known = _parts(every, begins, np.minimum(until, last))
        own = series[queries.window]
        place, row = every.at_or_before(own, ticks[queries.row]), queries.row
        given = observations, every, before
        if model.forms.runs_back:
            # the structural model knows time as it is
            row, place = observations.opposite(row), every.opposite(place)
            given = observations.reversed(), every.reversed(), before.reversed()
        low, median, high, truth = _forecast(
            *given,
            queries=queries._replace(row=row),
            place=place,
            structural=structural,
            links=model.units.links,
        )
        scale = scaled.scale[own, queries.channel]
        deviation = _usual((high - low) / TO_DEVIATION / scale, queries.channel) * scale
        # what is forecast exactly has the deviation of rounding, and not 0
        deviation = np.maximum(deviation, 1e-9 * np.abs(median) + 1e-300)
        cluster = own
        if len(cut) < _BLOCKS:
            cluster = _blocks(scaled, cut=cut, queries=queries, own=own)
        return cls(
            model=model,
            queries=queries,
            ticks=ticks[queries.row],
            distance=distance,
            before=before,
            known=known,
            cluster=cluster,
            scale=scale,
            median=median,
            deviation=deviation,
            error=(truth - median) / deviation,
        )

    def evidence(self, restarts: bool = False) -> Evidence:
        """Return what the network changes, beside what the structural model misses.

        With ``restarts``, as soon as these are possible; of leads as long as it learned
        at least, as what they do of nearer ones tells the same.
        """
        reach, farthest = self.model.reach, None
        is_asked = self.queries.lead <= reach
        if restarts:
            farthest = stage(reach)
            is_asked = self.queries.lead > farthest
        queries, median = self.queries.part(is_asked), self.median[is_asked]
        distance = self.distance[is_asked]
        deviation = self.deviation[is_asked]
        # the network answers for all channels of a row at once: each row is one query
        row = queries.window * (queries.row.max(initial=0) + 1) + queries.row
        _, first, place = np.unique(row, return_index=True, return_inverse=True)
        change = np.empty(0)
        if len(first):
            known, seen = self.model.read(self.known, self.before.observed())
            ticks = self.ticks[is_asked][first]
            table = self.model.forecasts(
                seen,
                known,
                row=seen.at_or_before(queries.window[first], ticks),
                lead=queries.lead[first],
                farthest=farthest,
            )
            change = (table[place, queries.channel] - median) / deviation
        return Evidence(
            cluster=self.cluster[is_asked],
            channel=queries.channel,
            lead=np.maximum(queries.lead, reach) if restarts else distance,
            error=self.error[is_asked],
            change=change,
            deviation=deviation / self.scale[is_asked],
        )


def has_prospects(evidence: Evidence, n_channels: int) -> bool:
    """Return whether some weight might be worth it."""
    if not len(evidence.lead):
        return False
    # over all leads: of all channels together, and of each
    sums = _Sums.of(evidence, n_channels).table.sum(3)
    each = [sums[:, :, channel] for channel in range(n_channels)]
    best = [best_weight(*one)[1] for one in (sums.sum(2), *each)]
    return max(best) > _PROSPECT


def network_weights_of(
    folds: list[Evidence],
    n_channels: int,
    of_blocks: bool,
    restarted: Sequence[Evidence] = (),
    farthest: float = 0.0,
) -> NetworkWeights | None:
    """Return stacking weights; None where none is above zero for sure.

    A weight is the least of what each fold of time calls best: one fold alone
    may be like what a network has learned by chance. Where clusters are blocks of time
    (``of_blocks``), weights are shrunk, as if `_PRIOR` more blocks had said nothing;
    where they are series that the network has not seen, see `_partly_pooled_weights`.

    What it learned decides which channels count. Where these count after restarts as
    well, by the evidence of ``restarted``, they do so up to ``farthest``.
    """
    near = weights_of(folds, n_channels, of_blocks=of_blocks)
    if near is None or not restarted:
        return near
    far = weights_of(list(restarted), n_channels, of_blocks=of_blocks)
    return near if far is None else near.followed_by(far, farthest)


def weights_of(
    folds: list[Evidence], n_channels: int, of_blocks: bool
) -> NetworkWeights | None:
    """Return those of one stretch of leads, or of gaps."""
    evidence = Evidence.joined(folds)
    if not len(evidence.lead):
        return None
    sums = _Sums.of(evidence, n_channels)
    n_clusters = len(sums.clusters)
    if of_blocks:
        # see `Evidence.joined`
        fold = sums.clusters % len(folds)
        of_fold = [fold == number for number in range(len(folds))]
        weights = _least_weights(sums.table, of_fold)
    else:
        weights = _partly_pooled_weights(sums.table)
    if not weights.any():
        return None
    channel, part = evidence.channel, sums.part
    weight = weights[part, channel]
    usual = np.full_like(weights, np.nan)
    for j, k in np.ndindex(usual.shape):
        mine = evidence.deviation[(part == j) & (channel == k)]
        if len(mine):
            usual[j, k] = np.median(mine)
    # what is left, in the deviations that `Mixture.limited` makes
    ratio = evidence.deviation / usual[part, channel]
    left = np.abs(evidence.error - weight * evidence.change) * ratio**weight
    factors = _factors(left, evidence, part=part, weights=weights)
    # a weight takes one degree of freedom: sqrt(n / (n - 1)) is about 1 + 1 / (2 n)
    factors = np.where(weights > 0, factors * (1 + 0.5 / n_clusters), 1.0)
    most, counts = np.zeros(n_channels), weight > 0
    np.maximum.at(most, channel[counts], np.abs(evidence.change[counts]))
    return NetworkWeights(
        leads=sums.leads,
        weights=weights,
        factors=factors,
        usual=usual,
        most=most,
        reach=float(evidence.lead.max()),
    )


def _weight(products: Array, squares: Array) -> float:
    """Return the best weight of clusters, from 0 to 1; 1 where it may well be."""
    low, best, high = best_weight(products, squares)
    return 1.0 if low > _WHOLE and high >= 1 else min(max(best, 0.0), 1.0)


def _pooled(table: Array) -> Array:
    """Return sums of `_Sums` with a part of what other leads tell, neighbours more."""
    pooled: Array = table + _OTHERS * table.mean(3, keepdims=True)
    pooled[..., 1:] += _NEXT * table[..., :-1]
    pooled[..., :-1] += _NEXT * table[..., 1:]
    return pooled


def _least_weights(table: Array, of_fold: list[Flags]) -> Array:
    """Return the least weights of all folds, (part, channel), of a few series.

    ``table`` is that of `_Sums`, ``of_fold`` has the clusters of each fold.
    """
    pooled = _pooled(table)
    of_channel = table.mean(3) + _ALL * table.mean((2, 3))[..., None]
    n_clusters, n_channels, n_parts = table.shape[1:]
    shrunk = n_clusters / (n_clusters + _PRIOR)
    weights = np.zeros((n_parts, n_channels))
    for k in range(n_channels):
        # whether any weight of a channel is above zero, all its leads decide
        lower, _, _ = best_weight(*of_channel[..., k])
        if lower <= 0:
            continue
        for j in range(n_parts):
            each = pooled[..., k, j]
            least = min(_weight(*each[:, own]) for own in of_fold)
            weights[j, k] = least if least == 1 else least * shrunk
    return weights


def _partly_pooled_weights(table: Array) -> Array:
    """Return weights of many series, (part, channel), as far as `_Sums` tell each.

    They shrink towards what all channels have in common, as if `_OF_ALL` more series
    had told that: of what few series have, next to nothing is known.
    """
    of_channel = table.sum(3)
    each = [of_channel.sum(2), *np.moveaxis(of_channel, 2, 0)]
    if max(best_weight(*one)[0] for one in each) <= 0:
        return np.zeros(table.shape[:1:-1])
    pooled = _pooled(table)
    products, squares = pooled.sum(1)
    in_common = products.sum(0) / np.maximum(squares.sum(0), 1e-300)
    counts = np.maximum((pooled[1] > 0).sum(0), 1)
    # of the size that a series of the channel has
    prior = _OF_ALL * squares / counts
    total = squares + prior
    weights = (products + prior * in_common) / np.where(total > 0, total, 1.0)
    return np.clip(weights, 0.0, 1.0).T


class _Sums(NamedTuple):
    """Sums of `best_weight`, by clusters, channels and parts of the leads."""

    table: Array  # (2, cluster, channel, part): products, and squares
    clusters: Numbers  # (cluster,): their numbers in the evidence
    leads: Array  # (part,): the median one of each
    part: Numbers  # (answer,)

    @classmethod
    def of(cls, evidence: Evidence, n_channels: int) -> _Sums:
        """Add up evidence, whose clusters count alike, and leads of a channel too."""
        lead, channel = evidence.lead, evidence.channel
        # from an observed lead on each, so that no part is empty
        part, leads = parts_of(lead, method="lower")
        clusters, cluster = np.unique(evidence.cluster, return_inverse=True)
        table = np.zeros((2, len(clusters), n_channels, len(leads)))
        error = evidence.deviation * evidence.error
        change = evidence.deviation * evidence.change
        # of what is far both are shrunk alike, so that their ratio stays
        largest = np.maximum(np.abs(error), np.abs(change))
        far = np.maximum(largest / _FAR, 1.0)
        error, change = error / far, change / far
        np.add.at(table[0], (cluster, channel, part), error * change)
        np.add.at(table[1], (cluster, channel, part), change**2)
        # over the mean squared error there: leads count alike, however hard they are
        squares, n = np.zeros((2, n_channels, len(leads)))
        np.add.at(squares, (channel, part), error**2)
        np.add.at(n, (channel, part), 1.0)
        table /= np.where(squares > 0, squares / np.maximum(n, 1.0), 1.0)
        return cls(table=table, clusters=clusters, leads=leads, part=part)


def proving_origins(observations: Observations, cut: Numbers) -> Numbers:
    """Return rows to look ahead from, evenly spread over what is held out."""
    first, end = observations.bounds[:-1], observations.bounds[1:]
    is_whole = cut == first
    # who forecasts a whole series has seen some of it
    early = first + np.maximum((end - first) // 3, 2)
    low = np.where(is_whole, early, cut - 1)
    most = np.where(is_whole, 4, _IN_ONE)
    # the last row of a series has none after it
    each = zip(low, end - 1, most, strict=True)
    rows = [spread(np.arange(a, b), n) for a, b, n in each]
    return spread(np.concatenate(rows), _ORIGINS)


def _thinned(
    queries: Queries, origins: Numbers, reach: float
) -> tuple[Queries, Numbers]:
    """Return at most `_ROWS_AFTER` rows after each origin, and its number of rows.

    As many within ``reach``, and beyond.
    """
    after = queries.row - origins[queries.window]
    is_far = queries.lead > reach
    n_after, last_near = np.zeros((2, len(origins)), np.int64)
    np.maximum.at(n_after, queries.window, after)
    np.maximum.at(last_near, queries.window[~is_far], after[~is_far])
    # Row number n is kept where n / step passes a whole number: evenly spaced ones,
    # and the last, where it is _ROWS_AFTER. Steps of one keep every row.
    window = queries.window
    after = np.where(is_far, after - last_near[window], after)
    most = np.where(is_far, (n_after - last_near)[window], last_near[window])
    step = np.maximum(most / _ROWS_AFTER, 1.0)
    kept = np.floor(after / step) > np.floor((after - 1) / step)
    return queries.part(kept), n_after


def _blocks(scaled: Origins, cut: Numbers, queries: Queries, own: Numbers) -> Numbers:
    """Return clusters of a few series: `_BLOCKS` parts of what each holds out.

    ``own`` is the series of each answer. They are as long in time, whatever the rows.
    """
    last_row = scaled.bounds[1:] - 1
    begin = scaled.times[np.minimum(cut, last_row)]
    since = scaled.times[queries.row] - begin[own]
    width = np.maximum(scaled.times[last_row] - begin, 1e-9)[own] / _BLOCKS
    # the last row lies on the end of the last block
    block = np.clip(since / width, 0, _BLOCKS - 1).astype(np.int64)
    return own * _BLOCKS + block


def _forecast(
    observations: Observations,
    every: Observations,
    before: Observations,
    queries: Queries,
    place: Numbers,
    structural: StructuralModel,
    links: tuple[Link, ...],
) -> Array:
    """Return forecasts and what came, (4, answer): the middle 90 %, and the truth.

    Answers have their ``place`` in ``every`` row, which tell of X.
    These are low end, median, high end and truth, in units of the links.
    """
    table = np.empty((4, len(queries.window)))
    if not len(queries.window):
        return table
    filtered = FilteredModel.filter(structural, before)
    ticks = observations.ticks[queries.row]
    first = before.ticks[before.bounds[:-1]][queries.window]
    times = ticks_between(first, ticks) / structural.design.unit
    inputs, changes = filtered.inputs(
        series=queries.window,
        ticks=ticks,
        known=every,
        place=place,
        n=N_PATHS,
    )
    # in reversed time a window's queries come latest first
    order = np.lexsort((times, queries.window))
    table[3] = observations.values[queries.row, queries.channel]
    for k in np.unique(queries.channel):
        mine = order[queries.channel[order] == k]
        rows = ChannelRows.from_series(
            series=queries.window[mine],
            times=times[mine],
            values=np.nan,
            inputs=inputs[mine],
            n_series=len(before.keys),
            changes=None if changes is None else changes[:, mine],
        )
        quantiles = np.array([0.05, 0.5, 0.95])
        # as wide as a network is weighed by: where it counts nothing is inflated
        found = filtered.prediction(k, rows, is_limited=False).without(Inflated)
        table[:3, mine] = found.distribution().quantiles(quantiles).T
        table[:, mine] = links[k].of(table[:, mine])
    return table


def _usual(deviation: Array, channel: Numbers) -> Array:
    """Return deviations, at least a part of what is wide in their channel.

    Where a channel is sure of most values, but not of some, errors in units of the
    former's deviations would tell of no width that is usual.
    """
    found = deviation.copy()
    for k in np.unique(channel):
        mine = channel == k
        wide = np.quantile(deviation[mine], _WIDE)
        found[mine] = np.maximum(deviation[mine], _LEAST_WIDTH * wide)
    return found


def _gaps(n: int, reach: float) -> Array:
    """Return lengths of gaps to try, (n,), from a tenth of the reach to all of it."""
    # multiples of the golden ratio, less their whole parts, fill an interval evenly
    shares = (np.arange(n) * (5**0.5 - 1) / 2) % 1.0
    lengths: Array = reach * _SHORTEST_GAP**shares
    return lengths


def _parts(observations: Observations, first: Numbers, end: Numbers) -> Observations:
    """Return rows from ``first`` to before ``end`` as a series each, (part,).

    Or of several such stretches each, (part, stretch).
    """
    lengths = end - first
    rows = np.repeat(first.ravel(), lengths.ravel()) + count_up(lengths.ravel())
    each = lengths.reshape(len(lengths), -1).sum(axis=1)
    bounds = np.append(0, np.cumsum(each))
    keys = tuple((k,) for k in range(len(first)))
    return observations.rows(rows, bounds, keys)


def _factors(left: Array, evidence: Evidence, part: Numbers, weights: Array) -> Array:
    """Return the scale of what is ``left`` of errors, (part, channel)."""
    factors = np.ones_like(weights)
    cluster, channel = evidence.cluster, evidence.channel
    for j, k in np.argwhere(weights > 0):
        own = (part == j) & (channel == k)
        # too few of a channel: those of all that the network counts for
        if own.sum() < _FEWEST_ERRORS:
            own = (part == j) & (weights[j, channel] > 0)
        factors[j, k] = width_of(left[own], cluster[own])
    return np.maximum(factors, 1e-3)


def width_of(sizes: Array, cluster: Numbers) -> float:
    """Return the scale of normal errors that are as large as these, if they are few.

    It grows as their quantile of 0.9 does in split conformal prediction, which takes
    that of 0.9 (n + 1) / n (Lei and others, "Distribution-Free Predictive Inference for
    Regression", 2018). Errors of one ``cluster`` are alike: n is as many as they are
    worth (Kish, Survey Sampling, 1965), by how the clusters' shares differ.
    """
    usual = np.quantile(sizes, _TAIL)
    _, numbers, counts = np.unique(cluster, return_inverse=True, return_counts=True)
    n, n_clusters = len(sizes), len(counts)
    worth = 1.0
    if n_clusters > 1:
        excess = np.bincount(numbers, (sizes <= usual) - _TAIL) / n
        variance = (excess**2).sum() * n_clusters / (n_clusters - 1)
        worth = np.clip(_TAIL * (1 - _TAIL) / max(variance, 1e-9), 1.0, n)
    level = min(_TAIL * (worth + 1) / worth, 1.0)
    largest = np.quantile(sizes, level, method="inverted_cdf")
    growth = max(float(largest / usual), 1.0) if usual > 0 else 1.0
    return growth * normal_scale(sizes)
