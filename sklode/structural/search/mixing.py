"""Hyperparameters by which series of a panel differ: each draws its own of a few.

These are a finite mixture: those that all series share, and those of some series alone,
as often as makes the panel most probable (Laird, "Nonparametric Maximum Likelihood
Estimation of a Mixing Distribution", 1978). The rows of a series tell which are its
own, see `filtered_column`: one without rows has all, as often as they were drawn.

Tested in tests/structural/search/test_mixing.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import LEAST_WEIGHT, Candidate
from sklode.structural.effects.effect import Effect
from sklode.structural.search.estimate import Estimator, Hypothesis

_MOST_TRIED = 16  # series whose own hyperparameters others may draw
_MOST_ASKED = 60  # series that tell how often these are drawn
_FEWEST = 20  # rows of a series that may tell its own
_STEPS = 100  # of the estimate of how often each is drawn


def mixture(
    estimator: Estimator, best: Hypothesis
) -> tuple[list[tuple[Candidate, tuple[Effect, ...]]], float]:
    """Return candidates that series draw, with effects, and how much they gain.

    There are none where series do not differ by more than chance.
    """
    table = estimator.judged
    # one row tells none, see `FilteredColumn.continued`
    asked = _spread(np.flatnonzero(table.lengths > 1), _MOST_ASKED)
    tried = _spread(np.flatnonzero(table.lengths >= _FEWEST), _MOST_TRIED)
    if len(tried) < 2:
        return [], 0.0
    several = [best.candidate, *estimator.of_each(best, tried)]
    logs = -estimator.losses_by_series(several, best.estimate, asked)
    n_rows = int(table.lengths[asked].sum())
    # what each hyperparameter costs: Schwarz, "Estimating the Dimension of a Model"
    cost = 0.5 * len(best.candidate.model.theta) * math.log(n_rows)
    places, weights = chosen(logs, cost)
    if len(places) < 2:
        return [], 0.0
    gain = log_density(logs[places], weights) - logs[0].sum()
    # those of all may be those of none
    pairs = zip(places, weights.tolist(), strict=True)
    kept = {k: weight for k, weight in pairs if weight > LEAST_WEIGHT}
    total = sum(kept.values())
    effects = best.estimate.effects
    found = [
        (several[k]._replace(weight=weight / total, is_drawn=True), effects)
        for k, weight in kept.items()
    ]
    # what some series gain stands for all
    return found, gain * len(table.lengths) / len(asked) - cost * (len(places) - 1)


def chosen(logs: Array, cost: float) -> tuple[list[int], Array]:
    """Return which are drawn, of (hyperparameters, series) log densities, how often.

    The first is; of the others the one that adds most comes next, while it adds more
    than it costs.
    """
    places = [0]
    weights: Array = np.ones(1)
    reached = log_density(logs[places], weights)
    while len(places) < len(logs):
        others = [k for k in range(len(logs)) if k not in places]
        several = [mixing_weights(logs[[*places, k]]) for k in others]
        pairs = zip(others, several, strict=True)
        values = [log_density(logs[[*places, k]], own) for k, own in pairs]
        best = int(np.argmax(values))
        if values[best] - reached <= cost:
            break
        reached, weights = values[best], several[best]
        places.append(others[best])
    return places, weights


def mixing_weights(logs: Array) -> Array:
    """Return how often each is drawn, (hyperparameters,), by EM."""
    weights: Array = np.full(len(logs), 1 / len(logs))
    density = np.exp(logs - logs.max(axis=0))
    for _ in range(_STEPS):
        joint = weights[:, None] * density
        weights = (joint / joint.sum(axis=0)).mean(axis=1)
    return weights


def log_density(logs: Array, weights: Array) -> float:
    """Return the log density of all series, of which each draws one."""
    most = logs.max(axis=0)
    density = (weights[:, None] * np.exp(logs - most)).sum(axis=0)
    return float((most + np.log(density)).sum())


def _spread(series: Numbers, most: int) -> Numbers:
    """Return at most so many of some series, spread evenly."""
    if len(series) <= most:
        return series
    return series[np.linspace(0, len(series) - 1, most).round().astype(int)]
