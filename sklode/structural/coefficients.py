r"""How series of a panel share the coefficients of an effect: random coefficients.

.. math:: \beta_s = r_s (\mu + \delta_s), \quad \mu \sim N(0, I), \quad
    \delta_s \sim N(0, \mathrm{spread}^2 I)

with the mean :math:`\mu` of all series and the deviation :math:`\delta_s` of one, in
the units of each series' states, or (r) in y's. Laird and Ware, "Random-Effects Models
for Longitudinal Data" (1982). What a filter makes of an effect's columns tells of a
series' coefficients: de Jong, "The Diffuse Kalman Filter" (1991).

Tested in tests/structural/test_coefficients.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers

# standard deviations of series from their mean, over the effect's size
_SPREADS = 0.0, 0.03, 0.1, 0.3, 1.0
_USUAL = 0.3  # of shared effects, before theirs is sought
# one out of so many costs the logarithm of their number
_ODDS = math.log(2 * len(_SPREADS))


@dataclass(frozen=True)
class Pooling:
    """Whether coefficients have a mean, and how far series are from it."""

    has_mean: bool = False  # none: those of a series tell nothing of another's
    spread: float = 1.0  # standard deviation of series, over the effect's size
    in_y: bool = False  # of the same size in y's units, not in those of the states
    is_between: bool = False  # of levels of series, not of what happens within them

    @property
    def log_odds(self) -> float:
        """What it takes off the log probability of a form that has it."""
        return _ODDS if self.has_mean else 0.0

    @property
    def near(self) -> list[Pooling]:
        """What is tried once an effect is chosen: all spreads, in both units."""
        return [
            Pooling(has_mean=True, spread=spread, in_y=in_y)
            for spread in _SPREADS
            for in_y in (False, True)
        ]


ALONE = Pooling()
BETWEEN = Pooling(has_mean=True, spread=0.0, in_y=True, is_between=True)
SAME = Pooling(has_mean=True, spread=0.0)
SHARED = Pooling(has_mean=True, spread=_USUAL)


class CoefficientPrior(NamedTuple):
    """What is known of each series' coefficients before its first row."""

    means: Array  # (series, coefficient)
    covariances: Array  # (series, coefficient, coefficient)
    centres: Array  # (series, coefficient), means of their columns: the level is there
    levels: Array  # (series,), usual ones

    def of(self, series: Numbers | list[int]) -> CoefficientPrior:
        """Return that of some series."""
        return CoefficientPrior(*(part[series] for part in self))

    def write(self, means: Array, covariances: Array, level: int) -> None:
        """Write it to states whose last ones the coefficients are.

        A series' level is that at its usual columns, see `selection.centred`.
        """
        k = self.means.shape[1]
        spread = np.einsum("sij,sj->si", self.covariances, self.centres)
        means[:, -k:] = self.means
        means[:, level] += self.levels - (self.means * self.centres).sum(1)
        covariances[:, -k:, -k:] = self.covariances
        covariances[:, level, -k:] = covariances[:, -k:, level] = -spread
        covariances[:, level, level] += (spread * self.centres).sum(1)


class Pooled(NamedTuple):
    """How each coefficient of several effects is pooled, (coefficient,)."""

    has_mean: Flags
    spread: Array
    in_y: Flags
    is_centred: Flags  # whether what differs between series is none of its effect
    is_between: Flags  # whether that is all of its effect

    @classmethod
    def of(
        cls,
        poolings: Sequence[Pooling],
        n_columns: Sequence[int],
        is_centred: Sequence[bool],
    ) -> Pooled:
        """Return those of effects with so many columns each."""
        pairs = zip(poolings, n_columns, strict=True)
        each = [pooling for pooling, n in pairs for _ in range(n)]
        return cls(
            has_mean=np.array([one.has_mean for one in each], dtype=bool),
            spread=np.array([one.spread for one in each], dtype=np.float64),
            in_y=np.array([one.in_y for one in each], dtype=bool),
            is_centred=np.repeat(np.array(is_centred, dtype=bool), n_columns),
            is_between=np.array([one.is_between for one in each], dtype=bool),
        )

    def factors(self, ratios: Array) -> Array:
        """Return r, (series, coefficient), of the ratios of y's units to a series'."""
        return np.where(self.in_y, ratios[:, None], 1.0)

    def with_levels(
        self, grams: Array, moments: Array, z: Array, levels: Array
    ) -> tuple[Array, Array]:
        """Return what tells of coefficients, with what levels tell of attributes.

        Columns ``z`` (series, coefficient) and ``levels`` (series,), from their means,
        are over how far levels are from what attributes tell; NaN of no rows.
        """
        z = np.where(self.is_between & np.isfinite(levels)[:, None], z, 0.0)
        is_within = ~self.is_between
        grams = grams * np.outer(is_within, is_within) + z[:, :, None] * z[:, None]
        return grams, moments * is_within + z * np.nan_to_num(levels)[:, None]

    def in_common_units(
        self, grams: Array, moments: Array, ratios: Array
    ) -> tuple[Array, Array]:
        """Return what tells of coefficients over their ``ratios`` (series,)."""
        r = self.factors(ratios)
        return grams * r[:, :, None] * r[:, None], moments * r


class RandomCoefficients(NamedTuple):
    """The mean of coefficients, as the rows of a panel tell, and how series differ."""

    how: Pooled
    precision: Array  # (mean, mean), of the means, given all series and their prior
    moment: Array  # (mean,), the precision times their most probable values
    shares: Array  # (series, mean, mean), what each series adds to the precision
    moments: Array  # (series, mean), and to the moment
    deviation: float = np.nan
    """Of levels from what attributes of series tell; NaN: these tell nothing."""
    level: float = 0.0
    """Where attributes are zero, in units of a usual series' states."""

    @classmethod
    def fit(
        cls, how: Pooled, grams: Array, moments: Array
    ) -> tuple[RandomCoefficients, Array, float]:
        """Return them, coefficients of series, and how much they add to the evidence.

        ``grams`` (series, coefficient, coefficient) and ``moments`` (series,
        coefficient) are W' W and W' v, of what is new in columns, W, and in y, v.
        The coefficients are (series, coefficient), all in common units.
        """
        has_mean, d = how.has_mean, how.spread
        # b = mean + d e with e of variance one: B is the precision of e, given the mean
        scaled = d[:, None] * grams
        B = scaled * d + np.eye(len(d))
        goals = np.concatenate([scaled, (d * moments)[..., None]], axis=2)
        solved = np.linalg.solve(B, goals)
        # what is left of W' W and W' v when the deviations are integrated over
        left = np.swapaxes(scaled, 1, 2) @ solved
        left_gram, left_moment = grams - left[..., :-1], moments - left[..., -1]
        shares = left_gram[:, has_mean][:, :, has_mean]
        share_moments = left_moment[:, has_mean]
        precision = np.eye(int(has_mean.sum())) + shares.sum(0)
        moment = share_moments.sum(0)
        mean = np.zeros(len(d))
        mean[has_mean] = np.linalg.solve(precision, moment)
        found = mean + d * (solved[..., -1] - solved[..., :-1] @ mean)
        # of deviations, series by series, and of means (Bishop 2006, equation 3.86)
        _, log_dets = np.linalg.slogdet(B)
        _, log_det = np.linalg.slogdet(precision)
        evidence = (d * moments * solved[..., -1]).sum() - log_dets.sum()
        evidence += moment @ mean[has_mean] - log_det
        coefficients = cls(
            how=how,
            precision=precision,
            moment=moment,
            shares=shares,
            moments=share_moments,
        )
        return coefficients, found, 0.5 * float(evidence)

    @property
    def means(self) -> Array:
        """The most probable means, (coefficient,); zero of those without any."""
        found = np.zeros(len(self.how.spread))
        found[self.how.has_mean] = np.linalg.solve(self.precision, self.moment)
        return found

    def is_shared(self, coefficients: Sequence[int]) -> bool:
        """Return whether series differ by less than what some have in common."""
        common = np.abs(self.means) > self.how.spread
        return bool(common[[*coefficients]].any())

    def means_of_others(self) -> Array:
        """Return the means that the others tell each series, (series, coefficient)."""
        means, _ = self._told_by_others(np.arange(len(self.shares)))
        return means

    def _told_by_others(self, members: Numbers) -> tuple[Array, Array]:
        """Return the means that others tell, and the covariances of those there are."""
        # the last share is that of strangers: nothing of what is known is their own
        own = np.concatenate([self.shares, np.zeros((1, *self.precision.shape))])
        own_moments = np.vstack([self.moments, np.zeros(len(self.moment))])
        V = np.linalg.inv(self.precision - own[members])
        means = np.zeros((len(members), len(self.how.spread)))
        left = (self.moment - own_moments[members])[..., None]
        means[:, self.how.has_mean] = (V @ left)[..., 0]
        return means, V

    def prior(
        self, members: Numbers, ratios: Array, centres: Array, is_located: Flags
    ) -> CoefficientPrior:
        """Return the prior of series, as the others of the panel tell.

        ``members`` (series,) are their numbers in the panel of the fit, -1 of others;
        ``ratios`` (series,) those of y's units to their own. Those ``is_located``
        (series,) have locations of their own, which tell more than attributes do.
        """
        means, V = self._told_by_others(members)
        n, k = means.shape
        covariances, places = np.zeros((n, k, k)), np.flatnonzero(self.how.has_mean)
        covariances[:, places[:, None], places] = V
        each = np.arange(k)
        covariances[:, each, each] += self.how.spread**2
        r = self.how.factors(ratios)
        is_centred = self.how.is_centred | (self.how.is_between & is_located[:, None])
        return CoefficientPrior(
            means=r * means,
            covariances=covariances * r[:, :, None] * r[:, None],
            centres=np.where(is_centred, centres, 0.0),
            levels=np.where(is_located, 0.0, self.level * ratios),
        )
