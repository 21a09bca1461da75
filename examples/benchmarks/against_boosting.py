"""Where a network adds to the level: beside gradient boosting on lags.

- ``laws``: 60 series of predators and prey, 30 irregular rows each, every series with
  parameters of its own. 20 new series show 30 rows; the next 10 are asked.
- ``driven``: one series of 500 irregular rows that follows a control by a law that is
  no straight line. The control is known ahead, as X; the next 40 rows are asked.
- ``delay``: channel B is a curved function of channel A five units of time ago; each
  channel has stamps of its own. B's next five units are asked.

Boosting is scikit-learn's on features that a user would make: the last rows and the
gaps between them; means of the control; of a delay, A at the lags that matter. Errors
are mean squared errors over the variance of the truth, or, of ``delay``, mean absolute
errors over its standard deviation. Means over seeds are geometric.

    python examples/benchmarks/against_boosting.py [--cases laws] [--seeds 0 1 2 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from sklearn.ensemble import HistGradientBoostingRegressor

from sklode import LatentODELSTMForecaster, StructuralForecaster

Array = NDArray[np.float64]
NOISE = 0.05
START = pd.Timestamp("2025-01-01")
METHODS = "Latent ODE-LSTM", "StructuralForecaster", "boosting", "last value"


def stamps(hours: Array) -> pd.DatetimeIndex:
    """Return the time stamps of hours since the start."""
    return START + pd.to_timedelta(np.round(hours * 3.6e6), unit="ms")


def hours_of(index: pd.DatetimeIndex) -> Array:
    """Return hours since the start of time stamps."""
    return np.asarray((index - START) / pd.Timedelta("1h"), dtype=float)


def boosted(features: Any, goal: Any, asked: Any) -> Array:
    """Return what gradient boosting makes of features."""
    model = HistGradientBoostingRegressor(random_state=0)
    return np.asarray(model.fit(features, goal).predict(asked))


def ours(seed: int, n_epochs: int | None) -> dict[str, Any]:
    """Return our forecasters; with no number of epochs, by their defaults."""
    network = LatentODELSTMForecaster(max_epochs=n_epochs, random_state=seed)
    return {METHODS[0]: network, METHODS[1]: StructuralForecaster()}


def predators(rng: np.random.Generator, n_rows: int) -> tuple[Array, Array]:
    """Return times and numbers of prey and predators (Lotka and Volterra)."""
    a, b, c, d = rng.uniform(0.8, 1.2, 4)
    start, times = rng.uniform(0.4, 2.2, 2), rng.exponential(0.35, n_rows).cumsum()

    def speed(_: float, x: Array) -> list[float]:
        return [a * x[0] - b * x[0] * x[1], d * x[0] * x[1] - c * x[1]]

    span = 0, times[-1]
    path = solve_ivp(speed, span, start, t_eval=times, rtol=1e-8, atol=1e-8)
    return times, path.y.T


def laws(
    seed: int, forecasters: dict[str, Any]
) -> tuple[Array, dict[str, Array], float]:
    """Return the truth of new series, forecasts of it, and a scale of errors."""
    rng, n_seen, n_shown, n_ahead = np.random.default_rng(seed), 60, 30, 10
    seen = [predators(rng, n_shown) for _ in range(n_seen)]
    new = [predators(rng, n_shown + n_ahead) for _ in range(20)]
    spread = np.concatenate([x for _, x in seen]).std(0)

    def noisy(x: Array) -> Array:
        return np.asarray(x + NOISE * spread * rng.standard_normal(x.shape))

    def panel(series: dict[int, tuple[Array, Array]]) -> pd.DataFrame:
        frames = {k: pd.DataFrame(x, stamps(t)) for k, (t, x) in series.items()}
        return pd.concat(frames, names=["series", "time"]).add_prefix("x")

    learned = {k: (t, noisy(x)) for k, (t, x) in enumerate(seen)}
    shown = {
        n_seen + k: (t[:n_shown], noisy(x[:n_shown])) for k, (t, x) in enumerate(new)
    }
    asked = {n_seen + k: (t[n_shown:], x[n_shown:]) for k, (t, x) in enumerate(new)}
    truth = panel(asked)
    found: dict[str, Array] = {}
    for name, forecaster in forecasters.items():
        forecaster.fit(panel(learned)).update(panel(shown), update_params=False)
        found[name] = forecaster.predict_at(truth.index).to_numpy()

    def features(t: Array, x: Array, row: int, to: float) -> Array:
        """Return the last eight rows, the gaps between them, and how far ahead."""
        gaps = t[row] - t[row - 7 : row]
        return np.concatenate([x[row - 7 : row + 1].ravel(), gaps, [to - t[row]]])

    pairs = [
        (features(t, x, row, t[ahead]), x[ahead])
        for t, x in learned.values()
        for row in range(8, n_shown - 1)
        for ahead in range(row + 1, min(row + n_ahead + 1, n_shown))
    ]
    known, goals = (np.array(part) for part in zip(*pairs, strict=True))
    last = n_shown - 1
    rows = [
        features(*shown[key], last, to) for key, (t, _) in asked.items() for to in t
    ]
    found[METHODS[2]] = np.column_stack(
        [boosted(known, goal, np.array(rows)) for goal in goals.T]
    )
    ends = [x[-1] for _, x in shown.values()]
    found[METHODS[3]] = np.repeat(ends, n_ahead, axis=0)
    return truth.to_numpy(), found, float(truth.to_numpy().var())


def driven(
    seed: int, forecasters: dict[str, Any]
) -> tuple[Array, dict[str, Array], float]:
    """Return the truth after the last row, forecasts of it, and a scale of errors."""
    rng, n_rows, step = np.random.default_rng(seed), 500, 0.01
    edges, heights = rng.exponential(4.0, 400).cumsum(), rng.standard_normal(401)

    def control(t: Array) -> Array:
        return np.asarray(heights[np.searchsorted(edges, t)])

    fine = np.arange(0, edges[-1] - 10, step)
    goal, x = np.tanh(2 * control(fine)), np.zeros(len(fine))
    for i in range(1, len(fine)):
        x[i] = x[i - 1] + step * (goal[i - 1] - x[i - 1]) / 3
    times = rng.exponential(0.6, n_rows + 40).cumsum() + 10
    truth = np.interp(times, fine, x)
    values = truth + NOISE * x.std() * rng.standard_normal(len(times))
    y = pd.Series(values, stamps(times), name="x")
    X = pd.DataFrame({"control": control(times)}, y.index)
    found: dict[str, Array] = {}
    for name, forecaster in forecasters.items():
        forecaster.fit(y[:n_rows], X=X[:n_rows])
        ahead = forecaster.predict(fh=y.index[n_rows:], X=X[n_rows:])
        found[name] = ahead.to_numpy()
    total = np.append(0.0, control(fine).cumsum() * step)[:-1]
    means = [
        (np.interp(times, fine, total) - np.interp(times - width, fine, total)) / width
        for width in (1, 2, 4, 8)
    ]
    features = np.column_stack([control(times), *means])
    found[METHODS[2]] = boosted(features[:n_rows], y[:n_rows], features[n_rows:])
    found[METHODS[3]] = np.full(40, y.iloc[n_rows - 1])
    return truth[n_rows:], found, float(x.var())


def delay(
    seed: int, forecasters: dict[str, Any]
) -> tuple[Array, dict[str, Array], float]:
    """Return the truth of channel B, forecasts of it, and a scale of errors."""
    rng, step, lag = np.random.default_rng(seed), 0.05, 5.0
    grid = np.arange(0, 660, step)
    wander, kicks = np.zeros(len(grid)), 1.5 * np.sqrt(step / 4)
    for i in range(1, len(grid)):
        kick = kicks * rng.standard_normal()
        wander[i] = wander[i - 1] * (1 - step / 8) + kick
    signals: dict[str, tuple[Callable[[Array], Array], int]] = {
        "A": (lambda t: np.interp(t, grid, wander), 900),
        "B": (lambda t: np.tanh(1.2 * np.interp(t - lag, grid, wander)), 600),
        "C": (lambda t: np.sin(t / 7), 400),
    }
    channels = {}
    for name, (signal, n_rows) in signals.items():
        t = np.unique(np.round(rng.uniform(10, 600, n_rows), 3))
        values = signal(t) + NOISE * rng.standard_normal(len(t))
        channels[name] = pd.Series(values, stamps(t))
    y = pd.concat(channels, axis=1, sort=True)
    ahead = np.arange(600.5, 605.01, 0.5)
    truth, scale = signals["B"][0](ahead), signals["B"][0](np.arange(10, 600, 0.5))
    found: dict[str, Array] = {}
    for name, forecaster in forecasters.items():
        found[name] = forecaster.fit(y).predict(fh=stamps(ahead))["B"].to_numpy()
    a, b = (y[name].dropna() for name in "AB")

    def lags(t: Array) -> Array:
        return np.interp(t[:, None] - np.arange(lag, lag + 6), hours_of(a.index), a)

    found[METHODS[2]] = boosted(lags(hours_of(b.index)), b, lags(ahead))
    found[METHODS[3]] = np.full(len(ahead), b.iloc[-1])
    return truth, found, float(scale.std())


CASES = {"laws": laws, "driven": driven, "delay": delay}


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print errors of each case and method; return them by case and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3])
    parser.add_argument("--epochs", type=int, help="of the network; few: a quick look")
    options = parser.parse_args(arguments)
    errors = {}
    for case in options.cases:
        for seed in options.seeds:
            started = time.perf_counter()
            truth, found, scale = CASES[case](seed, ours(seed, options.epochs))
            power = 1 if case == "delay" else 2
            errors[case, seed] = {
                name: float((np.abs(values - truth) ** power).mean() / scale)
                for name, values in found.items()
            }
            row = ", ".join(f"{m} {e:.3f}" for m, e in errors[case, seed].items())
            seconds = time.perf_counter() - started
            print(f"{case}, seed {seed}: {row} ({seconds:.0f} s)", flush=True)
    table = pd.DataFrame(errors).T.rename_axis(["case", "seed"])
    means = np.exp(np.log(table).groupby("case", sort=False).mean())
    print(
        "\nGeometric means over seeds\n\n"
        + means.to_string(float_format="{:.3f}".format)
    )
    return table


if __name__ == "__main__":
    main()
