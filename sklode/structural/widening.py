"""How much wider than a model expects its errors ahead have been of late."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.filter_pass import States

_ORIGINS, _LEADS = 48, 24  # last rows that are forecast from, and rows ahead
_MOST_SERIES = 64  # of a panel; of more, some that are spread evenly
_BURNT, _SHARE = 10, 3  # first rows, or this part of them: states are still vague
_RECENT = 8.0  # rows in which what an error tells fades
_CLIPPED = 5.0  # deviations: larger errors count as these
_DOUBT, _RECENT_DOUBT = 30.0, 1.0  # errors that what is expected beforehand is worth
_CHANCE = 1.2  # of squares of errors: a fifth more is no break
# how much larger errors are on new rows than on those that hyperparameters fit. This,
# the fading, the doubts and the chance were set on made-up breaks and competition
# series: with them 90 % intervals hold 0.84 of more noise, 0.72 of kinks in a trend
_OPTIMISM = 1.1


class Widening(NamedTuple):
    """Factors of standard deviations by the time ahead, at least one."""

    leads: Array  # (lead,), in usual gaps, increasing
    factors: Array  # (lead,)

    @classmethod
    def of(cls, candidate: Candidate, table: ChannelRows, span: float) -> Widening:
        """Measure it by the errors ahead that a candidate made at its last rows."""
        filled = np.flatnonzero(table.lengths > _BURNT + 1)
        if not len(filled):
            return cls(np.zeros(1), np.ones(1))
        if len(filled) > _MOST_SERIES:
            places = np.linspace(0, len(filled) - 1, _MOST_SERIES).astype(int)
            filled = filled[places]
        errors, ages, leads = [], [], []
        for series in filled.tolist():
            own = candidate.alone(series)
            error, age, lead = _errors(own, table.alone(series), span)
            errors.append(error)
            ages.append(age)
            leads.append(lead)
        ahead = np.concatenate(leads)
        known = np.isfinite(ahead).any(axis=0)
        times = np.nanmedian(ahead[:, known], axis=0)
        squares = np.minimum(np.concatenate(errors) ** 2, _CLIPPED**2)
        factors = _factors(squares, np.concatenate(ages))
        return cls(np.maximum.accumulate(times), factors[known])

    def at(self, ahead: Array) -> Array:
        """Return factors at times since the last row; of the past 1."""
        found: Array = np.interp(ahead, self.leads, self.factors)
        return np.where(ahead > 0, found, 1.0)


def _errors(
    candidate: Candidate, table: ChannelRows, span: float
) -> tuple[Array, Array, Array]:
    """Return errors in deviations, how many rows ago, and leads; all (origin, lead).

    What has not come yet is NaN.
    """
    space, table = candidate.space(span), candidate.in_units(table)
    n, states, before = len(table.times), States.first(space, 1), 0
    first = max(n // _SHARE, _BURNT, n - 1 - _ORIGINS)
    origins, known = np.arange(first, n - 1), []
    for origin in origins.tolist():
        new = table.where(slice(before, origin + 1))
        since = np.array([table.times[before] - table.times[max(before - 1, 0)]])
        states = candidate.filtered(space, new, states=states, since=since).states
        known.append(states)
        before = origin + 1
    rows = origins[:, None] + 1 + np.arange(_LEADS)
    there, rows = rows < n, np.minimum(rows, n - 1)
    asked = table.where(rows.ravel())._replace(
        values=np.full(rows.size, np.nan), bounds=np.arange(0, rows.size + 1, _LEADS)
    )
    after = States(  # each origin's, as of a series of its own
        means=np.concatenate([states.means for states in known]),
        covariances=np.concatenate([states.covariances for states in known]),
        runs=np.concatenate([states.runs for states in known]),
    )
    leads = table.times[rows] - table.times[origins][:, None]
    found = candidate.filtered(
        space, asked, space.whole, states=after, since=leads[:, 0]
    )
    signal, variance = found.signal.reshape(rows.shape), found.variance[:, 0]
    noise = candidate.noise + table.errors[rows].ravel() ** 2
    spread = np.sqrt(np.maximum(variance, 0.0) + noise).reshape(rows.shape)
    errors = (table.values[rows] - signal) / spread
    errors, leads = (np.where(there, x, np.nan) for x in (errors, leads))
    return errors, n - 1.0 - rows, leads


def _factors(squares: Array, ages: Array) -> Array:
    """Return the factor of each lead, by squares of errors, (origin, lead).

    One of all errors, and one of the last ones, each shrunk to what is expected without
    it: neighbouring errors share rows ahead, and tell less the more they share.
    """
    factors = np.ones(_LEADS)
    for lead in range(1, _LEADS + 1):
        near = slice((lead - 1) // 2, lead)  # leads alike
        some = np.isfinite(squares[:, near])
        if not some.any():
            factors[lead - 1] = factors[max(lead - 2, 0)]
            continue
        rows = np.where(some, ages[:, near], -1.0)
        sizes = _without_the_worst(np.where(some, squares[:, near], 0.0), rows)
        # origins of neighbouring rows share lead - 1 of the rows ahead: about as many
        # errors as have half the lead of their own count; and then doubts count as so
        # many errors of the size that is expected
        n = some.any(axis=1).sum() / max(lead / 2, 1.0)
        usual = (n * sizes.sum() / some.sum() + _DOUBT) / (n + _DOUBT)
        weights = np.where(some, np.exp(-ages[:, near] / _RECENT), 0.0)
        recent = (weights * sizes).sum() / weights.sum()
        n = weights.sum() / some.shape[1] / max(lead / 4, 1.0)
        square = (n * recent + _RECENT_DOUBT * usual) / (n + _RECENT_DOUBT)
        if square > _CHANCE:
            factors[lead - 1] = _OPTIMISM * np.sqrt(square)
    return factors


def _without_the_worst(sizes: Array, rows: Array) -> Array:
    """Return sizes of which those of the worst row are as those of the next.

    A lone absurd value is no break.
    """
    place = np.unique(rows, return_inverse=True)[1].ravel()
    means = np.bincount(place, sizes.ravel()) / np.bincount(place)
    if len(means) < 2:
        return sizes
    second, first = np.partition(means, -2)[-2:]
    is_worst = (means == first)[place].reshape(sizes.shape)
    return np.where(is_worst, sizes * (second / max(first, 1e-300)), sizes)
