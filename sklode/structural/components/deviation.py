r"""The deviation: an Ornstein-Uhlenbeck process, or a smooth one that a velocity moves.

.. math:: dx = -x / m\,dt + \ldots; \quad
    dx = (v - x / m)\,dt, \quad dv = -v / k\,dt + \ldots

The second is autoregression of order two in continuous time (Jones 1981). Tested in
tests/structural/components/test_components.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sklode.data.arrays import Array
from sklode.engine.lazily import lazily_compiled
from sklode.structural.components.block import (
    LEAST_KEPT,
    Block,
    BlockSlopes,
    fade,
    slopes_of_fading,
)

PRIORS = {
    "OU": (0.2, 1.0, 0.3),  # of an Ornstein-Uhlenbeck process, in units of the spread
    "OU memory": (4.0, 1.0, 5.0),
}
# of a velocity that moves the deviation: what it adds there, and its memory. Of six
# settings that were compared on the developers' windows all lay within 2 %
PRIORS_OF_VELOCITY = {"velocity": (0.3, 1.5, 0.3), "velocity memory": (2.0, 1.0, 2.0)}
_VELOCITY, _OWN = range(2)


@dataclass(frozen=True)
class Deviation:
    """An Ornstein-Uhlenbeck process: what differs from the trend, and returns to it."""

    names = "OU", "OU memory"
    n_states = 1
    links = ()
    pairs = ()

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Write T and Q, see `fade`."""
        fade(gaps, sizes[1], sizes[:1] ** 2, block)

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return its covariance in the long run."""
        return np.array([[sizes[0] ** 2]])

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in the logarithms of its hyperparameters."""
        variances = sizes[:1] ** 2
        found = slopes_of_fading(gaps, sizes[1], variances, of.block, of.start)
        return np.array(found)

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state)."""
        design[:, 0] = 1.0


@dataclass(frozen=True)
class SmoothDeviation:
    """An Ornstein-Uhlenbeck process that a velocity moves: it wanders smoothly."""

    names = "velocity", "velocity memory", "OU", "OU memory"
    n_states = 2
    links = ((_OWN, _VELOCITY, True),)
    pairs = ((_OWN, _VELOCITY),)

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Write T and Q; the velocity counts by the variance that it adds."""
        smooth, ou = sizes[0] ** 2, sizes[2] ** 2
        kept = np.maximum(np.exp(-gaps / sizes[3]), LEAST_KEPT)
        reach, own, both, whole = _driven(gaps, 1 / sizes[1], 1 / sizes[3])
        block.decay[:, _VELOCITY] = np.exp(-gaps / sizes[1])
        block.decay[:, _OWN] = kept
        block.moves[:, 0] = reach / kept
        block.added[:, _VELOCITY] = smooth * own
        block.added[:, _OWN] = ou * (1 - kept * kept) + smooth * whole
        block.both[:, 0] = smooth * both

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return its covariance in the long run."""
        smooth, a, b = sizes[0] ** 2, 1 / sizes[1], 1 / sizes[3]
        # x' = v - b x of a process x of variance one, with rates a and b, has the
        # variance a b, and no covariance with x: v has b (a + b), and b with x
        shared = smooth * b
        return np.array([[shared * (a + b), shared], [shared, sizes[2] ** 2 + smooth]])

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in the logarithms of its hyperparameters.

        Q is S - T S T', with S the covariance in the long run: product by product.
        """
        a, b = 1 / sizes[1], 1 / sizes[3]
        smooth, ou = sizes[0] ** 2, sizes[2] ** 2
        reach, own, both, whole = _driven(gaps, a, b)
        left, kept = np.exp(-a * gaps), block.decay[:, _OWN]
        of_velocity, of_own, of_both = (
            of.block.added[:, 0],
            of.block.added[:, 1],
            of.block.both[:, 0],
        )
        # E has the reach over what is kept
        of_reach = of.block.moves[:, 0] / kept
        of_kept = of.block.decay[:, _OWN] - of.block.moves[:, 0] * block.moves[:, 0]
        by_a, by_b = _reach_by_rates(gaps, a, b, reach)
        # ``_a`` and ``_b`` are derivatives in the rates
        var, cov, var_a, var_b = b * (a + b), b, b, a + 2 * b
        kept = np.exp(-b * gaps)
        own_a = var_a * (1 - left * left) + 2 * gaps * left * left * var
        own_b = var_b * (1 - left * left)
        both_a = gaps * left * (reach * var + kept * cov)
        both_a -= left * (by_a * var + reach * var_a)
        both_b = 1 - left * (by_b * var + reach * var_b - gaps * kept * cov + kept)
        whole_a = -reach * (2 * by_a * var + reach * var_a) - 2 * by_a * kept * cov
        whole_b = -reach * (2 * by_b * var + reach * var_b)
        whole_b -= 2 * kept * (by_b * cov + reach - gaps * reach * cov)
        whole_b += 2 * gaps * kept * kept
        of_a = of_velocity @ own_a + of_both @ both_a + of_own @ whole_a
        of_b = of_velocity @ own_b + of_both @ both_b + of_own @ whole_b
        # at the start
        (own_start, with_own), (_, of_start) = of.start
        of_a += var_a * own_start
        of_b += var_b * own_start + 2 * with_own
        of_smooth = of_velocity @ own + of_both @ both + of_own @ whole
        of_smooth += var * own_start + 2 * cov * with_own + of_start
        of_ou = of_own @ (1 - kept * kept) + of_start
        # of a rate a = 1 / m, d a / d log m = -a; the decays are exp(-a t)
        of_a = smooth * of_a + of_reach @ by_a
        of_b = smooth * of_b + of_reach @ by_b
        of_b += 2 * ou * of_own @ (gaps * kept * kept)
        of_a -= of.block.decay[:, _VELOCITY] @ gaps
        of_b -= of_kept @ gaps
        return np.array([2 * smooth * of_smooth, -a * of_a, 2 * ou * of_ou, -b * of_b])

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state)."""
        design[:, _OWN] = 1.0


@lazily_compiled
def _driven(gaps: Array, a: float, b: float) -> Array:
    """Return how an OU process of rate b follows a velocity of rate a, (4, gap).

    First what one of the velocity adds to it; then what a gap adds to the variance of
    the velocity, to their covariance and to the process' variance, which is 1 in the
    long run.
    """
    found = np.empty((4, len(gaps)))
    # in the long run; with S the covariance there, Q = S - T S T'
    var, cov = b * (a + b), b
    for g in range(len(gaps)):
        gap = gaps[g]
        # (exp(-b t) - exp(-a t)) / (a - b), t the gap: the slower rate is taken out, so
        # that rates alike do not cancel
        y, slower = abs(a - b) * gap, math.exp(-min(a, b) * gap)
        reach = slower * gap * (-math.expm1(-y) / y if y > 0 else 1.0)
        left, kept = math.exp(-a * gap), math.exp(-b * gap)
        own = var * (1 - left * left)
        both = cov - left * (reach * var + kept * cov)
        smooth = 1 - reach * reach * var - 2 * reach * kept * cov - kept * kept
        if max(a, b) * gap < 1e-3:
            # a series in the gap, as near numbers would cancel
            own = var * 2 * a * gap * (1 - a * gap)
            both = var * a * gap**2 * (1 - (3 * a + b) * gap / 3)
            smooth = var * 2 * a * gap**3 * (1 / 3 - (a + b) * gap / 4)
        found[0, g], found[1, g], found[2, g], found[3, g] = reach, own, both, smooth
    return found


@lazily_compiled
def _reach_by_rates(gaps: Array, a: float, b: float, reach: Array) -> Array:
    """Return the derivatives of the reach in both rates, (2, gap)."""
    found = np.empty((2, len(gaps)))
    for g in range(len(gaps)):
        gap = gaps[g]
        # reach is exp(-(a + b) gap / 2) gap sinh(z) / z
        z = 0.5 * (a - b) * gap
        if abs(z) < 0.01:
            # d (sinh(z) / z) / dz by its series
            bend = math.exp(-0.5 * (a + b) * gap) * gap**2 / 2 * (z / 3 + z**3 / 30)
            found[0, g] = bend - gap / 2 * reach[g]
            found[1, g] = -bend - gap / 2 * reach[g]
        else:
            found[0, g] = (gap * math.exp(-a * gap) - reach[g]) / (a - b)
            found[1, g] = (reach[g] - gap * math.exp(-b * gap)) / (a - b)
    return found
