"""`sklode.levels.kernel` by matrices.

A transition matrix for each gap, and textbook formulas. The same arguments, the same
results but for rounding.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from sklode.levels.kernel import CLEAR, RUN

__all__ = [
    "condition_rows",
    "filter_rows",
    "simulate_rows",
    "smooth_rows",
]


def _over(gap, rates, waves, n_controls):
    """Return what a gap does: the transition, and the covariance that it adds."""
    walk, velocity, memory, deviation, fade, _ = rates
    d = 4 + 2 * len(waves) + n_controls
    move, noise = np.eye(d), np.zeros((d, d))
    x, faded = gap / memory, math.exp(-gap / memory)
    move[0, 1], move[0, 2], move[2, 2] = gap, memory * (1 - faded), faded
    move[3, 3] = math.exp(-gap / fade)
    twice = 2 * x - 3 + 4 * faded - faded**2
    if x < 1e-3:
        twice = 2 * x**3 / 3 - x**4 / 2
    noise[0, 0] = walk * gap + velocity * memory**2 * twice
    noise[0, 2] = noise[2, 0] = velocity * memory * (1 - faded) ** 2
    noise[2, 2] = velocity * (1 - faded**2)
    noise[3, 3] = deviation * (1 - move[3, 3] ** 2)
    for k, (frequency, kept, variance) in enumerate(waves):
        c, s = math.cos(frequency * gap), math.sin(frequency * gap)
        pair = slice(4 + 2 * k, 6 + 2 * k)
        move[pair, pair] = math.exp(-gap / kept) * np.array([[c, s], [-s, c]])
        noise[pair, pair] = variance * (1 - math.exp(-2 * gap / kept)) * np.eye(2)
    return move, noise


def _observed(waves, inputs):
    turned = waves[:, 0] * inputs[0]
    seen = np.stack([np.cos(turned), np.sin(turned)], axis=1).ravel()
    return np.concatenate([[1.0, 0.0, 0.0, 1.0], seen, inputs[1:]])


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
    """See `sklode.levels.kernel.filter_rows`."""
    n, d, n_parts = len(times), means.shape[1], len(parts)
    signal, variance = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    scaled, precision, jumps = np.zeros(n), np.zeros(n), np.zeros(n)
    kept = np.zeros((n, n_parts, d))
    loss, crossings = 0.0, {}
    for series, (begin, end) in enumerate(pairwise(bounds)):
        mean, covariance = means[series].copy(), covariances[series].copy()
        run, side = runs[series]
        for i in range(begin, end):
            gap = since[series] if i == begin else times[i] - times[i - 1]
            if gap > 0:
                if gap not in crossings:
                    crossings = {gap: _over(gap, rates, waves, inputs.shape[1] - 1)}
                move, noise = crossings[gap]
                mean, covariance = move @ mean, move @ covariance @ move.T + noise
            row = _observed(waves, inputs[i])
            error = values[i] - row @ mean
            if not np.isnan(error):
                gain = covariance @ row
                total = row @ gain + rates[5]
                loss += 0.5 * math.log(total)
                size = abs(error) / math.sqrt(total)
                if size <= cut:
                    loss += 0.5 * size**2
                    run = 0.0
                else:
                    loss += cut**2 * (0.5 + math.log(size / cut))
                    run, side = run + 1 if error * side > 0 else 1.0, error
                    if run < RUN:
                        total *= size / cut * max(size / (CLEAR * cut), 1.0) ** 2
                    else:
                        run, jumps[i] = 0.0, error**2
                        covariance[0, 0] += jumps[i]
                        gain[0] += jumps[i]
                        total += jumps[i]
                scaled[i], precision[i] = error / total, 1 / total
            read = parts * row
            signal[i], kept[i] = read @ mean, read @ covariance
            variance[i] = (kept[i] * read).sum(1)
            if precision[i] > 0:
                mean = mean + gain * scaled[i]
                covariance = covariance - np.outer(gain, gain) * precision[i]
            if len(after):
                after[i] = mean
        means[series], covariances[series], runs[series] = mean, covariance, (run, side)
    return loss, scaled, precision, jumps, signal, variance, kept


def smooth_rows(times, inputs, rates, waves, bounds, scaled, precision, gains):
    """See `sklode.levels.kernel.smooth_rows`."""
    n, n_parts, d = gains.shape
    more, less = np.zeros((n, n_parts)), np.zeros((n, n_parts))
    for begin, end in pairwise(bounds):
        pull, known = np.zeros(d), np.zeros((d, d))
        for i in range(end - 1, begin - 1, -1):
            if precision[i] > 0:
                row, gain = _observed(waves, inputs[i]), gains[i, -1]
                rest = np.eye(d) - np.outer(gain, row) * precision[i]
                pull = row * scaled[i] + rest.T @ pull
                known = np.outer(row, row) * precision[i] + rest.T @ known @ rest
            more[i] = gains[i] @ pull
            less[i] = ((gains[i] @ known) * gains[i]).sum(1)
            gap = times[i] - times[i - 1] if i > begin else 0.0
            if gap > 0:
                move, _ = _over(gap, rates, waves, inputs.shape[1] - 1)
                pull, known = move.T @ pull, move.T @ known @ move
    return more, less


def simulate_rows(times, inputs, rates, waves, since, states, jumps, normals):
    """See `sklode.levels.kernel.simulate_rows`."""
    signals = np.zeros((len(times), states.shape[1]))
    for i in range(len(times)):
        gap = since if i == 0 else times[i] - times[i - 1]
        noise = np.zeros((len(states), len(states)))
        if gap > 0:
            move, noise = _over(gap, rates, waves, inputs.shape[1] - 1)
            states[:] = move @ states
        white = normals[i]
        spread = np.sqrt(np.diag(noise))
        both = noise[0, 2] / spread[2] if spread[2] > 0 else 0.0
        rest = math.sqrt(max(noise[0, 0] - both**2, 0.0) + jumps[i])
        states[0] += rest * white[0] + both * white[2]
        states[2:] += spread[2:, None] * white[2:]
        signals[i] = _observed(waves, inputs[i]) @ states
    return signals


def condition_rows(times, inputs, rates, waves, precision, kept, values):
    """See `sklode.levels.kernel.condition_rows`."""
    n, d = kept.shape
    signals, scaled = np.zeros(values.shape), np.zeros(values.shape)
    states = np.zeros((d, values.shape[1]))
    rows = [_observed(waves, u) for u in inputs]
    gaps = np.diff(times, prepend=times[:1])
    for i in range(n):
        if gaps[i] > 0:
            states = _over(gaps[i], rates, waves, inputs.shape[1] - 1)[0] @ states
        signals[i] = rows[i] @ states
        if precision[i] > 0:
            scaled[i] = (values[i] - signals[i]) * precision[i]
            states = states + np.outer(kept[i], scaled[i])
    states = np.zeros_like(states)
    for i in range(n - 1, -1, -1):
        if precision[i] > 0:
            states += np.outer(rows[i], scaled[i] - precision[i] * (kept[i] @ states))
        signals[i] += kept[i] @ states
        if gaps[i] > 0:
            states = _over(gaps[i], rates, waves, inputs.shape[1] - 1)[0].T @ states
    return signals
