"""How much wider intervals are than the model says, as errors ahead were of late.

Those of networks are widened in `latent_ode.calibration` and `hybrid.guard`; all are
`interpolated`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Candidate
from sklode.structural.filter.system import States
from sklode.structural.rows import ChannelRows

# last rows that are forecast from, and rows ahead
_ORIGINS, LEADS = 48, 24
# of a panel; of more, some that are spread evenly
_MOST_SERIES = 64
# first rows, or this part of them: states are still vague there
_BURNT, _SHARE = 10, 3
# rows in which what an error tells fades
_RECENT = 8.0
CLIPPED = 5.0
"""Deviations: larger errors count as these."""
# errors that what is expected beforehand is worth
_DOUBT, _RECENT_DOUBT = 30.0, 1.0
# of squares of errors: a fifth more is no break
_CHANCE = 1.2
# how much larger errors are on new rows than on those that hyperparameters fit. This,
# the fading, the doubts and the chance were set on made-up breaks and competition
# series: with them 90 % intervals hold 0.80 of more noise, 0.70 of kinks in a trend
_OPTIMISM = 1.1
# parts of the leads, with a weight or a scale of another forecast each
_KNOTS = 4


class VarianceInflation(NamedTuple):
    """Factors of standard deviations by the time ahead, at least one."""

    leads: Array  # (lead,), in usual gaps, increasing
    factors: Array  # (lead,)

    @classmethod
    def measured(
        cls,
        candidate: Candidate,
        table: ChannelRows,
        span: float,
        left: Callable[[int, Ahead], Ahead],
    ) -> VarianceInflation:
        """Measure it by the errors ahead that a candidate made at its last rows.

        ``left`` returns forecasts of a series with the errors that another forecast
        leaves, see `Combination`.
        """
        each = []
        for series in telling(candidate, table):
            alone = candidate.alone(series)
            own = alone.scaling.rows(table.alone(series))
            n = len(own.times)
            origins = np.arange(max(burnt(alone, n), n - 1 - _ORIGINS), n - 1)
            found = left(series, forecasts_ahead(alone, own, span, origins))
            each.append((found.errors, n - 1.0 - found.rows, found.leads))
        if not each:
            return cls(np.zeros(1), np.ones(1))
        errors, ages, leads = (np.concatenate(x) for x in zip(*each, strict=True))
        known = np.isfinite(leads).any(axis=0)
        times = np.nanmedian(leads[:, known], axis=0)
        squares = np.minimum(errors**2, CLIPPED**2)
        factors = _factors(squares, ages)
        # medians of fewer and fewer rows may fall, and `interp` wants them not to
        return cls(np.maximum.accumulate(times), factors[known])

    def at(self, ahead: Array) -> Array:
        """Return factors at times since the last row; of the past 1."""
        found = interpolated(ahead, self.leads, self.factors[:, None])[:, 0]
        return np.where(ahead > 0, found, 1.0)


def parts_of(leads: Array, method: Literal["linear", "lower"]) -> tuple[Numbers, Array]:
    """Return which of `_KNOTS` parts, of as many, each lead is in, and their medians.

    ``method`` is that of `numpy.quantile` for their edges.
    """
    shares = np.arange(_KNOTS) / _KNOTS
    edges = np.unique(np.quantile(leads, shares, method=method))
    part = np.searchsorted(edges, leads, side="right") - 1
    medians = [np.median(leads[part == k]) for k in range(len(edges))]
    return part, np.array(medians)


def interpolated(ahead: Array, leads: Array, table: Array) -> Array:
    """Return a table, (lead, column), at times ahead: linear, held beyond the ends."""
    columns = [np.interp(ahead, leads, column) for column in table.T]
    return np.stack(columns, axis=-1)


def burnt(candidate: Candidate, n: int) -> int:
    """Return how many first rows of ``n`` do not tell how large errors are."""
    share = n // _SHARE
    # what a panel knows of effects is known from the first row on
    return share if candidate.prior is not None else max(share, _BURNT)


def telling(candidate: Candidate, table: ChannelRows) -> list[int]:
    """Return series that tell how large errors are: of many some, spread evenly."""
    lengths = table.lengths.tolist()
    found = [k for k, n in enumerate(lengths) if n > burnt(candidate, n) + 1]
    if len(found) > _MOST_SERIES:
        places = np.linspace(0, len(found) - 1, _MOST_SERIES).astype(int)
        found = [found[k] for k in places.tolist()]
    return found


class Ahead(NamedTuple):
    """What was forecast from origins of a lone series; all (origin, lead).

    In the units of its states. Of what has not come yet errors and leads are NaN.
    """

    signals: Array
    deviations: Array
    errors: Array  # in deviations
    rows: Numbers
    leads: Array


def forecasts_ahead(
    candidate: Candidate, table: ChannelRows, span: float, origins: Numbers
) -> Ahead:
    """Return forecasts of a lone series' next rows, had it ended at its ``origins``.

    ``table`` is in the units of the states.
    """
    model = candidate.model
    space = model.space(span)
    system = space.system(model.schedule(table))
    n, states, before = len(table.times), candidate.first(space, 1), 0
    known = []
    # the filter goes on from origin to origin, and keeps the states at each
    for origin in origins.tolist():
        new = slice(before, origin + 1)
        found = model.run(system.part(new), space, table.values[new], states=states)
        states = found.states
        known.append(states)
        before = origin + 1
    rows = origins[:, None] + 1 + np.arange(LEADS)
    there, rows = rows < n, np.minimum(rows, n - 1)
    # each origin is as a series of its own, of ``LEADS`` rows without values: the
    # filter then tells what is expected of all of them at once
    asked = table.where(rows.ravel())._replace(
        values=np.full(rows.size, np.nan),
        bounds=np.arange(0, rows.size + 1, LEADS),
    )
    # field by field, end to end
    after = States(*map(np.concatenate, zip(*known, strict=True)))
    leads = table.times[rows] - table.times[origins][:, None]
    found = model.filtered(space, asked, space.whole, states=after, since=leads[:, 0])
    signals = found.signal.reshape(rows.shape)
    variances = np.maximum(found.variance, 0.0).reshape(rows.shape)
    deviations = np.sqrt(variances + model.noise + table.errors[rows] ** 2)
    errors = (table.values[rows] - signals) / deviations
    return Ahead(
        signals=signals,
        deviations=deviations,
        errors=np.where(there, errors, np.nan),
        rows=rows,
        leads=np.where(there, leads, np.nan),
    )


def _factors(squares: Array, ages: Array) -> Array:
    """Return the factor of each lead, by squares of errors, (origin, lead).

    One of all errors, and one of the last ones, each shrunk to what is expected without
    it: neighbouring errors share rows ahead, and tell less the more they share.
    """
    factors = np.ones(LEADS)
    for lead in range(1, LEADS + 1):
        # leads from half of it on are alike, and count with it
        near = slice((lead - 1) // 2, lead)
        own, age = squares[:, near], ages[:, near]
        some = np.isfinite(own)
        if not some.any():
            factors[lead - 1] = factors[max(lead - 2, 0)]
            continue
        # what has not come yet is of no row, of size zero: it adds nothing below
        sizes = _without_the_worst(np.where(some, own, 0.0), np.where(some, age, -1.0))
        # Origins of neighbouring rows share lead - 1 of the rows ahead, so that errors
        # repeat each other: n is about the number of those half a lead apart. A mean of
        # n, shrunk as if `_DOUBT` more were as large as expected, which is 1.
        n = some.any(axis=1).sum() / max(lead / 2, 1.0)
        usual = (n * sizes.sum() / some.sum() + _DOUBT) / (n + _DOUBT)
        weights = np.where(some, np.exp(-age / _RECENT), 0.0)
        total = weights.sum()
        recent = (weights * sizes).sum() / total
        # likewise, shrunk to the usual size
        n = total / some.shape[1] / max(lead / 4, 1.0)
        square = (n * recent + _RECENT_DOUBT * usual) / (n + _RECENT_DOUBT)
        if square > _CHANCE:
            factors[lead - 1] = _OPTIMISM * np.sqrt(square)
    return factors


def _without_the_worst(sizes: Array, rows: Array) -> Array:
    """Return sizes of which those of the worst row are as those of the next.

    A lone absurd value is no break.
    """
    _, place = np.unique(rows, return_inverse=True)
    place = place.ravel()
    means = np.bincount(place, sizes.ravel()) / np.bincount(place)
    if len(means) < 2:
        return sizes
    second, first = np.partition(means, -2)[-2:]
    is_worst = (means == first)[place].reshape(sizes.shape)
    return np.where(is_worst, sizes * (second / max(first, 1e-300)), sizes)
