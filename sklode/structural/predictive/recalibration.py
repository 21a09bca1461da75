r"""Quantiles of errors in place of those of a normal distribution.

.. math:: \hat F^{-1}(p) = m + s \, q(p)

with m and s mean and deviation of a candidate's forecast, and q(p) the p-quantile of
errors ahead, in deviations from their mean: of a model that is right
:math:`q = \Phi^{-1}`. Means stay. It is the recalibration of Kuleshov, Fenner and
Ermon, "Accurate Uncertainties for Deep Learning Using Calibrated Regression" (2018),
on the scale of a normal distribution, but for what errors have in common.

Tested in tests/structural/predictive/test_recalibration.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.rows import Rows

_LEVELS = np.arange(1, 20) / 20  # of quantiles that errors tell
NORMAL = ndtri(_LEVELS)
"""Quantiles of a normal distribution: a q that changes nothing."""
# errors that the normal distribution is worth
_DOUBT = 30.0
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
"""Of integrals over a normal distribution, by the rule of Gauss and Hermite."""
WEIGHTS /= WEIGHTS.sum()
# as far as floats have levels: beyond 39 deviations a normal's is 0 or 1
_KNOTS = np.concatenate([[-40.0], NORMAL, [40.0]])


def quantiles_of(errors: Array, n: float) -> Array:
    """Return q, (level,), by errors that are worth ``n``: shrunk to a normal's."""
    found = np.quantile(errors, _LEVELS)
    shrunk = (n * found + _DOUBT * NORMAL) / (n + _DOUBT)
    means, _ = Recalibration(shrunk[None], np.zeros(1, np.int64)).moments()
    centred: Array = shrunk - means
    return centred


class Recalibration(NamedTuple):
    """Quantiles q of several kinds of queries: linear between those of a normal.

    Beyond these, tails are at least as wide as a normal's.
    """

    quantiles: Array  # (kind, level)
    kind: Numbers  # (query,)

    def at(self, queries: Rows) -> Recalibration:
        """Return that of some queries."""
        return self._replace(kind=self.kind[queries])

    @property
    def is_moved(self) -> Flags:
        """Whether q differs from a normal's, (query,)."""
        return np.asarray((self.quantiles != NORMAL).any(axis=1)[self.kind])

    def moved(self, normal: Array) -> Array:
        """Return q of quantiles of a normal, (..., query)."""
        return self._by_kind(normal, lambda x, own: np.interp(x, _KNOTS, own))

    def normal(self, errors: Array) -> Array:
        """Return of which quantiles of a normal q are errors, (..., query)."""
        return self._by_kind(errors, lambda x, own: np.interp(x, own, _KNOTS))

    def moments(self) -> tuple[Array, Array]:
        """Return mean and deviation, (query,), of what was N(0, 1)."""
        values = np.stack([np.interp(NODES, _KNOTS, own) for own in self._knots])
        mean = values @ WEIGHTS
        deviation = np.sqrt(np.maximum(values**2 @ WEIGHTS - mean**2, 0.0))
        return mean[self.kind], deviation[self.kind]

    @property
    def _knots(self) -> Array:
        """What q is at `_KNOTS`, (kind, knot)."""
        last = self.quantiles[:, [0, -1]]
        slopes = np.maximum(last / NORMAL[[0, -1]], 1.0)
        ends = last + slopes * (_KNOTS - np.pad(NORMAL, 1, mode="edge"))[[0, -1]]
        return np.hstack([ends[:, :1], self.quantiles, ends[:, 1:]])

    def _by_kind(self, values: Array, of: Callable[[Array, Array], Array]) -> Array:
        """Return what a function of values and q makes of some, (..., query)."""
        found = values.copy()
        for kind in np.unique(self.kind[self.is_moved]):
            mine = self.kind == kind
            found[..., mine] = of(found[..., mine], self._knots[kind])
        return found
