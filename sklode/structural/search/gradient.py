"""The slope of the filter's loss in hyperparameters: exact, at the cost of a few."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Model, kalman
from sklode.structural.components.space import (
    MEMORIES_OF_SEASONS,
    PLACE,
    SIZES_OF_SEASONS,
    StateSpace,
)
from sklode.structural.filter.system import LossSlopes, States, System, Wanted
from sklode.structural.rows import ChannelRows

# of covariances kept at once, 16 MB: what a cache may hold
_MOST_NUMBERS = 2**21


class _Part(NamedTuple):
    """Rows of some series, whose covariances are kept at once."""

    times: Array
    design: Array
    bounds: Numbers
    values: Array
    errors: Array  # variances of measurement


class Slopes:
    """The loss of rows, in the units of the states, and its slope in the logs."""

    def __init__(self, system: System, table: ChannelRows, span: float) -> None:
        self._span = span
        bounds, d = system.bounds, system.design.shape[1]
        errors = table.errors**2
        # a part has one series at least
        longest = int(np.diff(bounds).max())
        most = max(_MOST_NUMBERS // d**2, longest)
        self._parts: list[_Part] = []
        for first, end in _parts(bounds, most):
            own = slice(bounds[first], bounds[end])
            part = _Part(
                times=system.times[own],
                design=system.design[own],
                bounds=bounds[first : end + 1] - own.start,
                values=table.values[own],
                errors=errors[own],
            )
            self._parts.append(part)
        n_rows = max(len(part.values) for part in self._parts)
        # memory that every pass writes anew
        self._wanted = Wanted(
            parts=np.zeros((0, d)),
            after=np.empty((n_rows, d)),
            predicted=np.empty((n_rows, d, d)),
        )

    def __call__(self, model: Model, space: StateSpace) -> tuple[float, Array]:
        """Return both for hyperparameters of the same form."""
        # imports need not wait for numba
        from sklode.structural.filter.backward import slope_back

        loss, rule = 0.0, model.rule
        slopes = LossSlopes(
            rates=np.zeros_like(space.rates),
            waves=np.zeros_like(space.waves),
            start=np.zeros_like(space.start),
        )
        for part in self._parts:
            n = len(part.bounds) - 1
            # the design depends on times alone,
            # and need not be worked out again
            system = System(
                times=part.times,
                design=part.design,
                bounds=part.bounds,
                rates=space.rates,
                waves=space.waves,
            )
            found = kalman().filter_rows(
                system,
                values=part.values,
                errors=part.errors,
                states=States.first(space, n),
                since=np.zeros(n),
                rule=rule,
                wanted=self._wanted,
            )
            loss += found.loss
            slope_back(
                system,
                errors=part.errors,
                threshold=rule.threshold,
                v_F=found.v_F,
                inverse_F=found.inverse_F,
                jumps=found.jumps,
                wanted=self._wanted,
                slopes=slopes,
            )
        return loss, _in_theta(model, space, slopes, span=self._span)


def _parts(bounds: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Yield the first series of each part, and the one after its last."""
    first = 0
    for k in range(1, len(bounds)):
        # with one series more it would be too long
        if k + 1 == len(bounds) or bounds[k + 1] - bounds[first] > most:
            yield first, k
            first = k


def _in_theta(model: Model, space: StateSpace, slope: LossSlopes, span: float) -> Array:
    """Return the slope in `Model.theta`: the chain rule through `state_space`.

    As d x / d log x = x, a standard deviation s enters by 2 s^2 times the slope in its
    variance.
    """
    found = np.zeros(len(model.theta))
    sizes, of_rates, of_start = np.exp(model.theta), slope.rates, slope.start
    walk, ou, ou_memory = space.rates[0], space.rates[3], space.rates[4]
    of_first, of_ou = of_start[0, 0], of_start[3, 3]
    # a line of slope s from the last row on: at the
    # first row s^2 times 1 for the level, -1 / span with
    # the slope, twice in a covariance, and 1 / span^2
    of_line = of_first - 2 * of_start[0, 1] / span + of_start[1, 1] / span**2
    found[PLACE["slope"]] = 2 * sizes[PLACE["slope"]] ** 2 * of_line
    # the walk began a span before the first row
    found[PLACE["random walk"]] = 2 * walk * (of_rates[0] + of_first * span)
    rise, memory, back = _of_velocity(space, slope, span)
    found[PLACE["velocity"]] = 2 * rise
    found[PLACE["velocity memory"]] = memory
    found[PLACE["OU"]] = 2 * ou * (of_rates[3] + of_ou)
    found[PLACE["OU memory"]] = ou_memory * of_rates[4] - back
    found[PLACE["noise"]] = 2 * sizes[PLACE["noise"]] ** 2 * of_rates[5]
    found[PLACE["constant"]] = 2 * sizes[PLACE["constant"]] ** 2 * of_first
    # two states of each harmonic follow the
    # first four, and start with its variance
    waves, of_waves = space.waves, slope.waves
    diagonal = np.diag(of_start)[4 : 4 + 2 * len(waves)]
    of_variance = of_waves[:, 2] + diagonal.reshape(-1, 2).sum(1)
    # harmonics of a season share its size and its memory
    n_seasons = len(model.form.periods)
    of_sizes = 2 * waves[:, 2] * of_variance
    of_memories = waves[:, 1] * of_waves[:, 1]
    found[SIZES_OF_SEASONS] = np.bincount(space.season, of_sizes, n_seasons)
    found[MEMORIES_OF_SEASONS] = np.bincount(space.season, of_memories, n_seasons)
    return found


def _of_velocity(
    space: StateSpace, slope: LossSlopes, span: float
) -> tuple[float, float, float]:
    """Return the slope in logs of the velocity's variance, and of its memory.

    Last what the slope in the memory of the OU process loses by the velocity that
    moves it.
    """
    of_rates, of_start = slope.rates, slope.start
    _, velocity, memory, _, ou_memory, _, smooth = space.rates
    of_first, of_own = of_start[0, 0], of_start[2, 2]
    # covariances stand in the matrix twice
    with_trend, with_ou = 2 * of_start[0, 2], 2 * of_start[2, 3]
    # at the first row, a span after the velocity v of memory m began,
    # its integral has the variance v m^2 (2 x + 2 exp(-x) - 2), and with
    # v the covariance v m (1 - exp(-x)); ``later`` is the derivative
    # of the former in m, where d x / d m = -x / m
    x = span / memory
    left = math.exp(-x)
    risen = velocity * memory**2 * (2 * x + 2 * left - 2)
    later = velocity * memory * (2 * x + 4 * left + 2 * x * left - 4)
    rise = of_rates[1] * velocity + of_first * risen + of_own * velocity
    rise += with_trend * velocity * memory * (1 - left)
    of_memory = of_rates[2] + of_first * later
    of_memory += with_trend * velocity * (1 - left - x * left)
    # what moves the OU process starts with the variances
    # s and s b (a + b), and the covariance s b, of rates
    # a and b, one over the memories; see `filter.forward.driven`
    a, b = 1 / memory, 1 / ou_memory
    of_smooth = of_rates[6] + of_start[3, 3] + b * with_ou + b * (a + b) * of_own
    rise += smooth * of_smooth
    # as d a / d log m = -a, and likewise of b
    of_memory = memory * of_memory - a * smooth * b * of_own
    of_b = smooth * (with_ou + (a + 2 * b) * of_own)
    return rise, of_memory, b * of_b
