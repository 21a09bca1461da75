"""The Kalman filter and smoother of one channel, one row after the other.

Plain loops that numba compiles; `tests/levels/matrices.py` does the same by matrices.

The states are, in this order: level, slope, velocity, deviation; two of each harmonic,
of which the first is what is observed; one coefficient of each column of X. ``rates``
holds what moves the first four (`RATES` names them), ``waves`` a row of each harmonic:
its angular frequency, its memory and its variance. ``inputs`` (row, 1 + column) are by
how much the clock on the wall is ahead, whose hours the harmonics follow, and X. Of
several series end to end, series k has the rows ``bounds[k]`` to ``bounds[k + 1]``.

Up to ``cut`` standard deviations an innovation counts as it is; beyond, the less the
larger it is, as an error of the observation. Several such in a row and on one side are
no errors: the level has moved.

Durbin and Koopman, "Time Series Analysis by State Space Methods" (2012), chapter 4; the
backward recursion is theirs of the smoothed states (section 4.4).
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.products import compiled

__all__ = [
    "CLEAR",
    "RATES",
    "RUN",
    "condition_rows",
    "expected_rows",
    "filter_rows",
    "respond",
    "simulate_rows",
    "smooth_rows",
]

RATES = ("walk", "velocity", "memory", "deviation", "fade", "noise")
"""Variance of the walk per time, of the velocity; its memory; variance of the
deviation, its memory; variance of the observation noise."""

CLEAR = 2.5
"""Beyond so many times ``cut`` innovations hardly weigh at all."""

RUN = 3
"""So many in a row, beyond the cut on one side, are a new level."""


@compiled
def _turn(gap, rates, waves, factors):
    """Write what a gap does: of the first four states, then of each harmonic."""
    factors[0, 0] = gap
    faded = math.exp(-gap / rates[2])
    factors[0, 1] = rates[2] * (1 - faded)
    factors[0, 2] = faded
    factors[0, 3] = math.exp(-gap / rates[4])
    for k in range(len(waves)):
        kept = math.exp(-gap / waves[k, 1])
        factors[k + 1, 0] = kept * math.cos(waves[k, 0] * gap)
        factors[k + 1, 1] = kept * math.sin(waves[k, 0] * gap)
        factors[k + 1, 2] = waves[k, 2] * (1 - kept * kept)


@compiled
def _forward(states, factors):
    """Carry (state, column) over a gap, in place."""
    gap, reach, faded, fade = factors[0]
    n_columns = states.shape[1]
    for j in range(n_columns):
        states[0, j] += gap * states[1, j] + reach * states[2, j]
        states[2, j] *= faded
        states[3, j] *= fade
    for k in range(1, len(factors)):
        first = 2 * k + 2
        c, s = factors[k, 0], factors[k, 1]
        for j in range(n_columns):
            u, w = states[first, j], states[first + 1, j]
            states[first, j] = c * u + s * w
            states[first + 1, j] = c * w - s * u


@compiled
def _backward(states, factors):
    """Apply the transpose of `_forward`, in place."""
    gap, reach, faded, fade = factors[0]
    n_columns = states.shape[1]
    for j in range(n_columns):
        states[1, j] += gap * states[0, j]
        states[2, j] = faded * states[2, j] + reach * states[0, j]
        states[3, j] *= fade
    for k in range(1, len(factors)):
        first = 2 * k + 2
        c, s = factors[k, 0], factors[k, 1]
        for j in range(n_columns):
            u, w = states[first, j], states[first + 1, j]
            states[first, j] = c * u - s * w
            states[first + 1, j] = c * w + s * u


@compiled
def _disturb(covariance, rates, factors):
    """Add what a gap makes uncertain."""
    gap, _, faded, fade = factors[0]
    walk, velocity, memory, deviation = rates[0], rates[1], rates[2], rates[3]
    x = gap / memory
    if x < 1e-3:  # the difference of nearly equal numbers
        twice = 2 * x**3 / 3 - x**4 / 2
    else:
        twice = 2 * x - 3 + 4 * faded - faded * faded
    covariance[0, 0] += walk * gap + velocity * memory * memory * twice
    both = velocity * memory * (1 - faded) ** 2
    covariance[0, 2] += both
    covariance[2, 0] += both
    covariance[2, 2] += velocity * (1 - faded * faded)
    covariance[3, 3] += deviation * (1 - fade * fade)
    for k in range(1, len(factors)):
        covariance[2 * k + 2, 2 * k + 2] += factors[k, 2]
        covariance[2 * k + 3, 2 * k + 3] += factors[k, 2]


@compiled
def _observe(row, waves, inputs):
    """Write how the states add up to an observation."""
    row[0] = row[3] = 1.0
    for k in range(len(waves)):
        turned = waves[k, 0] * inputs[0]
        row[2 * k + 4] = math.cos(turned)
        row[2 * k + 5] = math.sin(turned)
    for k in range(1, len(inputs)):
        row[2 * len(waves) + 3 + k] = inputs[k]


@compiled
def filter_rows(
    times,
    inputs,
    rates,
    waves,
    bounds,
    values,
    since,
    means,
    covariances,
    runs,
    cut,
    parts,
    after,
):
    """Run the filter over all series; update means, covariances and runs in place.

    ``means`` (series, state) and ``covariances`` are those ``since`` (series,) before
    the first row; ``runs`` (series, 2) are how many innovations beyond ``cut`` came
    last, and the last of them. A missing value is NaN. ``parts`` (part, state) says, by
    ones, which states a part of the signal adds up; the last part is all of them. The
    expected states after each row are written to ``after``, (row, state), or (0, state)
    where nobody asks for them.

    Returns the negative log-likelihood but for a constant; of each row its innovation
    over that one's variance (0 where nothing is observed), one over that variance, and
    the variance of a jump of the level there; and, (row, part), expected parts, their
    variances, and their covariances with the states, (row, part, state).
    """
    n, d, n_parts = len(times), means.shape[1], len(parts)
    signal, variance = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    scaled, precision, jumps = np.zeros(n), np.zeros(n), np.zeros(n)
    kept = np.zeros((n, n_parts, d))
    factors = np.zeros((len(waves) + 1, 4))
    row, gain = np.zeros(d), np.empty(d)
    loss, last_gap = 0.0, -1.0
    for series in range(len(bounds) - 1):
        mean = means[series].copy().reshape(d, 1)
        covariance = covariances[series].copy()
        run, side = runs[series]
        for i in range(bounds[series], bounds[series + 1]):
            if i == bounds[series]:
                gap = since[series]
            else:
                gap = times[i] - times[i - 1]
            if gap > 0:
                if gap != last_gap:
                    _turn(gap, rates, waves, factors)
                    last_gap = gap
                _forward(mean, factors)
                _forward(covariance, factors)
                _forward(covariance.T, factors)
                _disturb(covariance, rates, factors)
            _observe(row, waves, inputs[i])
            gain[:] = 0.0
            expected = 0.0
            for k in range(d):
                if row[k] != 0.0:
                    expected += row[k] * mean[k, 0]
                    for j in range(d):
                        gain[j] += row[k] * covariance[k, j]
            spread = 0.0
            for k in range(d):
                spread += row[k] * gain[k]
            for part in range(n_parts):
                for k in range(d):
                    weight = parts[part, k] * row[k]
                    if weight != 0.0:
                        signal[i, part] += weight * mean[k, 0]
                        for j in range(d):
                            kept[i, part, j] += weight * covariance[k, j]
                for k in range(d):
                    variance[i, part] += parts[part, k] * row[k] * kept[i, part, k]
            if len(after) > 0:
                after[i] = mean[:, 0]
            if math.isnan(values[i]):
                continue
            error = values[i] - expected
            total = spread + rates[5]
            loss += 0.5 * math.log(total)
            size = abs(error) / math.sqrt(total)
            if size <= cut:
                loss += 0.5 * size * size
                run = 0.0
            else:
                loss += cut * cut * (0.5 + math.log(size / cut))
                run = run + 1 if error * side > 0 else 1.0
                side = error
                if run < RUN:
                    total *= size / cut
                    if size > CLEAR * cut:
                        total *= (size / (CLEAR * cut)) ** 2
                else:
                    jump = jumps[i] = error * error
                    covariance[0, 0] += jump
                    gain[0] += jump
                    total += jump
                    run = 0.0
                    for part in range(n_parts):
                        kept[i, part, 0] += parts[part, 0] * jump
                        variance[i, part] += parts[part, 0] * jump
            scaled[i], precision[i] = error / total, 1 / total
            for k in range(d):
                mean[k, 0] += gain[k] * scaled[i]
                for j in range(d):
                    covariance[k, j] -= gain[k] * gain[j] / total
            if len(after) > 0:
                after[i] = mean[:, 0]
        means[series] = mean[:, 0]
        covariances[series] = covariance
        runs[series] = run, side
    return loss, scaled, precision, jumps, signal, variance, kept


@compiled
def smooth_rows(times, inputs, rates, waves, bounds, scaled, precision, gains):
    """Return what later rows add to what `filter_rows` said.

    Of its parts, whose covariances with the states are ``gains``, (row, part, state):
    what is to be added to their means, and taken off their variances, (row, part).
    """
    n, n_parts, d = gains.shape
    more, less = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    factors = np.zeros((len(waves) + 1, 4))
    row, ahead = np.zeros(d), np.empty(d)
    last_gap = -1.0
    whole = n_parts - 1
    for series in range(len(bounds) - 1):
        pull, known = np.zeros((d, 1)), np.zeros((d, d))
        for i in range(bounds[series + 1] - 1, bounds[series] - 1, -1):
            if precision[i] > 0:
                _observe(row, waves, inputs[i])
                gain = gains[i, whole]
                both, along = 0.0, 0.0
                for k in range(d):
                    along += gain[k] * pull[k, 0]
                    ahead[k] = 0.0
                    for j in range(d):
                        ahead[k] += known[k, j] * gain[j]
                for k in range(d):
                    both += gain[k] * ahead[k]
                p = precision[i]
                step = scaled[i] - p * along
                own = p + p * p * both
                for k in range(d):
                    pull[k, 0] += row[k] * step
                    for j in range(d):
                        known[k, j] += own * row[k] * row[j] - p * (
                            row[k] * ahead[j] + ahead[k] * row[j]
                        )
            for part in range(n_parts):
                for k in range(d):
                    more[i, part] += gains[i, part, k] * pull[k, 0]
                    inner = 0.0
                    for j in range(d):
                        inner += known[k, j] * gains[i, part, j]
                    less[i, part] += gains[i, part, k] * inner
            if i > bounds[series]:
                gap = times[i] - times[i - 1]
                if gap > 0:
                    if gap != last_gap:
                        _turn(gap, rates, waves, factors)
                        last_gap = gap
                    _backward(pull, factors)
                    _backward(known, factors)
                    _backward(known.T, factors)
    return more, less


@compiled
def simulate_rows(times, inputs, rates, waves, since, states, jumps, normals):
    """Return draws of the signal of one series at its rows, (row, draw).

    ``states`` (state, draw) are drawn, ``since`` before the first row; they change in
    place. ``normals`` are standard normal draws (row, state, draw).
    """
    n, n_draws = len(times), states.shape[1]
    d = len(states)
    signals = np.zeros((n, n_draws))
    factors = np.zeros((len(waves) + 1, 4))
    row, noise = np.zeros(d), np.empty((d, d))
    for i in range(n):
        gap = since if i == 0 else times[i] - times[i - 1]
        noise[:] = 0.0
        if gap > 0:
            _turn(gap, rates, waves, factors)
            _forward(states, factors)
            _disturb(noise, rates, factors)
        spread = math.sqrt(noise[2, 2])
        both = noise[0, 2] / spread if spread > 0 else 0.0
        rest = math.sqrt(max(noise[0, 0] - both * both, 0.0) + jumps[i])
        for k in range(n_draws):
            states[0, k] += rest * normals[i, 0, k] + both * normals[i, 2, k]
            states[2, k] += spread * normals[i, 2, k]
        for j in range(3, 2 * len(waves) + 4):
            spread = math.sqrt(noise[j, j])
            for k in range(n_draws):
                states[j, k] += spread * normals[i, j, k]
        _observe(row, waves, inputs[i])
        for j in range(d):
            for k in range(n_draws):
                signals[i, k] += row[j] * states[j, k]
    return signals


@compiled
def expected_rows(times, inputs, rates, waves, bounds, precision, kept, values):
    """Return what is expected of ``values`` by the rows before, all (row, column).

    By a filter that makes of each column what `filter_rows` made of y, whose
    ``precision`` (row,) and ``kept`` (row, state) are given.
    """
    n, n_columns = values.shape
    d = kept.shape[1]
    signals = np.zeros((n, n_columns))
    factors = np.zeros((len(waves) + 1, 4))
    row = np.zeros(d)
    states = np.zeros((d, n_columns))
    for series in range(len(bounds) - 1):
        states[:] = 0.0
        for i in range(bounds[series], bounds[series + 1]):
            gap = times[i] - times[i - 1] if i > bounds[series] else 0.0
            if gap > 0:
                _turn(gap, rates, waves, factors)
                _forward(states, factors)
            _observe(row, waves, inputs[i])
            for j in range(d):
                for k in range(n_columns):
                    signals[i, k] += row[j] * states[j, k]
            if precision[i] > 0:
                for j in range(d):
                    weight = kept[i, j] * precision[i]
                    for k in range(n_columns):
                        states[j, k] += weight * (values[i, k] - signals[i, k])
    return signals


@compiled
def respond(times, bounds, columns, memory):
    """Return how columns act that build up and fade, (row, column).

    They are linear between rows, and were always as they are at a series' first row.
    """
    found = columns.copy()
    for series in range(len(bounds) - 1):
        for i in range(bounds[series] + 1, bounds[series + 1]):
            x = (times[i] - times[i - 1]) / memory
            left = math.exp(-x)
            mean = (1 - left) / x if x > 1e-6 else 1 - x / 2
            for k in range(columns.shape[1]):
                found[i, k] = (
                    left * found[i - 1, k]
                    + (mean - left) * columns[i - 1, k]
                    + (1 - mean) * columns[i, k]
                )
    return found


@compiled
def condition_rows(times, inputs, rates, waves, precision, kept, values):
    """Return what the filter and smoother of one series make of drawn ``values``.

    Of each draw the expected signal, (row, draw), given all rows of which ``precision``
    (row,) is positive; that and ``kept`` (row, state) are of `filter_rows`.
    """
    n, n_draws = values.shape
    d = kept.shape[1]
    bounds = np.array([0, n])
    signals = expected_rows(
        times, inputs, rates, waves, bounds, precision, kept, values
    )
    scaled = (values - signals) * precision.reshape(n, 1)
    factors = np.zeros((len(waves) + 1, 4))
    row = np.zeros(d)
    states = np.zeros((d, n_draws))  # what later rows pull at
    for i in range(n - 1, -1, -1):
        if precision[i] > 0:
            _observe(row, waves, inputs[i])
            for k in range(n_draws):
                along = 0.0
                for j in range(d):
                    along += kept[i, j] * states[j, k]
                step = scaled[i, k] - precision[i] * along
                for j in range(d):
                    states[j, k] += row[j] * step
        for j in range(d):
            for k in range(n_draws):
                signals[i, k] += kept[i, j] * states[j, k]
        gap = times[i] - times[i - 1] if i else 0.0
        if gap > 0:
            _turn(gap, rates, waves, factors)
            _backward(states, factors)
    return signals
