"""Forecast a year ahead from 30 observations, with the calendar and without it.

The series is made here: four years of a daily temperature, of which 40 % of the days
are missing, a yearly season under weather that changes within days. The model sees 30
observations, which do not show the season; `calendar_features` as exogenous X says
where in the year each stamp lies. The last year is held out, a table is printed and a
picture saved. It takes about a quarter of a minute on two cores.

    python examples/calendar_season.py [--quick] [--output calendar.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster, calendar_features

SETTINGS = {
    "window_length": 30,
    "horizon": 30,
    "normalize": "series",  # the level is the training mean; X brings the season
    "max_epochs": 10,
    "random_state": 0,
}
SMALL = {"max_epochs": 1, "hidden_size": 4, "field_width": 4, "emission_width": 8}


def make_temperature(seed: int = 0) -> tuple[pd.Series, pd.Series]:
    """Return what was observed, in degrees, and the season under it on every day."""
    rng = np.random.default_rng(seed)
    days = pd.date_range("2022-01-01", "2025-12-31")
    phase = 2 * np.pi * (days.dayofyear.to_numpy() - 1) / 365.25
    season = 12 - 9 * np.cos(phase - 0.35) + 1.5 * np.sin(2 * phase)
    weather = np.zeros(len(days))
    for day, shock in enumerate(rng.standard_normal(len(days))):
        weather[day] = 0.7 * weather[day - 1] + 1.8 * shock
    observed = pd.Series(season + weather, days, name="temperature")
    return observed[rng.random(len(days)) < 0.6], pd.Series(season, days)


def by_regression(train: pd.Series, stamps: pd.DatetimeIndex) -> pd.Series:
    """Fit the same waves by least squares, without any model of the weather."""

    def design(index: pd.DatetimeIndex) -> np.ndarray:
        waves = calendar_features(index, periods="year").to_numpy()
        return np.column_stack([np.ones(len(index)), waves])

    weights, *_ = np.linalg.lstsq(design(train.index), train.to_numpy(), rcond=None)
    return pd.Series(design(stamps) @ weights, stamps)


def draw(
    y: pd.Series, season: pd.Series, forecasts: dict[str, pd.Series], output: str
) -> None:
    """Save the picture: history, the window, the held-out year and two forecasts."""
    start = forecasts["Latent ODE-LSTM"].index[0]
    history, test = y[y.index < start]["2024":], y[y.index >= start]
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    axes.axvspan(history.index[-30], history.index[-1], color="tab:blue", alpha=0.15)
    axes.annotate(
        "what the\nmodel sees",
        (history.index[-15], 0.97),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="top",
        color="tab:blue",
    )
    axes.plot(history, ".", color="0.7", markersize=4, label="history")
    axes.plot(test, ".", color="0.25", markersize=4, label="held out")
    axes.plot(season[start:], color="black", lw=1, ls=":", label="the season behind it")
    without = forecasts["Latent ODE-LSTM"]
    axes.plot(without, "--", color="tab:orange", lw=2, label="without the calendar")
    along = forecasts["Latent ODE-LSTM, calendar"]
    axes.plot(along, color="tab:green", lw=2.2, label="with calendar_features as X")
    axes.set(
        ylabel="temperature (°C)",
        title="A year ahead from a window of 30 observations",
        xlim=(history.index[0], test.index[-1]),
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.2))
    figure.savefig(output, dpi=120)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> pd.Series:
    """Fit, print the table, save the picture; return the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small model, one epoch")
    parser.add_argument("--output", default="calendar.png", help="the picture's path")
    options = parser.parse_args(arguments)
    settings = {**SETTINGS, **(SMALL if options.quick else {})}

    y, season = make_temperature()
    train, test = y[:"2024"], y["2025":]
    X = calendar_features(y.index, periods="year")
    plain = LatentODELSTMForecaster(**settings).fit(train)
    informed = LatentODELSTMForecaster(**settings).fit(train, X=X[:"2024"])
    forecasts = {
        "training mean": pd.Series(train.mean(), test.index),
        "regression on the waves": by_regression(train, test.index),
        "Latent ODE-LSTM": plain.predict(fh=test.index),
        "Latent ODE-LSTM, calendar": informed.predict(fh=test.index, X=X["2025":]),
    }
    errors = pd.Series({k: ((f - test) ** 2).mean() for k, f in forecasts.items()})
    print(f"{len(test)} held-out days of 2025, mean squared error in degrees squared\n")
    for name, error in errors.items():
        print(f"{name:28}{error:8.2f}")
    draw(y, season, forecasts, options.output)
    print(f"\nThe picture is in {options.output}")
    return errors


if __name__ == "__main__":
    main()
