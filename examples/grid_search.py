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
# Two sines and noise of a standard deviation of 0.1. The last 40 observations are kept
# from the search.

rng = np.random.default_rng(0)
hours = np.cumsum(np.maximum(rng.exponential(1.0, 280), 1e-2))
signal = np.sin(2 * np.pi * hours / 20) + 0.5 * np.sin(2 * np.pi * hours / 7)
stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(hours, unit="h").round("s")
y = pd.Series(signal + 0.1 * rng.standard_normal(len(hours)), stamps, name="y")
train, test = y[:240], y[240:]

# %%
# The search
# ----------
# Three folds, each later and longer than the one before: train on 120, 160 and 200
# observations, score on the next 40. Nothing of a fold's future is seen. With
# ``refit=True``, the default, the best is fitted to all of ``train`` at the end.

sizes = [2, 4, 8, 16]
search = GridSearchCV(
    LatentODELSTMForecaster(max_epochs=40, random_state=0),
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
