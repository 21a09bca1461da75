"""
How do I fill a gap?
====================

A fitted forecaster answers at any stamp, also between observations: from both sides of
a gap, with an interval. Here a gap of 40 weeks is cut out of the CO2 record, in five
years, one after the other, and filled. ::

    python examples/impute_gaps.py [--output impute_gaps.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Fill a gap of 40 weeks.")
parser.add_argument("--output", default="impute_gaps.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Five gaps
# ---------
# Each begins in another month.

y = load_co2()["1980":"1995"]
begins = ["1983-02-01", "1985-05-01", "1987-08-01", "1989-11-01", "1992-03-01"]
gaps = {begin[:4]: y[begin:][:40] for begin in begins}

# %%
# Fill them in
# ------------
# Beside the forecaster: a straight line between the neighbours, a cubic spline through
# all weeks, and the mean of the same weeks a year before and a year after.


def days(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the days since 1980."""
    return ((index - y.index[0]) / pd.Timedelta("1D")).to_numpy()


def years_around(kept: pd.Series, index: pd.DatetimeIndex) -> np.ndarray:
    """Return the mean of the values a year before and a year after."""
    both = [days(index) - 365.25, days(index) + 365.25]
    return np.mean([np.interp(at, days(kept.index), kept) for at in both], axis=0)


fitted, errors = {}, {}
for year, gap in gaps.items():
    kept = y.drop(gap.index)
    fitted[year] = StructuralForecaster().fit(kept)
    fills = {
        "line": np.interp(days(gap.index), days(kept.index), kept),
        "cubic spline": CubicSpline(days(kept.index), kept)(days(gap.index)),
        "year before and after": years_around(kept, gap.index),
        "StructuralForecaster": fitted[year].predict(fh=gap.index),
    }
    interval = fitted[year].predict_interval(fh=gap.index, coverage=0.9)
    errors[year] = {name: np.abs(fill - gap).mean() for name, fill in fills.items()}
    inside = gap.between(interval.iloc[:, 0], interval.iloc[:, 1]).mean()
    errors[year]["inside the 90 % interval"] = inside
errors = pd.DataFrame(errors)
errors["mean"] = errors.mean(axis=1)
print("Mean absolute error of the filled weeks, ppm\n")
print(errors.round(2).to_string())

# %%
# To write the filled values into the series, keep what was observed:
# ``filled = kept.combine_first(forecaster.predict(fh=stamps))``.

year = "1989"
gap, kept = gaps[year], y.drop(gaps[year].index)
around = kept["1988-06":"1991-12"]
fine = pd.date_range(gap.index[0], gap.index[-1], freq="3D")
filling = fitted[year].predict(fh=fine)
figure, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
plot_forecast(
    around,
    {
        "filled gap": filling,
        "year before and after": pd.Series(years_around(kept, fine), fine),
    },
    {"filled gap": fitted[year].predict_interval(fh=fine, coverage=0.9)},
    y_test=gap,
    ax=ax,
)
ax.set(title="Forty weeks that were taken out", xlabel="", ylabel="CO$_2$ (ppm)")
ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
