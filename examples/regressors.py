"""
What acts on my series, and what if?
====================================

The daily power use of a building: heating when it is cold, cooling when it is hot, much
less on days when it is closed, and a week. Columns that are known ahead go into ``X``;
their effects may be curves. The data are made here, so that the truth is known. ::

    python examples/regressors.py [--output regressors.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast with regressors.")
parser.add_argument("--output", default="regressors.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Two years, a fifth of the days missing
# --------------------------------------
# The last eight weeks are held out. Their temperatures count as known, as from a
# weather forecast.

rng = np.random.default_rng(0)
days = pd.date_range("2024-01-01", "2025-12-31")
weather = np.zeros(len(days))
for k, shock in enumerate(rng.standard_normal(len(days))):
    weather[k] = 0.8 * weather[k - 1] + 2 * shock
temperature = 11 - 11 * np.cos(2 * np.pi * days.dayofyear / 365.25 - 0.3) + weather
closed = (days.month * 100 + days.day).isin([101, 501, 815, 1003, 1101, 1225, 1226])
closed |= rng.random(len(days)) < 0.02


def effect(degrees: np.ndarray) -> np.ndarray:
    """Return the megawatt hours for heating and cooling."""
    return 0.9 * np.maximum(15 - degrees, 0) + 1.5 * np.maximum(degrees - 22, 0)


use = 60 + effect(temperature) - 18 * closed + np.where(days.dayofweek < 5, 6, -8)
drift = np.cumsum(0.25 * rng.standard_normal(len(days)))
X = pd.DataFrame({"temperature": temperature, "closed": closed.astype(float)}, days)
y = pd.Series(use + drift + 1.5 * rng.standard_normal(len(days)), days, name="MWh")
y = y[rng.random(len(days)) < 0.8]
train, test = y[:"2025-11-05"], y["2025-11-06":]

# %%
# With X and without
# ------------------
# ``X`` has a row at each stamp of y, and at each stamp asked for. Beside the
# forecaster: the same without X, and two regressions on X and the day of the week.

forecaster = StructuralForecaster().fit(train, X=X.loc[train.index])
ahead = X.loc[test.index]
interval = forecaster.predict_interval(fh=test.index, X=ahead, coverage=0.9)


def table_of(index: pd.DatetimeIndex) -> pd.DataFrame:
    """Return the regressions' columns."""
    weekday = pd.get_dummies(index.dayofweek, dtype=float).set_axis(index)
    return pd.concat([X.loc[index], weekday.add_prefix("day ")], axis=1)


def regression(model: object) -> np.ndarray:
    """Fit one of scikit-learn's, and forecast."""
    return model.fit(table_of(train.index), train).predict(table_of(test.index))


plain = StructuralForecaster().fit(train)
values = {
    "without X": plain.predict(fh=test.index),
    "linear regression": regression(LinearRegression()),
    "boosting": regression(HistGradientBoostingRegressor(random_state=0)),
    "with X": forecaster.predict(fh=test.index, X=ahead),
}
forecasts = {name: pd.Series(value, test.index) for name, value in values.items()}
errors = pd.Series({name: (f - test).abs().mean() for name, f in forecasts.items()})
inside = test.between(interval.iloc[:, 0], interval.iloc[:, 1]).mean()
print(f"Mean absolute error over {len(test)} held-out days, MWh\n")
print(errors.round(2).to_string())
print(f"\nInside the 90 % interval: {inside:.0%}")
print("Found:", ", ".join(forecaster.components_.index.get_level_values("part")))

# %%
# What if?
# --------
# A scenario is another ``X``. Here the same eight weeks at one temperature each; the
# mean of a forecast, minus that at 18 degrees, is the effect of the temperature.

degrees = np.arange(-8, 31)
means = np.array(
    [
        forecaster.predict(fh=test.index, X=ahead.assign(temperature=float(t))).mean()
        for t in degrees
    ]
)

figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.8, 3.8), width_ratios=(1.7, 1), layout="constrained"
)
shown = {"with X": forecasts["with X"], "without X": forecasts["without X"]}
plot_forecast(train[-24:], shown, {"with X": interval}, y_test=test, ax=left)
left.legend(frameon=False, fontsize="small", loc="lower left", ncols=2)
left.set(title="Eight weeks ahead", xlabel="", ylabel="MWh a day", ylim=(30, None))
right.plot(degrees, effect(degrees), ":", color="black", label="truth")
right.plot(degrees, means - means[degrees == 18], color="#0072B2", label="found")
right.set(title="Effect of the temperature", xlabel="°C", ylabel="MWh a day")
right.legend(frameon=False, fontsize="small")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
