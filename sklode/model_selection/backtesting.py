"""Backtests: errors of forecasts from earlier origins, beside simple ones.

Tested in tests/test_model_selection.py.
"""

from __future__ import annotations

import time
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from sklode.data.arrays import Array, Flags, Frame, Numbers
from sklode.data.checks import check_controls, check_count, check_index
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scores import energy_score, interval_score, quantile_crps
from sklode.data.tables import check_rows, read_table
from sklode.data.ticks import series_of
from sklode.model_selection.simple import SimpleMethods

# Levels of the quantiles that a CRPS is computed from: the middles of
# twenty equal parts of [0, 1].
_LEVELS = np.arange(0.025, 1, 0.05)

_FITS, _QUICK = 1.5, 1800
"""Where fits are few, together they read so many times all rows; of what trains no
network, all origins of up to 600 rows have one: fits that take some seconds in all."""

# Paths that an energy score is computed from: its mean is the same for any number.
_N_PATHS = 200


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
    question: the last value, and with a drift; the value a season before, of the season
    that the rows show best; that of the clock's day, week, four weeks and year before,
    if they are others; the mean of the last four weeks at the same day and time; and
    that of all weeks. A year is one of 52 weeks, if rows are a week apart or less.
    Values are interpolated between their neighbours. Methods are those that rows before
    the first origin allow: a season shows in one of its periods.

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
        "forecaster", "last value", "drift", "seasonal naive", such as "7 d before",
        "mean of 4 weeks" and "hour of the week". Columns, over all observed values:
        "MAE" and "RMSE", in units of y or, of several series or columns, in standard
        deviations of each before the origin; "first", the MAE of the first row after
        the origin; "CRPS", the continuous ranked probability score of the distribution
        of each value, and "energy", the energy score of joint paths over the root of
        their number of values, both in the same units and the less the better;
        "coverage", the share inside the interval; "interval", its score, the less the
        better; "empirical", the score that it would have had with the width at which as
        large a share as asked for of the values from other origins lay inside; and
        "width", that width over its own. "seconds" are those of fit and forecast. Of a
        method that gives points alone CRPS is its MAE, "energy" its RMSE; a forecaster
        without ``sample`` has no "energy". ``attrs`` has "coverage", "horizon" and, by
        method, the ticks of its season: "seasons".

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
    y, X = _read(forecaster, y, X)
    if not (isinstance(coverage, Real) and 0 < float(coverage) < 1):
        raise ValueError(
            "coverage must be one number between 0 and 1, both left out; got "
            f"{coverage!r}. Use for example coverage=0.9."
        )
    return backtested(
        forecaster,
        y,
        X,
        horizon=horizon,
        origins=origins,
        coverage=float(coverage),
        is_scored=True,
    )


def backtested(
    forecaster: BaseForecaster,
    y: pd.Series | pd.DataFrame,
    X: pd.DataFrame | None,
    horizon: int | None,
    origins: int,
    coverage: float | None,
    is_scored: bool,
) -> pd.DataFrame:
    """Return the table of `backtest`.

    Unless it ``is_scored`` "CRPS" and "energy" are NaN, as distributions and paths take
    about as long as a fit of `StructuralForecaster`; and where a fit at each origin
    would take long, some are fitted, evenly spread, and updated in between. Without
    ``coverage`` there are no intervals. Tables are such as `_read` returns.
    """
    check_count("origins", origins)
    if getattr(forecaster, "clean", False):  # as its own fit would be
        y = _cleaned(y)
    y = y.dropna(how="all")
    series, _ = series_of(y.index)
    lengths = np.bincount(series, minlength=1)
    if horizon is None:
        # of the usual series all origins ask for half of the rows
        half = int(np.median(lengths)) // (2 * origins)
        horizon = min(max(half, 1), 100)
    check_count("horizon", horizon)
    folds = [_fold(y, series, n * horizon, horizon) for n in range(origins, 0, -1)]
    if not len(folds[0].seen):
        raise ValueError(
            "y must have as many rows before the first origin as are forecast from "
            f"it, and two at least; got {lengths.max()} rows for {origins} "
            f"origins of {horizon} rows each. Ask for fewer."
        )
    # those that the first origin allows serve all, as means are over all origins
    simple = SimpleMethods.of(Observations.from_frame(pd.DataFrame(folds[0].seen)))
    found: dict[Any, dict[str, float]] = {}
    intervals: dict[Any, _Intervals] = {}
    n_fits = origins if is_scored else _n_fits(forecaster, folds, len(y))
    fitted, seen = forecaster, y.iloc[:0]
    for number, fold in enumerate(folds):
        start = time.perf_counter()
        try:
            if number * n_fits % origins < n_fits:
                fitted = _fitted(forecaster, fold, X)
            else:
                new = fold.seen[~fold.seen.index.isin(seen.index)]
                of_new = None if X is None else X.loc[new.index]
                # a form that new rows cannot have is found anew; no network trains on
                fitted.update(new, of_new, update_params=not _is_trained(forecaster))
            own = _forecast(fitted, fold, X, coverage=coverage, is_scored=is_scored)
        except (TypeError, ValueError) as error:
            _check_steps(forecaster, y.index, error)
            raise
        seen = fold.seen
        seconds = time.perf_counter() - start
        # of a panel, whose series end at stamps of their own, its number
        origin = number + 1 if y.index.nlevels > 1 else fold.seen.index[-1]
        truth = pd.DataFrame(fold.asked).to_numpy(float, na_value=np.nan)
        seen_rows = Observations.from_frame(pd.DataFrame(fold.seen))
        points, scale = simple.forecasts(seen_rows, fold.asked.index)
        answers = {"forecaster": own} | {k: _Answer(each) for k, each in points.items()}
        for method, answer in answers.items():
            found[origin, method] = answer.scores(truth, scale, fold.is_first)
        found[origin, "forecaster"]["seconds"] = seconds
        if own.bounds is not None:
            intervals[origin] = _Intervals.of(own.points, own.bounds, truth, scale)
    index = pd.MultiIndex.from_tuples(found, names=["origin", "method"])
    results = pd.DataFrame(list(found.values()), index)
    # simple methods take no time that counts
    results = results.fillna({"seconds": 0.0})
    results[["interval", "empirical", "width"]] = np.nan
    if coverage is not None:
        for origin, held in intervals.items():
            others = [each for key, each in intervals.items() if key != origin]
            scores = held.scores(others, coverage)
            results.loc[(origin, "forecaster"), list(scores)] = list(scores.values())
    results.attrs |= {
        "coverage": coverage,
        "horizon": horizon,
        "seasons": simple.seasons,
    }
    return results


def _read(
    forecaster: object, y: Any, X: Any
) -> tuple[Frame, pd.Series | pd.DataFrame | None]:
    """Return y and X as a fit reads them, or say what a fit would say."""
    is_table = isinstance(y, pd.Series | pd.DataFrame)
    if not (isinstance(forecaster, BaseForecaster) and is_table):
        raise TypeError(
            "backtest takes a forecaster, then y as a Series or DataFrame; got "
            f"{type(forecaster).__name__} and {type(y).__name__}. Use for example "
            "backtest(StructuralForecaster(), y)."
        )
    if isinstance(X, Real):
        raise TypeError(
            "after y comes X, a table of controls; got a number. Pass numbers by their "
            f"names, for example backtest(forecaster, y, horizon={X})."
        )
    y, X = read_table(y, "y"), read_table(X, "X")
    check_index(y.index)
    check_rows(y, X)
    if X is not None:
        check_index(X.index, "X")
        check_controls(X, y.index)
    return y, X


def _cleaned(y: Frame) -> Frame:
    """Return y without what a broken sensor wrote."""
    # a history is in order of its series and times, y as the caller has it
    frame = History.of(pd.DataFrame(y), None).frame().reindex(y.index)
    if isinstance(y, pd.DataFrame):
        return frame
    return frame.iloc[:, 0].rename(y.name)


def _check_steps(forecaster: BaseForecaster, index: pd.Index, error: Exception) -> None:
    """Check that one that failed can be asked at stamps; others count equal steps."""
    if hasattr(forecaster, "predict_at"):
        return
    if index.nlevels > 1:
        asked = "each series of a panel at stamps of its own"
        remedy = "Take one series, y.xs(key)"
    elif isinstance(index, pd.DatetimeIndex) and pd.infer_freq(index) is None:
        asked = "at the stamps of observed rows, here without a frequency"
        remedy = (
            "Give y one and leave no gaps, for example by "
            "y.resample('1h').mean().interpolate()"
        )
    else:
        return
    raise ValueError(
        f"backtest asks {asked}, which {type(forecaster).__name__} cannot answer; got "
        f"its error {str(error)[:70]!r}. {remedy}; or use a forecaster of sklode."
    ) from error


class _Fold(NamedTuple):
    """What an origin divides: rows before it, and those that it asks for."""

    seen: Frame
    asked: Frame
    is_first: Flags  # (row,), of those asked for: the first of each series


def _fold(y: Frame, series: Numbers, end: int, horizon: int) -> _Fold:
    """Return the rows of series around the origin ``end`` rows before their end."""
    # of each row, how many of its series come after
    after = pd.Series(series).groupby(series).cumcount(ascending=False).to_numpy()
    n_before = np.bincount(series, minlength=1) - end
    is_long = (n_before >= max(horizon, 2))[series]
    is_asked = is_long & (after < end) & (after >= end - horizon)
    return _Fold(
        seen=y[is_long & (after >= end)],
        asked=y[is_asked],
        is_first=after[is_asked] == end - 1,
    )


def _is_trained(forecaster: BaseForecaster) -> bool:
    """Return whether a network is trained, which takes long."""
    return "max_epochs" in forecaster.get_params(deep=False)


def _n_fits(forecaster: BaseForecaster, folds: list[_Fold], n_rows: int) -> int:
    """Return at how many origins a forecaster of ``n_rows`` is fitted."""
    # seconds of a fit go about with the square of its rows
    most = max(_FITS * n_rows, 0 if _is_trained(forecaster) else _QUICK**2 / n_rows)
    read = np.mean([len(fold.seen) for fold in folds])
    return int(np.clip(most / read, 1, len(folds)))


def _horizon(fold: _Fold) -> pd.MultiIndex | ForecastingHorizon:
    """Return what a fold asks for."""
    index = fold.asked.index
    # of a panel sktime takes in predict rows as they are
    is_panel = index.nlevels > 1
    return index if is_panel else ForecastingHorizon(index, is_relative=False)


def _fitted(
    forecaster: BaseForecaster, fold: _Fold, X: pd.DataFrame | None
) -> BaseForecaster:
    """Return a clone that is fitted on what a fold has seen."""
    seen = None if X is None else X.loc[fold.seen.index]
    fh = _horizon(fold)
    # and in fit no stamps of a panel
    fh_of_fit = None if isinstance(fh, pd.MultiIndex) else fh
    return forecaster.clone().fit(fold.seen, seen, fh=fh_of_fit)


def _forecast(
    fitted: BaseForecaster,
    fold: _Fold,
    X: pd.DataFrame | None,
    coverage: float | None,
    is_scored: bool,
) -> _Answer:
    """Return forecasts and, where there are any, distributions."""
    fh = _horizon(fold)
    ahead = None if X is None else X.loc[fold.asked.index]
    pred = pd.DataFrame(fitted.predict(fh, ahead)).to_numpy()
    if coverage is None or not fitted.get_tag("capability:pred_int"):
        return _Answer(pred)
    # sktime's columns are (channel, coverage, bound) and (channel, level)
    shape = *pred.shape, -1
    bounds = fitted.predict_interval(fh, ahead, coverage=coverage).to_numpy()
    answer = _Answer(pred, bounds=bounds.reshape(shape))
    if is_scored:
        levels = list(_LEVELS)
        quantiles = fitted.predict_quantiles(fh, ahead, alpha=levels).to_numpy()
        answer = answer._replace(quantiles=quantiles.reshape(shape))
    if is_scored and hasattr(fitted, "sample"):
        # its rows are (path, row), the paths one after the other
        paths = fitted.sample(fh, n_samples=_N_PATHS, X=ahead).to_numpy()
        answer = answer._replace(paths=paths.reshape(_N_PATHS, *pred.shape))
    return answer


class _Answer(NamedTuple):
    """What a method says of some rows."""

    points: Array  # (row, channel)
    bounds: Array | None = None  # (row, channel, 2), of an interval
    quantiles: Array | None = None  # (row, channel, level), of `_LEVELS`
    paths: Array | None = None  # (path, row, channel)

    def scores(
        self,
        truth: Array,
        scale: Array,
        is_first: Flags,
    ) -> dict[str, float]:
        """Return errors over all observed values of the truth, (row, channel).

        Rows are the first after an origin where ``is_first``, (row,).
        """
        known = ~np.isnan(truth)
        away = np.abs(truth - self.points) / scale
        firsts = away[is_first]
        firsts = firsts[~np.isnan(firsts)]
        error = away[known]
        mae, rmse = error.mean(), np.sqrt((error**2).mean())
        # of a point x the CRPS is |x - y|, and the energy score the length of x - y,
        # which over the root of its size is an RMSE
        is_point = self.bounds is None
        found = {
            "MAE": mae,
            "first": firsts.mean() if len(firsts) else np.nan,
            "RMSE": rmse,
            "CRPS": mae if is_point else np.nan,
            "energy": rmse if is_point else np.nan,
            "coverage": np.nan,
        }
        truth, scale = truth[known], scale[known]
        if self.bounds is not None:
            low, high = self.bounds[known].T
            is_inside = (low <= truth) & (truth <= high)
            found["coverage"] = is_inside.mean()
        # both scores of c x and c y are c times those of x and y
        truth = truth / scale
        if self.quantiles is not None:
            quantiles = self.quantiles[known] / scale[:, None]
            found["CRPS"] = quantile_crps(truth, quantiles, _LEVELS).mean()
        if self.paths is not None:
            paths = self.paths[:, known] / scale
            found["energy"] = energy_score(truth, paths) / np.sqrt(len(truth))
        return found


class _Intervals(NamedTuple):
    """Errors and halves of intervals of all observed values after an origin."""

    error: Array  # (value,)
    below: Array  # from the low end to the point
    above: Array

    @classmethod
    def of(cls, points: Array, bounds: Array, truth: Array, scale: Array) -> _Intervals:
        """Return those of points, (row, channel), and bounds, (row, channel, 2)."""
        known = ~np.isnan(truth)
        below, above = points - bounds[..., 0], bounds[..., 1] - points
        parts = truth - points, below, above
        return cls(*((part / scale)[known] for part in parts))

    def scores(self, others: list[_Intervals], coverage: float) -> dict[str, float]:
        """Return the score of intervals, and with widths that ``others`` show."""
        found = {"interval": self._score(1.0, coverage)}
        if others:
            ratios = np.concatenate([each._ratios() for each in others])
            width = float(np.quantile(ratios, coverage))
            found |= {"empirical": self._score(width, coverage), "width": width}
        return found

    def _ratios(self) -> Array:
        """Return sizes of errors over the halves of the interval that they lie in."""
        half = np.where(self.error > 0, self.above, self.below)
        least = np.finfo(np.float64).tiny
        ratios: Array = np.minimum(np.abs(self.error) / np.maximum(half, least), 1e6)
        return ratios

    def _score(self, width: float, coverage: float) -> float:
        low, high = -width * self.below, width * self.above
        return float(interval_score(self.error, low, high, coverage).mean())
