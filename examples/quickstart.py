"""
Can it forecast my series with missing weeks?
=============================================

Weekly CO2 at Mauna Loa, of which 59 weeks are missing; the record ships with
statsmodels. ``StructuralForecaster`` reads the weeks that there are, at their own
dates, and forecasts the two and a half years that are held out. ::

    python examples/quickstart.py [--output quickstart.png]
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast weekly CO2 at Mauna Loa.")
parser.add_argument("--output", default="quickstart.png", help="the picture's path")
output = parser.parse_args().output

# %%
# The data
# --------
# Nothing is filled in: a missing week is a longer gap between two stamps.

y = load_co2()
train, test = y[:"1999-06-30"], y["1999-07-01":]
gaps = y.index.to_series().diff().dropna().dt.days
print(
    f"{len(train)} weeks to learn from, {len(test)} held out; "
    f"gaps from {gaps.min()} to {gaps.max()} days"
)

# %%
# Fit and forecast
# ----------------
# No season is named and nothing is set. ``test.index`` may be any stamps.

started = time.perf_counter()
forecaster = StructuralForecaster().fit(train)
forecast = forecaster.predict(fh=test.index)
interval = forecaster.predict_interval(fh=test.index, coverage=0.9)
seconds = time.perf_counter() - started
print("Found:", ", ".join(forecaster.components_.index.get_level_values("part")))

# %%
# Beside simple methods
# ---------------------
# The last value; a line through ten years; and the value of a year before plus the
# line's slope. The last one is told that the season is a year.


def days(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the days since the last training week."""
    return ((index - train.index[-1]) / pd.Timedelta("1D")).to_numpy()


recent = train["1989-07":]
slope, level = np.polyfit(days(recent.index), recent, 1)
years = np.ceil(days(test.index) / 365.25)
last_year = np.interp(days(test.index) - 365.25 * years, days(recent.index), recent)
values = {
    "last value": train.iloc[-1],
    "line through ten years": level + slope * days(test.index),
    "last year + drift": last_year + slope * 365.25 * years,
    "StructuralForecaster": forecast,
}
forecasts = {name: pd.Series(value, test.index) for name, value in values.items()}
table = pd.DataFrame(
    {
        name: {"MAE": (f - test).abs().mean(), "MSE": ((f - test) ** 2).mean()}
        for name, f in forecasts.items()
    }
).T
print(f"\n{table.round(2)}\n\nFit and forecast took {seconds:.1f} s.")

# %%
# The picture
# -----------

figure, ax = plt.subplots(figsize=(7.5, 4), layout="constrained")
plot_forecast(
    train["1996":],
    {"forecast": forecast, "last year + drift": forecasts["last year + drift"]},
    {"forecast": interval},
    y_test=test,
    ax=ax,
)
ax.set(title="Two and a half years ahead", xlabel="", ylabel="CO$_2$ (ppm)")
ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
