"""
Tuning: scikit-learn's GridSearchCV over hidden sizes
=====================================================

The forecasters are scikit-learn estimators as well: ``GridSearchCV`` searches their
parameters, ``TimeSeriesSplit`` keeps time in order. ``score`` is minus the root mean
squared error at the fold's own time stamps. ::

    python examples/grid_search.py [--output grid_search.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Search over hidden sizes.")
parser.add_argument("--output", default="grid_search.png", help="the picture's path")
output = parser.parse_args().output

# %%
# A series at random times
# ------------------------
# A wave of 20 hours, and noise of a standard deviation of 0.2. The last 40 observations
# are kept from the search.

rng = np.random.default_rng(0)
hours = np.cumsum(np.maximum(rng.exponential(1.0, 280), 1e-2))
signal = np.sin(2 * np.pi * hours / 20)
stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(hours, unit="h").round("s")
y = pd.Series(signal + 0.2 * rng.standard_normal(len(hours)), stamps, name="y")
train, test = y[:240], y[240:]

# %%
# The search
# ----------
# Three folds, each later and longer than the one before: train on 120, 160 and 200
# observations, score on the next 40. Nothing of a fold's future is seen. With
# ``refit=True``, the default, the best is fitted to all of ``train`` at the end. A
# window of 48 observations shows two waves and more: enough to read their phase off.

SETTINGS = {
    "window_length": 48,
    "horizon": 24,
    "level": "series",
    "max_epochs": 150,
    "batch_size": 32,
    "lr": 0.01,
    "random_state": 0,
}
sizes = [1, 4, 16]
search = GridSearchCV(
    LatentODELSTMForecaster(**SETTINGS),
    {"hidden_size": sizes},
    cv=TimeSeriesSplit(3, test_size=40),
)
search.fit(train)

folds = [f"split{k}_test_score" for k in range(3)]
results = pd.DataFrame(search.cv_results_).set_index("param_hidden_size")
rmse = -results[folds]
rmse.columns = ["fold 1", "fold 2", "fold 3"]
table = rmse.assign(mean=rmse.mean(axis=1), seconds=results["mean_fit_time"])
print("Root mean squared error of each fold\n")
print(table.round(3).to_string())

# %%
# How good is the best one where nobody has looked yet? Differences between sizes that
# are smaller than those between folds are not to be relied on: three folds and one seed
# keep you from what does not work at all. For more, average seeds.

best = search.best_params_["hidden_size"]
held_out = pd.Series(
    {
        "best on the folds": -search.best_estimator_.score(test),
        "mean of what was seen": np.sqrt(((test - train.mean()) ** 2).mean()),
        "the noise": 0.2,
    }
)
print(f"\nBest on the folds: hidden_size={best}")
print("Root mean squared error of the 40 observations kept from the search:")
print(held_out.round(3).to_string())

# %%
# The errors of the folds on the left; on the right the forecast of the best.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4.5), width_ratios=(2, 3), layout="constrained"
)
for fold, marker in zip(rmse, ("o", "s", "^"), strict=True):
    left.plot(sizes, rmse[fold], marker, color="0.45", mfc="white", label=fold)
left.plot(sizes, rmse.mean(axis=1), "-", color="#0072B2", lw=2, label="mean of folds")
left.plot(best, held_out.iloc[0], "k*", ms=11, label="best one, held out")
left.set_xscale("log", base=2)
left.set_xticks(sizes, [str(size) for size in sizes])
left.set(xlabel="hidden_size", ylabel="root mean squared error", ylim=(0, None))
left.set_title("Search")
left.legend(frameon=False)
fine = pd.date_range(train.index[-40], test.index[-1], periods=400)
plot_forecast(
    train[-40:],
    search.best_estimator_.predict(fine),
    search.best_estimator_.predict_interval(fine, coverage=0.9),
    y_test=test,
    ax=right,
)
right.set(title=f"hidden_size={best}, chosen without the last 40", xlabel="")
right.legend(loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, -0.1))
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
