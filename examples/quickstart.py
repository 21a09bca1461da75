"""Forecast a real irregular series: weekly CO2 at Mauna Loa, with its missing weeks.

The record ships with statsmodels. Its 59 missing weeks are dropped, so that the stamps
are truly irregular; the last two and a half years are held out. Three models forecast
at the held-out stamps, next to three baselines; a table is printed and a picture saved.

    python examples/quickstart.py [--output quickstart.png]
"""

from __future__ import annotations

import argparse
import time

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster, LatentODERNNForecaster
from sklode.datasets import load_co2

SETTINGS = {
    "window_length": 104,  # two years of weeks
    "horizon": 104,
    "step_size": 4.0,  # weeks: a thirteenth of the season
    "max_epochs": 32,
    "random_state": 0,
}


def baselines(train: pd.Series, stamps: pd.DatetimeIndex) -> dict[str, pd.Series]:
    """Forecast by the last value, a linear trend, and last year's value with drift."""
    recent = train[train.index > train.index[-1] - pd.DateOffset(years=10)]
    origin = recent.index[0]

    def days(index: pd.DatetimeIndex) -> np.ndarray:
        return ((index - origin) / pd.Timedelta("1D")).to_numpy()

    slope, level = np.polyfit(days(recent.index), recent.to_numpy(), 1)
    years = np.ceil((stamps - train.index[-1]) / pd.Timedelta("365.25D"))
    earlier = stamps - pd.to_timedelta(years * 365.25, unit="D")
    last_year = np.interp(days(earlier), days(recent.index), recent.to_numpy())
    drift = slope * 365.25 * years.to_numpy()
    return {
        "last value": pd.Series(train.iloc[-1], stamps),
        "linear trend (10 years)": pd.Series(level + slope * days(stamps), stamps),
        "last year + drift": pd.Series(last_year + drift, stamps),
    }


def main() -> None:
    """Fit, print the table, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="quickstart.png", help="the picture's path")
    output = parser.parse_args().output

    y = load_co2()
    train, test = y[:"1999-06-30"], y["1999-07-01":]
    gaps = y.index.to_series().diff().dropna().dt.days
    print(
        f"{len(train)} weekly observations to learn from, {len(test)} held out; "
        f"gaps from {gaps.min()} to {gaps.max()} days"
    )
    models = {
        "Latent ODE-RNN": LatentODERNNForecaster(**SETTINGS),
        "Latent ODE-LSTM": LatentODELSTMForecaster(clip_norm=None, **SETTINGS),
        "Latent ODE-LSTM+GC": LatentODELSTMForecaster(clip_norm=1.0, **SETTINGS),
    }
    forecasts = baselines(train, test.index)
    seconds = dict.fromkeys(forecasts, 0.0)
    for name, model in models.items():
        started = time.perf_counter()
        forecasts[name] = model.fit(train).predict(fh=test.index)
        seconds[name] = time.perf_counter() - started

    print(f"\n{'':26}{'MAE':>8}{'MSE':>8}{'seconds':>9}")
    for name, forecast in forecasts.items():
        error = forecast - test
        mae, mse = error.abs().mean(), (error**2).mean()
        print(f"{name:26}{mae:8.3f}{mse:8.3f}{seconds[name]:9.1f}")

    best = models["Latent ODE-LSTM+GC"]
    interval = best.predict_interval(fh=test.index, coverage=0.9)
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    history = train["1995":]
    axes.plot(history.index, history, ".", color="0.6", markersize=3, label="history")
    axes.plot(test.index, test, ".", color="black", markersize=4, label="held out")
    low, high = (interval.iloc[:, k].to_numpy() for k in (0, 1))
    band = axes.fill_between(test.index, low, high, color="tab:green", alpha=0.12, lw=0)
    band.set_label("90 % interval of Latent ODE-LSTM+GC")
    styles = {"Latent ODE-RNN": ":", "Latent ODE-LSTM": "--", "Latent ODE-LSTM+GC": "-"}
    for name, style in styles.items():
        axes.plot(test.index, forecasts[name], style, lw=1.6, label=name)
    axes.set(ylabel="CO$_2$ at Mauna Loa (ppm)", title="Two and a half years ahead")
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(output, dpi=120)
    print(f"\nThe picture is in {output}")


if __name__ == "__main__":
    main()
