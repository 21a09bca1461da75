"""How probable hyperparameters of a form are, given rows.

Tested in tests/structural/predictive/test_scale_by_lead.py and test_decisions.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import qmc

from sklode.data.arrays import Array, Flags
from sklode.structural.candidates import Model
from sklode.structural.components.space import priors
from sklode.structural.rows import ChannelRows
from sklode.structural.search.gradient import Slopes

# share of the loss that a step must gain: fits of fewer steps forecast as well
_EXACT = 1e-5
# of the search; and of places tried in a step, as in `scipy`
_MOST_STEPS, _MOST_TRIED = 25, 20
# a loss that no rows have, for hyperparameters of which none is finite
REFUSED = 1e9
# of the log posterior: no spread of a logarithm is larger than 4.5, even if rows say
# nothing of it
_LEAST_CURVATURE = 0.05
# of the normal distribution, from which nothing is drawn
_TAIL = 1e-3
# of the differences that the curvature is measured by
_STEP = 0.1


class Posterior:
    """Minus the log posterior density of ``free`` hyperparameters."""

    def __init__(
        self, model: Model, free: Flags, table: ChannelRows, span: float
    ) -> None:
        self.model, self.free = model, free
        self._slopes, self._span = Slopes(model, table), span
        self._medians, self._widths, _ = (x[free] for x in priors(model.form))

    def at(self, x: Array) -> Model:
        """Return the model of some free hyperparameters, (free,)."""
        theta = self.model.theta.copy()
        theta[self.free] = x
        return self.model._replace(theta=theta)

    def __call__(self, x: Array) -> float:
        """Return it at free hyperparameters."""
        model = self.at(x)
        with np.errstate(all="ignore"):  # what is not finite is refused
            space = model.space(self._span)
            loss = self._slopes.loss(model, space)
        loss += self.prior(x)
        return loss if math.isfinite(loss) else REFUSED

    def prior(self, x: Array) -> float:
        """Return minus the log prior density of free hyperparameters."""
        distance = (x - self._medians) / self._widths
        return 0.5 * float(distance @ distance)

    def with_slope(self) -> Callable[[Array], tuple[float, Array]]:
        """Return a function of free hyperparameters: the value and its slope."""
        slopes = self._slopes

        def at(x: Array) -> tuple[float, Array]:
            model = self.at(x)
            with np.errstate(all="ignore"):  # what is not finite is refused
                loss, slope = slopes(model, model.space(self._span))
            # the derivative of half the square of (x - median) / width
            of_prior = (x - self._medians) / self._widths**2
            slope = slope[self.free] + of_prior
            if not (math.isfinite(loss) and np.isfinite(slope).all()):
                return REFUSED, np.zeros(len(x))
            return loss + self.prior(x), slope

        return at

    def fit(self, most_tried: int = _MOST_TRIED) -> tuple[Model, float]:
        """Return the most probable model, and the value there.

        Where a row becomes an outlier the loss jumps: then none of the places that are
        tried in a step may be better.
        """
        best = minimize(
            self.with_slope(),
            self.model.theta[self.free],
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _MOST_STEPS, "ftol": _EXACT, "maxls": most_tried},
        )
        return self.at(best.x), float(best.fun)

    def curvature(self, x: Array) -> Array:
        """Return second derivatives, by differences."""
        # central differences on the diagonal; beside it
        # (f(x + s + t) - f(x + s) - f(x + t) + f(x)) / h^2
        n, steps = len(x), _STEP * np.eye(len(x))
        here = self(x)
        up = np.array([self(x + step) for step in steps])
        down = np.array([self(x - step) for step in steps])
        result = np.diag(up + down - 2 * here)
        for i in range(n):
            for j in range(i):
                both = self(x + steps[i] + steps[j])
                result[i, j] = result[j, i] = both - up[i] - up[j] + here
        return result / _STEP**2

    def draws(self, model: Model, loss: float, n: int) -> list[tuple[float, Model]]:
        """Return hyperparameters around the most probable, and log weights.

        Laplace's approximation: normal draws of the same curvature, weighed by the
        square root of importance, which few estimate badly.
        """
        if not n:
            return [(-loss, model)]
        centre = model.theta[self.free]
        # the loss is about (x - centre)' H (x - centre) / 2 more than there: a normal
        # distribution of covariance H^-1, whose root are the eigenvectors of H over the
        # roots of its eigenvalues
        values, vectors = np.linalg.eigh(self.curvature(centre))
        spread = 1 / np.sqrt(np.maximum(values, _LEAST_CURVATURE))
        # Halton's points fill the space more evenly than random ones
        uniform = qmc.Halton(len(centre), seed=0).random(n)
        normals = ndtri(np.clip(uniform, _TAIL, 1 - _TAIL))
        white = np.vstack([np.zeros(len(centre)), normals])
        places = centre + (white * spread) @ vectors.T
        losses = np.array([self(place) for place in places])
        # the log density at each place over that which it was drawn by, halved
        importance = 0.5 * (white**2).sum(1) - losses
        importance = 0.5 * np.clip(importance - importance.max(), -30, 0)
        share = importance - math.log(np.exp(importance).sum())
        # the integral of the density: the volume of the normal over that of the prior,
        # so that what the data say nothing about counts for nothing
        evidence = np.log(spread / self._widths).sum() - loss
        found = [model._replace(theta=self.at(place).theta) for place in places]
        return list(zip(evidence + share, found, strict=True))
