"""Scores of distributions and of joint paths.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist

from sklode.data.arrays import Array


def quantile_crps(truth: Array, quantiles: Array, alpha: Array) -> Array:
    r"""Return the continuous ranked probability score of each value, by quantiles.

    .. math:: 2 \int_0^1 (1[y < q_\alpha] - \alpha) (q_\alpha - y) \, d\alpha

    Parameters
    ----------
    truth : ndarray of shape (row,)
        Values y.
    quantiles : ndarray of shape (row, level)
        Forecast quantiles, such as those of ``predict_quantiles``.
    alpha : ndarray of shape (level,)
        Their levels, the middles of parts of equal probability: 0.05, 0.15, ..., 0.95.

    Returns
    -------
    ndarray of shape (row,)
        Scores in the unit of y, less is better.

    References
    ----------
    T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and
    estimation", Journal of the American Statistical Association 2007.
    """
    # with u = y - q the integrand is alpha u if u > 0, else (alpha - 1) u: it is the
    # larger of both, which differ by u; the integral is a mean over middles of parts
    above = truth[:, None] - quantiles
    return 2 * np.maximum(alpha * above, (alpha - 1) * above).mean(axis=1)


def interval_score(truth: Array, low: Array, high: Array, coverage: float) -> Array:
    r"""Return the interval score of each value: less is better.

    .. math:: u - l + \frac{2}{\alpha} \max(l - y, y - u, 0), \quad \alpha = 1 - c

    with c the ``coverage`` asked for, and l and u the ends of central intervals.

    Parameters
    ----------
    truth, low, high : ndarray of shape (value,)
        Values and ends of their intervals.
    coverage : float
        Nominal coverage, between 0 and 1.

    Returns
    -------
    ndarray of shape (value,)
        Scores in the unit of y.

    References
    ----------
    T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and
    estimation", Journal of the American Statistical Association 2007.
    """
    outside = np.maximum(np.maximum(low - truth, truth - high), 0.0)
    score: Array = high - low + 2 / (1 - coverage) * outside
    return score


def energy_score(truth: Array, paths: Array) -> float:
    r"""Return the energy score of joint sample paths: less is better.

    .. math:: E \| x - y \| - \frac{1}{2} E \| x - x' \|

    with y the truth, and x and x' different paths; without bias for any number of them.

    Parameters
    ----------
    truth : ndarray of shape (value,)
        All values of all rows and columns.
    paths : ndarray of shape (path, value)
        At least two, such as those of ``sample``.

    Returns
    -------
    float
        The score, in the unit of y times the root of the number of values.

    References
    ----------
    T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and
    estimation", Journal of the American Statistical Association 2007.
    """
    # pdist has each pair of different paths once: a mean of x with itself, which is 0,
    # would make the second term too small
    away = np.linalg.norm(paths - truth, axis=1).mean()
    return float(away - pdist(paths).mean() / 2)
