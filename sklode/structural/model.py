r"""A structural model of each channel in continuous time, solved exactly.

.. math::
    y(t) = \mathrm{trend}(t) + \mathrm{deviation}(t) + \sum_P \mathrm{season}_P(t)
        + X(t) \beta + e

Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter" (1989);
Jones, "Fitting a Continuous Time Autoregression to Discrete Data" (1981); Hartikainen
and Sarkka, "Kalman Filtering and Smoothing Solutions to Temporal Gaussian Process
Regression Models" (2010).

Tested in tests/structural/test_decisions.py and test_more.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sklode.data.arrays import Array, Flags, Key
from sklode.data.links import Link
from sklode.structural.candidates import Candidate
from sklode.structural.coupling.coupling import Coupling
from sklode.structural.design import Design
from sklode.structural.predictive.limits import LargestMoves


@dataclass(frozen=True)
class ColumnModel:
    """What one column of y was found to be, without the rows of any series."""

    candidates: list[Candidate]  # that its forecasts average over
    span: float  # of a usual series, in units of time
    bounds: Array  # (2,), of values; infinite: none
    quantum: float  # see `links.steps_of`: 1 of counts, 0 not below zero, NaN of others
    moves: LargestMoves

    @property
    def link(self) -> Link:
        """What y is modelled on by the most probable candidate."""
        return max(self.candidates, key=lambda one: one.weight).scaling.link


@dataclass(frozen=True)
class StructuralModel:
    """The hyperparameters of all columns of y: no series' rows, nor states."""

    design: Design
    columns: list[ColumnModel]
    coupling: Coupling  # what columns tell of each other
    members: tuple[Key, ...] = ()  # series of the fit that tell of coefficients

    def beyond(self, values: Array) -> Flags:
        """Return which values, (row, column), are none that a column's link has."""
        pairs = zip(self.columns, values.T, strict=True)
        found = [~column.link.has(own) for column, own in pairs]
        return np.stack(found, axis=1)
