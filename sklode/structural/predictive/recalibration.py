r"""Quantiles of errors in place of those of a normal distribution.

.. math:: \hat F^{-1}(p) = F^{-1}(\Phi(q(p)))

with F what a model forecasts, and q(p) the p-quantile of errors ahead, in deviations
from their median: of a model that is right :math:`q = \Phi^{-1}`. Medians stay. It is
the recalibration of Kuleshov, Fenner and Ermon, "Accurate Uncertainties for Deep
Learning Using Calibrated Regression" (2018), on the scale of a normal distribution.

Tested in tests/structural/predictive/test_recalibration.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from sklode.data.arrays import Array, Numbers

_LEVELS = np.arange(1, 20) / 20
NORMAL = ndtri(_LEVELS)
"""Quantiles of a normal distribution: q that changes nothing."""
# errors that the normal distribution is worth
_DOUBT = 30.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
"""Of integrals over a normal distribution, by the rule of Gauss and Hermite."""
WEIGHTS /= WEIGHTS.sum()


def quantiles_of(errors: Array, n: float) -> Array:
    """Return q, (level,), by errors that are worth ``n``: shrunk to a normal's."""
    found = np.quantile(errors, _LEVELS) - np.median(errors)
    shrunk: Array = (n * found + _DOUBT * NORMAL) / (n + _DOUBT)
    return shrunk


class Recalibration(NamedTuple):
    """Quantiles q of several kinds of queries: linear between those of a normal."""

    quantiles: Array  # (kind, level)
    kind: Numbers  # (query,)

    def at(self, normal: Array) -> Array:
        """Return q, (query, level), of quantiles of a normal, (level,)."""
        return self._of_kinds(normal)[self.kind]

    def moments(self) -> tuple[Array, Array]:
        """Return mean and deviation, (query,), of what was N(0, 1)."""
        values = self._of_kinds(NODES)
        mean = values @ WEIGHTS
        deviation = np.sqrt(np.maximum(values**2 @ WEIGHTS - mean**2, 0.0))
        return mean[self.kind], deviation[self.kind]

    def _of_kinds(self, normal: Array) -> Array:
        """Return q of each kind, (kind, level)."""
        inside = np.clip(normal, NORMAL[0], NORMAL[-1])
        found = np.stack([np.interp(inside, NORMAL, own) for own in self.quantiles])
        # a tail is as wide as what lies between it and the median
        ends = self.quantiles[:, [0, -1]] / NORMAL[[0, -1]]
        wide = np.where(normal < 0, ends[:, :1], ends[:, 1:])
        moved: Array = found + wide * (normal - inside)
        return moved
