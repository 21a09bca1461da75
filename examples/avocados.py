"""
How many avocados at which price?
=================================

California's shops sell five million avocados a week: more at a low price, before the
Super Bowl and in spring. The price of the next quarter is a plan; what will be sold at
it, and what at another one? ::

    python examples/avocados.py [--output avocados.png]
"""

import argparse

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pmdarima

from sklode import StructuralForecaster
from sklode.model_selection import backtest
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast what is sold at a price.")
parser.add_argument("--output", default="avocados.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Three years of weeks
# --------------------
# Hass avocados that were scanned at the tills of California, in thousands, and their
# mean price in cents, by week. They are the Hass Avocado Board's, from
# kaggle.com/datasets/neuromusic/avocado-prices (Open Database License), in the
# selection of R's package causaldata.

CENTS = """
93 92 102 106 85 91 96 96 84 96 106 106 110 112 106 105 115 88 93 108 110 98 98 97
107 110 112 113 118 113 116 110 111 118 108 109 113 114 104 102 108 107 112 95 98 83
92 91 78 87 94 90 73 87 90 88 88 70 82 89 89 92 96 91 93 93 94 93 84 75 79 97 90 98
94 101 106 103 110 108 114 120 122 117 107 105 99 108 112 122 115 119 134 140 139
168 168 148 132 121 98 90 95 94 89 100 93 76 76 67 79 95 95 115 131 131 133 122 113
134 126 125 108 117 135 132 120 122 120 115 128 128 149 146 138 136 126 164 178 165
171 172 174 177 174 168 153 120 115 115 126 130 109 106 98 113 93 119 127 112 116 80
98 110 103 113 111 102 104
"""
THOUSANDS = """
5777 6025 5571 4930 9032 5871 5700 5952 6700 5990 5557 5572 5342 5467 5637 5871 4924
8568 6650 5289 5622 6237 6375 6742 5953 5642 6718 5452 5225 5558 5428 6232 5616 5193
5647 5806 5107 4760 5217 4944 5063 4999 4592 5830 5149 5755 4804 4576 5776 5259 4696
5040 7730 6303 6000 6246 6507 10362 6807 6374 6588 6430 6018 6476 6604 6061 6509
6398 6933 7661 7808 6069 6502 6701 7366 6506 6528 6407 7087 6722 6201 6104 5947 6145
6538 6308 6696 6682 6060 5472 6076 5652 5376 4878 3899 3140 3395 3848 4254 4186 5063
5527 4923 5415 7175 6653 6657 8153 8055 11214 6862 6194 6342 5634 5208 5329 5073
5720 6249 5442 5637 5890 7872 6371 5599 6161 6507 6177 6599 6999 6607 6500 5405 5188
5571 5656 5862 4525 4360 4649 4381 4168 3937 3871 4151 4067 4421 5715 5663 5638 4782
4393 5545 5716 6205 5347 7133 5757 5927 6610 6134 10895 6718 6379 6750 6296 6489
6802 6687
"""
weeks = pd.date_range("2015-01-04", periods=169, freq="7D", name="week")
sold = pd.Series([int(n) / 1000 for n in THOUSANDS.split()], weeks, name="sold")
X = pd.DataFrame({"price": [int(n) / 100 for n in CENTS.split()]}, weeks)

# %%
# Five quarters, one after the other
# ----------------------------------
# ``backtest`` forecasts each from the weeks before it, and from its prices. Beside it:
# simple methods, the same forecaster without prices, and an ARIMA model of the
# logarithm, which is told the logarithm of the price and two waves a year.

N_AHEAD, N_ORIGINS = 13, 5
quarters = {"horizon": N_AHEAD, "origins": N_ORIGINS}
results = backtest(StructuralForecaster(), sold, X, **quarters)
errors = results["MAE"].groupby("method", sort=False).mean()
errors = errors.rename({"forecaster": "sklode", "seasonal naive": "a year before"})
without = backtest(StructuralForecaster(), sold, **quarters)["MAE"]
errors["sklode without prices"] = without.xs("forecaster", level="method").mean()

angle = 2 * np.pi * np.arange(len(sold)) * 7 / 365.25
waves = [f(n * angle) for n in (1, 2) for f in (np.sin, np.cos)]
told = np.column_stack([np.log(X["price"]), *waves])
off = []
for k in range(N_ORIGINS, 0, -1):
    end = len(sold) - k * N_AHEAD
    quarter = slice(end, end + N_AHEAD)
    arima = pmdarima.auto_arima(np.log(sold.to_numpy()[:end]), X=told[:end])
    forecast = np.exp(arima.predict(N_AHEAD, X=told[quarter]))
    off.append(np.abs(forecast - sold.to_numpy()[quarter]).mean())
errors["ARIMA"] = np.mean(off)
inside = results["coverage"].xs("forecaster", level="method").mean()
print("Mean absolute error over five quarters, millions a week\n")
print(errors.sort_values().round(2).to_string())
print(f"\nInside the 90 % interval: {inside:.0%}")

# %%
# Another price
# -------------
# Ask for the last quarter at the prices that it had, and at others. What goes with a
# price is learned from weeks as they were: where a low price is one of plenty, setting
# it would bring less.

past, ahead = sold[:-N_AHEAD], sold[-N_AHEAD:]
forecaster = StructuralForecaster().fit(past, X=X[:-N_AHEAD])
forecast = forecaster.predict(fh=ahead.index, X=X[-N_AHEAD:])
interval = forecaster.predict_interval(ahead.index, X[-N_AHEAD:], coverage=0.9)
prices = np.linspace(X["price"][:-N_AHEAD].min(), X["price"][:-N_AHEAD].max(), 25)


def at(price: float) -> pd.Series:
    """Return the mean of the quarter at a price, and its 90 % interval."""
    constant = pd.DataFrame({"price": price}, ahead.index)
    bounds = forecaster.predict_interval(ahead.index, constant, coverage=0.9).mean()
    mean = forecaster.predict(ahead.index, constant).mean()
    return pd.Series({"sold": mean, "low": bounds.iloc[0], "high": bounds.iloc[1]})


curve = pd.DataFrame({price: at(price) for price in prices}).T
dear, cheap = at(1.2)["sold"], at(1.0)["sold"]
print(f"\nAt 1.20 dollars {dear:.1f} million a week are sold, at 1.00 {cheap:.1f}.")

# %%
# The picture
# -----------
# Left: the last quarter. Right: its mean week at each price, with the usual interval of
# a week, and the weeks that were seen.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.8, 3.4), layout="constrained", width_ratios=(1.5, 1)
)
plot_forecast(past, forecast, interval, y_test=ahead, ax=left)
left.set(xlim=(past.index[-60], ahead.index[-1]), xlabel="", ylabel="million a week")
left.xaxis.set_major_locator(mdates.MonthLocator([1, 7]))
left.xaxis.set_major_formatter(mdates.DateFormatter("%b %Y"))
right.plot(X["price"][:-N_AHEAD], past, ".", color="0.7", label="seen")
right.fill_between(curve.index, curve["low"], curve["high"], color="#0072B2", alpha=0.2)
right.plot(curve["sold"], color="#0072B2", label="the last quarter")
right.set(xlabel="price, dollars", ylim=left.get_ylim())
right.legend(frameon=False, fontsize="small")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
