"""Compare with gradient boosting on lags, on many series of one nonlinear law.

Sixty series of predators and prey, each with parameters, stamps and 30 noisy rows of
its own. Twenty new series show 30 rows; their next ten are forecast. The network is
fitted on the sixty and updated with the twenty, without more training. Boosting
(scikit-learn's `HistGradientBoostingRegressor`) learns from the last eight rows, the
time since each, and the time ahead. Mean squared errors against the truth without
noise, over its variance, are printed; and the continuous ranked probability score of
noisy values by quantiles, over their standard deviation. Boosting learns a model of
each quantile; the quantiles of the last value are that value.

    python examples/benchmarks/against_boosting.py [--seeds 0 1 2 3]
        [--epochs N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.model_selection import quantile_crps

START = pd.Timestamp("2025-01-01")
N_ROWS, N_AHEAD, N_LAGS, NOISE = 30, 10, 8, 0.05
LEVELS = (np.arange(10) + 0.5) / 10  # of quantiles

Series = tuple[np.ndarray, np.ndarray]
"""Hours (row,) and predators and prey (row, 2)."""


def law(rng: np.random.Generator, n_rows: int) -> Series:
    """Return a series of Lotka and Volterra's law, without noise."""
    a, b, c, d = rng.uniform(0.8, 1.2, 4)
    hours = np.cumsum(rng.exponential(0.35, n_rows)) + 0.05
    path = solve_ivp(
        lambda t, x: [a * x[0] - b * x[0] * x[1], d * x[0] * x[1] - c * x[1]],
        (0, hours[-1]),
        rng.uniform(0.4, 2.2, 2),
        t_eval=hours,
        rtol=1e-8,
        atol=1e-8,
    )
    return hours, path.y.T


def panel(series: list[Series]) -> pd.DataFrame:
    """Return series as a panel."""
    parts = {
        k: pd.DataFrame(
            x, START + pd.to_timedelta(np.round(hours * 3.6e6), unit="ms"), ["x", "y"]
        )
        for k, (hours, x) in enumerate(series)
    }
    return pd.concat(parts, names=["series", "time"])


def with_lags(series: Series, row: int, ahead: int) -> np.ndarray:
    """Return what boosting reads: the last rows, how long ago each was, time ahead."""
    hours, x = series
    seen = slice(row - N_LAGS + 1, row + 1)
    times = hours[row] - hours[seen][:-1], [hours[ahead] - hours[row]]
    return np.concatenate([x[seen].ravel(), *times])


def boosting(many: list[Series], new: list[Series], **loss: Any) -> np.ndarray:
    """Forecast new series, (row, column), by boosting on lags of many."""
    rows = [
        (with_lags(one, i, j), one[1][j])
        for one in many
        for i in range(N_LAGS, N_ROWS - 1)
        for j in range(i + 1, min(N_ROWS, i + N_AHEAD + 1))
    ]
    X, y = map(np.array, zip(*rows, strict=True))
    ahead = range(N_ROWS, N_ROWS + N_AHEAD)
    asked = np.array([with_lags(one, N_ROWS - 1, j) for one in new for j in ahead])
    model = HistGradientBoostingRegressor(random_state=0, **loss)
    models = (clone(model).fit(X, column) for column in y.T)
    return np.stack([model.predict(asked) for model in models], axis=1)


def errors(seed: int, epochs: int | None) -> dict[str, dict[str, float]]:
    """Return each method's error, score and seconds of its points."""
    rng = np.random.default_rng(seed)
    many = [law(rng, N_ROWS) for _ in range(60)]
    new = [law(rng, N_ROWS + N_AHEAD) for _ in range(20)]
    spread = np.concatenate([x for _, x in many]).std(0)

    def noisy(series: Series) -> Series:
        hours, x = series
        return hours, x + NOISE * spread * rng.normal(size=x.shape)

    truth = panel([(h[N_ROWS:], x[N_ROWS:]) for h, x in new])
    many, new = [noisy(one) for one in many], [noisy(one) for one in new]
    before = panel(many)
    shown = panel([(h[:N_ROWS], x[:N_ROWS]) for h, x in new])
    truth, shown = (
        one.rename(lambda k: k + len(many), level="series") for one in (truth, shown)
    )
    observed = np.concatenate([x[N_ROWS:] for _, x in new])
    found = {}

    def score(name: str, start: float, points: Any) -> None:
        missed = (np.asarray(points) - truth.to_numpy()) ** 2
        found[name] = {
            "MSE / variance": missed.mean() / truth.to_numpy().var(),
            "seconds": time.perf_counter() - start,
        }

    def score_quantiles(name: str, quantiles: np.ndarray) -> None:
        by_level = quantiles.reshape(-1, len(LEVELS))
        each = quantile_crps(observed.ravel(), by_level, LEVELS)
        found[name]["CRPS / deviation"] = each.mean() / observed.std()

    network = LatentODELSTMForecaster(max_epochs=epochs, random_state=seed)
    for name, forecaster in (
        ("LatentODELSTMForecaster", network),
        ("StructuralForecaster", StructuralForecaster()),
    ):
        start = time.perf_counter()
        forecaster.fit(before).update(shown, update_params=False)
        score(name, start, forecaster.predict_at(truth.index))
        quantiles = forecaster.predict_quantiles(truth.index, alpha=[*LEVELS])
        score_quantiles(name, quantiles.to_numpy())
    start = time.perf_counter()
    score("boosting on lags", start, boosting(many, new))
    each = [boosting(many, new, loss="quantile", quantile=level) for level in LEVELS]
    score_quantiles("boosting on lags", np.stack(each, axis=-1))
    last = np.repeat([x[N_ROWS - 1] for _, x in new], N_AHEAD, axis=0)
    score("last value", time.perf_counter(), last)
    score_quantiles("last value", np.repeat(last[..., None], len(LEVELS), axis=-1))
    return found


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Compare for each seed, and print the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--epochs", type=int, help="of a training; else its default")
    given = parser.parse_args(arguments)
    each = [pd.DataFrame(errors(seed, given.epochs)).T for seed in given.seeds]
    table = pd.concat(each)
    means = np.exp(np.log(table).groupby(level=0).mean()).rename_axis("method")
    means = means.sort_values("MSE / variance")
    print(means.round(3).to_string())
    return means


if __name__ == "__main__":
    main()
