"""The Kalman filter of one column, and draws, in plain loops that numba compiles.

Durbin and Koopman, "Time Series Analysis by State Space Methods" (2012), chapter 4, row
by row and in their names: the states have mean a and covariance P, and

    Z: design row    v = y - Z a    F = Z P Z' + noise    M = P Z' (their K = T M / F)
    over a gap:      a <- T a       P <- T P T' + Q
    backward:        r <- T' r      N <- T' N T

T is D E, see `components.block`: E is one on its diagonal, and has a few links by which
one state moves another; D multiplies. Q has a diagonal and a few pairs. Which states
these are, and what they mean, is not known here.

What the filters read and write has names in `system`. What they do with large
innovations, outliers or steps of the trend, is in `outliers`.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.compiling import compiled, inner
from sklode.structural.filter.outliers import cusum, huber, outlier_variance, shift
from sklode.structural.filter.system import FilterPass


@compiled
def turned(clock, frequencies):
    """Return cosine and sine of waves at times on the local clock, (row, state)."""
    n_waves = len(frequencies)
    found = np.zeros((len(clock), 2 * n_waves))
    for i in range(len(clock)):
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
            found[i, 2 * k], found[i, 2 * k + 1] = c, s
    return found


@inner
def _move(states, moves, links, decay):
    """Apply T to (state, column), in place."""
    for link in range(len(links)):
        to, by = links[link]
        for j in range(states.shape[1]):
            states[to, j] += moves[link] * states[by, j]
    for k in range(len(decay)):
        if decay[k] != 1.0:
            for j in range(states.shape[1]):
                states[k, j] *= decay[k]


@inner
def _predict(a, P, Z, M, decay, moves, added, both, links, pairs):
    """Cross a gap, and write M."""
    d = len(a)
    first = 0
    while first < len(links):
        # E P E', by states that are moved: what moves one is added to its row, then to
        # its column, which copies the row
        to, end = links[first, 0], first
        while end < len(links) and links[end, 0] == to:
            by, move = links[end, 1], moves[end]
            a[to] += move * a[by]
            for j in range(d):
                P[to, j] += move * P[by, j]
            end += 1
        for link in range(first, end):
            P[to, to] += moves[link] * P[to, links[link, 1]]
        for j in range(d):
            P[j, to] = P[to, j]
        first = end
    for k in range(d):
        a[k] *= decay[k]
    for k in range(d):
        # one pass of all entries: they are most of the time
        row, own, total = P[k], decay[k], 0.0
        for j in range(d):
            row[j] *= own * decay[j]
            total += row[j] * Z[j]
        row[k] += added[k]
        M[k] = total + added[k] * Z[k]
    for pair in range(len(pairs)):
        one, other, shared = pairs[pair, 0], pairs[pair, 1], both[pair]
        P[one, other] += shared
        P[other, one] += shared
        M[one] += shared * Z[other]
        M[other] += shared * Z[one]


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
def filter_rows(system, values, states, rule, wanted):
    """Run the filter over all series; update their states in place.

    Missing ``values`` are NaN. The losses of the `FilterPass` are the negative
    log-likelihood of each series but for a constant, where t deviations beyond the
    threshold h cost h^2 (1/2 + log(t / h)) in place of t^2 / 2.
    """
    design, bounds, gap, level = system.design, system.bounds, system.gap, system.level
    means, covariances, runs = states.means, states.covariances, states.runs
    parts, after, predicted = wanted.parts, wanted.after, wanted.predicted
    threshold, step = rule.threshold, rule.step
    decay, moves = system.transition.decay, system.transition.moves
    added, both = system.transition.added, system.transition.both
    links, pairs, noise = system.transition.links, system.transition.pairs, system.noise
    n, d, n_parts = len(design), means.shape[1], len(parts)
    signal, variance = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    v_F, inverse_F, jumps = np.zeros(n), np.zeros(n), np.zeros(n)
    gains = np.zeros((n, n_parts, d))
    a, P, M, root = np.zeros(d), np.zeros((d, d)), np.zeros(d), np.zeros(d)
    losses = np.zeros(len(bounds) - 1)
    for series in range(len(bounds) - 1):
        a[:] = means[series]
        P[:] = covariances[series]
        up, down = runs[series]
        loss = 0.0
        for i in range(bounds[series], bounds[series + 1]):
            Z, g = design[i], gap[i]
            _predict(a, P, Z, M, decay[g], moves[g], added[g], both[g], links, pairs)
            if len(predicted) > 0:
                predicted[i] = P
            v, F = _innovation(a, Z, M, noise[i], values[i])
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
                    shift(level, P, M, parts, gains[i], variance[i], jump)
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
        losses[series] = loss
    return FilterPass(
        losses=losses,
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
    design, bounds, transition = system.design, system.bounds, system.transition
    decay, moves, links = transition.decay, transition.moves, transition.links
    n_columns, d = values.shape[1], gains.shape[1]
    signals, states = np.zeros(values.shape), np.zeros((d, n_columns))
    errors = np.zeros(n_columns)
    for series in range(len(bounds) - 1):
        states[:] = 0.0
        for i in range(bounds[series] + 1, bounds[series + 1]):
            # what the row before tells, a gap, and the signal, in one pass: it is most
            # of the time
            gap, Z, M, p = system.gap[i], design[i], gains[i - 1], inverse_F[i - 1]
            for k in range(n_columns):
                error = values[i - 1, k] - signals[i - 1, k]
                errors[k] = error if p > 0 else 0.0
            for link in range(len(links)):
                to, by = links[link]
                move, weight = moves[gap, link], M[by] * p
                for k in range(n_columns):
                    states[to, k] += move * (states[by, k] + weight * errors[k])
            # in the order of memory: columns are many
            for j in range(d):
                row, signal, weight = states[j], signals[i], M[j] * p
                for k in range(n_columns):
                    row[k] = decay[gap, j] * (row[k] + weight * errors[k])
                    signal[k] += Z[j] * row[k]
    return signals


@inner
def _root_of_noise(gap, transition, level, jump, mixed, root):
    """Write a root of Q's part of the states that pairs have, (mixed, mixed).

    It is triangular: each state has noise of its own, and some of those after it.
    """
    m = len(mixed)
    root[:] = 0.0
    for one in range(m):
        root[one, one] = transition.added[gap, mixed[one]]
        if mixed[one] == level:
            root[one, one] += jump
    for pair in range(len(transition.pairs)):
        one, other = 0, 0
        for k in range(m):
            if mixed[k] == transition.pairs[pair, 0]:
                one = k
            if mixed[k] == transition.pairs[pair, 1]:
                other = k
        root[min(one, other), max(one, other)] = transition.both[gap, pair]
    # Cholesky from the last state to the first: Q = U U'
    for j in range(m - 1, -1, -1):
        for k in range(j + 1, m):
            root[j, j] -= root[j, k] ** 2
        root[j, j] = math.sqrt(max(root[j, j], 0.0))
        for i in range(j):
            for k in range(j + 1, m):
                root[i, j] -= root[i, k] * root[j, k]
            root[i, j] = root[i, j] / root[j, j] if root[j, j] > 0 else 0.0


@compiled
def simulate_rows(system, states, jumps, normals, mixed):
    """Return draws of one series' signal at its rows, (row, draw).

    ``states`` (state, draw) before the first row change in place; ``jumps`` (row,) are
    variances of steps of the trend; ``normals`` are (row, state, draw); ``mixed`` are
    the states whose noises have a covariance with that of another.
    """
    design, transition, level = system.design, system.transition, system.level
    n, (d, n_draws), m = system.bounds[-1], states.shape, len(mixed)
    signals, root = np.zeros((n, n_draws)), np.zeros((m, m))
    is_mixed = np.zeros(d)
    for one in mixed:
        is_mixed[one] = 1.0
    for i in range(n):
        gap, Z = system.gap[i], design[i]
        decay = transition.decay[gap]
        _move(states, transition.moves[gap], transition.links, decay)
        _root_of_noise(gap, transition, level, jumps[i], mixed, root)
        for one in range(m):
            for other in range(one, m):
                for k in range(n_draws):
                    noise = root[one, other] * normals[i, mixed[other], k]
                    states[mixed[one], k] += noise
        for j in range(d):
            variance = transition.added[gap, j] + (jumps[i] if j == level else 0.0)
            spread = math.sqrt(variance) if is_mixed[j] == 0.0 else 0.0
            for k in range(n_draws):
                states[j, k] += spread * normals[i, j, k]
                signals[i, k] += Z[j] * states[j, k]
    return signals


@compiled
def accumulate(times, bounds, columns, memory):
    """Return sums of impulses that fade from their own rows on, (row, column)."""
    found = columns.copy()
    for series in range(len(bounds) - 1):
        for i in range(bounds[series] + 1, bounds[series + 1]):
            left = math.exp(-(times[i] - times[i - 1]) / memory)
            for k in range(columns.shape[1]):
                found[i, k] += left * found[i - 1, k]
    return found


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
