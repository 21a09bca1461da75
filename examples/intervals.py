"""
Is 90 % really 90 %?
====================

An interval is worth as much as its promise. Four real series, ten forecasts each from
later and later origins: how often does the truth lie inside, and how wide are the
intervals that achieve it? ::

    python examples/intervals.py [--output intervals.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm
from sktime.datasets import load_airline
from statsmodels.datasets import elnino, sunspots

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Measure how often intervals hold.")
parser.add_argument("--output", default="intervals.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Four series
# -----------
# Passengers by month, the warmth of the Pacific by month, sunspots by year, and CO2 at
# a fifth of its weeks, at random. With each: how many steps a season has, and how many
# steps ahead are asked.

sea = elnino.load_pandas().data.set_index("YEAR").stack()
spots = sunspots.load_pandas().data.set_index("YEAR")["SUNACTIVITY"]
co2 = load_co2()["1985":].sample(frac=0.2, random_state=0).sort_index()
sea.index = pd.period_range("1950-01", "2010-12", freq="M")
spots.index = pd.period_range("1700", "2008", freq="Y")
series = {
    "airline": (load_airline(), 12, 12),
    "El Niño": (sea, 12, 12),
    "sunspots": (spots, 11, 11),
    "CO2, irregular": (co2, 10, 10),
}
N_ORIGINS, COVERAGES = 10, [0.5, 0.8, 0.9, 0.95]

# %%
# Ten origins each
# ----------------
# The baseline repeats the last season; its spread is that of the differences between
# seasons that were seen. The *interval score* of 90 % adds to the mean width twenty
# times what the truth lies outside: smaller is better, and neither a wide nor a narrow
# interval wins by itself.


def of_last_season(y: pd.Series, season: int, index: pd.Index) -> pd.DataFrame:
    """Return intervals around the last season."""
    values = y.to_numpy()
    middle = np.resize(values[-season:], len(index))
    spread = np.std(values[season:] - values[:-season])
    bounds = {}
    for coverage in COVERAGES:
        reach = norm.ppf(0.5 + coverage / 2) * spread
        bounds[coverage, "lower"] = middle - reach
        bounds[coverage, "upper"] = middle + reach
    return pd.DataFrame(bounds, index)


rows = []
for name, (y, season, n_ahead) in series.items():
    ends = np.linspace(0.6 * len(y), len(y) - n_ahead, N_ORIGINS).astype(int)
    for end in ends:
        train, test = y[:end], y[end : end + n_ahead]
        forecaster = StructuralForecaster().fit(train)
        asked = forecaster.predict_interval(fh=test.index, coverage=COVERAGES)
        for method, bounds in {
            "sklode": asked.droplevel(0, axis=1),
            "last season": of_last_season(train, season, test.index),
        }.items():
            row = {"series": name, "method": method}
            for coverage in COVERAGES:
                low, high = bounds[coverage, "lower"], bounds[coverage, "upper"]
                row[coverage] = test.between(low, high).mean()
                if coverage == 0.9:
                    outside = (low - test).clip(lower=0) + (test - high).clip(lower=0)
                    row["score"] = (high - low + 20 * outside).mean()
            rows.append(row)
table = pd.DataFrame(rows).groupby(["series", "method"], sort=False).mean()
print(table.round(2).to_string())

# %%
# On average over the four, the intervals hold what they promise. For a single series
# of a hundred values, expect it within ten points. Sunspots are the hard case: cycles
# differ in height, and repeating the last one with a wide band scores better.
#
# Left: what is promised and what is found, a mark for each series. Right: the last
# forecast of CO2.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.8, 3.8), width_ratios=(1, 1.3), layout="constrained"
)
left.plot([0.4, 1], [0.4, 1], color="0.65", lw=0.8, ls=":", label="as promised")
looks = {"sklode": ("#0072B2", "o"), "last season": ("#E69F00", "s")}
for method, (color, marker) in looks.items():
    found = table.xs(method, level="method")[COVERAGES]
    left.plot(COVERAGES, found.T, marker, color=color, ms=4, alpha=0.6)
    left.plot(COVERAGES, found.mean(), color=color, label=f"{method}, mean")
left.set(xlabel="promised", ylabel="found", title="Share of truth inside")
left.legend(frameon=False, fontsize="small", loc="upper left")
fine = pd.date_range(test.index[0], test.index[-1], periods=100)
forecast = forecaster.predict(fh=fine)
nested = forecaster.predict_interval(fh=fine, coverage=[0.5, 0.9])
plot_forecast(train[-40:], forecast, nested, y_test=test, ax=right)
right.set(title="CO$_2$, the last origin", xlabel="", ylabel="ppm")
right.legend(frameon=False, fontsize="small", loc="upper left")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
