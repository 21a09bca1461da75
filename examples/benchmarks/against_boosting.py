"""Compare with gradient boosting on lags, on many series of one nonlinear law.

Sixty series of predators and prey, each with parameters, stamps and 30 noisy rows of
its own. Twenty new series show 30 rows; their next ten are forecast. The network is
fitted on the sixty and updated with the twenty, without more training. Boosting
(scikit-learn's `HistGradientBoostingRegressor`) learns from the last eight rows, the
time since each, and the time ahead. Mean squared errors against the truth without
noise, over its variance, are printed.

    python examples/benchmarks/against_boosting.py [--seeds 0 1 2 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import LatentODELSTMForecaster, StructuralForecaster

START = pd.Timestamp("2025-01-01")
N_ROWS, N_AHEAD, N_LAGS, NOISE = 30, 10, 8, 0.05

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


def boosting(many: list[Series], new: list[Series]) -> np.ndarray:
    """Forecast new series by boosting on lags of many."""
    rows = [
        (with_lags(one, i, j), one[1][j])
        for one in many
        for i in range(N_LAGS, N_ROWS - 1)
        for j in range(i + 1, min(N_ROWS, i + N_AHEAD + 1))
    ]
    X, y = map(np.array, zip(*rows, strict=True))
    ahead = range(N_ROWS, N_ROWS + N_AHEAD)
    asked = np.array([with_lags(one, N_ROWS - 1, j) for one in new for j in ahead])
    models = (HistGradientBoostingRegressor(random_state=0).fit(X, c) for c in y.T)
    return np.stack([model.predict(asked) for model in models], axis=1)


def errors(seed: int) -> dict[str, tuple[float, float]]:
    """Return each method's error and seconds."""
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
    found = {}

    def score(name: str, start: float, forecast: np.ndarray) -> None:
        missed = (np.asarray(forecast) - truth.to_numpy()) ** 2
        error = missed.mean() / truth.to_numpy().var()
        found[name] = float(error), time.perf_counter() - start

    network = LatentODELSTMForecaster(random_state=seed)
    for name, forecaster in (
        ("LatentODELSTMForecaster", network),
        ("StructuralForecaster", StructuralForecaster()),
    ):
        start = time.perf_counter()
        forecaster.fit(before).update(shown, update_params=False)
        score(name, start, forecaster.predict_at(truth.index))
    start = time.perf_counter()
    score("boosting on lags", start, boosting(many, new))
    last = [x[N_ROWS - 1] for _, x in new]
    score("last value", time.perf_counter(), np.repeat(last, N_AHEAD, axis=0))
    return found


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Compare for each seed, and print the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    rows = [
        (name, *one)
        for seed in parser.parse_args(arguments).seeds
        for name, one in errors(seed).items()
    ]
    table = pd.DataFrame(rows, columns=["method", "MSE / variance", "seconds"])
    means = np.exp(np.log(table.set_index("method")).groupby("method").mean())
    means = means.sort_values("MSE / variance")
    print(means.round(3).to_string())
    return means


if __name__ == "__main__":
    main()
