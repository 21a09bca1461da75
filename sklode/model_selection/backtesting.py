"""Backtests: errors of forecasts from earlier origins, beside simple ones.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from sklode.data.arrays import Array, Flags
from sklode.data.checks import check_count, check_index, check_probabilities
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.ticks import (
    series_of,
)
from sklode.model_selection.scores import energy_score, quantile_crps
from sklode.model_selection.simple import (
    hours_of_week,
    seasons_of,
    simple_forecasts,
)

_LEVELS, _PATHS = np.arange(0.025, 1, 0.05), 200  # that scores are told by


def backtest(
    forecaster: BaseForecaster,
    y: pd.Series | pd.DataFrame,
    X: pd.DataFrame | None = None,
    horizon: int | None = None,
    origins: int = 5,
    coverage: float = 0.9,
) -> pd.DataFrame:
    """Forecast the end of a series from several origins, and measure the errors.

    At each origin a clone of the forecaster is fitted on the rows before it, and asked
    for the next ``horizon`` rows at their true stamps. Simple methods answer the same
    question: the last value; the value a season before, of the season that the rows
    show best; that of the clock's day, week and year before, if they are others; and
    the mean of the same hour, or day, of the week. Values are interpolated between
    their neighbours. Methods are those that rows before the first origin allow.

    Parameters
    ----------
    forecaster : BaseForecaster
        One of sktime's forecasters; it is not changed.
    y : Series or DataFrame
        Observations, as in ``fit``. What a broken sensor wrote is neither seen nor
        asked for, if the forecaster has ``clean=True``. Each series of a panel has
        origins of its own, and is left out of those with fewer than ``horizon`` rows
        before them.
    X : DataFrame, optional
        Controls at the stamps of ``y``.
    horizon : int, optional
        Number of rows that are forecast from an origin. None: so many that all origins
        lie in the last half of the usual series; at most 100.
    origins : int, default=5
        Number of origins, ``horizon`` rows apart, up to the end.
    coverage : float, default=0.9
        Of the intervals.

    Returns
    -------
    DataFrame
        Index (origin, method): the last stamp before the origin, of a panel its number;
        "forecaster", "last value", "seasonal naive", such as "7 d before", and "hour of
        the week". Columns, over all observed values: "MAE" and "RMSE", in units of y
        or, of several series or columns, in standard deviations of each before the
        origin; "first", the MAE of the first row after the origin; "CRPS", the
        continuous ranked probability score of the distribution of each value, and
        "energy", the energy score of joint paths over the root of their number of
        values, both in the same units and the less the better; "coverage", the share
        inside the interval; "seconds" of fit and forecast. Of a method that gives
        points alone CRPS is its MAE, "energy" its RMSE; a forecaster without ``sample``
        has no "energy". ``attrs["coverage"]`` is the argument, ``attrs["seasons"]`` the
        ticks of the season of each method.

    Raises
    ------
    TypeError, ValueError
        If an argument cannot be used, or y has too few rows.

    References
    ----------
    T. Gneiting, A. E. Raftery, "Strictly proper scoring rules, prediction, and
    estimation", Journal of the American Statistical Association 2007.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import StructuralForecaster
    >>> from sklode.model_selection import backtest
    >>> results = backtest(StructuralForecaster(), load_airline(), horizon=12)
    >>> errors = results["MAE"].groupby("method").mean()
    >>> bool(errors["forecaster"] < errors["seasonal naive"])
    True
    """
    return tested(forecaster, y, X, horizon, origins, coverage, is_scored=True)


def tested(
    forecaster: BaseForecaster,
    y: pd.Series | pd.DataFrame,
    X: pd.DataFrame | None,
    horizon: int | None,
    origins: int,
    coverage: float,
    is_scored: bool,
) -> pd.DataFrame:
    """Return the table of `backtest`.

    Unless it ``is_scored`` "CRPS" and "energy" are NaN: distributions and paths take
    about as long as a fit of `StructuralForecaster`.
    """
    is_table = isinstance(y, pd.Series | pd.DataFrame)
    if not (isinstance(forecaster, BaseForecaster) and is_table):
        raise TypeError(
            "backtest takes a forecaster, then y as a Series or DataFrame; got "
            f"{type(forecaster).__name__} and {type(y).__name__}. Use for example "
            "backtest(StructuralForecaster(), y)."
        )
    check_probabilities("coverage", [coverage])
    check_count("origins", origins)
    if getattr(forecaster, "clean", False):  # as its own fit would be
        check_index(y.index)
        left = History.of(pd.DataFrame(y), None).frame().reindex(y.index)
        y = left if isinstance(y, pd.DataFrame) else left.iloc[:, 0].rename(y.name)
    y = y.dropna(how="all")
    series, _ = series_of(y.index)
    after = pd.Series(series).groupby(series).cumcount(ascending=False).to_numpy()
    lengths = np.bincount(series, minlength=1)
    if horizon is None:
        horizon = min(max(int(np.median(lengths)) // (2 * origins), 1), 100)
    check_count("horizon", horizon)
    found: dict[Any, dict[str, float]] = {}
    for number, end in enumerate(range(origins * horizon, 0, -horizon), 1):
        is_long = (lengths - end >= max(horizon, 2))[series]
        if not is_long.any():
            raise ValueError(
                "y must have as many rows before the first origin as are forecast from "
                f"it, and two at least; got {lengths.max()} rows for {origins} "
                f"origins of {horizon} rows each. Ask for fewer."
            )
        seen = y[is_long & (after >= end)]
        is_asked = is_long & (after < end) & (after >= end - horizon)
        asked, is_first = y[is_asked], after[is_asked] == end - 1
        origin = number if y.index.nlevels > 1 else seen.index[-1]
        start = time.perf_counter()
        own = _forecast(forecaster, seen, asked.index, X, coverage, is_scored)
        seconds = time.perf_counter() - start
        rows = Observations.from_frame(pd.DataFrame(seen))
        if not found:  # means are over all origins
            seasons, of_week = seasons_of(rows), hours_of_week(rows)
        simple, scale = simple_forecasts(rows, asked.index, seasons, of_week)
        truth = pd.DataFrame(asked).to_numpy(float, na_value=np.nan)
        answers = {"forecaster": own} | {k: _Answer(x) for k, x in simple.items()}
        for method, answer in answers.items():
            found[origin, method] = answer.scores(truth, scale, is_first)
        found[origin, "forecaster"]["seconds"] = seconds
    index = pd.MultiIndex.from_tuples(found, names=["origin", "method"])
    results = pd.DataFrame(list(found.values()), index).fillna({"seconds": 0.0})
    results.attrs |= {"coverage": float(coverage), "seasons": seasons}
    return results


def _forecast(
    forecaster: BaseForecaster,
    y: Any,
    index: pd.Index,
    X: Any,
    coverage: float,
    is_scored: bool,
) -> _Answer:
    """Return forecasts of a clone and, where it has them, distributions."""
    is_panel = index.nlevels > 1
    fh = index if is_panel else ForecastingHorizon(index, is_relative=False)
    seen, ahead = (None, None) if X is None else (X.loc[y.index], X.loc[index])
    fitted = forecaster.clone().fit(y, seen, fh=None if is_panel else fh)
    pred = pd.DataFrame(fitted.predict(fh, ahead)).to_numpy()
    if not fitted.get_tag("capability:pred_int"):
        return _Answer(pred)
    shape = *pred.shape, -1
    bounds = fitted.predict_interval(fh, ahead, coverage=coverage).to_numpy()
    answer = _Answer(pred, bounds=bounds.reshape(shape))
    if is_scored:
        quantiles = fitted.predict_quantiles(fh, ahead, alpha=[*_LEVELS]).to_numpy()
        answer = answer._replace(quantiles=quantiles.reshape(shape))
    if is_scored and hasattr(fitted, "sample"):
        paths = fitted.sample(fh, n_samples=_PATHS, X=ahead).to_numpy()
        answer = answer._replace(paths=paths.reshape(_PATHS, *pred.shape))
    return answer


class _Answer(NamedTuple):
    """What a method says of some rows."""

    points: Array  # (row, channel)
    bounds: Array | None = None  # (row, channel, 2), of an interval
    quantiles: Array | None = None  # (row, channel, level), of `_LEVELS`
    paths: Array | None = None  # (path, row, channel)

    def scores(self, truth: Array, scale: Array, is_first: Flags) -> dict[str, float]:
        """Return errors over all observed values of the truth, (row, channel).

        Rows are the first after an origin where ``is_first``, (row,).
        """
        known = ~np.isnan(truth)
        first = (np.abs(truth - self.points) / scale)[is_first]
        truth, scale = truth[known], scale[known]
        error = np.abs(truth - self.points[known]) / scale
        rmse = np.sqrt((error**2).mean())
        some = first[~np.isnan(first)]
        found = {"MAE": error.mean(), "first": some.mean() if len(some) else np.nan}
        found |= {"RMSE": rmse, "CRPS": error.mean()}
        found |= {"energy": rmse, "coverage": np.nan}
        if self.bounds is not None:
            low, high = self.bounds[known].T
            found["coverage"] = ((low <= truth) & (truth <= high)).mean()
            found |= {"CRPS": np.nan, "energy": np.nan}
        if self.quantiles is not None:
            quantiles = self.quantiles[known] / scale[:, None]
            each = quantile_crps(truth / scale, quantiles, _LEVELS)
            found["CRPS"] = each.mean()
        if self.paths is not None:
            paths = self.paths[:, known] / scale
            found["energy"] = energy_score(truth / scale, paths) / np.sqrt(len(truth))
        return found
