"""The slope of the filter's loss in a candidate's logs: exact, at the cost of a few."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Numbers
from sklode.structural.candidates import Candidate, kalman
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.filter_pass import LossSlopes, States, System, Wanted
from sklode.structural.state_space import (
    MEMORIES_OF_SEASONS,
    PLACE,
    SIZES_OF_SEASONS,
    StateSpace,
)

_MOST_NUMBERS = 2**21  # of covariances kept at once, 16 MB: what a cache may hold


class _Some(NamedTuple):
    """Rows of some series, whose covariances are kept at once."""

    times: Array
    design: Array
    bounds: Numbers
    values: Array
    errors: Array  # variances of measurement


class Slopes:
    """The loss of rows, in the units of the states, and its slope in the logs."""

    def __init__(self, system: System, table: ChannelRows, span: float) -> None:
        times, design, bounds = system.times, system.design, system.bounds
        values, errors = table.values, table.errors**2
        self._span = span
        self._parts: list[_Some] = []
        # series of so many rows at once, or one
        most = max(_MOST_NUMBERS // design.shape[1] ** 2, int(np.diff(bounds).max()))
        first = 0
        for k in range(1, len(bounds)):
            if k + 1 == len(bounds) or bounds[k + 1] - bounds[first] > most:
                own = slice(bounds[first], bounds[k])
                some = _Some(
                    times=times[own],
                    design=design[own],
                    bounds=bounds[first : k + 1] - own.start,
                    values=values[own],
                    errors=errors[own],
                )
                self._parts.append(some)
                first = k
        n_rows = max(len(some.values) for some in self._parts)
        d = design.shape[1]
        self._wanted = Wanted(
            parts=np.zeros((0, d)),
            after=np.empty((n_rows, d)),
            predicted=np.empty((n_rows, d, d)),
        )

    def __call__(self, candidate: Candidate, space: StateSpace) -> tuple[float, Array]:
        """Return both for hyperparameters of the same form."""
        # imports need not wait for numba
        from sklode.structural.kalman_back import slope_back

        loss, rule = 0.0, candidate.rule
        slopes = LossSlopes(
            rates=np.zeros_like(space.rates),
            waves=np.zeros_like(space.waves),
            start=np.zeros_like(space.start),
        )
        for some in self._parts:
            n = len(some.bounds) - 1
            system = System(
                times=some.times,
                design=some.design,
                bounds=some.bounds,
                rates=space.rates,
                waves=space.waves,
            )
            found = kalman().filter_rows(
                system,
                values=some.values,
                errors=some.errors,
                states=States.first(space, n),
                since=np.zeros(n),
                rule=rule,
                wanted=self._wanted,
            )
            loss += found.loss
            slope_back(
                system,
                errors=some.errors,
                threshold=rule.threshold,
                v_F=found.v_F,
                inverse_F=found.inverse_F,
                jumps=found.jumps,
                wanted=self._wanted,
                slopes=slopes,
            )
        return loss, _in_logs(
            candidate,
            space,
            of_rates=slopes.rates,
            of_waves=slopes.waves,
            of_start=slopes.start,
            span=self._span,
        )


def _in_logs(
    candidate: Candidate,
    space: StateSpace,
    of_rates: Array,
    of_waves: Array,
    of_start: Array,
    span: float,
) -> Array:
    """Return the slope in `Candidate.logs`: the chain rule through `state_space`.

    As d x / d log x = x, a standard deviation s enters by 2 s^2 times the slope in its
    variance.
    """
    sizes = np.exp(candidate.logs)
    slope, memory = sizes[PLACE["slope"]], sizes[PLACE["velocity memory"]]
    noise, constant = sizes[PLACE["noise"]], sizes[PLACE["constant"]]
    rates, waves = space.rates, space.waves
    walk, velocity = rates[:2]  # in the order of `kalman.RATES`
    # of the covariance at the first row, a span after the velocity began; ``risen`` is
    # the variance of its integral, ``later`` the derivative of that in the memory
    x = span / memory
    left = math.exp(-x)
    risen = velocity * memory**2 * (2 * x + 2 * left - 2)
    later = velocity * memory * (2 * x + 4 * left + 2 * x * left - 4)
    first, both = of_start[0, 0], 2 * of_start[0, 2]
    found = np.zeros(len(candidate.logs))
    lines = first - 2 * of_start[0, 1] / span + of_start[1, 1] / span**2
    found[PLACE["slope"]] = 2 * slope**2 * lines
    found[PLACE["random walk"]] = 2 * walk * (of_rates[0] + first * span)
    rise = of_rates[1] * velocity + first * risen + of_start[2, 2] * velocity
    rise += both * velocity * memory * (1 - left)
    kept = of_rates[2] + first * later + both * velocity * (1 - left - x * left)
    # the start of what the velocity adds to the OU process, see `kalman.driven`
    a, b, smooth = 1 / memory, 1 / rates[4], rates[6]
    own, joint = of_start[2, 2], 2 * of_start[2, 3]
    rise += smooth * (of_rates[6] + of_start[3, 3] + b * joint + b * (a + b) * own)
    found[PLACE["velocity"]] = 2 * rise
    found[PLACE["velocity memory"]] = memory * kept - a * smooth * b * own
    found[PLACE["OU"]] = 2 * rates[3] * (of_rates[3] + of_start[3, 3])
    of_b = smooth * (joint + (a + 2 * b) * own)
    found[PLACE["OU memory"]] = rates[4] * of_rates[4] - b * of_b
    found[PLACE["noise"]] = 2 * noise**2 * of_rates[5]
    found[PLACE["constant"]] = 2 * constant**2 * first
    # two states of each harmonic follow the first four, and start with its variance
    diagonal = np.diag(of_start)[4 : 4 + 2 * len(waves)].reshape(-1, 2).sum(1)
    n_seasons = len(candidate.form.periods)
    sizes = 2 * waves[:, 2] * (of_waves[:, 2] + diagonal)
    found[SIZES_OF_SEASONS] = np.bincount(space.season, sizes, n_seasons)
    memories = waves[:, 1] * of_waves[:, 1]
    found[MEMORIES_OF_SEASONS] = np.bincount(space.season, memories, n_seasons)
    return found
