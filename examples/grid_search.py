"""
Which settings are best?
========================

Every forecaster is a scikit-learn estimator: ``GridSearchCV`` searches its parameters,
``TimeSeriesSplit`` keeps the future out. Is anything better than the defaults? Asked of
the airline passengers, which ship with sktime. ::

    python examples/grid_search.py [--output grid_search.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sktime.datasets import load_airline

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Search over settings.")
parser.add_argument("--output", default="grid_search.png", help="the picture's path")
output = parser.parse_args().output

# %%
# The search
# ----------
# Five folds: train on all months before, score on the next year. ``score`` is minus the
# root mean squared error. The last two years are kept from the search; with
# ``refit=True``, the default, the best settings are fitted to all months before them.

y = load_airline()
train, test = y[:"1958"], y["1959":]
search = GridSearchCV(
    StructuralForecaster(),
    {"logarithm": ["auto", True, False], "seasons": ["auto", [12], None]},
    cv=TimeSeriesSplit(5, test_size=12),
)
search.fit(train)
results = pd.DataFrame(search.cv_results_)
table = pd.DataFrame(
    {
        "logarithm": [str(params["logarithm"]) for params in results["params"]],
        "seasons": [str(params["seasons"]) for params in results["params"]],
        "RMSE": -results["mean_test_score"],
        "spread": results["std_test_score"],
    }
).sort_values("RMSE")
print("Root mean squared error of a year, mean and spread of five folds\n")
print(table.round(1).to_string(index=False))

# %%
# What to take from it
# --------------------
# The defaults find the logarithm and the twelve months by themselves, on each fold from
# its own past. Saying the same comes to the same error. Taking a part from the model
# costs. So say what you know, and search where you doubt.
#
# Differences that are small beside the spread of the folds mean nothing.

best = search.best_estimator_
naive = pd.Series(np.resize(train[-12:].to_numpy(), len(test)), test.index)
forecasts = {
    "best": best.predict(fh=test.index),
    "no season": StructuralForecaster(seasons=None).fit(train).predict(fh=test.index),
    "last season": naive,
}
errors = pd.Series(
    {name: np.sqrt(((f - test) ** 2).mean()) for name, f in forecasts.items()}
)
print(f"\nBest on the folds: {search.best_params_}")
print("Root mean squared error of the two years kept from the search:\n")
print(errors.round(1).to_string())

# %%
# The picture
# -----------
# Left: settings, as logarithm and seasons. Right: the best one, where nobody looked.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(7.8, 3.8), width_ratios=(1, 1.4), layout="constrained"
)
names = [f"{row.logarithm}, {row.seasons}" for row in table.itertuples()]
left.errorbar(table["RMSE"], names, xerr=table["spread"], fmt="o", color="#0072B2")
left.invert_yaxis()
left.set(title="Search: logarithm, seasons", xlabel="RMSE, with spread of folds")
left.set_xlim(0, None)
plot_forecast(
    train["1955":],
    {name: forecasts[name] for name in ("best", "last season")},
    {"best": best.predict_interval(fh=test.index, coverage=0.9)},
    y_test=test,
    ax=right,
)
right.legend(frameon=False, fontsize="small", loc="upper left")
right.set(title="The two years kept from it", xlabel="", ylabel="passengers, thousands")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
