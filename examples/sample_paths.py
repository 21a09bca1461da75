"""Draw sample paths: ten futures of a series, and ten new series like it.

A model learns a family of oscillations with phases and sizes of their own, at irregular
stamps. Ten paths continue one member of it from few noisy observations; ten others
continue nothing: they are new members of the family. A picture is saved.

    python examples/sample_paths.py [--output paths.png] [--quick]
"""

from __future__ import annotations

import argparse

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster

N_PATHS = 10
START = pd.Timestamp("2026-01-01")


def family(n_series: int = 40, n: int = 50, seed: int = 0) -> pd.DataFrame:
    """Return damped oscillations of one period, each at its own stamps."""
    rng = np.random.default_rng(seed)
    parts = {}
    for k in range(n_series):
        hours = np.cumsum(rng.uniform(0.3, 1.7, n))
        size, phase = rng.uniform(2, 4), rng.uniform(0, 2 * np.pi)
        wave = size * np.exp(-hours / 40) * np.sin(2 * np.pi * hours / 12 + phase)
        stamps = START + pd.to_timedelta(hours, unit="h").round("s")
        values = 20 + wave + 0.4 * rng.standard_normal(n)
        parts[k] = pd.DataFrame({"y": values}, stamps)
    return pd.concat(parts, names=["series", "time"])


def draw(
    seen: pd.Series, later: pd.Series, futures: pd.Series, new: pd.Series, output: str
) -> None:
    """Save the picture: futures of a series on the left, new series on the right."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4), sharey=True, layout="constrained"
    )
    colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.9, N_PATHS))
    for axes, paths in ((left, futures), (right, new)):
        for k, colour in enumerate(colours):
            path = paths.loc[k]
            hours = (path.index - START) / pd.Timedelta("1h")
            axes.plot(hours, path, color=colour, lw=1.2, alpha=0.8)
        axes.set_xlabel("hours")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    for data, face, label in ((seen, "0.1", "observed"), (later, "white", "held out")):
        hours = (data.index - START) / pd.Timedelta("1h")
        style = {"ms": 4.5, "mfc": face, "mec": "0.1", "mew": 0.8, "zorder": 3}
        left.plot(hours, data, "o", label=label, **style)
    left.legend(frameon=False, loc="upper right")
    left.set_title(
        f"{N_PATHS} paths of one series, given what was observed", loc="left"
    )
    right.set_title(f"{N_PATHS} new series", loc="left")
    left.set_ylabel("y")
    figure.savefig(output, dpi=120)


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Fit, print how the new series compare with the data, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="paths.png", help="the picture's path")
    parser.add_argument("--quick", action="store_true", help="hardly train")
    options = parser.parse_args(arguments)

    y = family()
    train = y.drop(index=0, level="series")
    forecaster = LatentODELSTMForecaster(
        hidden_size=16,
        latent_size=4,
        window_length=12,
        horizon=20,
        max_epochs=1 if options.quick else 40,
        finetune_epochs=0,
        random_state=0,
    ).pretrain(train)
    one = y.loc[0, "y"]
    seen, later = one[:12], one[12:40]
    ahead = pd.date_range(seen.index[0], later.index[-1], freq="15min")
    futures = forecaster.fit(seen).sample(ahead, N_PATHS, noise=False)["y"]

    forecaster.fit(train)  # new series begin as those of the history do
    stamps = pd.date_range(START, periods=4 * 40, freq="15min")
    new = forecaster.sample_prior(stamps, N_PATHS, noise=False)["y"]
    many = forecaster.sample_prior(stamps, 500)["y"]
    table = pd.DataFrame(
        {"data": train["y"].agg(["mean", "std"]), "new": many.agg(["mean", "std"])}
    )
    print(table.round(2))
    draw(seen, later, futures, new, options.output)
    print(f"\nThe picture is in {options.output}")
    return table


if __name__ == "__main__":
    main()
