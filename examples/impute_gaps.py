"""
Imputing a gap, and what was before the first observation
=========================================================

Cut 20 consecutive stamps out of two noisy sines at irregular times, and ten before the
first, and fill both in again. A forecaster that has learned the rest of the series
answers inside the gap from the observations on both sides of it, and before the first
observation backward in time. Next to it stands what is usual: the line between the
neighbours, and the cubic spline through all observations. ::

    python examples/impute_gaps.py [--output impute_gaps.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Fill a gap of 20 stamps.")
parser.add_argument("--output", default="impute_gaps.png", help="the picture's path")
output = parser.parse_args().output

# %%
# A series with a hole
# --------------------
# Gaps between stamps are exponential, of an hour in the mean; the noise has a standard
# deviation of 0.1. Another ``SEED`` gives another series.

SEED = 0
N_STAMPS, N_GAP, N_EARLY = 300, 20, 10
START = pd.Timestamp("2026-01-01")


def hours(index: pd.DatetimeIndex) -> np.ndarray:
    """Return the time since the start."""
    return ((index - START) / pd.Timedelta("1h")).to_numpy()


def signal(index: pd.DatetimeIndex) -> np.ndarray:
    """Return both sines, without noise."""
    t = 2 * np.pi * hours(index)
    return np.sin(t / 20 + phases[0]) + 0.5 * np.sin(t / 7 + phases[1])


rng = np.random.default_rng(SEED)
steps = np.maximum(rng.exponential(1.0, N_STAMPS), 1e-3)
stamps = START + pd.to_timedelta(np.cumsum(steps), unit="h").round("s")
phases = rng.uniform(0, 2 * np.pi, 2)
noise = 0.1 * rng.standard_normal(N_STAMPS)
y = pd.Series(signal(stamps) + noise, stamps, name="signal")
begin = int(rng.integers(N_STAMPS // 4, N_STAMPS // 2))
gap, early = y[begin : begin + N_GAP], y[:N_EARLY]
kept = y[N_EARLY:].drop(gap.index)

# %%
# Fill it in
# ----------
# Nothing has to be switched on: an absolute horizon may hold past stamps.

forecaster = LatentODELSTMForecaster(random_state=0).fit(kept)


def ours(index: pd.DatetimeIndex) -> np.ndarray:
    """Reconstruct, or decode backward in time."""
    return forecaster.predict(fh=index).to_numpy()


def line(index: pd.DatetimeIndex) -> np.ndarray:
    """Join the neighbours; beyond the ends, take the nearest value."""
    return np.interp(hours(index), hours(kept.index), kept)


def spline(index: pd.DatetimeIndex) -> np.ndarray:
    """Put a cubic spline through all observations."""
    return CubicSpline(hours(kept.index), kept)(hours(index))


# %%
# The past is also the future of the mirrored series. That takes a second fit: is the
# decoder, run backward, as good as a forecast?


def mirrored(index: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Return the stamps with time running backward."""
    return (START + (START - index))[::-1]


mirror = pd.Series(kept.to_numpy()[::-1], mirrored(kept.index))
backward = LatentODELSTMForecaster(random_state=0).fit(mirror)


def by_mirror(index: pd.DatetimeIndex) -> np.ndarray:
    """Forecast the mirrored series."""
    return backward.predict(fh=mirrored(index)).to_numpy()[::-1]


# %%
# Mean squared errors at the observations that were cut out. The noise alone has 0.01.
# The spline follows the noise of the last observations into the gap, and beyond the
# ends it knows no bounds.

methods = {"Latent ODE-LSTM": ours, "line": line, "cubic spline": spline}
columns = {"gap": (gap, methods), "before": (early, methods | {"mirrored": by_mirror})}
errors = pd.DataFrame(
    {
        part: {
            name: np.mean((method(truth.index) - truth.to_numpy()) ** 2)
            for name, method in known.items()
        }
        for part, (truth, known) in columns.items()
    }
)
print("Mean squared error at the observations cut out; the noise has 0.01")
print(errors.to_string(float_format="{:.3g}".format, na_rep=""))

# %%
# The picture shows the answers at every time, not only where something was cut out. The
# spline leaves it at once.


def draw(hidden: pd.Series, names: dict, title: str, ax: plt.Axes) -> None:
    """Draw what was cut out, and 16 hours around it."""
    margin = pd.Timedelta("16h")
    around = kept[hidden.index[0] - margin : hidden.index[-1] + margin]
    ends = min(around.index[0], hidden.index[0]), around.index[-1]
    fine = pd.date_range(*ends, periods=300)
    before, after = around[: hidden.index[0]], around[hidden.index[-1] :]
    unseen = fine[fine < after.index[0]]
    if len(before):
        unseen = unseen[unseen > before.index[-1]]
    curves = {"Latent ODE-LSTM": pd.Series(ours(fine), fine, name="signal")}
    for name, method in list(names.items())[1:]:
        curves[name] = pd.Series(method(unseen), unseen, name="signal")
    band = {"Latent ODE-LSTM": forecaster.predict_interval(fh=fine, coverage=0.9)}
    plot_forecast(around, curves, band, y_test=hidden, ax=ax)
    ax.set(title=title, xlabel="", ylim=(-2.4, 2.4), xlim=ends)
    ax.get_legend().remove()
    ax.spines[["top", "right"]].set_visible(False)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(12, 4.8), layout="constrained", sharey=True, width_ratios=(3, 2)
)
draw(gap, columns["gap"][1], f"A gap of {N_GAP} stamps", left)
draw(early, columns["before"][1], f"{N_EARLY} stamps before the first", right)
handles, labels = right.get_legend_handles_labels()
figure.legend(
    handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
