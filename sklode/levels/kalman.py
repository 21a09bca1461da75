"""The Kalman filter and smoother of one channel, in plain loops that numba compiles.

Durbin and Koopman, "Time Series Analysis by State Space Methods" (2012), chapter 4, row
by row and in their names: the states have mean a and covariance P, and

    Z: design row    v = y - Z a    F = Z P Z' + noise    M = P Z' (their K = T M / F)
    over a gap:      a <- T a       P <- T P T' + Q
    backward:        r <- T' r      N <- T' N T

The states are, in this order: the trend, its constant slope, its velocity, which
reverts to zero, an Ornstein-Uhlenbeck (OU) process; two of each harmonic, of which the
first is observed; one coefficient of each column of X.

Filters take ``times`` (row,) in usual gaps; ``inputs`` (row, 1 + column), first how
far the local clock, which harmonics follow, is ahead of UTC, then X; ``bounds``: series
k has the rows ``bounds[k]`` to ``bounds[k + 1]``; ``rates``, see `RATES`; ``waves``
(harmonic, 3): angular frequency, memory and variance.

Outliers: beyond a Huber threshold, in standard deviations, innovations count the less
the larger, as errors of observation. Steps: where innovations on one side add up
(CUSUM, Page 1954), the trend may be anywhere.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.products import compiled, inner

# variance of the random walk per time; of the velocity, and its memory; of the OU
# process, and its memory; of the observation noise
RATES = ("random walk", "velocity", "velocity memory", "OU", "OU memory", "noise")
# beyond so many thresholds the weight falls with the third power
CLEAR = 2.5
# deviations on one side, each less DRIFT and at most MOST, that are a step in sum:
# three large ones, or more small ones
STEP, DRIFT, MOST = 6.0, 1.25, 3.25


@inner
def _set_transition(gap, rates, waves, T):
    """Write what T and Q need: of the first states; of each harmonic cos, sin, Q."""
    T[0, 0] = gap
    kept = math.exp(-gap / rates[2])
    T[0, 1] = rates[2] * (1 - kept)
    T[0, 2] = kept
    T[0, 3] = math.exp(-gap / rates[4])
    for k in range(len(waves)):
        kept = math.exp(-gap / waves[k, 1])
        T[k + 1, 0] = kept * math.cos(waves[k, 0] * gap)
        T[k + 1, 1] = kept * math.sin(waves[k, 0] * gap)
        T[k + 1, 2] = waves[k, 2] * (1 - kept * kept)


@inner
def _transition(states, T):
    """Apply T to (state, column), in place."""
    gap, reach, kept, ou_kept = T[0]
    for j in range(states.shape[1]):
        states[0, j] += gap * states[1, j] + reach * states[2, j]
        states[2, j] *= kept
        states[3, j] *= ou_kept
    for k in range(1, len(T)):
        first, c, s = 2 * k + 2, T[k, 0], T[k, 1]
        for j in range(states.shape[1]):
            u, w = states[first, j], states[first + 1, j]
            states[first, j] = c * u + s * w
            states[first + 1, j] = c * w - s * u


@inner
def _transition_back(states, T):
    """Apply the transpose of T to (state, column), in place."""
    gap, reach, kept, ou_kept = T[0]
    for j in range(states.shape[1]):
        states[1, j] += gap * states[0, j]
        states[2, j] = kept * states[2, j] + reach * states[0, j]
        states[3, j] *= ou_kept
    for k in range(1, len(T)):
        first, c, s = 2 * k + 2, T[k, 0], T[k, 1]
        for j in range(states.shape[1]):
            u, w = states[first, j], states[first + 1, j]
            states[first, j] = c * u - s * w
            states[first + 1, j] = c * w + s * u


@inner
def _add_Q(P, rates, T):
    """Add what a gap makes uncertain."""
    gap, _, kept, ou_kept = T[0]
    walk, velocity, memory, ou = rates[0], rates[1], rates[2], rates[3]
    x = gap / memory
    if x < 1e-3:  # a series: near numbers would cancel
        displacement = 2 * x**3 / 3 - x**4 / 2
    else:
        displacement = 2 * x - 3 + 4 * kept - kept * kept
    P[0, 0] += walk * gap + velocity * memory * memory * displacement
    both = velocity * memory * (1 - kept) ** 2
    P[0, 2] += both
    P[2, 0] += both
    P[2, 2] += velocity * (1 - kept * kept)
    P[3, 3] += ou * (1 - ou_kept * ou_kept)
    for k in range(1, len(T)):
        P[2 * k + 2, 2 * k + 2] += T[k, 2]
        P[2 * k + 3, 2 * k + 3] += T[k, 2]


@inner
def _design_row(Z, waves, inputs, i):
    """Write how the states add up to an observation of row i."""
    Z[0] = Z[3] = 1.0
    for k in range(len(waves)):
        turned = waves[k, 0] * inputs[i, 0]
        Z[2 * k + 4] = math.cos(turned)
        Z[2 * k + 5] = math.sin(turned)
    for k in range(1, inputs.shape[1]):
        Z[2 * len(waves) + 3 + k] = inputs[i, k]


@compiled
def filter_rows(
    times, inputs, bounds, rates, waves, values, states, since, threshold, parts, after
):
    """Run the filter over all series; update their states in place.

    ``states`` are means (series, state) and covariances ``since`` (series,) before the
    first row, and (series, 2) how far innovations have added up to a step, up and down.
    Missing values are NaN. ``parts`` (part, state) says, by ones, which states a part
    adds up; the last part is all. Means after each row are written to ``after``, (row,
    state), if it is not empty.

    Returns the loss: the negative log-likelihood but for a constant, where t deviations
    beyond the threshold h cost h^2 (1/2 + log(t / h)) in place of t^2 / 2; of each row
    v / F and 1 / F, smaller of outliers, 0 where nothing is observed, and the variance
    of a trend's step; and, (row, part), parts as predicted, their variances, and their
    covariances with the states, (row, part, state): the last part's is M.
    """
    means, covariances, runs = states
    n, d, n_parts = len(times), means.shape[1], len(parts)
    signal, variance = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    v_F, inverse_F, jumps = np.zeros(n), np.zeros(n), np.zeros(n)
    gains = np.zeros((n, n_parts, d))
    T = np.zeros((len(waves) + 1, 4))
    a, P = np.zeros((d, 1)), np.zeros((d, d))
    Z, M = np.zeros(d), np.zeros(d)
    loss, last_gap = 0.0, -1.0
    for series in range(len(bounds) - 1):
        for k in range(d):
            a[k, 0] = means[series, k]
            for j in range(d):
                P[k, j] = covariances[series, k, j]
        up, down = runs[series]
        for i in range(bounds[series], bounds[series + 1]):
            gap = since[series]
            if i > bounds[series]:
                gap = times[i] - times[i - 1]
            if gap > 0:
                if gap != last_gap:
                    _set_transition(gap, rates, waves, T)
                    last_gap = gap
                _transition(a, T)
                _transition(P, T)
                _transition(P.T, T)
                _add_Q(P, rates, T)
            _design_row(Z, waves, inputs, i)
            expected, ZM = 0.0, 0.0
            for j in range(d):
                M[j] = 0.0
            for k in range(d):
                if Z[k] != 0.0:
                    expected += Z[k] * a[k, 0]
                    for j in range(d):
                        M[j] += Z[k] * P[k, j]
            for k in range(d):
                ZM += Z[k] * M[k]
            F = ZM + rates[5]
            for part in range(n_parts):
                for k in range(d):
                    weight = parts[part, k] * Z[k]
                    if weight != 0.0:
                        signal[i, part] += weight * a[k, 0]
                        for j in range(d):
                            gains[i, part, j] += weight * P[k, j]
                for k in range(d):
                    variance[i, part] += parts[part, k] * Z[k] * gains[i, part, k]
            v = values[i] - expected
            if not math.isnan(v):
                loss += 0.5 * math.log(F)
                size = abs(v) / math.sqrt(F)
                if size <= threshold:
                    loss += 0.5 * size * size
                else:
                    loss += threshold * threshold * (0.5 + math.log(size / threshold))
                told = math.copysign(min(size, MOST), v)
                up, down = max(up + told - DRIFT, 0.0), max(down - told - DRIFT, 0.0)
                if max(up, down) >= STEP:
                    up = down = 0.0
                    jump = jumps[i] = v * v
                    P[0, 0] += jump
                    M[0] += jump
                    F += jump
                    for part in range(n_parts):
                        gains[i, part, 0] += parts[part, 0] * jump
                        variance[i, part] += parts[part, 0] * jump
                elif size > threshold:
                    F *= size / threshold
                    if size > CLEAR * threshold:
                        F *= (size / (CLEAR * threshold)) ** 2
                v_F[i], inverse_F[i] = v / F, 1 / F
                for k in range(d):
                    a[k, 0] += M[k] * v_F[i]
                    for j in range(d):
                        P[k, j] -= M[k] * M[j] / F
            if len(after) > 0:
                after[i] = a[:, 0]
        for k in range(d):
            means[series, k] = a[k, 0]
            for j in range(d):
                covariances[series, k, j] = P[k, j]
        runs[series] = up, down
    return loss, v_F, inverse_F, jumps, signal, variance, gains


@compiled
def smooth_rows(times, inputs, bounds, rates, waves, v_F, inverse_F, gains):
    """Return what a row and later ones say beyond what was predicted.

    Of v / F, (row, column): what adds to parts, (row, part, column); and what is taken
    off their variances, (row, part). Section 4.4.
    """
    (n, n_parts, d), n_columns = gains.shape, v_F.shape[1]
    mean, variance = np.zeros((n, n_parts, n_columns)), np.zeros((n, n_parts))
    T, N = np.zeros((len(waves) + 1, 4)), np.zeros((d, d))
    r, Z, N_M = np.zeros((d, n_columns)), np.zeros(d), np.zeros(d)
    last_gap = -1.0
    for series in range(len(bounds) - 1):
        r[:] = 0.0
        N[:] = 0.0
        for i in range(bounds[series + 1] - 1, bounds[series] - 1, -1):
            if inverse_F[i] > 0:
                _design_row(Z, waves, inputs, i)
                M, p, M_N_M = gains[i, n_parts - 1], inverse_F[i], 0.0
                for c in range(n_columns):
                    step = v_F[i, c]
                    for k in range(d):
                        step -= p * M[k] * r[k, c]
                    for k in range(d):
                        r[k, c] += Z[k] * step
                for k in range(d):
                    N_M[k] = 0.0
                    for j in range(d):
                        N_M[k] += N[k, j] * M[j]
                    M_N_M += M[k] * N_M[k]
                for k in range(d):
                    for j in range(d):
                        N[k, j] += (p + p * p * M_N_M) * Z[k] * Z[j]
                        N[k, j] -= p * (Z[k] * N_M[j] + N_M[k] * Z[j])
            for part in range(n_parts):
                for k in range(d):
                    for c in range(n_columns):
                        mean[i, part, c] += gains[i, part, k] * r[k, c]
                    inner = 0.0
                    for j in range(d):
                        inner += N[k, j] * gains[i, part, j]
                    variance[i, part] += gains[i, part, k] * inner
            gap = times[i] - times[i - 1] if i > bounds[series] else 0.0
            if gap > 0:
                if gap != last_gap:
                    _set_transition(gap, rates, waves, T)
                    last_gap = gap
                _transition_back(r, T)
                _transition_back(N, T)
                _transition_back(N.T, T)
    return mean, variance


@compiled
def filter_columns(times, inputs, bounds, rates, waves, inverse_F, gains, values):
    """Return what is expected of ``values`` by rows before, (row, column).

    It makes of each column what `filter_rows` made of y, whose 1 / F (row,) and
    ``gains`` (row, state) are given; rows of 1 / F = 0 do not count.
    """
    n_columns, d = values.shape[1], gains.shape[1]
    signals, T = np.zeros(values.shape), np.zeros((len(waves) + 1, 4))
    Z, states = np.zeros(d), np.zeros((d, n_columns))
    for series in range(len(bounds) - 1):
        states[:] = 0.0
        for i in range(bounds[series], bounds[series + 1]):
            gap = times[i] - times[i - 1] if i > bounds[series] else 0.0
            if gap > 0:
                _set_transition(gap, rates, waves, T)
                _transition(states, T)
            _design_row(Z, waves, inputs, i)
            for j in range(d):
                for k in range(n_columns):
                    signals[i, k] += Z[j] * states[j, k]
            if inverse_F[i] > 0:
                for j in range(d):
                    weight = gains[i, j] * inverse_F[i]
                    for k in range(n_columns):
                        states[j, k] += weight * (values[i, k] - signals[i, k])
    return signals


@compiled
def simulate_rows(times, inputs, bounds, rates, waves, since, states, jumps, normals):
    """Return draws of one series' signal at its rows, (row, draw).

    ``states`` (state, draw), ``since`` before the first row, change in place; ``jumps``
    (row,) are variances of steps of the trend; ``normals`` are (row, state, draw).
    """
    n, (d, n_draws) = bounds[-1], states.shape
    signals, T = np.zeros((n, n_draws)), np.zeros((len(waves) + 1, 4))
    Z, Q = np.zeros(d), np.zeros((d, d))
    for i in range(n):
        gap = times[i] - times[i - 1] if i else since
        Q[:] = 0.0
        if gap > 0:
            _set_transition(gap, rates, waves, T)
            _transition(states, T)
            _add_Q(Q, rates, T)
        spread = math.sqrt(Q[2, 2])
        both = Q[0, 2] / spread if spread > 0 else 0.0
        rest = math.sqrt(max(Q[0, 0] - both * both, 0.0) + jumps[i])
        for k in range(n_draws):
            states[0, k] += rest * normals[i, 0, k] + both * normals[i, 2, k]
            states[2, k] += spread * normals[i, 2, k]
        _design_row(Z, waves, inputs, i)
        for j in range(d):
            spread = math.sqrt(Q[j, j]) if j > 2 else 0.0
            for k in range(n_draws):
                states[j, k] += spread * normals[i, j, k]
                signals[i, k] += Z[j] * states[j, k]
    return signals


@compiled
def respond(times, bounds, columns, memory):
    """Return how columns act that build up and fade, (row, column).

    They are linear between rows, and constant before the first one.
    """
    found = columns.copy()
    for series in range(len(bounds) - 1):
        for i in range(bounds[series] + 1, bounds[series + 1]):
            x = (times[i] - times[i - 1]) / memory
            left = math.exp(-x)
            mean = (1 - left) / x if x > 1e-6 else 1 - x / 2
            for k in range(columns.shape[1]):
                built = (mean - left) * columns[i - 1, k] + (1 - mean) * columns[i, k]
                found[i, k] = left * found[i - 1, k] + built
    return found
