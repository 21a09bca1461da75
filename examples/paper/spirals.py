"""The paper's spirals: reconstruct them, and extrapolate forward and backward.

1000 noisy series of N = 30, 50, 100 or 250 stamps, see `make_spirals`, are learned as
one panel; the truth without noise is scored at all 250 positions of the windows and at
the 62 after and before each. Those are "covered" where the place on the
spiral lies inside some training window, and "beyond" where no window reaches. A table
is printed; the paper's figure and the gradient norms of each epoch are saved.

    python examples/paper/spirals.py [--stamps 100] [--seeds 0 1 2] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from protocol import make_spirals
from settings import MODELS, PAPER_SPIRALS, SPIRALS

STAMPS = (30, 50, 100, 250)
PARTS = (
    "reconstruction",
    "forward covered",
    "forward beyond",
    "backward covered",
    "backward beyond",
)
SETTINGS = {"ours": SPIRALS, "paper": PAPER_SPIRALS}

_N_WINDOW = 250
_COVERED = (62, 438)
_RADIANS_PER_PLACE = 6 * np.pi / 499

# Of the authors' public code, seed 0, 750 epochs: reconstruction, forward covered and
# beyond, backward covered and beyond, seconds on one core (N = 100).
AUTHORS = {
    "Latent ODE-RNN": (0.036, 0.174, 34.2, 0.455, 6.1, "334 to 484"),
    "Latent ODE-LSTM": (0.138, 0.650, 28.5, 2.53, 6.8, "364 to 456"),
}


def places_of(truth: pd.DataFrame) -> NDArray[np.int64]:
    """Return the place on the 500-point spiral of each row, from its radius.

    A series of an odd number is counterclockwise, r = 0.3 t around (5, 0); one of an
    even number clockwise, r = 15 / (6 pi + 1 - t) around (-5, 0).
    """
    odd = truth.index.get_level_values(0).to_numpy() % 2 == 1
    centre = np.where(odd, 5.0, -5.0)
    radius = np.hypot(truth["x"] - centre, truth["y"]).to_numpy()
    with np.errstate(divide="ignore"):
        t = np.where(odd, radius / 0.3, 6 * np.pi + 1 - 15 / radius)
    return np.rint(t / _RADIANS_PER_PLACE).astype(np.int64)


def parts_of(truth: pd.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Return which rows belong to each part that is scored."""
    position = truth.index.get_level_values("position").to_numpy()
    places = places_of(truth)
    covered = (places >= _COVERED[0]) & (places < _COVERED[1])
    after, before = position >= _N_WINDOW, position < 0
    masks = (
        ~after & ~before,
        after & covered,
        after & ~covered,
        before & covered,
        before & ~covered,
    )
    return dict(zip(PARTS, masks, strict=True))


def scores(forecast: pd.DataFrame, truth: pd.DataFrame) -> dict[str, float]:
    """Return the mean squared error of each part."""
    squared = ((forecast - truth) ** 2).to_numpy()
    return {part: float(squared[rows].mean()) for part, rows in parts_of(truth).items()}


def make_set(
    n_stamps: int, seed: int, n_series: int, per_series: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the observed panel and the truth.

    Parameters
    ----------
    n_stamps, seed, n_series : int
        Of `make_spirals`.
    per_series : bool
        Whether every series is observed at random positions of its own, the first one
        always; else all series at the same.
    """
    if not per_series:
        return make_spirals(n_series, n_stamps, random_state=seed)
    observed, truth = make_spirals(n_series, _N_WINDOW, random_state=seed)
    rng = np.random.default_rng([seed, n_stamps])
    order = rng.random((n_series, _N_WINDOW))
    order[:, 0] = -1.0
    chosen = order.argsort(axis=1).argsort(axis=1) < n_stamps
    return observed[chosen.ravel()], truth


def fit(name: str, settings: dict[str, Any], observed: pd.DataFrame, seed: int) -> Any:
    """Fit a model to the panel; a window is a whole series."""
    model, threshold = MODELS[name]
    n_stamps = len(observed.loc[observed.index[0][0]])
    lengths = {"window_length": n_stamps, "horizon": max(n_stamps // 4, 1)}
    if "step_size" in settings:  # in median gaps of the set of 100 stamps
        lengths["step_size"] = settings["step_size"] * n_stamps / 100
    forecaster = model(**{**settings, **threshold, **lengths}, random_state=seed)
    return forecaster.fit(observed)


def draw(
    panels: dict[tuple[int, str], pd.DataFrame],
    sets: dict[int, tuple[pd.DataFrame, pd.DataFrame]],
    names: Sequence[str],
    path: Path,
) -> None:
    """Save the paper's figure: the first set's spiral of each kind, a row per model."""
    n_stamps = next(iter(sets))
    observed, truth = sets[n_stamps]
    names = names[-3:]  # six spirals are as many as can be read
    figure, axes = plt.subplots(
        len(names),
        2,
        figsize=(7.8, 3.5 * len(names) + 0.5),
        layout="constrained",
        squeeze=False,
    )
    # the first series whose neighbourhood is covered on both sides
    inside = parts_of(truth)
    hidden = inside["forward beyond"] | inside["backward beyond"]
    known = ~pd.Series(hidden, truth.index).groupby(level=0).any()
    for (i, name), kind in product(enumerate(names), (0, 1)):
        numbers = [k for k in truth.index.unique(0) if k % 2 == kind]
        series = max(numbers, key=lambda k: (known[k], -k))
        curve, seen = truth.loc[series], observed.loc[series]
        ax, forecast = axes[i, kind], panels[n_stamps, name].loc[series]
        ax.plot(curve["x"], curve["y"], color="0.75", lw=5, label="truth")
        ax.plot(seen["x"], seen["y"], "o", color="0.45", ms=2.5, label="observed")
        spans = {
            "reconstruction": (forecast.loc[0:249], "#0072B2", "-"),
            "forward": (forecast.loc[249:], "#D55E00", "--"),
            "backward": (forecast.loc[:0], "#009E73", ":"),
        }
        for label, (part, color, dashes) in spans.items():
            look = {"color": color, "ls": dashes, "lw": 2, "label": label}
            ax.plot(part["x"], part["y"], **look)
        ax.set_aspect("equal", adjustable="datalim")
        ax.spines[["top", "right"]].set_visible(False)
        ax.set(xlabel="x", ylabel="y")
        turn = ("clockwise", "counterclockwise")[kind]
        ax.set_title(turn if len(names) == 1 else f"{name}, {turn}", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_gradients(histories: dict[str, pd.DataFrame], title: str, path: Path) -> None:
    """Save the gradient norm before clipping, and the loss, of each epoch."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, layout="constrained"
    )
    for name, history in histories.items():
        above.semilogy(history["grad_norm"], lw=1.3, label=name)
        below.plot(history["loss"], lw=1.3, label=name)
    above.set(ylabel="gradient norm before clipping", title=title)
    below.set(xlabel="epoch", ylabel="loss")
    above.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def report_gradients(name: str, forecaster: Any) -> str:
    """Say in a line what the gradient norms and the loss did."""
    history = forecaster.history_
    norms, skipped = history["grad_norm"], history["skipped_steps"]
    exploded = history.index[(norms > 100 * norms.median()) | (skipped > 0)].tolist()
    gone_back = history.index[history["restored_epoch"] > 0].tolist()
    if exploded:
        verdict = f"explosions in epochs {exploded}"
    else:
        verdict = "no explosion (an epoch's mean above 100 times the median)"
    return (
        f"{name}: {verdict}; median {norms.median():.3g}, largest "
        f"{norms.max():.3g} in epoch {norms.idxmax()}, steps not "
        f"finite {skipped.sum()}, diverged and taken back after epochs "
        f"{gone_back}, loss {history.loss.iloc[0]:.3g} -> {history.loss.iloc[-1]:.3g}"
    )


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Fit, print the tables, save the pictures; return the scores of every fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stamps", type=int, nargs="+", default=STAMPS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    models = list(MODELS)
    parser.add_argument("--models", nargs="+", default=models[1:], choices=models)
    which = {"nargs": "+", "default": ["ours"], "choices": list(SETTINGS)}
    parser.add_argument("--settings", **which, help="whose settings")
    parser.add_argument("--per-series-stamps", action="store_true")
    parser.add_argument("--series", type=int, default=1000, help="number of series")
    parser.add_argument("--epochs", type=int, help="in place of the settings'")
    parser.add_argument("--output", type=Path, default=Path("spirals"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)

    rows = []
    for whose in options.settings:
        settings = dict(SETTINGS[whose])
        if options.epochs:
            settings["max_epochs"] = options.epochs
        panels, sets, fitted = {}, {}, {}
        for n_stamps in options.stamps:
            for seed in options.seeds:
                observed, truth = make_set(
                    n_stamps, seed, options.series, options.per_series_stamps
                )
                for name in options.models:
                    started, busy = time.perf_counter(), time.process_time()
                    forecaster = fit(name, settings, observed, seed)
                    seconds = time.perf_counter() - started
                    busy = time.process_time() - busy
                    forecast = forecaster.predict_at(truth.index)
                    row = scores(forecast, truth)
                    key = {"N": n_stamps, "settings": whose, "model": name}
                    took = {"seconds": seconds, "CPU seconds": busy}
                    rows.append({**key, "seed": seed, **row, **took})
                    shown = "  ".join(f"{part} {row[part]:.4g}" for part in PARTS)
                    print(f"N={n_stamps} {whose} {name} seed {seed}: {shown}  ", end="")
                    print(f"{seconds:.0f} s, {busy:.0f} s of CPU", flush=True)
                    if seed == options.seeds[0]:
                        panels[n_stamps, name] = forecast
                        sets[n_stamps] = observed, truth
                        fitted[n_stamps, name] = forecaster
        draw(panels, sets, options.models, options.output / f"spirals-{whose}.png")
        most = max(options.stamps)
        histories = {name: fitted[most, name].history_ for name in options.models}
        title = f"N = {most}, {whose} settings"
        draw_gradients(histories, title, options.output / f"gradients-{whose}.png")
        print(f"\nGradient norms, {title}, seed {options.seeds[0]}")
        for name in options.models:
            print(report_gradients(name, fitted[most, name]))

    table = pd.DataFrame(rows)
    groups = table.groupby(["N", "settings", "model"], sort=False)
    columns = [*PARTS, "seconds", "CPU seconds"]
    spread = groups[columns].std(ddof=0)
    print(f"\nMean squared errors, mean (standard deviation) of {len(options.seeds)}")
    print(f"{'':36}" + "".join(f"{column:>20}" for column in columns))
    for key, means in groups[columns].mean().iterrows():
        cells = [f"{means[c]:.4g} ({spread.loc[key, c]:.2g})" for c in columns]
        label = f"N={key[0]} {key[1]} {key[2]}"
        print(f"{label:36}" + "".join(f"{cell:>20}" for cell in cells))
    for name, figures in AUTHORS.items():
        label = f"N=100 authors' code, {name}"
        print(f"{label:36}" + "".join(f"{figure:>20}" for figure in figures))
    print(f"\nThe pictures are in {options.output}")
    return table


if __name__ == "__main__":
    main()
