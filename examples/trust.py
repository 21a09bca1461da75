"""
Can I trust this forecast?
==========================

Ask the past. ``backtest`` forecasts from several dates of your series, each time
without what came after, and compares with repeating the last value and the last season.
Five real records, two of them irregular, that ship with statsmodels and sktime. ::

    python examples/trust.py [--output trust.png]
"""

import argparse

import pandas as pd
from sktime.datasets import load_airline, load_lynx
from statsmodels.datasets import elnino

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.model_selection import backtest
from sklode.plotting import plot_backtest

parser = argparse.ArgumentParser(description="Backtest on five records.")
parser.add_argument("--output", default="trust.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Five records
# ------------
# With the number of rows that are forecast from each date.

sea = elnino.load_pandas().data.set_index("YEAR").stack()
sea.index = pd.period_range("1950-01", "2010-12", freq="M")
records = {
    "airline, by month": (load_airline(), 12),
    "lynx, by year": (load_lynx(), 10),
    "warmth of the Pacific, by month": (sea, 12),
    "the same, a third of the months": (sea.sample(240, random_state=0), 10),
    "CO2, a third of the weeks": (load_co2()["1980":].sample(365, random_state=0), 30),
}

# %%
# What a forecaster says of itself
# --------------------------------
# ``summary()`` tells what was seen, what was found in it, and how good it is.

forecaster = StructuralForecaster()
y, horizon = records["CO2, a third of the weeks"]
print(forecaster.fit(y.sort_index()).summary())

# %%
# All five
# --------
# Below 1 the forecaster is better than the better one of the simple methods.

results, rows = {}, {}
for name, (y, horizon) in records.items():
    results[name] = backtest(forecaster, y.sort_index(), horizon=horizon)
    means = results[name].groupby("method").mean()
    simple = means["MAE"].drop("forecaster")
    rows[name] = {
        "MAE": means["MAE"]["forecaster"],
        "best simple": simple.min(),
        "ratio": means["MAE"]["forecaster"] / simple.min(),
        "inside 90 %": means["coverage"]["forecaster"],
    }
table = pd.DataFrame(rows).T
print(f"\n{table.round(2).to_string()}")

# %%
# How to read it
# --------------
# - A ratio near 1 says that the series holds little that can be forecast at this
#   horizon, or that the method misses it: see the page on troubleshooting.
# - A share inside far below 90 % says that the last months are not like those before.
# - Five dates are few. More ``origins`` cost a fit each.

axes = plot_backtest(results["CO2, a third of the weeks"])
figure = axes[0].figure
figure.set_size_inches(7.8, 4)
figure.suptitle("CO2: the next thirty readings, from five dates (ppm)")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
