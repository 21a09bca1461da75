"""
Exogenous: the calendar, for a season longer than the window
============================================================

Forecast a year ahead from 30 observations. The series is made here: four years of a
daily temperature, of which 40 % of the days are missing, a yearly season under weather
that changes within days. Thirty observations do not show the season;
``calendar_features`` as exogenous X says where in the year each stamp lies. ::

    python examples/calendar_season.py [--output calendar_season.png]
"""

import argparse

import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster, calendar_features
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast a year from 30 observations.")
parser.add_argument("--output", default="calendar_season.png", help="picture's path")
output = parser.parse_args().output

# %%
# Four years of a temperature
# ---------------------------
# A wave of the year that is not a pure sine, and weather on it. The last year is held
# out.

rng = np.random.default_rng(0)
days = pd.date_range("2022-01-01", "2025-12-31")
phase = 2 * np.pi * (days.dayofyear.to_numpy() - 1) / 365.25
season = pd.Series(12 - 9 * np.cos(phase - 0.35) + 1.5 * np.sin(2 * phase), days)
weather = np.zeros(len(days))
for day, shock in enumerate(rng.standard_normal(len(days))):
    weather[day] = 0.7 * weather[day - 1] + 1.8 * shock
y = pd.Series(season + weather, days, name="temperature")[rng.random(len(days)) < 0.6]
train, test = y[:"2024"], y["2025":]

# %%
# With X and without
# ------------------
# X has a row at each stamp of y and, to forecast, at each stamp asked for. Sines and
# cosines of the year know the future: no weather forecast is smuggled in. With
# ``level="series"`` the level is the training mean, and X alone brings the season.

SETTINGS = {
    "window_length": 30,
    "horizon": 30,
    "level": "series",
    "max_epochs": 10,
    "random_state": 0,
}
X = calendar_features(y.index, periods="year")
plain = LatentODELSTMForecaster(**SETTINGS).fit(train)
informed = LatentODELSTMForecaster(**SETTINGS).fit(train, X=X[:"2024"])

# %%
# What else there is
# ------------------
# The training mean, and a regression on the same waves by least squares. The latter is
# as good as a forecast this far ahead can be: the weather of the last month says
# nothing about the next summer.


def waves(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the regression's columns."""
    features = calendar_features(index, periods="year").to_numpy()
    return np.column_stack([np.ones(len(index)), features])


weights, *_ = np.linalg.lstsq(waves(train.index), train.to_numpy(), rcond=None)
forecasts = {
    "training mean": pd.Series(train.mean(), test.index),
    "regression on the waves": pd.Series(waves(test.index) @ weights, test.index),
    "Latent ODE-LSTM": plain.predict(fh=test.index),
    "Latent ODE-LSTM, calendar": informed.predict(fh=test.index, X=X["2025":]),
}
errors = pd.Series({k: ((f - test) ** 2).mean() for k, f in forecasts.items()})
print(f"{len(test)} held-out days of 2025, mean squared error in degrees squared\n")
for name, error in errors.items():
    print(f"{name:28}{error:8.2f}")

# %%
# The picture
# -----------
# The grey stripe is all that the encoder sees.

axes = plot_forecast(
    train["2024":],
    {
        "with calendar_features as X": forecasts["Latent ODE-LSTM, calendar"],
        "without the calendar": forecasts["Latent ODE-LSTM"],
    },
    y_test=test,
)
axes.set_title("A year ahead from a window of 30 observations")
axes.set(xlabel="", ylabel="temperature (°C)")
axes.plot(season["2025":], color="black", lw=1, ls=":", label="the season behind it")
axes.axvspan(train.index[-30], train.index[-1], color="0.85", zorder=0)
axes.annotate(
    "what the\nmodel sees",
    (train.index[-30], 0.98),
    xycoords=("data", "axes fraction"),
    xytext=(-4, 0),
    textcoords="offset points",
    ha="right",
    va="top",
)
axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.27))
axes.figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
