"""The Kalman filter of one channel, and draws, in plain loops that numba compiles.

Durbin and Koopman, "Time Series Analysis by State Space Methods" (2012), chapter 4, row
by row and in their names: the states have mean a and covariance P, and

    Z: design row    v = y - Z a    F = Z P Z' + noise    M = P Z' (their K = T M / F)
    over a gap:      a <- T a       P <- T P T' + Q
    backward:        r <- T' r      N <- T' N T

The states are, in this order: 0, the trend; 1, its constant slope; 2, a velocity, which
reverts to zero and moves the trend, or 3, an Ornstein-Uhlenbeck (OU) process; two of
each harmonic; one coefficient of each column of X. A harmonic's noise is the same in
all directions: seen from a frame that turns with it, its two states are OU processes,
and the design row has the cosine and the sine. So T only multiplies, but for what slope
and velocity move.

What the filters read and write has names in `filter_pass`.

What it does with large innovations, outliers or steps of the trend, is in `outliers`.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.compiling import compiled, inner
from sklode.structural.filter.outliers import cusum, huber, outlier_variance, shift
from sklode.structural.filter.system import FilterPass

# variance of the random walk per time; of the velocity, and its memory; of the OU
# process, and its memory; of the observation noise; last, of what the velocity adds to
# the OU process: if there is any, it moves this one, and its own variance follows
RATES = (
    "random walk",
    "velocity",
    "velocity memory",
    "OU",
    "OU memory",
    "noise",
    "smooth",
)
# what an OU process keeps at least: a smaller one would divide by zero
LEAST_KEPT = 1e-130


@compiled
def design_rows(clock, columns, frequencies):
    """Return how the states add up to an observation, (row, state).

    ``clock`` (row,) are times on the local clock, which harmonics follow; ``columns``
    (row, column) are those of X.
    """
    n_waves, n_columns = len(frequencies), columns.shape[1]
    design = np.zeros((len(clock), 4 + 2 * n_waves + n_columns))
    for i in range(len(clock)):
        Z = design[i]
        Z[0] = Z[3] = 1.0
        base, number = 0.0, 1
        for k in range(n_waves):
            # a multiple of the wave before takes products, not a cosine: (c, s) turns
            # by ``once``, as exp(i n x) = exp(i (n - 1) x) exp(i x)
            ratio = frequencies[k] / base if base > 0 else 0.0
            whole = round(ratio)
            if whole < number or abs(ratio - whole) > 1e-9:
                base, number, whole = frequencies[k], 0, 1
                once = math.cos(base * clock[i]), math.sin(base * clock[i])
                c, s = 1.0, 0.0
            for _ in range(whole - number):
                c, s = c * once[0] - s * once[1], s * once[0] + c * once[1]
            number = whole
            Z[2 * k + 4], Z[2 * k + 5] = c, s
        for k in range(n_columns):
            Z[2 * n_waves + 4 + k] = columns[i, k]
    return design


@inner
def set_transition(gap, rates, waves, moves, kept, added):
    """Write T and Q of a gap.

    T has ``kept`` (state,) on its diagonal, and beside it what slope and velocity move;
    Q has ``added`` (state,) on its own. The rest is in ``moves``: what, of one, 0 the
    slope adds to the trend, 1 the velocity to the trend, and 2 the velocity to the OU
    process, over what this one keeps, as those who apply T move first, then multiply;
    and of Q the velocity's covariances, 3 with the trend and 4 with the OU process.
    """
    walk, velocity, memory, ou = rates[0], rates[1], rates[2], rates[3]
    # of an OU process of variance s^2 a gap keeps k = exp(-gap / memory) and adds
    # s^2 (1 - k^2); what it adds to a velocity and its integral has Gillespie, "Exact
    # Numerical Simulation of the Ornstein-Uhlenbeck Process and its Integral" (1996)
    kept[:] = 1.0
    added[:] = 0.0
    kept[2] = math.exp(-gap / memory)
    kept[3] = max(math.exp(-gap / rates[4]), LEAST_KEPT)
    added[3] = ou * (1 - kept[3] * kept[3])
    moves[0] = gap
    added[0] = walk * gap
    if rates[6] > 0:
        reach, own, both, smooth = driven(gap, 1 / memory, 1 / rates[4])
        moves[1], moves[2], moves[3] = 0.0, reach / kept[3], 0.0
        added[2], added[3] = rates[6] * own, added[3] + rates[6] * smooth
        moves[4] = rates[6] * both
    else:
        x = gap / memory
        # of the trend, by a velocity of variance v: v m^2 (2 x - 3 + 4 k - k^2)
        if x < 1e-3:
            # a series in x, as near numbers would cancel
            displacement = 2 * x**3 / 3 - x**4 / 2
        else:
            displacement = 2 * x - 3 + 4 * kept[2] - kept[2] * kept[2]
        added[0] += velocity * memory * memory * displacement
        added[2] = velocity * (1 - kept[2] * kept[2])
        moves[1], moves[2] = memory * (1 - kept[2]), 0.0
        moves[3], moves[4] = velocity * memory * (1 - kept[2]) ** 2, 0.0
    # each harmonic is two OU processes, in the frame that turns with it
    left = 1.0
    for k in range(len(waves)):
        # those of a season share their memory
        if k == 0 or waves[k, 1] != waves[k - 1, 1]:
            left = math.exp(-gap / waves[k, 1])
        kept[2 * k + 4] = kept[2 * k + 5] = left
        added[2 * k + 4] = added[2 * k + 5] = waves[k, 2] * (1 - left * left)


@inner
def driven(gap, a, b):
    """Return how an OU process of rate b follows a velocity of rate a over a gap.

    First what one of the velocity adds to it; then what the gap adds to the variance of
    the velocity, to their covariance and to the process' variance, which is 1 in the
    long run: autoregression of order two in continuous time.
    """
    # (exp(-b t) - exp(-a t)) / (a - b), t the gap: the slower rate is taken out, so
    # that rates alike do not cancel
    y, slower = abs(a - b) * gap, math.exp(-min(a, b) * gap)
    reach = slower * gap * (-math.expm1(-y) / y if y > 0 else 1.0)
    # of the velocity, and of both, in the long run, where the process has variance 1
    var, cov = b * (a + b), b
    if max(a, b) * gap < 1e-3:
        # a series in the gap, as near numbers would cancel
        own = 2 * a * gap * (1 - a * gap)
        both = a * gap**2 * (1 - (3 * a + b) * gap / 3)
        smooth = 2 * a * gap**3 * (1 / 3 - (a + b) * gap / 4)
        return reach, var * own, var * both, var * smooth
    # with S the covariance in the long run, Q = S - T S T', as S = T S T' + Q there
    left, kept = math.exp(-a * gap), math.exp(-b * gap)
    own = var * (1 - left * left)
    both = cov - left * (reach * var + kept * cov)
    smooth = 1 - reach * reach * var - 2 * reach * kept * cov - kept * kept
    return reach, own, both, smooth


@inner
def _transition(states, moves, kept):
    """Apply T to (state, column), in place."""
    for j in range(states.shape[1]):
        states[0, j] += moves[0] * states[1, j] + moves[1] * states[2, j]
        states[3, j] += moves[2] * states[2, j]
    for k in range(2, len(kept)):
        for j in range(states.shape[1]):
            states[k, j] *= kept[k]


@inner
def _predict(a, P, Z, M, moves, kept, added):
    """Cross a gap, and write M."""
    # T P T' in two steps: what moves is added to rows, then to columns of the upper
    # half, which the lower one copies; then row and column k are times what k keeps
    d = len(a)
    a[0] += moves[0] * a[1] + moves[1] * a[2]
    a[3] += moves[2] * a[2]
    for j in range(d):
        a[j] *= kept[j]
        P[0, j] += moves[0] * P[1, j] + moves[1] * P[2, j]
        P[3, j] += moves[2] * P[2, j]
    P[0, 0] += moves[0] * P[0, 1] + moves[1] * P[0, 2]
    P[0, 3] += moves[2] * P[0, 2]
    P[3, 3] += moves[2] * P[3, 2]
    for k in range(1, d):
        P[k, 0] = P[0, k]
        P[k, 3] = P[3, k]
    for k in range(d):
        # one pass of all entries: they are most of the time
        row, own, total = P[k], kept[k], 0.0
        for j in range(d):
            row[j] *= own * kept[j]
            total += row[j] * Z[j]
        row[k] += added[k]
        M[k] = total + added[k] * Z[k]
    for k, both in ((0, moves[3]), (3, moves[4])):
        P[k, 2] += both
        P[2, k] += both
        M[k] += both * Z[2]
        M[2] += both * Z[k]


@inner
def _update(a, P, M, v, F, root):
    """Take up an innovation; ``root`` (state,) is written to."""
    # P - M M' / F, with M over the root of F on both sides
    d, scale = len(a), 1 / math.sqrt(F)
    for k in range(d):
        a[k] += M[k] * (v / F)
        root[k] = M[k] * scale
    for k in range(d):
        row, own = P[k], root[k]
        for j in range(d):
            row[j] -= own * root[j]


@inner
def _innovation(a, Z, M, noise, value):
    """Return v and F of a row, of `_predict`'s a and M."""
    # Z P Z' is Z M
    expected, F = 0.0, noise
    for k in range(len(a)):
        expected += Z[k] * a[k]
        F += Z[k] * M[k]
    return value - expected, F


@inner
def _add_parts(a, P, Z, M, parts, signal, variance, gains):
    """Write what is predicted of the parts of a row; the last has Z and M."""
    d, last = len(a), len(parts) - 1
    for part in range(len(parts)):
        for k in range(d):
            weight = parts[part, k] * Z[k]
            if weight != 0.0:
                signal[part] += weight * a[k]
                if part < last:
                    for j in range(d):
                        gains[part, j] += weight * P[k, j]
        for k in range(d):
            if part == last:
                gains[part, k] = M[k]
            variance[part] += parts[part, k] * Z[k] * gains[part, k]


@compiled
def filter_rows(system, values, errors, states, since, rule, wanted):
    """Run the filter over all series; update their states in place.

    ``states`` are those ``since`` (series,) before the first rows. Missing ``values``
    are NaN; ``errors`` (row,) are variances of measurement, which add to the noise.

    The loss of the `FilterPass` is the negative log-likelihood but for a constant,
    where t deviations beyond the threshold h cost h^2 (1/2 + log(t / h)) in place of
    t^2 / 2.
    """
    times, design, bounds = system.times, system.design, system.bounds
    rates, waves = system.rates, system.waves
    means, covariances, runs = states.means, states.covariances, states.runs
    parts, after, predicted = wanted.parts, wanted.after, wanted.predicted
    threshold, step = rule.threshold, rule.step
    n, d, n_parts = len(times), means.shape[1], len(parts)
    signal, variance = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    v_F, inverse_F, jumps = np.zeros(n), np.zeros(n), np.zeros(n)
    gains = np.zeros((n, n_parts, d))
    moves, kept, added = np.zeros(5), np.zeros(d), np.zeros(d)
    a, P, M, root = np.zeros(d), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    loss, last_gap = 0.0, -1.0
    for series in range(len(bounds) - 1):
        a[:] = means[series]
        P[:] = covariances[series]
        up, down = runs[series]
        for i in range(bounds[series], bounds[series + 1]):
            gap, Z = since[series], design[i]
            if i > bounds[series]:
                gap = times[i] - times[i - 1]
            if gap != last_gap:
                set_transition(gap, rates, waves, moves, kept, added)
                last_gap = gap
            _predict(a, P, Z, M, moves, kept, added)
            if len(predicted) > 0:
                predicted[i] = P
            v, F = _innovation(a, Z, M, rates[5] + errors[i], values[i])
            if n_parts > 0:
                _add_parts(a, P, Z, M, parts, signal[i], variance[i], gains[i])
            if not math.isnan(v):
                size = abs(v) / math.sqrt(F)
                loss += 0.5 * math.log(F)
                loss += huber(size, threshold)
                up, down = cusum(up, down, v, size)
                if max(up, down) >= step:
                    up = down = 0.0
                    # as large as this innovation: the trend follows most of it
                    jump = jumps[i] = v * v
                    shift(P, M, parts, gains[i], variance[i], jump)
                    F += jump
                else:
                    F = outlier_variance(F, size, threshold)
                v_F[i], inverse_F[i] = v / F, 1 / F
                _update(a, P, M, v, F, root)
            if len(after) > 0:
                after[i] = a
        means[series] = a
        covariances[series] = P
        runs[series] = up, down
    return FilterPass(
        loss=loss,
        v_F=v_F,
        inverse_F=inverse_F,
        jumps=jumps,
        signal=signal,
        variance=variance,
        gains=gains,
        states=states,
    )


@compiled
def filter_columns(system, inverse_F, gains, values):
    """Return what is expected of ``values`` by rows before, (row, column).

    It makes of each column what `filter_rows` made of y, whose 1 / F (row,) and
    ``gains`` (row, state) are given; rows of 1 / F = 0 do not count.
    """
    # given 1 / F and M the filter is linear, and its states start at zero: what it
    # makes of a sum of columns is the sum of what it makes of each
    times, design, bounds = system.times, system.design, system.bounds
    rates, waves = system.rates, system.waves
    n_columns, d = values.shape[1], gains.shape[1]
    signals, states = np.zeros(values.shape), np.zeros((d, n_columns))
    moves, kept, added = np.zeros(5), np.zeros(d), np.zeros(d)
    last_gap = -1.0
    for series in range(len(bounds) - 1):
        states[:] = 0.0
        for i in range(bounds[series], bounds[series + 1]):
            gap, Z = times[i] - times[i - 1] if i > bounds[series] else 0.0, design[i]
            if gap > 0:
                if gap != last_gap:
                    set_transition(gap, rates, waves, moves, kept, added)
                    last_gap = gap
                _transition(states, moves, kept)
            # in the order of memory: columns are many
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
def simulate_rows(system, since, states, jumps, normals):
    """Return draws of one series' signal at its rows, (row, draw).

    ``states`` (state, draw), ``since`` before the first row, change in place; ``jumps``
    (row,) are variances of steps of the trend; ``normals`` are (row, state, draw).
    """
    times, design = system.times, system.design
    rates, waves = system.rates, system.waves
    n, (d, n_draws) = system.bounds[-1], states.shape
    signals = np.zeros((n, n_draws))
    moves, kept, added = np.zeros(5), np.zeros(d), np.zeros(d)
    for i in range(n):
        gap, Z = times[i] - times[i - 1] if i else since, design[i]
        set_transition(max(gap, 0.0), rates, waves, moves, kept, added)
        _transition(states, moves, kept)
        # normals of Q by Cholesky's root, the velocity first: the trend and the OU
        # process have what they share with it, and what is left of their own
        # s e1 and (c / s) e1 + (q - (c / s)^2)^(1/2) e2 have the variances s^2 and q,
        # and the covariance c
        spread = math.sqrt(added[2])
        for j, both, jump in ((0, moves[3], jumps[i]), (3, moves[4], 0.0)):
            both = both / spread if spread > 0 else 0.0
            rest = math.sqrt(max(added[j] - both * both, 0.0) + jump)
            for k in range(n_draws):
                states[j, k] += rest * normals[i, j, k] + both * normals[i, 2, k]
        for k in range(n_draws):
            states[2, k] += spread * normals[i, 2, k]
        for j in range(d):
            spread = math.sqrt(added[j]) if j > 3 else 0.0
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
            # the exact solution where u is linear: of its two ends the weights are the
            # integrals of exp(-s) s / x and exp(-s) (1 - s / x), s back from the second
            x = (times[i] - times[i - 1]) / memory
            left = math.exp(-x)
            mean = (1 - left) / x if x > 1e-6 else 1 - x / 2
            for k in range(columns.shape[1]):
                built = (mean - left) * columns[i - 1, k] + (1 - mean) * columns[i, k]
                found[i, k] = left * found[i - 1, k] + built
    return found
