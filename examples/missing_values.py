"""
Two sensors that never report together
======================================

Two sensors see two oscillations that belong together, each at stamps of its own; one of
them falls silent for a while. Nothing is filled in or put on a grid: a missing value is
NaN. The errors are those against the truth without noise, in the silent stretch and
ahead. ::

    python examples/missing_values.py [--output missing_values.png]
"""

import argparse

import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast two asynchronous channels.")
parser.add_argument("--output", default="missing_values.png", help="picture's path")
output = parser.parse_args().output

# %%
# What the sensors saw
# --------------------
# At each stamp one of the two, and from hour 118 to 142 no flow.

START = pd.Timestamp("2026-03-01")
END, AHEAD = 200.0, 30.0  # hours
SILENT = (118.0, 142.0)


def truth(hours: np.ndarray) -> pd.DataFrame:
    """Return both channels without noise."""
    phase = 2 * np.pi * hours / 20
    stamps = START + pd.to_timedelta(hours, unit="h").round("s")
    level = 40 + 6 * np.sin(phase) + 2 * np.sin(3 * phase)
    flow = 3 + np.cos(phase)
    return pd.DataFrame({"level": level, "flow": flow}, stamps)


rng = np.random.default_rng(0)
hours = np.cumsum(rng.exponential(0.7, 400))
hours = hours[hours < END]
y = truth(hours)
y += rng.standard_normal(y.shape) * [0.5, 0.1]
sees_level = rng.random(len(y)) < 0.5
silent = (hours > SILENT[0]) & (hours < SILENT[1])
y.loc[~sees_level, "level"] = np.nan
y.loc[sees_level | silent, "flow"] = np.nan
print(
    f"{len(y)} stamps; level is observed at {y['level'].count()} of them, flow at "
    f"{y['flow'].count()}, both at {int(y.notna().all(axis=1).sum())}"
)

# %%
# One model of both
# -----------------
# The encoder reads what is there, and a mask that says which. ``window_length`` and
# ``horizon`` count rows, of which each holds one of the two.

forecaster = LatentODELSTMForecaster(window_length=60, horizon=30, random_state=0)
forecaster.fit(y)

spans = {"in the silent stretch": SILENT, "ahead": (END, END + AHEAD)}
one_period = truth(np.arange(0, 20, 0.25))
errors = {}
for name, (begin, end) in spans.items():
    exact = truth(np.arange(begin, end, 0.25))
    squares = (forecaster.predict(fh=exact.index) - exact) ** 2
    errors[name] = np.sqrt(squares.mean()) / one_period.std()
table = pd.DataFrame(errors)
print("\nRMSE over the signal's standard deviation\n", table.round(2), sep="")

# %%
# A day of flow that nobody saw is longer than the oscillation's period of 20 hours. The
# season that was found before and after it carries on through it.

fine = truth(np.arange(60, END + AHEAD, 0.25))
axes = plot_forecast(
    y[fine.index[0] :],
    forecaster.predict(fh=fine.index),
    forecaster.predict_interval(fh=fine.index, coverage=0.9),
)
stretch = [START + pd.Timedelta(hours=h) for h in SILENT]
axes[1].axvspan(*stretch, color="0.93", zorder=0)
for ax, name in zip(axes, y.columns, strict=True):
    ax.plot(fine.index, fine[name], color="black", lw=0.8, ls=":", label="truth")
axes[1].annotate(
    "no flow observed",
    (stretch[0] + (stretch[1] - stretch[0]) / 2, 0.03),
    xycoords=("data", "axes fraction"),
    ha="center",
)
figure = axes[0].figure
figure.suptitle("Two channels, never observed together")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
