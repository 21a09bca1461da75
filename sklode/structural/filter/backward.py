"""The smoother, and the steps of the filter backward: the slope of its loss.

The smoother is that of Durbin and Koopman (2012), section 4.4. In `slope_back` ``r``
and ``N`` are the derivatives of the loss in a row's a and P; the outlier rule and steps
are part of it. Griewank and Walther, "Evaluating Derivatives" (2008), chapter 3;
without them it is the score of Durbin and Koopman (2012), section 7.3.3. Names are
those of `filter.forward`; ``of_x`` is the slope in x.

Tested in tests/structural/search/test_gradient.py and filter/test_forward.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.engine.compiling import compiled, inner
from sklode.structural.filter.outliers import CLEAR


@inner
def _transition_back(r, N, decay, moves, links):
    """Apply the transpose of T to r, (state, column), and to both sides of N."""
    # T is D E: E moves, D multiplies; so T' is E' D, in this order, and E' adds to what
    # moves what the moved ones tell of it
    d = len(decay)
    for k in range(d):
        for c in range(r.shape[1]):
            r[k, c] *= decay[k]
        for j in range(d):
            N[k, j] *= decay[k] * decay[j]
    for link in range(len(links) - 1, -1, -1):
        to, by, move = links[link, 0], links[link, 1], moves[link]
        for c in range(r.shape[1]):
            r[by, c] += move * r[to, c]
        for j in range(d):
            N[by, j] += move * N[to, j]
        N[by, by] += move * N[by, to]
        for j in range(d):
            N[j, by] = N[by, j]


@compiled
def smooth_rows(system, v_F, inverse_F, gains, shocks, shocked):
    """Return what a row and later ones say beyond what was predicted.

    Of v / F, (row, column): what adds to parts, (row, part, column); and what is taken
    off their variances, (row, part). Section 4.4.

    ``shocks`` (row, 1 + shocked, 2), if not empty, gets the score of the first column,
    and its variance, in an error of the row and in a step of each of the states
    ``shocked`` there: de Jong and Penzer, "Diagnosing Shocks in Time Series" (1998).
    """
    design, bounds, gap = system.design, system.bounds, system.gap
    decay, moves = system.transition.decay, system.transition.moves
    links = system.transition.links
    (n, n_parts, d), n_columns = gains.shape, v_F.shape[1]
    mean, variance = np.zeros((n, n_parts, n_columns)), np.zeros((n, n_parts))
    N, r, N_M = np.zeros((d, d)), np.zeros((d, n_columns)), np.zeros(d)
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
                for k, state in enumerate(shocked):
                    shocks[i, 1 + k] = r[state, 0], N[state, state]
            if i > bounds[series]:
                _transition_back(r, N, decay[gap[i]], moves[gap[i]], links)
    return mean, variance


@inner
def _back_through_update(v, G, S, jump, threshold, level, Z, M, N_M, r, N):
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
        of_M = (r[level, 0] * v - 2 * N_M[level]) / G
        of_S += of_G
        of_v += 2 * v * (N[level, level] + of_M * Z[level] + of_G)
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


@inner
def _column_after(P, Z, inverse_F, jump, level, by, column):
    """Write a state's covariances after a row, of P as predicted there."""
    # P - M M' / F, where a jump, of the level alone, adds to P and M
    d = len(Z)
    for k in range(d):
        column[k] = P[by, k]
    if inverse_F > 0:
        own = jump * Z[level] if by == level else 0.0
        for j in range(d):
            own += P[by, j] * Z[j]
        for k in range(d):
            total = jump * Z[level] if k == level else 0.0
            for j in range(d):
                total += P[k, j] * Z[j]
            column[k] -= total * own * inverse_F
        if by == level:
            column[level] += jump


@inner
def _add_moves(a, column, by, decay, moves, links, is_free, r, N, of_moves):
    """Add the slopes in what a state moves, by its ``column`` of P before a gap."""
    d = len(a)
    # T applied to them: T P of the row before
    for link in range(len(links)):
        column[links[link, 0]] += moves[link] * column[links[link, 1]]
    for link in range(len(links)):
        if is_free[link] and links[link, 1] == by:
            to, total = links[link, 0], 0.0
            for j in range(d):
                total += N[to, j] * decay[j] * column[j]
            # in an entry of E, of T = D E: its own decay times r a' + 2 N T P
            of_moves[link] += decay[to] * (r[to, 0] * a[by] + 2 * total)


@compiled
def slope_back(system, threshold, v_F, inverse_F, jumps, wanted, slopes):
    """Add the loss's slopes in T, Q, the noise and the covariance at the start.

    After `filter_rows`, which had the same ``wanted``, from states of mean zero before
    first rows.
    """
    design, bounds, transition = system.design, system.bounds, system.transition
    after, predicted, level = wanted.after, wanted.predicted, system.level
    links, pairs, d = transition.links, transition.pairs, design.shape[1]
    of_decay, of_added, of_both = slopes.decay, slopes.added, slopes.both
    of_moves = slopes.moves
    # states that move others by hyperparameters
    movers = np.unique(links[:, 1][transition.is_free])
    r, N = np.zeros((d, 1)), np.zeros((d, d))
    M, N_M, column = np.zeros(d), np.zeros(d), np.zeros(d)
    for series in range(len(bounds) - 1):
        r[:] = 0.0
        N[:] = 0.0
        first = bounds[series]
        for i in range(bounds[series + 1] - 1, first - 1, -1):
            P, Z, gap = predicted[i], design[i], system.gap[i]
            if inverse_F[i] > 0:
                # M and F as the filter had them: P is as predicted, without the jump
                S = system.noise[i]
                for k in range(d):
                    total = 0.0
                    for j in range(d):
                        total += P[k, j] * Z[j]
                    M[k] = total
                    S += total * Z[k]
                M[level] += jumps[i] * Z[level]
                G = 1 / inverse_F[i]
                slopes.noise[i] += _back_through_update(
                    v_F[i] * G, G, S, jumps[i], threshold, level, Z, M, N_M, r, N
                )
            if i == first:
                slopes.start[:] += N
                break
            decay, moves = transition.decay[gap], transition.moves[gap]
            # in the logarithm of D's k-th entry r_k (T a)_k + 2 N_k (T P T')_k: P as
            # predicted less Q
            for k in range(d):
                M[k] = after[i - 1, k]
            for link in range(len(links)):
                M[links[link, 0]] += moves[link] * after[i - 1, links[link, 1]]
            for k in range(d):
                total = -N[k, k] * transition.added[gap, k]
                for j in range(d):
                    total += N[k, j] * P[k, j]
                of_decay[gap, k] += r[k, 0] * decay[k] * M[k] + 2 * total
                of_added[gap, k] += N[k, k]
            for pair in range(len(pairs)):
                one, other = pairs[pair, 0], pairs[pair, 1]
                taken = 2 * N[one, other] * transition.both[gap, pair]
                of_decay[gap, one] -= taken
                of_decay[gap, other] -= taken
                of_both[gap, pair] += 2 * N[one, other]
            for by in movers:
                _column_after(
                    predicted[i - 1],
                    design[i - 1],
                    inverse_F[i - 1],
                    jumps[i - 1],
                    level,
                    by,
                    column,
                )
                _add_moves(
                    after[i - 1],
                    column,
                    by,
                    decay,
                    moves,
                    links,
                    transition.is_free,
                    r,
                    N,
                    of_moves[gap],
                )
            _transition_back(r, N, decay, moves, links)
