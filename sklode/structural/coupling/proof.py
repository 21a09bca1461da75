"""The proof of what other columns tell: ridge regression by blocks of time.

The penalty is chosen, and what features explain is judged, on blocks by the others:
cross-validation. Tested in tests/structural/coupling/test_next_rows.py and
coupling/test_same_time.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from sklode.data.arrays import Array, Flags
from sklode.structural.scaling import usual_deviation

BLOCKS = 5
_CONFIDENCE = 0.95  # that a gain is no chance, by convention
_PENALTIES = 10.0 ** np.arange(-1, 5.5, 0.5)  # of unit features
_LEAST_SCALE = 1e-6  # of features, in deviations of the goal
_CLIPPED = 4.0  # residuals beyond so many deviations count as these


def clipped(values: Array) -> Array:
    """Return values of which a few may be absurd, (row, ...)."""
    width = _CLIPPED * usual_deviation(values)
    # where most values are equal, no deviation is known
    width = np.where(width > 0, width, np.inf)
    clipped: Array = np.clip(values, -width, width)
    return clipped


class Proof(NamedTuple):
    """What features tell of a goal, beyond chance."""

    weights: Array  # (feature,)
    expected: Array  # (row,), by the blocks that a row is none of


def prove(
    features: Array,
    goal: Array,
    blocks: Sequence[Flags],
    others: Sequence[Flags],
    own: Flags | None = None,
) -> Proof | None:
    """Return what features (row, feature) tell of a goal (row,); None: nothing.

    Rows of one of the ``blocks`` are forecast from the ``others`` of its number.
    Features must tell more than nothing, and than the column's ``own`` alone: these may
    show that its model does not fit, which is no news of others.
    """
    scale = np.sqrt((features**2).mean(0))
    used = scale > _LEAST_SCALE
    if not used.any():
        return None
    features = features[:, used] / scale[used]
    expected, penalty = _held_out(features, goal, blocks, others)
    rivals = [np.zeros_like(goal)]
    if own is not None:
        rivals.append(_held_out(features[:, own[used]], goal, blocks, others)[0])
    for rival in rivals:
        gains = (goal - rival) ** 2 - (goal - expected) ** 2
        by_block = np.array([gains[block].mean() for block in blocks if block.any()])
        if not is_beyond_chance(by_block):
            return None
    weights = np.zeros(len(used))
    weights[used] = _ridge(features, goal)[penalty] / scale[used]
    return Proof(weights, expected)


def _ridge(features: Array, goal: Array) -> Array:
    """Return weights by penalty, (penalty, feature)."""
    # (F' F + penalty)^-1 F' y: all penalties share the products
    normal = features.T @ features
    each = normal + _PENALTIES[:, None, None] * np.eye(len(normal))
    moments = (features.T @ goal)[:, None]
    found: Array = np.linalg.solve(each, moments)[..., 0]
    return found


def _held_out(
    features: Array, goal: Array, blocks: Sequence[Flags], others: Sequence[Flags]
) -> tuple[Array, int]:
    """Return each block's forecasts from others, and the best penalty's number."""
    found = np.zeros((len(_PENALTIES), len(goal)))
    for mine, rest in zip(blocks, others, strict=True):
        weights = _ridge(features[rest], goal[rest])
        found[:, mine] = weights @ features[mine].T
    best = int(np.argmin(((goal - found) ** 2).sum(1)))
    return found[best], best


def is_beyond_chance(gains: Array) -> bool:
    """Return whether the mean of blocks' gains is: Student's t, one-sided."""
    # blocks' means are nearly independent, rows beside each other are not
    n = len(gains)
    error = gains.std(ddof=1) / math.sqrt(n)
    return bool(gains.mean() > stdtrit(n - 1, _CONFIDENCE) * error)
