"""The structural model alone: linear, Gaussian, in closed form."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions

from sklode.data.arrays import Array
from sklode.data.checks import check_constraints
from sklode.data.clock import season_ticks, seasons_shown
from sklode.data.history import History
from sklode.data.known import Known, bounds_of, known_settings
from sklode.data.observations import Observations
from sklode.forecasters.base import ContinuousForecaster
from sklode.forecasters.protocols import Container, Horizon
from sklode.structural.fit import fit_model
from sklode.structural.results import StructuralFit

_CONSTRAINTS: dict[str, list[object]] = {
    "seasons": [StrOptions({"auto"}), list, tuple, None],
    "logarithm": [StrOptions({"auto"}), "boolean"],
}


def _check_positive(
    observations: Observations, channels: list[Hashable], bounds: Array
) -> None:
    """Check that all values have a logarithm, or bounds that they lie between."""
    is_free = np.isinf(bounds).all(axis=1)
    for row, channel in np.argwhere((observations.values <= 0) & is_free):
        raise ValueError(
            "with logarithm=True all values of y must be above zero; got "
            f"{observations.values[row, channel]:g} in column {channels[channel]!r} at "
            f"{observations.named(row)}. Add a constant to y, "
            'or use logarithm="auto".'
        )


class StructuralForecaster(ContinuousForecaster):
    """Structural time series model in continuous time, solved in closed form.

    Each channel is a sum of linear-Gaussian components: a level that wanders, a damped
    trend, deviations that fade, seasons on the clock of the index's time zone, and
    effects of X, or of other columns some time before. A Kalman filter crosses gaps of
    any length exactly, so that irregular stamps, missing values and times in the past
    are no special cases.

    Parameters
    ----------
    seasons : "auto", list, tuple or None, default="auto"
        Lengths of seasons: of time (strings such as "1D", timedeltas, offsets) or in
        steps of the index; all are kept, but for those longer than y, with a warning.
        "auto": those of the calendar and the data. None: no season.
    logarithm : "auto" or bool, default="auto"
        Whether the logarithm of y is modelled. "auto": where that explains y better.
    bounds : pair or dict of pairs, optional
        Least and greatest value of y, None where there is no end: ``(0, 100)``,
        ``(0, None)``; of columns a dict. No answer lies beyond them. Between two the
        logit of y is modelled where that explains y better, above one the logarithm.
        Zero is a bound by itself where no value is below.
    error : column or dict, optional
        Column of X with the standard deviation of each row's error of measurement, in
        the unit of y; of columns of y a dict. 0 is exact; infinite or NaN: the value
        does not count. It need not be known ahead, where the usual error is taken. Rows
        of the same stamp are then several measurements.
    holidays : str, tuple, Series, DataFrame or dict, optional
        Days that have names: a country's, by its code ("DE", "US-CA"), of several, by
        the package ``holidays`` (the extra ``calendars``); or a table of names and
        dates: a Series of names over dates, columns ``ds`` and ``holiday``, or a dict.
        Kinds of days have effects of their own, on a day's shape too, which shrink
        towards what all have in common; days are those of the index's time zone.
    n_samples : int, default=100
        Number of sample paths.
    freq : str, offset or Timedelta, optional
        Length of one step of a relative horizon on a DatetimeIndex. None: the index's
        own or inferred frequency; else a calendar frequency that all stamps lie on;
        else the median gap.
    clean : bool, default=True
        Leave out what a broken sensor wrote (lone absurd values, marks such as -999 or
        scattered zeros, stuck values) and rescale rows before a change of unit, each
        with a warning.
    random_state : int, RandomState or None, default=None
        Of the sample paths; no global generator is touched.

    Attributes
    ----------
    components_ : DataFrame
        The most probable form, a row per channel and part: ``share`` of the variance of
        all parts over the last rows; ``size``, a standard deviation in units of y or of
        its logarithm; ``memory``, how long the part is remembered; whether the
        ``logarithm`` is modelled, or another ``link``; ``probability`` of the form;
        ``values``: "counts", "not below zero", "any" or their bounds; ``cross``:
        whether other columns move its forecasts; ``kinds``: how many kinds of series
        have hyperparameters of their own; the form is that of the heaviest;
        ``dispersion``: how many times as wide errors are at the widest hour of day and
        week as at the narrowest; ``year_before``, ``week_before`` and ``day_before``:
        how much values 52 weeks, a week or a day before count, at the lead where most.

    Notes
    -----
    Forecasts may be summed: of counts, and where a logarithm is modelled, ``predict``
    is the mean over noise and deviations that fade, at the median of trend and season.
    The median is ``predict_quantiles(fh, alpha=[0.5])``. No forecast moves farther than
    twice the largest move of the data in as long a time.

    ``pretrain`` finds the sizes of all parts on a panel, each time anew; a ``fit``
    after it keeps them, and finds where the new series stand, however short they are.
    ``update`` with ``update_params`` finds them again, unless they are those of
    ``pretrain``, whenever rows have doubled in number.

    References
    ----------
    A. C. Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter",
    Cambridge University Press 1989.

    J. Hartikainen, S. Särkkä, "Kalman filtering and smoothing solutions to temporal
    Gaussian process regression models", MLSP 2010.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import StructuralForecaster
    >>> y = load_airline()
    >>> forecaster = StructuralForecaster(random_state=0)
    >>> forecaster = forecaster.fit(y)
    >>> y_pred = forecaster.predict(fh=[1, 2, 3])
    """

    def __init__(
        self,
        seasons: str | Sequence[object] | None = "auto",
        logarithm: str | bool = "auto",
        bounds: object = None,
        error: object = None,
        holidays: object = None,
        n_samples: int = 100,
        freq: str | pd.DateOffset | pd.Timedelta | None = None,
        clean: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.seasons = seasons
        self.logarithm = logarithm
        self.bounds = bounds
        self.error = error
        self.holidays = holidays
        self.n_samples = n_samples
        self.freq = freq
        self.clean = clean
        self.random_state = random_state
        super().__init__()

    def _pretrain(self, y: Container, X: Container = None, fh: Horizon = None) -> Self:
        """Find hyperparameters on a panel, each time anew."""
        self.__dict__.pop("pretrained_", None)
        return super()._pretrain(y, X, fh)

    def _learned(
        self, history: History, fh: Horizon, start: StructuralFit | None, purpose: str
    ) -> tuple[StructuralFit, int]:
        """Return hyperparameters, and the seed of all draws."""
        observations = history.observations
        n_rows = len(observations.ticks)
        columns = history.channels, history.controls, history.categories
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        if self.logarithm is True:
            bounds = bounds_of(self.bounds, history)
            _check_positive(observations, history.channels, bounds)
        if start is not None and purpose == "update":
            is_beyond = start.structural.beyond(history.rows.values).any()
            is_old = n_rows >= 2 * start.n_rows or is_beyond
            if hasattr(self, "pretrained_") or not is_old:
                return start, seed
        elif start is not None:
            return replace(start, columns=columns), seed
        known = Known.of(self, history)._replace(is_of_family=purpose == "pretrain")
        seasons: Any = self.seasons
        if seasons != "auto":
            given = seasons or ()
            ticks = season_ticks(given, history.rows.like, history.steps)
            seasons = seasons_shown(given, ticks, observations)
        structural = fit_model(history.rows, seasons, self.logarithm, known)
        model = StructuralFit(
            structural=structural,
            sizes=observations.sizes,
            clock=observations.clock,
            architecture=self._architecture,
            columns=columns,
            n_rows=n_rows,
        )
        return model, seed

    @property
    def _architecture(self) -> dict[str, object]:
        return {
            "seasons": self.seasons,
            "logarithm": self.logarithm,
            **known_settings(self),
        }

    def _check_parameters(self) -> None:
        check_constraints(_CONSTRAINTS, self)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        small: dict[str, object] = {"seasons": None, "n_samples": 5, "random_state": 0}
        return [small, {**small, "logarithm": False}]
