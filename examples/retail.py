"""
What will each shop sell, and what does a lower price bring?
============================================================

Thirty shops sell one product. Now and then its price is lowered, and some shops answer
more than others. Five opened a month ago, and closed days have no row. One forecaster
learns from all of them. The sales are made here, so that the truth is known. ::

    python examples/retail.py [--output retail.png]
"""

import argparse

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast the sales of many shops.")
parser.add_argument("--output", default="retail.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Thirty shops, five months
# -------------------------
# Sales are whole numbers. A price that is lower by 1 % sells more by the shop's
# *elasticity*, 1 to 3 %. The last two weeks are held out. Their prices are known: they
# are planned.

N_DAYS, N_AHEAD = 150, 14
rng = np.random.default_rng(0)
calendar = pd.date_range("2025-07-01", periods=N_DAYS, name="day")
week = np.array([0.8, 0.8, 0.9, 1.0, 1.3, 1.5, 0.7])
names = [f"shop {k:02}" for k in range(1, 31)]
young = names[-5:]
elasticity = pd.Series(rng.uniform(1, 3, 30), names)


def shop(name: str) -> pd.DataFrame:
    """Return price and sales of a shop since it opened."""
    days = calendar[-40:] if name in young else calendar
    # a price holds for three days, and is lowered in a fifth of them
    prices = rng.choice([1.0, 0.7, 0.8, 0.9], N_DAYS // 3, p=[0.79, 0.07, 0.07, 0.07])
    price = np.repeat(prices, 3)[: len(days)]
    level = rng.uniform(1.5, 4.5) + np.cumsum(0.02 * rng.standard_normal(len(days)))
    mean = np.exp(level) * week[days.dayofweek] * price ** -elasticity[name]
    sold = rng.poisson(mean * rng.gamma(30, 1 / 30, len(days)))
    table = pd.DataFrame({"price": price, "sold": sold.astype(float)}, days)
    return table[rng.random(len(days)) < 0.9]


panel = pd.concat({name: shop(name) for name in names}, names=["shop"])
is_past = panel.index.get_level_values("day") < calendar[-N_AHEAD]
past, ahead = panel[is_past], panel[~is_past]

# %%
# One fit for all
# ---------------
# ``X`` has the price at each row, also ahead. What a shop that has lowered its price
# once or never shows too little of, the others tell.

forecaster = StructuralForecaster().fit(past[["sold"]], X=past[["price"]])
forecast = forecaster.predict_at(ahead.index, X=ahead[["price"]])["sold"]
interval = forecaster.predict_interval(fh=ahead.index, X=ahead[["price"]], coverage=0.9)

# %%
# Beside simple methods and boosting
# ----------------------------------
# The simple one is the mean of the last four such days of the week. Gradient boosting
# is told the price, the day of the week, and what was sold two, three and four weeks
# before, with their mean.


def lags_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that boosting reads."""
    by_day = past["sold"].unstack("shop").reindex(calendar)
    stacked = {f"{k} days before": by_day.shift(k).unstack() for k in (14, 21, 28)}
    lags = pd.DataFrame(stacked).reindex(rows.index)
    day = rows.index.get_level_values("day").dayofweek
    return lags.assign(mean=lags.mean(axis=1), price=rows["price"], day=day)


boosting = HistGradientBoostingRegressor(random_state=0)
boosting.fit(lags_of(past), past["sold"])
weekday = panel.index.get_level_values("day").dayofweek
of_day = past["sold"].groupby([past.index.get_level_values("shop"), weekday[is_past]])
four = of_day.apply(lambda sold: sold.iloc[-4:].mean())
same_days = pd.MultiIndex.from_arrays(
    [ahead.index.get_level_values("shop"), weekday[~is_past]]
)
forecasts = {
    "mean of four weeks": four.reindex(same_days).to_numpy(),
    "boosting": boosting.predict(lags_of(ahead)),
    "sklode": forecast,
}
errors = pd.DataFrame(
    {name: (values - ahead["sold"]).abs() for name, values in forecasts.items()}
)
table = pd.DataFrame(
    {
        "all days": errors.mean(),
        "lower price": errors[ahead["price"] < 1].mean(),
        "young shops": errors.loc[young].mean(),
    }
)
inside = ahead["sold"].between(interval.iloc[:, 0], interval.iloc[:, 1]).mean()
print(f"Mean absolute error of {len(ahead)} days of sales, pieces\n")
print(table.round(1).to_string())
print(f"\nInside the 90 % interval: {inside:.0%}")

# %%
# What does a lower price bring?
# ------------------------------
# Ask twice: at the usual price, and at four fifths of it. The ratio of both is what a
# shop's elasticity makes of it.

asked = ahead[["price"]]
usual = forecaster.predict_at(ahead.index, X=asked.assign(price=1.0))["sold"]
lower = forecaster.predict_at(ahead.index, X=asked.assign(price=0.8))["sold"]
gain = lower.groupby("shop").sum() / usual.groupby("shop").sum()
truth = 0.8**-elasticity
print(f"\nAt 0.8 of the price, sales are {gain.mean():.2f} times as high on average;")
print(f"the truth is {truth.mean():.2f}.")

# %%
# The picture
# -----------
# Left: a shop that is known, and one that is a month old; the price was lowered where
# the ground is grey. Right: all shops, at 0.8 of the usual price.

figure = plt.figure(figsize=(7.8, 4.8), layout="constrained")
grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1))
half_day = pd.Timedelta("12h")
for row, name in enumerate([names[0], young[0]]):
    ax = figure.add_subplot(grid[row, 0])
    for day in panel.loc[name].query("price < 1").index:
        ax.axvspan(day - half_day, day + half_day, color="0.92", lw=0, zorder=0)
    plot_forecast(
        past["sold"].loc[name],
        forecast.loc[name],
        interval.loc[name],
        y_test=ahead["sold"].loc[name],
        ax=ax,
    )
    ax.set(xlim=(calendar[-42], calendar[-1] + half_day), xlabel="", title=name)
    ax.set(ylabel="pieces a day", ylim=(0, None))
    ax.xaxis.set_major_formatter(mdates.DateFormatter("%d %b"))
    ax.get_legend().remove()
handles, labels = figure.axes[0].get_legend_handles_labels()
figure.legend(
    handles, labels, loc="outside lower left", frameon=False, fontsize="small", ncols=4
)
right = figure.add_subplot(grid[:, 1])
right.plot([1.2, 2.0], [1.2, 2.0], color="0.65", lw=0.8, ls=":", label="as it is")
old = names[:-5]
right.plot(truth[old], gain[old], "o", color="#0072B2", ms=4, label="25 shops")
right.plot(truth[young], gain[young], "s", color="#D55E00", ms=4, label="young shops")
right.set(title="Times as much sold", xlabel="truth", ylabel="found")
right.legend(frameon=False, fontsize="small", loc="upper left")
for ax in figure.axes:
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
