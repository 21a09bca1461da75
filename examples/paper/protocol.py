"""The experiments' protocol: data, windows, origins, scaling, scores, baselines.

Not a script: `climate.py`, `stocks.py` and `tune.py` import it. A model is fitted once
on the training part; from origin to origin only the history advances. Errors are mean
squared errors over observed entries, in units of the training part's standard
deviation per channel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from sklode import calendar_features

__all__ = [
    "TASKS",
    "Experiment",
    "arima_forecasts",
    "baselines",
    "forecast_origins",
    "last_value",
    "load_climate",
    "load_stock",
    "make_spirals",
    "panel_of_histories",
]

Array = NDArray[np.floating]

TASKS = {"7/7": (7, 7), "15/15": (15, 15), "30/30": (30, 30), "365/60": (365, 60)}
"""Rows seen and rows to forecast of the paper's four tasks."""

HARMONICS = 2
"""Of the yearly regression; chosen on the last training year."""

_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
"""Of ridge regression; the one is taken that does best at the training part's end."""

_SMOOTHED_DAYS = 15


@dataclass(frozen=True, eq=False)
class Experiment:
    """A series, where its training part ends, and the origins of its forecasts.

    Attributes
    ----------
    data : DataFrame
        All rows, in original units; NaN where missing.
    n_train : int
        Rows of the training part.
    every : int
        Rows from one origin to the next.
    """

    data: pd.DataFrame
    n_train: int
    every: int = 1

    @property
    def train(self) -> pd.DataFrame:
        """The training part."""
        return self.data.iloc[: self.n_train]

    @cached_property
    def scaled(self) -> Array:
        """All rows in units of the training part: z-scores per channel."""
        return self.scale(self.data)

    def scale(self, values: pd.DataFrame) -> Array:
        """Return z-scores by mean and standard deviation of the training part."""
        return ((values - self.train.mean()) / self.train.std()).to_numpy()

    def origins(self, ahead: int) -> NDArray[np.int64]:
        """Return the first row of each forecast: those with ``ahead`` rows left."""
        return np.arange(self.n_train, len(self.data) - ahead + 1, self.every)

    def rows(self, origins: NDArray[np.int64], ahead: int) -> NDArray[np.int64]:
        """Return the rows to forecast, (origin, step)."""
        return origins[:, None] + np.arange(ahead)

    def windows(self, origins: NDArray[np.int64], seen: int) -> Array:
        """Return the scaled rows just before each origin, (origin, step, channel)."""
        return self.scaled[origins[:, None] + np.arange(-seen, 0)]

    def truth(self, ahead: int) -> Array:
        """Return the scaled rows after each origin, (origin, step, channel)."""
        return self.scaled[self.rows(self.origins(ahead), ahead)]

    def errors(self, forecasts: Array) -> Array:
        """Return the squared errors of scaled forecasts; NaN where not observed."""
        return (forecasts - self.truth(forecasts.shape[1])) ** 2

    def mse(self, forecasts: Array) -> float:
        """Return the mean of `errors` over observed entries."""
        return float(np.nanmean(self.errors(forecasts)))


# --- the data -------------------------------------------------------------------------


def load_climate(folder: str | Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Load the paper's daily climate of Delhi: the days before 2017, and from then on.

    A pressure outside 900 to 1100 hPa is a sensor error and becomes missing. The folder
    holds the two files of Kaggle's "Daily Climate time series data".
    """
    names = ("DailyDelhiClimateTrain.csv", "DailyDelhiClimateTest.csv")
    train, test = (
        _read(Path(folder) / name, "date", "Daily Climate time series data")
        for name in names
    )
    for part in (train, test):
        wrong = ~part["meanpressure"].between(900, 1100)
        part.loc[wrong, "meanpressure"] = np.nan
    return train[train.index < "2017-01-01"], test


def load_stock(path: str | Path) -> pd.DataFrame:
    """Load Open, High, Low and Close of a stock at trading days; an empty cell is NaN.

    The path is that of a file of Kaggle's "DJIA 30 Stock Time Series".
    """
    data = _read(Path(path), "Date", "DJIA 30 Stock Time Series")
    return data[["Open", "High", "Low", "Close"]]


def _read(path: Path, date: str, name: str) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(
            f'{path} does not exist. Download "{name}" from Kaggle and pass its path.'
        )
    return pd.read_csv(path, parse_dates=[date], index_col=date)


# --- our models -----------------------------------------------------------------------


HISTORY = 1500


def panel_of_histories(
    experiment: Experiment, origins: NDArray[np.int64]
) -> pd.DataFrame:
    """Return the rows before each origin as a panel, (origin, time): `HISTORY` at most.

    What came before those says nothing any more of the level after them.
    """
    firsts = np.maximum(origins - HISTORY, 0)
    rows = zip(firsts, origins, strict=True)
    parts = {int(o): experiment.data.iloc[first:o] for first, o in rows}
    return pd.concat(parts, names=["origin"])


def forecast_origins(
    forecaster: Any,
    experiment: Experiment,
    seen: int,
    ahead: int,
    features: Callable[[pd.Index], pd.DataFrame] | None = None,
) -> Array:
    """Train once on the training part and forecast from every origin together.

    The forecaster is pretrained on the training part; a fit without epochs then takes
    what came before each origin as its history, one series each, so that a single
    prediction serves them all: the structural model reads all of it, the network the
    last window. It gives what fit, update(update_params=False) and predict give from
    each origin in turn.

    Parameters
    ----------
    forecaster : forecaster of sklode
        With ``finetune_epochs=0``, and ``window_length=seen`` or none.
    experiment : Experiment
    seen, ahead : int
        Rows of a window, and rows to forecast.
    features : callable, optional
        Gives X from the stamps alone.

    Returns
    -------
    ndarray of shape (origin, ahead, channel)
        Scaled.
    """

    def controls(index: pd.Index) -> pd.DataFrame | None:
        return None if features is None else features(index)

    if forecaster.finetune_epochs != 0:
        raise ValueError(
            "the forecaster must have finetune_epochs=0, or it would learn from the "
            f"rows before the origins; got {forecaster.finetune_epochs}."
        )
    train = pd.concat({0: experiment.train}, names=["origin"])
    fh = np.arange(1, ahead + 1)
    forecaster.pretrain(train, X=controls(train.index), fh=fh)
    origins = experiment.origins(ahead)
    histories = panel_of_histories(experiment, origins)
    forecaster.fit(histories, X=controls(histories.index))
    stamps = experiment.data.index[experiment.rows(origins, ahead).ravel()]
    index = pd.MultiIndex.from_arrays(
        [origins.repeat(ahead), stamps], names=histories.index.names
    )
    forecasts = forecaster.predict_at(index, X=controls(index))
    return experiment.scale(forecasts).reshape(len(origins), ahead, -1)


# --- baselines ------------------------------------------------------------------------


def baselines(
    experiment: Experiment, seen: int, ahead: int, seasonal: bool
) -> dict[str, Array]:
    """Forecast from every origin by each plain method, but ARIMA.

    Parameters
    ----------
    experiment : Experiment
    seen, ahead : int
        Rows of a window, and rows to forecast.
    seasonal : bool
        Whether the methods that know the calendar take part.

    Returns
    -------
    dict of ndarray of shape (origin, ahead, channel)
        Scaled.
    """
    origins = experiment.origins(ahead)
    window = experiment.windows(origins, seen)
    level = np.nan_to_num(np.nanmean(window, axis=1))[:, None]
    ones = np.ones((1, ahead, 1))
    found = {
        "training mean": np.zeros((len(origins), ahead, window.shape[2])),
        "last value": last_value(experiment, seen, ahead),
        "window mean": level * ones,
        "ridge on the window": _ridge(experiment, seen, ahead, "level"),
        "ridge on differences": _ridge(experiment, seen, ahead, "difference"),
    }
    if seasonal:
        rows = experiment.rows(origins, ahead)
        found["climatology"] = _climatology(experiment)[rows]
        found[f"{HARMONICS} yearly harmonics"] = yearly_harmonics(experiment)[rows]
        found["ridge on anomalies"] = _ridge(experiment, seen, ahead, "anomaly")
    return found


def last_value(experiment: Experiment, seen: int, ahead: int) -> Array:
    """Repeat each channel's last value of the window; without, the training mean."""
    window = experiment.windows(experiment.origins(ahead), seen)
    position = np.arange(seen)[:, None]
    latest = np.where(np.isnan(window), 0, position).max(axis=1, keepdims=True)
    last = np.nan_to_num(np.take_along_axis(window, latest, axis=1))
    return last.repeat(ahead, axis=1)


def _climatology(experiment: Experiment) -> Array:
    """Return each day of the year's mean, smoothed over 15 days, at all rows."""
    day = experiment.data.index.dayofyear
    scaled = pd.DataFrame(experiment.scaled[: experiment.n_train])
    means = scaled.groupby(day[: experiment.n_train]).mean().reindex(range(1, 367))
    around = pd.concat([means, means, means])
    smooth = around.rolling(_SMOOTHED_DAYS, center=True, min_periods=1).mean()
    return smooth.iloc[366:732].to_numpy()[day - 1]


def yearly_harmonics(experiment: Experiment, harmonics: int = HARMONICS) -> Array:
    """Return yearly waves fitted to the training part by least squares, at all rows."""
    waves = calendar_features(experiment.data.index, "year", harmonics).to_numpy()
    design = np.column_stack([np.ones(len(waves)), waves])
    fitted = np.empty_like(experiment.scaled)
    for channel in range(fitted.shape[1]):
        seen = experiment.scaled[: experiment.n_train, channel]
        rows = np.flatnonzero(~np.isnan(seen))
        weights, *_ = np.linalg.lstsq(design[rows], seen[rows], rcond=None)
        fitted[:, channel] = design @ weights
    return fitted


def _ridge(experiment: Experiment, seen: int, ahead: int, kind: str) -> Array:
    """Regress the rows after a window on those in it, all channels together.

    Parameters
    ----------
    experiment : Experiment
    seen, ahead : int
        Rows of a window, and rows to forecast.
    kind : {"level", "difference", "anomaly"}
        What is regressed: the values, their differences from the window's last value,
        or their differences from the yearly harmonics.
    """
    base = yearly_harmonics(experiment) if kind == "anomaly" else 0.0
    values = pd.DataFrame(experiment.scaled - base).ffill().fillna(0.0).to_numpy()
    observed = ~np.isnan(experiment.scaled)

    def pairs(origins: NDArray[np.int64]) -> tuple[Array, Array, Array]:
        before = values[origins[:, None] + np.arange(-seen, 0)]
        rows = experiment.rows(origins, ahead)
        level = before[:, -1:] if kind == "difference" else np.zeros_like(before[:, :1])
        flat = (before - level).reshape(len(origins), -1)
        return flat, (values[rows] - level).reshape(len(origins), -1), level

    n_train = experiment.n_train
    usable = np.arange(seen, n_train - ahead + 1)
    n_held_out = max(min(len(usable) // 5, 365), 1)
    fitted, held_out = usable[: -n_held_out - ahead], usable[-n_held_out:]
    scored = observed[experiment.rows(held_out, ahead)].reshape(n_held_out, -1)

    x_fitted, y_fitted, _ = pairs(fitted)
    x, y, _ = pairs(held_out)

    def score(penalty: float) -> float:
        predicted = Ridge(penalty).fit(x_fitted, y_fitted).predict(x)
        return float(((predicted - y)[scored] ** 2).mean())

    model = Ridge(min(_PENALTIES, key=score)).fit(*pairs(usable)[:2])
    origins = experiment.origins(ahead)
    windows, _, level = pairs(origins)
    forecasts = model.predict(windows).reshape(len(origins), ahead, -1) + level
    if kind == "anomaly":
        forecasts = forecasts + base[experiment.rows(origins, ahead)]
    return forecasts


def arima_forecasts(experiment: Experiment, ahead: int) -> Array:
    """Forecast by ARIMA, its order chosen by AIC per channel on the training part.

    Its parameters stay; the history of each origin is all rows before it.
    """
    from pmdarima import auto_arima
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    origins = experiment.origins(ahead)
    forecasts = np.empty((len(origins), ahead, experiment.scaled.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of orders that do not converge
        for channel in range(forecasts.shape[2]):
            values = experiment.scaled[:, channel]
            train = values[: experiment.n_train]
            filled = pd.Series(train).interpolate(limit_direction="both").to_numpy()
            found = auto_arima(filled, seasonal=False, information_criterion="aic")
            trend = "c" if found.with_intercept else "n"
            model = SARIMAX(train, order=found.order, trend=trend).fit(disp=False)
            for k, origin in enumerate(origins):
                at = model.apply(values[:origin])
                forecasts[k, :, channel] = at.forecast(ahead)
    return forecasts


_N_POINTS, _N_WINDOW = 500, 250
_AROUND = _N_WINDOW // 4
"""Of the spirals: points of a curve, of a window, and on either side of it."""


def make_spirals(
    n_series: int = 1000,
    n_stamps: int = 100,
    noise: float = 0.3,
    random_state: int | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the paper's panel of clockwise and counterclockwise spirals.

    500 points of t in [0, 6 pi]; each series is a window of 250 consecutive points from
    a random start, of which the same sorted random positions are observed, the first
    one always (paper, section "Bidirectional spiral dataset").

    Parameters
    ----------
    n_series : int, default=1000
        Number of series, the two kinds alternating.
    n_stamps : int, default=100
        Observed positions of the 250 of a window.
    noise : float, default=0.3
        Standard deviation of the Gaussian noise.
    random_state : int, optional
        Of starts, positions and noise.

    Returns
    -------
    observed : DataFrame
        Columns "x", "y" under a MultiIndex (series, position), ``n_stamps`` rows each.
    truth : DataFrame
        The same without noise at positions -62 to 311: a quarter of a window before
        and after it as well.

    Raises
    ------
    ValueError
        If ``n_stamps`` is not between 1 and 250.
    """
    if not 1 <= n_stamps <= _N_WINDOW:
        raise ValueError(f"n_stamps must be between 1 and {_N_WINDOW}; got {n_stamps}.")
    rng = np.random.default_rng(random_state)
    t = np.linspace(0, 6 * np.pi, _N_POINTS)
    s = 6 * np.pi + 1 - t
    inward, outward = 0.3 * 50 / s, 0.3 * t
    clockwise = np.stack([inward * np.cos(s) - 5, inward * np.sin(s)], axis=1)
    counterclockwise = np.stack([outward * np.cos(t) + 5, outward * np.sin(t)], axis=1)
    curves = np.stack([clockwise, counterclockwise])[np.arange(n_series) % 2]

    start = rng.integers(_AROUND, _N_POINTS - _N_WINDOW - _AROUND, size=n_series)
    others = rng.choice(np.arange(1, _N_WINDOW), n_stamps - 1, replace=False)
    around = np.arange(-_AROUND, _N_WINDOW + _AROUND)
    exact = np.take_along_axis(curves, (start[:, None] + around)[..., None], axis=1)
    index = pd.MultiIndex.from_product(
        [range(n_series), around], names=["series", "position"]
    )
    truth = pd.DataFrame(exact.reshape(-1, 2), index, ["x", "y"])
    is_observed = np.isin(around, [0, *others])
    observed = truth[np.tile(is_observed, n_series)]
    return observed + noise * rng.standard_normal(observed.shape), truth
