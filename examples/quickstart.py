"""
A real irregular record: CO2 at Mauna Loa
=========================================

Forecast two and a half years of weekly CO2 from all weeks before, of which 59 are
missing. The record ships with statsmodels. Its missing weeks are dropped, so that the
stamps are truly irregular; two models forecast at the held-out stamps, next to three
baselines. ::

    python examples/quickstart.py [--output quickstart.png]
"""

import argparse
import time

import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast weekly CO2 at Mauna Loa.")
parser.add_argument("--output", default="quickstart.png", help="the picture's path")
output = parser.parse_args().output

# %%
# The data
# --------
# Nothing is filled in: a missing week is a longer gap.

y = load_co2()
train, test = y[:"1999-06-30"], y["1999-07-01":]
gaps = y.index.to_series().diff().dropna().dt.days
print(
    f"{len(train)} weekly observations to learn from, {len(test)} held out; "
    f"gaps from {gaps.min()} to {gaps.max()} days"
)

# %%
# Two models
# ----------
# The structural level alone, which is solved in closed form; and the network beside it,
# which counts as far as it has proved to add something. Both have their defaults.

models = {
    "structural level": StructuralForecaster(),
    "Latent ODE-LSTM": LatentODELSTMForecaster(random_state=0),
}
forecasts, seconds = {}, {}
for name, model in models.items():
    started = time.perf_counter()
    forecasts[name] = model.fit(train).predict(fh=test.index)
    seconds[name] = time.perf_counter() - started

# %%
# Three baselines
# ---------------
# The last value; a line through ten years; and the value of a year before, plus the
# drift of that line. The last one is told how long the season is. The models are not.


def days(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the days since ten years before the cutoff."""
    return ((index - recent.index[0]) / pd.Timedelta("1D")).to_numpy()


recent = train[train.index > train.index[-1] - pd.DateOffset(years=10)]
slope, level = np.polyfit(days(recent.index), recent.to_numpy(), 1)
years = np.ceil((test.index - train.index[-1]) / pd.Timedelta("365.25D"))
earlier = test.index - pd.to_timedelta(years * 365.25, unit="D")
last_year = np.interp(days(earlier), days(recent.index), recent.to_numpy())
baselines = {
    "last value": np.full(len(test), train.iloc[-1]),
    "linear trend (10 years)": level + slope * days(test.index),
    "last year + drift": last_year + slope * 365.25 * years.to_numpy(),
}

# %%
# How well they did
# -----------------

table = pd.DataFrame(
    {
        name: {"MAE": (f - test).abs().mean(), "MSE": ((f - test) ** 2).mean()}
        for name, f in {**baselines, **forecasts}.items()
    }
).T
table["seconds"] = pd.Series(seconds)
print(f"\n{'':26}{'MAE':>8}{'MSE':>8}{'seconds':>9}")
for name, row in table.fillna(0).iterrows():
    print(f"{name:26}{row['MAE']:8.3f}{row['MSE']:8.3f}{row['seconds']:9.1f}")

# %%
# Forecasts come with intervals, at any stamps.

best = "Latent ODE-LSTM"
share = models[best].network_share_
print(f"\nShare of the network beside the level: {share:.2f}")
interval = models[best].predict_interval(fh=test.index, coverage=0.9)
axes = plot_forecast(
    train["1995":],
    {name: forecasts[name] for name in reversed(models)},
    {best: interval},
    y_test=test,
)
axes.set_title("Two and a half years ahead, from weeks of which 59 are missing")
axes.set(xlabel="", ylabel="CO$_2$ at Mauna Loa (ppm)")
axes.figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
