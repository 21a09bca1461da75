"""
Do I have to resample?
======================

A station was read 91 times in fourteen years. Most methods need a value a month, so
that a line has to be drawn between readings, or months be left empty.
``StructuralForecaster`` takes the readings as they are. Which is better? ::

    python examples/irregular_against_arima.py [--output irregular_against_arima.png]
"""

import argparse
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from statsmodels.tsa.holtwinters import ExponentialSmoothing
from statsmodels.tsa.statespace.sarimax import SARIMAX

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

name = "irregular_against_arima.png"
parser = argparse.ArgumentParser(description="Compare with resampling.")
parser.add_argument("--output", default=name, help="the picture's path")
output = parser.parse_args().output

# %%
# Five draws of readings
# ----------------------
# An eighth of the weeks of CO2 at Mauna Loa, from 1985 on. Five draws: one alone says
# little. The two and a half years from July 1999 on are held out.

record = load_co2()["1985":]
weeks, test = record[:"1999-06"], record["1999-07":]
draws = [weeks.sample(frac=0.12, random_state=seed).sort_index() for seed in range(5)]

# %%
# Four ways
# ---------
# The others are told that the season has twelve months. Their forecasts of months are
# interpolated to the stamps of the test.


def read_off(months: pd.Series) -> pd.Series:
    """Interpolate values at months to the stamps of the test."""
    known = months.index.asi8
    return pd.Series(np.interp(test.index.asi8, known, months), test.index)


def months_of(readings: pd.Series, filled: bool) -> pd.Series:
    """Return a value a month: on the line between readings, or their mean or none."""
    if not filled:
        return readings.resample("MS").mean().shift(14, freq="D")
    grid = pd.date_range(readings.index[0], readings.index[-1], freq="MS")
    values = np.interp(grid.asi8, readings.index.asi8, readings)
    return pd.Series(values, grid)


def ahead_of(months: pd.Series, fitted: object) -> pd.Series:
    """Forecast by a model of months, from the last one on."""
    end, month = test.index[-1] + pd.Timedelta("60D"), pd.DateOffset(months=1)
    ahead = pd.date_range(months.index[-1], end, freq=month)[1:]
    forecast = np.asarray(fitted.forecast(len(ahead)))
    return read_off(pd.concat([months[-1:], pd.Series(forecast, ahead)]).dropna())


def arima(readings: pd.Series, filled: bool) -> pd.Series:
    """Forecast by the ARIMA of the airline series, with a season of twelve months."""
    months = months_of(readings, filled)
    model = SARIMAX(months.to_numpy(), order=(0, 1, 1), seasonal_order=(0, 1, 1, 12))
    return ahead_of(months, model.fit(disp=False))


def smoothing(readings: pd.Series) -> pd.Series:
    """Forecast by exponential smoothing with trend and season."""
    months = months_of(readings, filled=True)
    parts = {"trend": "add", "seasonal": "add", "seasonal_periods": 12}
    return ahead_of(months, ExponentialSmoothing(months.to_numpy(), **parts).fit())


methods = {
    "readings as they are (sklode)": lambda y: (
        StructuralForecaster().fit(y).predict(fh=test.index)
    ),
    "ARIMA, empty months": lambda y: arima(y, filled=False),
    "ARIMA, months interpolated": lambda y: arima(y, filled=True),
    "smoothing, months interpolated": smoothing,
}
with warnings.catch_warnings():  # of start values and iterations of statsmodels
    warnings.simplefilter("ignore")
    forecasts = {name: [method(y) for y in draws] for name, method in methods.items()}
errors = pd.DataFrame(
    {
        name: {f"draw {k}": (f - test).abs().mean() for k, f in enumerate(several, 1)}
        for name, several in forecasts.items()
    }
).T
errors["mean"] = errors.mean(axis=1)
print("Mean absolute error over two and a half years, ppm\n")
print(errors.round(2).to_string())

# %%
# What to take from it
# --------------------
# Do not draw lines between sparse readings: a line that cuts off a summer teaches a
# season that is not there. Empty months in a model that takes them are nearly as good
# as the stamps themselves, if the length of the season is known.

shown = ["readings as they are (sklode)", "smoothing, months interpolated"]
figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
plot_forecast(
    draws[0]["1994":],
    {name: forecasts[name][0] for name in shown},
    y_test=test[::4],
    ax=ax,
)
ax.set(title="The first draw: 91 readings", xlabel="", ylabel="CO$_2$ (ppm)")
ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
