"""The slope of the filter's loss in a component's logs: exact, at the cost of a few."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate, States, kalman
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.state_space import BASE, PLACE, StateSpace

_MOST_NUMBERS = 2**21  # of covariances kept at once, 16 MB: what a cache may hold


class Slopes:
    """The loss of rows, in the units of the states, and its slope in the logs."""

    def __init__(self, given: Any, table: ChannelRows, span: float) -> None:
        times, design, bounds = given[:3]
        values, errors = table.values, table.errors**2
        self._span = span
        self._parts: list[Any] = []
        # series of so many rows at once, or one
        most = max(_MOST_NUMBERS // design.shape[1] ** 2, int(np.diff(bounds).max()))
        first = 0
        for k in range(1, len(bounds)):
            if k + 1 == len(bounds) or bounds[k + 1] - bounds[first] > most:
                own = slice(bounds[first], bounds[k])
                rows = times[own], design[own], bounds[first : k + 1] - own.start
                self._parts.append((rows, values[own], errors[own]))
                first = k
        n_rows = max(len(own) for _, own, _ in self._parts)
        self._after = np.empty((n_rows, design.shape[1]))
        self._predicted = np.empty((n_rows, design.shape[1], design.shape[1]))

    def __call__(self, candidate: Candidate, space: StateSpace) -> tuple[float, Array]:
        """Return both for hyperparameters of the same form."""
        # imports need not wait for numba
        from sklode.structural.kalman_back import slope_back

        d, loss, threshold = len(space.start), 0.0, candidate.threshold
        slopes = (
            np.zeros(space.rates.shape),
            np.zeros(space.waves.shape),
            np.zeros((d, d)),
        )
        room = self._after, self._predicted
        for rows, values, errors in self._parts:
            n, given = len(rows[2]) - 1, (*rows, space.rates, space.waves)
            states, none = States.of([space] * n), np.zeros((0, d))
            before = tuple(states), np.zeros(n), threshold, candidate.step, none
            part, v_F, inverse_F, jumps, *_ = kalman().filter_rows(
                *given, values, errors, *before, *room
            )
            loss += part
            passed = v_F, inverse_F, jumps
            slope_back(*given, errors, threshold, *passed, *room, *slopes)
        return loss, _in_logs(candidate, space, *slopes, self._span)


def _in_logs(
    candidate: Candidate,
    space: StateSpace,
    of_rates: Array,
    of_waves: Array,
    of_start: Array,
    span: float,
) -> Array:
    """Return the slope in `Component.logs`, see `state_space`."""
    slope, _, _, memory, _, _, noise, constant = np.exp(candidate.logs[: len(BASE)])
    rates, waves = space.rates, space.waves
    walk, velocity = rates[:2]
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
    diagonal = np.diag(of_start)[4 : 4 + 2 * len(waves)].reshape(-1, 2).sum(1)
    n_seasons = len(candidate.form.periods)
    sizes = 2 * waves[:, 2] * (of_waves[:, 2] + diagonal)
    found[len(BASE) :: 2] = np.bincount(space.season, sizes, n_seasons)
    memories = waves[:, 1] * of_waves[:, 1]
    found[len(BASE) + 1 :: 2] = np.bincount(space.season, memories, n_seasons)
    return found
