"""
How much power will be used tomorrow?
=====================================

Electric load of England and Wales in the summer of 2000, in half-hours: a day, a week,
and weekends of their own. Every midnight asks for the day ahead. The record ships with
pmdarima. ::

    python examples/load.py [--output load.png]
"""

import argparse

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from pmdarima.datasets import load_taylor
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast a day of electric load.")
parser.add_argument("--output", default="load.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Ten weeks to learn from
# -----------------------
# In gigawatts. Nothing is told of days or weeks: they are found.

stamps = pd.date_range("2000-06-05", periods=84 * 48, freq="30min")
y = pd.Series(load_taylor() / 1000, stamps, name="GW")
train, test = y[: 70 * 48], y[70 * 48 :]
forecaster = StructuralForecaster().fit(train)
parts = forecaster.components_.index.get_level_values("part")
print("Found:", *parts.unique(), sep="\n  ")

# %%
# Fourteen midnights
# ------------------
# After each forecast, ``update`` takes up the day that has gone by. With
# ``update_params=False`` nothing is learned again, which takes a part of a second.

days, bounds = [], []
for _, day in test.groupby(test.index.date):
    days.append(forecaster.predict(fh=day.index))
    bounds.append(forecaster.predict_interval(fh=day.index, coverage=0.9))
    forecaster.update(day, update_params=False)
forecast, interval = pd.concat(days), pd.concat(bounds)

# %%
# Beside simple methods and boosting
# ----------------------------------
# The same half-hour of the day before, and of the week before. Gradient boosting is
# told the half-hour, the day of the week, and the load one day, two days and a week
# before.

before = {f"{days} d before": y.shift(48 * days) for days in (1, 2, 7)}
columns = pd.DataFrame(before).assign(
    half_hour=np.arange(len(y)) % 48, weekday=y.index.dayofweek
)
boosting = HistGradientBoostingRegressor(random_state=0)
boosting.fit(columns.loc[train.index][7 * 48 :], train[7 * 48 :])
forecasts = {
    "day before": y.shift(48)[test.index],
    "week before": y.shift(7 * 48)[test.index],
    "boosting": pd.Series(boosting.predict(columns.loc[test.index]), test.index),
    "sklode": forecast,
}
errors = pd.Series({name: (f - test).abs().mean() for name, f in forecasts.items()})
inside = test.between(interval.iloc[:, 0], interval.iloc[:, 1]).mean()
print(f"\nMean absolute error of {len(test)} half-hours, GW\n")
print(errors.round(2).to_string())
print(f"\nInside the 90 % interval: {inside:.0%}")

# %%
# The picture
# -----------
# Above: the second week, a forecast at each midnight. Below: the error of each day.

figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.8, 5), height_ratios=(1.6, 1), layout="constrained"
)
week = slice("2000-08-21", None)
plot_forecast(
    test["2000-08-19":"2000-08-20"],
    forecast[week],
    interval[week],
    y_test=test[week],
    ax=above,
)
above.set(
    title="Each day asked for at its midnight", xlabel="", ylabel="GW", ylim=(18, 43)
)
above.legend(frameon=False, fontsize="small", loc="upper left", ncols=4)
by_day = pd.DataFrame(
    {
        name: (f - test).abs().groupby(test.index.date).mean()
        for name, f in forecasts.items()
    }
)
looks = {"week before": "#999999", "boosting": "#E69F00", "sklode": "#0072B2"}
for name, color in looks.items():
    below.plot(by_day[name], "o-", color=color, ms=3, lw=1, label=name)
below.set(ylabel="mean error, GW", ylim=(0, 1.25))
below.legend(frameon=False, fontsize="small", loc="upper center", ncols=3)
for ax in (above, below):
    ax.xaxis.set_major_locator(mdates.DayLocator(interval=2))
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%a %d"))
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
