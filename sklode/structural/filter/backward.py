"""The smoother, and the steps of the filter backward: the slope of its loss.

The smoother is that of Durbin and Koopman (2012), section 4.4. In `slope_back` ``r``
and ``N`` are the derivatives of the loss in a row's a and P; the outlier rule and steps
are part of it. Griewank and Walther, "Evaluating Derivatives" (2008), chapter 3;
without them it is the score of Durbin and Koopman (2012), section 7.3.3. Names are
those of `filter.forward`; ``of_x`` is the slope in x.

Tested in tests/structural/test_gradient.py and test_kalman.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.compiling import compiled, inner
from sklode.structural.filter.forward import driven, set_transition
from sklode.structural.filter.outliers import CLEAR


@inner
def _transition_back(r, N, moves, kept):
    """Apply the transpose of T to r, (state, column), and to both sides of N."""
    # T is D E: E moves, D multiplies by what is kept; so T' is E' D, in this order,
    # and E' adds to slope and velocity what trend and OU process tell of them
    d = len(kept)
    for k in range(2, d):
        for c in range(r.shape[1]):
            r[k, c] *= kept[k]
        for j in range(d):
            N[k, j] *= kept[k] * kept[j]
            # rows of trend and slope, which keep all, are not gone over
            if j < 2:
                N[j, k] = N[k, j]
    for c in range(r.shape[1]):
        r[1, c] += moves[0] * r[0, c]
        r[2, c] += moves[1] * r[0, c] + moves[2] * r[3, c]
    for j in range(d):
        N[1, j] += moves[0] * N[0, j]
        N[2, j] += moves[1] * N[0, j] + moves[2] * N[3, j]
    for j in range(d):
        N[j, 1] += moves[0] * N[j, 0]
        N[j, 2] += moves[1] * N[j, 0] + moves[2] * N[j, 3]


@compiled
def smooth_rows(system, v_F, inverse_F, gains, shocks):
    """Return what a row and later ones say beyond what was predicted.

    Of v / F, (row, column): what adds to parts, (row, part, column); and what is taken
    off their variances, (row, part). Section 4.4.

    ``shocks`` (row, 3, 2), if not empty, gets the score of the first column, and its
    variance, in an error of the row, a step of the trend and a turn of its slope that
    begin there: de Jong and Penzer, "Diagnosing Shocks in Time Series" (1998).
    """
    times, design, bounds = system.times, system.design, system.bounds
    rates, waves = system.rates, system.waves
    (n, n_parts, d), n_columns = gains.shape, v_F.shape[1]
    mean, variance = np.zeros((n, n_parts, n_columns)), np.zeros((n, n_parts))
    moves, kept, added = np.zeros(5), np.zeros(d), np.zeros(d)
    N, r, N_M = np.zeros((d, d)), np.zeros((d, n_columns)), np.zeros(d)
    last_gap = -1.0
    for series in range(len(bounds) - 1):
        r[:] = 0.0
        N[:] = 0.0
        for i in range(bounds[series + 1] - 1, bounds[series] - 1, -1):
            if inverse_F[i] > 0:
                # r <- Z' v / F + L' r and N <- Z' Z / F + L' N L, with L = 1 - M Z / F
                Z, M, p, M_N_M = design[i], gains[i, n_parts - 1], inverse_F[i], 0.0
                for c in range(n_columns):
                    step = v_F[i, c]
                    for k in range(d):
                        step -= p * M[k] * r[k, c]
                    for k in range(d):
                        r[k, c] += Z[k] * step
                    if c == 0 and len(shocks) > 0:
                        shocks[i, 0, 0] = step
                for k in range(d):
                    total = 0.0
                    for j in range(d):
                        total += N[k, j] * M[j]
                    N_M[k] = total
                    M_N_M += M[k] * total
                if len(shocks) > 0:
                    shocks[i, 0, 1] = p + p * p * M_N_M
                # N + (p + p^2 M' N M) Z Z' - p (Z M' N + N M Z'), in one pass
                half = 0.5 * (p + p * p * M_N_M)
                for k in range(d):
                    N_M[k] = half * Z[k] - p * N_M[k]
                for k in range(d):
                    row, own, other = N[k], Z[k], N_M[k]
                    for j in range(d):
                        row[j] += own * N_M[j] + other * Z[j]
            # a part of weights w has the gain G = P w: its mean grows by G' r, its
            # variance falls by G' N G
            for part in range(n_parts):
                for k in range(d):
                    weight = gains[i, part, k]
                    for c in range(n_columns):
                        mean[i, part, c] += weight * r[k, c]
                    total = 0.0
                    for j in range(d):
                        total += N[k, j] * gains[i, part, j]
                    variance[i, part] += weight * total
            if len(shocks) > 0:
                for k in range(2):
                    shocks[i, 1 + k, 0], shocks[i, 1 + k, 1] = r[k, 0], N[k, k]
            gap = times[i] - times[i - 1] if i > bounds[series] else 0.0
            if gap > 0:
                if gap != last_gap:
                    set_transition(gap, rates, waves, moves, kept, added)
                    last_gap = gap
                _transition_back(r, N, moves, kept)
    return mean, variance


@inner
def _add_rates(gap, rates, waves, N, kept, faded, reach, of_rates, of_waves):
    """Add what T and Q of a gap have to do with ``rates`` and ``waves``.

    ``faded`` (state,) is the slope in the logarithms of what T keeps, ``reach`` those
    in its entries from the velocity to trend and OU process.
    """
    # N is the slope in Q: each entry's times its derivative, off the diagonal twice
    of_rates[0] += N[0, 0] * gap
    x = gap / rates[2]
    if rates[6] > 0:
        _add_driven(gap, rates, N, reach[1], of_rates)
    else:
        velocity, memory, left = rates[1], rates[2], kept[2]
        gone = 1 - left
        displacement = 2 * x - 3 + 4 * left - left * left
        if x < 1e-3:
            # a series, as in `filter.forward.set_transition`
            displacement = 2 * x**3 / 3 - x**4 / 2
        of_rates[1] += N[0, 0] * memory * memory * displacement
        of_rates[1] += 2 * N[0, 2] * memory * gone * gone + N[2, 2] * gone * (1 + left)
        # in the memory m, where d x / d m = -x / m and d left / d m = left x / m
        slope = N[0, 0] * 2 * memory * (displacement - x * gone * gone)
        slope += 2 * N[0, 2] * gone * (gone - 2 * left * x)
        slope -= 2 * N[2, 2] * left * left * x / memory
        of_rates[2] += velocity * slope + reach[0] * (gone - left * x)
    # d log exp(-x) / d m = x / m, and of what is added, s^2 (1 - left^2), the rest
    of_rates[2] += faded[2] * x / rates[2]
    left, x = kept[3], gap / rates[4]
    of_rates[3] += N[3, 3] * (1 - left * left)
    of_rates[4] += (faded[3] - 2 * N[3, 3] * rates[3] * left * left) * x / rates[4]
    for k in range(len(waves)):
        left, x = kept[2 * k + 4], gap / waves[k, 1]
        for j in range(2 * k + 4, 2 * k + 6):
            of_waves[k, 2] += N[j, j] * (1 - left * left)
            slope = faded[j] - 2 * N[j, j] * waves[k, 2] * left * left
            of_waves[k, 1] += slope * x / waves[k, 1]


@inner
def _add_driven(gap, rates, N, of_reach, of_rates):
    """Add what `filter.forward.driven` has to do with both memories and the variance.

    Q is S - T S T', with S the covariance in the long run: product by product.
    """
    a, b, smooth = 1 / rates[2], 1 / rates[4], rates[6]
    reach, own, both, whole = driven(gap, a, b)
    of_rates[6] += N[2, 2] * own + 2 * N[2, 3] * both + N[3, 3] * whole
    left, kept = math.exp(-a * gap), math.exp(-b * gap)
    var, cov = b * (a + b), b
    # reach is exp(-(a + b) gap / 2) gap sinh(z) / z
    z = 0.5 * (a - b) * gap
    if abs(z) < 0.01:
        # d (sinh(z) / z) / dz by its series
        bend = math.exp(-0.5 * (a + b) * gap) * gap**2 / 2 * (z / 3 + z**3 / 30)
        by_a, by_b = bend - gap / 2 * reach, -bend - gap / 2 * reach
    else:
        by_a, by_b = (gap * left - reach) / (a - b), (reach - gap * kept) / (a - b)
    # ``_a`` and ``_b`` are derivatives in the rates
    var_a, var_b = b, a + 2 * b
    own_a = var_a * (1 - left * left) + 2 * gap * left * left * var
    own_b = var_b * (1 - left * left)
    both_a = gap * left * (reach * var + kept * cov)
    both_a -= left * (by_a * var + reach * var_a)
    both_b = 1 - left * (by_b * var + reach * var_b - gap * kept * cov + kept)
    whole_a = -reach * (2 * by_a * var + reach * var_a) - 2 * by_a * kept * cov
    whole_b = -reach * (2 * by_b * var + reach * var_b)
    whole_b -= 2 * kept * (by_b * cov + reach - gap * reach * cov)
    whole_b += 2 * gap * kept * kept
    of_a = N[2, 2] * own_a + 2 * N[2, 3] * both_a + N[3, 3] * whole_a
    of_b = N[2, 2] * own_b + 2 * N[2, 3] * both_b + N[3, 3] * whole_b
    # a rate a is 1 over a memory: d a / d memory = -a^2
    of_rates[2] -= a * a * (smooth * of_a + of_reach * by_a)
    of_rates[4] -= b * b * (smooth * of_b + of_reach * by_b)


@inner
def _back_through_update(v, G, S, jump, threshold, Z, M, N_M, r, N):
    """Make slopes after a row those before it; return the slope in the noise.

    ``S`` is F as predicted, ``G`` as it was used; M is as it was used.
    """
    d, r_M, M_N_M = len(Z), 0.0, 0.0
    for k in range(d):
        total = 0.0
        for j in range(d):
            total += N[k, j] * M[j]
        N_M[k] = total
        r_M += r[k, 0] * M[k]
        M_N_M += M[k] * total
    # the states' mean gains M v / G, their covariance loses M M' / G; the loss has
    # log(S) / 2 and the cost of v, a square or, beyond the threshold, a logarithm
    of_G, of_v, of_S = (M_N_M - r_M * v) / (G * G), r_M / G, 0.5 / S
    size = abs(v) / math.sqrt(S)
    if size <= threshold:
        of_S -= 0.5 * v * v / (S * S)
        of_v += v / S
    else:
        of_S -= 0.5 * threshold * threshold / S
        of_v += threshold * threshold / v
    if jump > 0:  # it is v^2, which P, M and G have
        of_M = (r[0, 0] * v - 2 * N_M[0]) / G
        of_S += of_G
        of_v += 2 * v * (N[0, 0] + of_M * Z[0] + of_G)
    elif size > CLEAR * threshold:  # G grows with |v|^3 / S^(1/2)
        of_S -= 0.5 * of_G * G / S
        of_v += 3 * of_G * G / v
    elif size > threshold:  # with |v| S^(1/2)
        of_S += 0.5 * of_G * G / S
        of_v += of_G * G / v
    else:
        of_S += of_G
    # P after the row is P - M M' / G, so that N after it has of M the slope -2 N M / G
    for k in range(d):  # half the slope in M, that of S included
        N_M[k] = 0.5 * ((r[k, 0] * v - 2 * N_M[k]) / G + of_S * Z[k])
        r[k, 0] -= of_v * Z[k]
    for k in range(d):
        row, own, other = N[k], Z[k], N_M[k]
        for j in range(d):
            row[j] += own * N_M[j] + other * Z[j]
    return of_S


@compiled
def slope_back(system, errors, threshold, v_F, inverse_F, jumps, wanted, slopes):
    """Add the loss's slopes in rates, waves and the covariance at the start.

    After `filter_rows`, which had the same ``wanted``, from states of mean zero, and
    ``since`` 0.
    """
    times, design, bounds = system.times, system.design, system.bounds
    rates, waves = system.rates, system.waves
    after, predicted = wanted.after, wanted.predicted
    of_rates, of_waves, of_start = slopes.rates, slopes.waves, slopes.start
    d = design.shape[1]
    moves, kept, added = np.zeros(5), np.zeros(d), np.zeros(d)
    r, N = np.zeros((d, 1)), np.zeros((d, d))
    M, N_M, faded, before = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    reach, last_gap = np.zeros(2), -1.0
    for series in range(len(bounds) - 1):
        r[:] = 0.0
        N[:] = 0.0
        first = bounds[series]
        for i in range(bounds[series + 1] - 1, first - 1, -1):
            P, Z = predicted[i], design[i]
            if inverse_F[i] > 0:
                # M and F as the filter had them: P is as predicted, without the jump
                S = rates[5] + errors[i]
                for k in range(d):
                    total = 0.0
                    for j in range(d):
                        total += P[k, j] * Z[j]
                    M[k] = total
                    S += total * Z[k]
                M[0] += jumps[i] * Z[0]
                G = 1 / inverse_F[i]
                of_rates[5] += _back_through_update(
                    v_F[i] * G, G, S, jumps[i], threshold, Z, M, N_M, r, N
                )
            if i == first:
                of_start += N
                break
            gap = times[i] - times[i - 1]
            if gap == 0:
                continue
            if gap != last_gap:
                set_transition(gap, rates, waves, moves, kept, added)
                last_gap = gap
            # the velocity's covariances after the row before: what was predicted there
            # less its update, M M_2 / F; a jump, of the trend alone, adds to M_0
            for k in range(d):
                before[k] = predicted[i - 1, 2, k]
            if inverse_F[i - 1] > 0:
                M_2, Z = 0.0, design[i - 1]
                for j in range(d):
                    M_2 += predicted[i - 1, 2, j] * Z[j]
                for k in range(d):
                    total = 0.0
                    for j in range(d):
                        total += predicted[i - 1, k, j] * Z[j]
                    if k == 0:
                        total += jumps[i - 1] * Z[0]
                    before[k] -= total * M_2 * inverse_F[i - 1]
            # T applied to them: P T' of the row before, in the velocity's column
            before[0] += moves[0] * before[1] + moves[1] * before[2]
            before[3] += moves[2] * before[2]
            for k in range(d):
                before[k] *= kept[k]
            # in the logarithm of T's k-th entry 2 N_k (T P T')_k: P as predicted less Q
            for k in range(d):
                total = 0.0
                for j in range(d):
                    total += N[k, j] * P[k, j]
                total -= N[k, k] * added[k]
                faded[k] = r[k, 0] * kept[k] * after[i - 1, k] + 2 * total
            # Q off its diagonal: the velocity with the trend and with the OU process
            faded[2] -= 2 * (N[0, 2] * moves[3] + N[3, 2] * moves[4])
            faded[3] -= 2 * N[3, 2] * moves[4]
            # what the velocity adds to the trend, state 0, and the OU process, state 3:
            # to this one times what it keeps, which is no part of its own entry
            for k in range(2):
                to, total = 3 * k, 0.0
                for j in range(d):
                    total += N[to, j] * before[j]
                reach[k] = r[to, 0] * after[i - 1, 2] + 2 * total
                if to == 3:
                    faded[3] -= 2 * total * moves[2] * kept[3]
            _add_rates(gap, rates, waves, N, kept, faded, reach, of_rates, of_waves)
            _transition_back(r, N, moves, kept)
