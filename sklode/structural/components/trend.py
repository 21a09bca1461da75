r"""The trend: a level that wanders, with a constant slope and a velocity that reverts.

.. math:: d\mu = (\beta + v)\,dt + \sigma\,dW, \quad dv = -v / m\,dt + \ldots

A local linear trend in continuous time (Harvey 1989, section 9.1), whose slope has a
part that lasts and one that is forgotten. Tested in
tests/structural/components/test_components.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sklode.data.arrays import Array
from sklode.engine.lazily import lazily_compiled
from sklode.structural.components.block import Block, BlockSlopes

# medians are of usual series in units of their spread; a width of 1.5 is a factor of
# 4.5 either way
PRIORS = {
    "slope": (0.2, 1.0, 1.0),  # standard deviation of a line's rise over the span
    "random walk": (0.5, 1.5, 0.5),  # of its rise over the span
    "velocity": (0.5, 1.5, 0.3),  # of its rise, were it constant over the span
    "velocity memory": (8.0, 1.0, 8.0),
    "constant": (1.0, 1.0, 1.0),  # of the series' levels at their first rows
}
_LEVEL, _SLOPE, _VELOCITY = range(3)


@dataclass(frozen=True)
class Trend:
    """Level, slope and, unless it moves the deviation, velocity.

    The slope counts from the last stamp; walk and velocity began two spans before it.
    """

    has_velocity: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Its hyperparameters."""
        own = "slope", "random walk", "constant"
        return (*own, "velocity", "velocity memory") if self.has_velocity else own

    @property
    def n_states(self) -> int:
        """Number of its states."""
        return 3 if self.has_velocity else 2

    @property
    def links(self) -> tuple[tuple[int, int, bool], ...]:
        """Which states move which, and whether that depends on hyperparameters."""
        by_slope = _LEVEL, _SLOPE, False
        by_velocity = _LEVEL, _VELOCITY, True
        return (by_slope, by_velocity) if self.has_velocity else (by_slope,)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """States whose noises have a covariance."""
        return ((_LEVEL, _VELOCITY),) if self.has_velocity else ()

    def transition(self, sizes: Array, span: float, gaps: Array, block: Block) -> None:
        """Write T and Q of gaps."""
        walk = sizes[1] * sizes[1] / span
        block.moves[:, 0] = gaps
        block.added[:, _LEVEL] = walk * gaps
        if self.has_velocity:
            velocity, memory = _velocity(sizes, span)
            displacement = _displacement(gaps, memory)
            _cross(gaps, velocity, memory, displacement, block)

    def start(self, sizes: Array, span: float, before: float) -> Array:
        """Return the covariance so long ``before`` a first row."""
        slope, walk, constant = sizes[:3]
        # two spans before the last stamp is one before the first row, if ``before`` is
        # 0; a slope s is a line through zero at the last stamp, ``back`` spans ahead:
        # the trend is -back span s there
        passed, back = max(span - before, 0.0), (span + before) / span
        found = np.zeros((self.n_states, self.n_states))
        walked = walk * walk / span * passed
        found[_LEVEL, _LEVEL] = constant**2 + (slope * back) ** 2 + walked
        found[_LEVEL, _SLOPE] = found[_SLOPE, _LEVEL] = -back * slope**2 / span
        found[_SLOPE, _SLOPE] = (slope / span) ** 2
        if self.has_velocity:
            velocity, memory = _velocity(sizes, span)
            x = passed / memory
            left = math.exp(-x)
            # an OU process of variance v and memory m, integrated over a time m x, has
            # the variance v m^2 (2 x + 2 exp(-x) - 2) and the covariance
            # v m (1 - exp(-x)) with its last value: integrals of v exp(-|s - t| / m)
            shared = velocity * memory * (1 - left)
            found[_LEVEL, _LEVEL] += velocity * memory**2 * (2 * x + 2 * left - 2)
            found[_LEVEL, _VELOCITY] = found[_VELOCITY, _LEVEL] = shared
            found[_VELOCITY, _VELOCITY] = velocity
        return found

    def slopes(
        self, sizes: Array, span: float, gaps: Array, block: Block, of: BlockSlopes
    ) -> Array:
        """Return the loss's slopes in the logarithms of its hyperparameters.

        As d x / d log x = x, a standard deviation s enters by 2 s^2 times the slope in
        its variance.
        """
        slope, walk, constant = sizes[:3] ** 2
        of_start, of_level = of.start, of.block.added[:, _LEVEL]
        # a line of slope s from the last row on: at the first row s^2 times 1 for the
        # level, -1 / span with the slope, twice in a covariance, and 1 / span^2
        of_line = of_start[0, 0] - 2 * of_start[0, 1] / span + of_start[1, 1] / span**2
        # the walk began a span before the first row
        of_walk = of_level @ gaps / span + of_start[0, 0]
        found = [2 * slope * of_line, 2 * walk * of_walk, 2 * constant * of_start[0, 0]]
        if self.has_velocity:
            velocity, memory = _velocity(sizes, span)
            displacement = _displacement(gaps, memory)
            found += _slopes_of_velocity(
                gaps, velocity, memory, span, displacement, of.block, of_start
            )
        return np.array(found)

    def design(self, clock: Array, columns: Array, design: Array) -> None:
        """Write how its states add up to observations, (row, state)."""
        design[:, _LEVEL] = 1.0


def _velocity(sizes: Array, span: float) -> tuple[float, float]:
    """Return the velocity's variance and memory."""
    # a rise over the span is a velocity times the span
    return (sizes[3] / span) ** 2, sizes[4]


@lazily_compiled
def _displacement(gaps: Array, memory: float) -> Array:
    """Return the variance that gaps add to the integral of a velocity, over v m^2."""
    # Gillespie, "Exact Numerical Simulation of the Ornstein-Uhlenbeck Process and its
    # Integral" (1996): 2 x - 3 + 4 k - k^2, with k = exp(-x)
    found = np.empty(len(gaps))
    for g in range(len(gaps)):
        x = gaps[g] / memory
        left = math.exp(-x)
        found[g] = 2 * x - 3 + 4 * left - left * left
        if x < 1e-3:
            # a series in x, as near numbers would cancel
            found[g] = 2 * x**3 / 3 - x**4 / 2
    return found


@lazily_compiled
def _cross(
    gaps: Array, velocity: float, memory: float, displacement: Array, block: Block
) -> None:
    """Add what a velocity does over gaps to T and Q of the trend."""
    for g in range(len(gaps)):
        left = math.exp(-gaps[g] / memory)
        block.decay[g, _VELOCITY] = left
        block.moves[g, 1] = memory * (1 - left)
        block.added[g, _LEVEL] += velocity * memory * memory * displacement[g]
        block.added[g, _VELOCITY] = velocity * (1 - left * left)
        block.both[g, 0] = velocity * memory * (1 - left) ** 2


@lazily_compiled
def _slopes_of_velocity(
    gaps: Array,
    velocity: float,
    memory: float,
    span: float,
    displacement: Array,
    of: Block,
    of_start: Array,
) -> list[float]:
    """Return the loss's slopes in logarithms of the velocity's size and memory."""
    # at the first row, a span after the velocity v of memory m began; ``later`` is the
    # derivative of its integral's variance in m, where d x / d m = -x / m
    y = span / memory
    kept = math.exp(-y)
    risen = memory**2 * (2 * y + 2 * kept - 2)
    later = memory * (2 * y + 4 * kept + 2 * y * kept - 4)
    of_first, with_level = of_start[_LEVEL, _LEVEL], 2 * of_start[_LEVEL, _VELOCITY]
    size = of_first * risen + with_level * memory * (1 - kept)
    size += of_start[_VELOCITY, _VELOCITY]
    moved = of_first * later + with_level * (1 - kept - y * kept)
    slope = 0.0
    for g in range(len(gaps)):
        x = gaps[g] / memory
        left = math.exp(-x)
        gone = 1 - left
        of_level, of_own = of.added[g, _LEVEL], of.added[g, _VELOCITY]
        of_both = of.both[g, 0]
        size += of_level * memory * memory * displacement[g]
        size += of_both * memory * gone * gone + of_own * gone * (1 + left)
        # d log exp(-x) / d m = x / m, and d left / d m = left x / m
        moved += of_level * 2 * memory * (displacement[g] - x * gone * gone)
        moved += of_both * gone * (gone - 2 * left * x)
        moved -= of_own * 2 * left * left * x / memory
        slope += (
            of.moves[g, 1] * (gone - left * x) + of.decay[g, _VELOCITY] * x / memory
        )
    return [2 * velocity * size, memory * (velocity * moved + slope)]
