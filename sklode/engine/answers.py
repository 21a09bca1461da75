"""Answers between grid points: cubic Hermite interpolants, and their gradients."""

from __future__ import annotations

import numpy as np

from sklode.engine.products import entry, inner

_ONE = np.float32(1)


@inner
def _weights(length, place):
    """Return the weights of z and dz/dt at a step's start, then at its end."""
    rest = _ONE - place
    end = place * place * (rest + rest + _ONE)
    start, slope = _ONE - end, length * place * rest * rest
    return start, slope, end, -length * place * place * rest


@entry
def answer(stride, dt, z, rates, left, theta, out):
    """Answer the queries of each series from the grid."""
    n_state = out.shape[2]
    for r in range(out.shape[0]):
        for q in range(out.shape[1]):
            k, at = stride * left[r, q], r * n_state
            if k >= dt.shape[0] or dt[k, r] == 0:  # at rest: no end, no derivatives
                for i in range(n_state):
                    out[r, q, i] = z[k, at + i]
                continue
            w0, w1, w2, w3 = _weights(dt[k, r], theta[r, q])
            for i in range(n_state):
                value = w0 * z[k, at + i] + w2 * z[k + stride, at + i]
                bend = w1 * rates[k, at + i] + w3 * rates[k + 1, at + i]
                out[r, q, i] = value + bend


@entry
def answer_back(stride, dt, by_z, by_rates, left, theta, grad):
    """Add the gradients by answers to those by the grid."""
    n_state = grad.shape[2]
    for r in range(grad.shape[0]):
        for q in range(grad.shape[1]):
            k, at = stride * left[r, q], r * n_state
            if k >= dt.shape[0] or dt[k, r] == 0:
                for i in range(n_state):
                    by_z[k, at + i] += grad[r, q, i]
                continue
            w0, w1, w2, w3 = _weights(dt[k, r], theta[r, q])
            for i in range(n_state):
                by_z[k, at + i] += w0 * grad[r, q, i]
                by_z[k + stride, at + i] += w2 * grad[r, q, i]
                by_rates[k, at + i] += w1 * grad[r, q, i]
                by_rates[k + 1, at + i] += w3 * grad[r, q, i]
