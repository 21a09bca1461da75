"""Evaluation at true time stamps: a backtest, a splitter and a metric for sktime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
from sktime.performance_metrics.forecasting import (
    MeanAbsoluteError,
    MeanAbsoluteScaledError,
)
from sktime.performance_metrics.forecasting._base import BaseForecastingErrorMetric
from sktime.split import ExpandingWindowSplitter
from sktime.split.base import BaseSplitter

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.checks import check_count, check_index, check_probabilities
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.ticks import (
    DAY,
    clock_ahead,
    length_of_time,
    nanoseconds,
    series_of,
    stamps_of,
    ticks_between,
)
from sklode.structural.seasons import clock_periods, peaks

__all__ = [
    "AbsoluteHorizon",
    "AlignedMetric",
    "backtest",
    "energy_score",
    "quantile_crps",
]

_LEVELS, _PATHS = np.arange(0.025, 1, 0.05), 200  # that scores are told by
_DAILY = 0.5  # days, the least gap of rows of which a day has one


class AbsoluteHorizon(BaseSplitter):
    """Make sktime's evaluation ask at the test fold's own time stamps.

    They ask for the relative steps of a splitter's ``fh``: on irregular stamps other
    times than the fold's, and the metric silently relabels the forecasts. This wrapper
    has no ``fh``, so that they ask at the fold's stamps.

    Parameters
    ----------
    cv : BaseSplitter
        Splits by position, for example ``ExpandingWindowSplitter``.

    Examples
    --------
    >>> from sklode import AbsoluteHorizon
    >>> from sktime.split import ExpandingWindowSplitter
    >>> cv = ExpandingWindowSplitter(fh=[1, 2, 3], initial_window=10, step_length=5)
    >>> splitter = AbsoluteHorizon(cv)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the sklode developers"],
        "split_hierarchical": True,
        "split_type": "temporal",
    }

    def __init__(self, cv: BaseSplitter) -> None:
        self.cv = cv
        super().__init__()

    def _fh(self) -> None:
        return None

    def _split(self, y: pd.Index) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from self.cv.split(y)

    def get_cutoffs(self, y: Any = None) -> np.ndarray:
        """Return the cutoffs of the splits of ``y``."""
        return self.cv.get_cutoffs(y)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that sktime's checks run with."""
        return [{"cv": ExpandingWindowSplitter([1, 2], n)} for n in (4, 5)]


class AlignedMetric(BaseForecastingErrorMetric):
    """Score the forecasts at the truth's own rows, whatever else was forecast.

    sktime's ``evaluate`` and searches ask every series of a panel at the stamps of all:
    more rows than the truth has, which its metrics refuse. This wrapper takes the rows
    of the truth from the forecast, and from ``y_pred_benchmark``, by their labels.
    Arrays are handed on.

    Parameters
    ----------
    metric : BaseForecastingErrorMetric
        Any metric of sktime, of points, quantiles, intervals or distributions.

    See Also
    --------
    AbsoluteHorizon : has the forecasts asked at the test fold's own stamps.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklode import AlignedMetric
    >>> from sktime.performance_metrics.forecasting import MeanAbsoluteError
    >>> y_true = pd.Series([1.0, 2.0, 3.0], index=[0, 3, 5])
    >>> y_pred = pd.Series([3.5, 9.0, 2.5, 1.5], index=[5, 4, 3, 0])
    >>> float(AlignedMetric(MeanAbsoluteError())(y_true, y_pred))
    0.5
    """

    _tags: ClassVar[dict[str, Any]] = {"authors": ["the sklode developers"]}

    def __init__(self, metric: BaseForecastingErrorMetric) -> None:
        self.metric = metric
        if not isinstance(metric, BaseForecastingErrorMetric):
            raise TypeError(
                f"metric must be one of sktime's forecasting metrics; got {metric!r}. "
                "Use for example AlignedMetric(MeanAbsoluteError())."
            )
        self.name = metric.name
        # quantiles or coverages that the metric asks for; None: it asks for none
        self.alpha = getattr(metric, "alpha", None)
        self.coverage = getattr(metric, "coverage", None)
        super().__init__(metric.multioutput, metric.multilevel, metric.by_index)
        tags = "scitype:y_pred", "requires-y-train", "requires-y-pred-benchmark"
        self.clone_tags(metric, [*tags, "capability:multivariate", "lower_is_better"])

    def __call__(self, y_true: Any, y_pred: Any, **kwargs: Any) -> Any:
        """Return the metric at the rows of ``y_true``, as the metric returns it."""
        return self.metric(**_aligned(y_true, y_pred, kwargs))

    evaluate = __call__

    def evaluate_by_index(self, y_true: Any, y_pred: Any, **kwargs: Any) -> Any:
        """Return the metric at each row of ``y_true``."""
        return self.metric.evaluate_by_index(**_aligned(y_true, y_pred, kwargs))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that sktime's checks run with."""
        kinds = MeanAbsoluteError, MeanAbsoluteScaledError
        return [{"metric": kind()} for kind in kinds]


def _aligned(y_true: Any, y_pred: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return a metric's arguments with the forecasts at the rows of ``y_true``."""
    aligned = {**kwargs, "y_true": y_true, "y_pred": y_pred}
    wanted = getattr(y_true, "index", None)
    for name in ("y_pred", "y_pred_benchmark"):
        asked = getattr(aligned.get(name), "index", None)
        if not (isinstance(wanted, pd.Index) and isinstance(asked, pd.Index)):
            continue
        rows = asked.get_indexer(wanted)
        if (rows < 0).any():
            raise ValueError(
                f"{name} must have every row of y_true; it has none at "
                f"{wanted[int(np.argmin(rows))]}. Ask for forecasts at the truth's own "
                "stamps: wrap the splitter, AbsoluteHorizon(cv)."
            )
        aligned[name] = aligned[name].iloc[rows]
    pred = aligned["y_pred"]
    if isinstance(wanted, pd.MultiIndex) and hasattr(pred, "ppf"):
        # skpro finds no column of a distribution whose rows have several levels
        numbers = pd.RangeIndex(len(wanted))
        aligned["y_pred"] = pred.clone().set_params(index=numbers)
        aligned["y_true"] = y_true.set_axis(numbers)
    return aligned


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
        Any of sktime's forecasters; it is not changed.
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
            seasons, of_week = _seasons(rows), _of_week(rows)
        simple, scale = _simple(rows, asked.index, seasons, of_week)
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
    above = truth[:, None] - quantiles
    return 2 * np.maximum(alpha * above, (alpha - 1) * above).mean(axis=1)


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
    away = np.linalg.norm(paths - truth, axis=1).mean()
    return float(away - pdist(paths).mean() / 2)


def _simple(
    rows: Observations, index: pd.Index, seasons: dict[str, float], of_week: str
) -> tuple[dict[str, Array], Array]:
    """Return what simple methods forecast, and the unit of errors, (row, channel)."""
    n_series, n_channels = len(rows.keys), rows.values.shape[1]
    series, ticks = rows.locate(index)
    hours, asked = (
        _hours(x, rows.like) if of_week else np.zeros(0) for x in (rows.ticks, ticks)
    )
    rows, ticks = (
        replace(rows, ticks=_wall(rows.ticks, rows.like)),
        _wall(ticks, rows.like),
    )
    ahead = ticks_between(rows.ticks[rows.bounds[series]], ticks)
    order = np.argsort(series, kind="stable")
    ends = np.searchsorted(series[order], np.arange(n_series + 1))
    names = ["last value", *seasons, *([of_week] if of_week else [])]
    simple = {name: np.full((len(index), n_channels), np.nan) for name in names}
    scale = np.full((len(index), n_channels), np.nan)
    for k, j in np.ndindex(n_series, n_channels):
        mine, (times, values) = order[ends[k] : ends[k + 1]], _channel(rows, k, j)
        if not len(values):
            continue
        simple["last value"][mine, j] = values[-1]
        scale[mine, j] = values.std() or 1.0
        for name, period in seasons.items():
            shift = period * np.ceil((ahead[mine] - times[-1]) / period)
            simple[name][mine, j] = np.interp(ahead[mine] - shift, times, values)
        if of_week:
            own = slice(*rows.bounds[k : k + 2])
            known = ~np.isnan(rows.values[own, j])
            slots, slot = np.unique(hours[own][known], return_inverse=True)
            means = np.bincount(slot, values) / np.bincount(slot)
            simple[of_week][mine, j] = np.interp(asked[mine], slots, means, period=168)
    if n_series == n_channels == 1:
        scale[:] = 1.0
    return simple, scale


def _channel(rows: Observations, k: int, j: int) -> tuple[Array, Array]:
    """Return a channel's observed values in a series, and ticks since it began."""
    own = slice(*rows.bounds[k : k + 2])
    known, ticks = ~np.isnan(rows.values[own, j]), rows.ticks[own]
    return ticks_between(ticks[:1], ticks[known]), rows.values[own, j][known]


def _wall(ticks: Numbers, like: pd.Index) -> Numbers:
    """Return ticks of the clock on the wall."""
    return ticks + clock_ahead(ticks, like).astype(np.int64)


def _hours(ticks: Numbers, like: pd.Index) -> Array:
    """Return the hour of the week, from Monday."""
    stamps: Any = stamps_of(ticks, like)
    return np.asarray(24 * stamps.dayofweek + stamps.hour, np.float64)


def _of_week(rows: Observations) -> str:
    """Return of what in a week two weeks of rows or more have a mean; "": nothing."""
    if not isinstance(rows.like, pd.DatetimeIndex | pd.PeriodIndex):
        return ""
    is_period = isinstance(rows.like, pd.PeriodIndex)
    tick = nanoseconds(rows.like.freq) / rows.like.freq.n if is_period else 1.0
    times, _ = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2 or times[-1] * tick < 14 * DAY:
        return ""
    gap = float(np.median(np.diff(times))) * tick / DAY
    return "" if gap > 1 else f"{'hour' if gap < _DAILY else 'day'} of the week"


def _seasons(rows: Observations) -> dict[str, float]:
    """Return ticks of the season that the longest series shows best, and the clock's.

    By name; those that rows are too few or too far apart for are left out.
    """
    times, values = _channel(rows, int(rows.lengths.argmax()), 0)
    if len(times) < 2:
        return {}
    unit = float(np.median(np.diff(times)))
    clock, exact = clock_periods(rows, unit, times[-1]), np.zeros(len(times))
    periods = clock or [p * unit for p in peaks(times / unit, values, exact, 1.0)]
    misses = {}
    for period in periods:
        later = times >= period
        before = np.interp(times[later] - period, times, values)
        misses[period] = np.abs(values[later] - before).mean()
    if not misses:
        return {}
    best = min(misses, key=misses.__getitem__)
    others = [period for period in clock if period != best]
    named = {f"{length_of_time(p, rows.like)} before": p for p in others}
    return {"seasonal naive": best} | named
