"""
What if my sensors are never read together?
===========================================

Two sensors of a tank, each at random times of its own; the second one is silent for a
day. Both are columns of one table, with NaN where a sensor was not read. The data are
made here, so that the truth is known. ::

    python examples/missing_values.py [--output missing_values.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import StructuralForecaster
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
# One forecaster of both
# ----------------------
# Beside it the line between neighbouring readings, which ahead is the last value. The
# period of 20 hours is not told.

forecaster = StructuralForecaster().fit(y)


def line(index: pd.DatetimeIndex) -> pd.DataFrame:
    """Interpolate each channel between its own readings."""
    read = {name: column.dropna() for name, column in y.items()}
    values = {c: np.interp(index.asi8, r.index.asi8, r) for c, r in read.items()}
    return pd.DataFrame(values, index)


spans = {"silent day": SILENT, "next 30 hours": (END, END + AHEAD)}
scale = truth(np.arange(0, 20, 0.25)).std()
errors = {}
for span, (begin, end) in spans.items():
    exact = truth(np.arange(begin, end, 0.25))
    answers = {"line": line(exact.index), "sklode": forecaster.predict(fh=exact.index)}
    for name, answer in answers.items():
        errors[span, name] = np.sqrt(((answer - exact) ** 2).mean()) / scale
table = pd.DataFrame(errors).T
print("\nRoot mean squared error over the signal's standard deviation\n")
print(table.round(2).to_string())

# %%
# The silent day is longer than the period. The season that was found before and after
# it carries through.

fine = truth(np.arange(90, END + AHEAD, 0.25))
figure, axes = plt.subplots(2, 1, figsize=(7.5, 5), sharex=True, layout="constrained")
plot_forecast(
    y[fine.index[0] :],
    {"smoothed, filled and forecast": forecaster.predict(fh=fine.index)},
    forecaster.predict_interval(fh=fine.index, coverage=0.9),
    ax=axes,
)
for ax, name in zip(axes, y.columns, strict=True):
    ax.plot(fine.index, fine[name], color="black", lw=1, ls=":", label="truth")
    ax.get_legend().remove() if ax.get_legend() else None
    ax.spines[["top", "right"]].set_visible(False)
stretch = [START + pd.Timedelta(hours=h) for h in SILENT]
axes[1].axvspan(*stretch, color="0.93", zorder=0, label="no flow was read")
handles, labels = axes[1].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
figure.suptitle("Two sensors, never read together")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
