"""
Intervals: how sure is the forecast?
====================================

Forecast a noisy sum of two sines at random times, with calibrated intervals. The
picture shows 50 % and 90 % intervals inside the history and ahead of it; the table says
how much of the truth they cover. ::

    python examples/intervals.py [--output intervals.png]
"""

import argparse

import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast with calibrated intervals.")
parser.add_argument("--output", default="intervals.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Two sines at random times
# -------------------------
# Gaps are exponential, of an hour in the mean; the noise has a standard deviation of
# 0.1. 400 observations are seen, the next 30 held out.

N_SEEN, N_AHEAD = 400, 30
rng = np.random.default_rng(102)
hours = np.cumsum(np.maximum(rng.exponential(1.0, N_SEEN + N_AHEAD), 1e-3))
phases = rng.uniform(0, 2 * np.pi, 2)
signal = np.sin(2 * np.pi * hours / 20 + phases[0])
signal += 0.5 * np.sin(2 * np.pi * hours / 7 + phases[1])
stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h").round("s")
y = pd.Series(signal + 0.1 * rng.standard_normal(len(hours)), stamps)
train, test = y[:N_SEEN], y[N_SEEN:]

# %%
# Fit, and ask
# ------------
# Quantiles, intervals, variances and sample paths come from the same draws of the
# latent state, and hold at any stamp, past or future. ``level="series"`` is the network
# alone, which this page is about.

forecaster = LatentODELSTMForecaster(level="series", random_state=0).fit(train)
asked = forecaster.predict_interval(test.index, coverage=[0.5, 0.9])
covered = {}
for coverage in (0.5, 0.9):
    bounds = asked.droplevel(0, axis=1)[coverage]
    covered[coverage] = test.between(bounds["lower"], bounds["upper"]).mean()
    print(
        f"{coverage:.0%} intervals cover {covered[coverage]:.0%} of the next {N_AHEAD}"
    )

# %%
# Thirty neighbouring errors are alike, so that this is one draw rather than thirty;
# over many series the intervals cover what they say (see the page on uncertainty).
#
# A model seldom knows its own error. After training, windows are forecast and the
# spread is scaled by what their errors ask for, by the time since the last observation:

print(forecaster.interval_scale_.round(2).to_string())

# %%
# Inside the history the intervals are those of a reconstruction, from observations on
# both sides.

fine = pd.date_range(train.index[-40], test.index[-1], periods=400)
axes = plot_forecast(
    train[-40:],
    forecaster.predict(fine),
    forecaster.predict_interval(fine, coverage=[0.5, 0.9]),
    y_test=test,
)
axes.set(title="Inside the history and 30 stamps ahead", ylabel="signal")
axes.figure.savefig(output, dpi=120)
print(f"The picture is in {output}")
