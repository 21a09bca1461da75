"""
Nights are zero: what will the day bring?
=========================================

Solar power of Great Britain in May 2021, as a share of what is installed; the record
ships with sktime. Of its half-hours one in seven was read, at random. Power is zero all
night, never below, and never above 100 %. ::

    python examples/solar.py [--output solar.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared, WhiteKernel
from sktime.datasets import load_solar

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast solar power within bounds.")
parser.add_argument("--output", default="solar.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Five days seen, a sixth to come
# -------------------------------
# Where the readings fall matters much. So it is done ten times, each time with other
# half-hours read.

y = 100 * load_solar(api_version=None).tz_localize(None)[:-1]  # to midnight
five_days, test = y[:"2021-05-05"], y["2021-05-06"]


def hours(stamps: pd.DatetimeIndex) -> np.ndarray:
    """Return the hours since the record's first."""
    return ((stamps - y.index[0]) / pd.Timedelta("1h")).to_numpy()


def gaussian_process(seen: pd.Series, asked: pd.DatetimeIndex) -> np.ndarray:
    """Fit a day that comes again, a little changed each time."""
    kernel = RBF(24) * ExpSineSquared(1, 24, periodicity_bounds="fixed")
    model = GaussianProcessRegressor(kernel + WhiteKernel(0.1), normalize_y=True)
    return model.fit(hours(seen.index)[:, None], seen).predict(hours(asked)[:, None])


# %%
# Within bounds
# -------------
# ``bounds=(0, 100)`` is all that is told; the day is found. Beside it: the same without
# bounds, scikit-learn's Gaussian process with a period of 24 hours, and straight lines
# between the readings, those of the day before for the day to come.

errors, inside = [], []
for draw in range(10):
    seen = five_days.sample(frac=1 / 7, random_state=draw).sort_index()
    forecaster = StructuralForecaster(bounds=(0, 100)).fit(seen)
    without = StructuralForecaster().fit(seen)
    for question, truth in {
        "between the readings": five_days.drop(seen.index),
        "the next day": test,
    }.items():
        asked = truth.index
        back = 24 if question == "the next day" else 0
        line = np.interp(hours(asked) - back, hours(seen.index), seen)
        values = {
            "straight lines": line,
            "Gaussian process": gaussian_process(seen, asked),
            "sklode without bounds": without.predict(fh=asked),
            "sklode": forecaster.predict(fh=asked),
        }
        for method, value in values.items():
            errors.append((question, method, np.abs(value - truth).mean()))
        interval = forecaster.predict_interval(fh=asked, coverage=0.9)
        inside.append(truth.between(interval.iloc[:, 0], interval.iloc[:, 1]).mean())
errors = pd.DataFrame(errors, columns=["question", "method", "MAE"])
table = errors.groupby(["method", "question"], sort=False)["MAE"].mean().unstack()
print("Mean absolute error, percentage points, ten drawings\n")
print(table.round(1).to_string())
print(f"\nInside the 90 % interval: {np.mean(inside):.0%}")

# %%
# The picture
# -----------
# The first drawing. No forecast and no interval leaves the bounds.

seen = five_days.sample(frac=1 / 7, random_state=0).sort_index()
forecaster = StructuralForecaster(bounds=(0, 100)).fit(seen)
fine = pd.date_range(y.index[0], "2021-05-07", freq="15min")
forecast = forecaster.predict(fh=fine)
interval = forecaster.predict_interval(fh=fine, coverage=0.9)
figure, ax = plt.subplots(figsize=(7.8, 3.8), layout="constrained")
plot_forecast(seen, forecast, interval, ax=ax)
ax.plot(y, color="0.15", lw=0.8, ls=":", label="every half-hour")
ax.set(
    title="A reading in seven, and the next day",
    xlabel="",
    ylabel="% of capacity",
    ylim=(-2, 85),
)
ax.legend(frameon=False, fontsize="small", loc="upper left", ncols=4)
ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
