"""Ridge regression by blocks of time: what a channel is told by others.

Penalties are chosen, and what is told is judged, by blocks that the others tell:
cross-validation.

Tested in tests/structural/test_cross_channel.py and test_concurrent.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Flags
from sklode.structural.scaling import usual_deviation

BLOCKS = 5
_CONFIDENCE = 0.95  # that a gain is no chance, by convention
_CLIPPED = 4.0  # residuals beyond so many deviations count as these


def clipped(values: Array) -> Array:
    """Return values of which a few may be absurd, (row, ...)."""
    width = _CLIPPED * usual_deviation(values)
    # where most values are equal, no deviation is told
    width = np.where(width > 0, width, np.inf)
    clipped: Array = np.clip(values, -width, width)
    return clipped


def ridge(features: Array, goal: Array, penalties: Array) -> Array:
    """Return weights by penalty, (penalty, feature)."""
    # (F' F + penalty)^-1 F' y: all penalties share the products
    normal = features.T @ features
    each = normal + penalties[:, None, None] * np.eye(len(normal))
    moments = (features.T @ goal)[:, None]
    found: Array = np.linalg.solve(each, moments)[..., 0]
    return found


def held_out(
    features: Array,
    goal: Array,
    penalties: Array,
    blocks: Iterable[tuple[Flags, Flags]],
) -> tuple[Array, int]:
    """Return what each block is told by others, and the number of the best penalty.

    ``blocks`` are pairs of rows: those of one, and those that tell it.
    """
    found = np.zeros((len(penalties), len(goal)))
    for mine, others in blocks:
        weights = ridge(features[others], goal[others], penalties)
        found[:, mine] = weights @ features[mine].T
    best = int(np.argmin(((goal - found) ** 2).sum(1)))
    return found[best], best


def is_beyond_chance(gains: Array) -> bool:
    """Return whether the mean of blocks' gains is: Student's t, one-sided."""
    # blocks' means are nearly independent, rows beside each other are not
    n = len(gains)
    error = gains.std(ddof=1) / math.sqrt(n)
    return bool(gains.mean() > stdtrit(n - 1, _CONFIDENCE) * error)
