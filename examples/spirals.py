"""
Spirals: forward and backward in time
=====================================

The paper's spirals, made smaller: 200 noisy spirals, clockwise and counterclockwise, of
which 40 of 250 positions are observed. One model learns them all, and each is then
reconstructed, continued forward, and continued backward to where it came from. The
paper's own experiment is ``examples/paper/spirals.py``. ::

    python examples/spirals.py [--output spirals.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from paper.protocol import make_spirals

from sklode import LatentODELSTMForecaster

parser = argparse.ArgumentParser(description="Continue spirals in both directions.")
parser.add_argument("--output", default="spirals.png", help="the picture's path")
output = parser.parse_args().output

# %%
# The spirals
# -----------
# ``truth`` is without noise, and goes on for 62 positions before and after what is
# observed. No model has seen those of its own series; but places on the spiral that one
# series leaves out, another one passes.

N_STAMPS = 40
observed, truth = make_spirals(200, N_STAMPS, random_state=0)
position = truth.index.get_level_values("position").to_numpy()
parts = {
    "reconstruction": (position >= 0) & (position < 250),
    "forward": position >= 250,
    "backward": position < 0,
}


def radius(panel: pd.DataFrame) -> np.ndarray:
    """Return the distance from the centre, which tells the place on the spiral."""
    kind = panel.index.get_level_values("series").to_numpy() % 2
    return np.hypot(panel["x"] - np.where(kind, 5, -5), panel["y"]).to_numpy()


# Where a spiral goes farther than any that is observed, nobody can know how it goes on.
kind = truth.index.get_level_values("series").to_numpy() % 2
known = np.zeros(len(truth), dtype=bool)
for k in (0, 1):
    seen = radius(truth)[parts["reconstruction"] & (kind == k)]
    known |= (kind == k) & (radius(truth) >= seen.min()) & (radius(truth) <= seen.max())

# %%
# One model of all
# ----------------
# A window is a whole series. A quarter of it is hidden from the encoder, now at the end
# and now at the beginning (``thinning``), so that the decoder learns to run in both
# directions. Settings were chosen on spirals of another seed.

forecaster = LatentODELSTMForecaster(
    latent_size=4,
    field_width=64,
    field_depth=2,
    window_length=N_STAMPS,
    horizon=N_STAMPS // 4,
    level="series",
    step_size=8.0,
    weight_decay=0.05,
    lr=0.006,
    batch_size=20,
    max_epochs=250,
    random_state=0,
).fit(observed)
forecast = forecaster.predict_at(truth.index)

# %%
# Beside it two baselines: the nearest observation, and the line through the two
# nearest, which between observations is interpolation.


def baseline(line: bool) -> pd.DataFrame:
    """Answer every position from the nearest one or two observations."""
    answers = []
    for series, frame in observed.groupby(level="series"):
        at = frame.index.get_level_values("position").to_numpy()
        asked = truth.loc[series].index.to_numpy()
        values = frame.to_numpy()
        if line:
            left = np.clip(np.searchsorted(at, asked, "right") - 1, 0, len(at) - 2)
            share = ((asked - at[left]) / (at[left + 1] - at[left]))[:, None]
            answers.append(values[left] * (1 - share) + values[left + 1] * share)
        else:
            answers.append(values[np.abs(at[:, None] - asked).argmin(axis=0)])
    return pd.DataFrame(np.concatenate(answers), truth.index, truth.columns)


methods = {
    "Latent ODE-LSTM": forecast,
    "nearest observation": baseline(line=False),
    "line through two": baseline(line=True),
}
squared = {name: ((f - truth) ** 2).mean(axis=1) for name, f in methods.items()}
errors = pd.DataFrame(
    {
        part: {name: error[rows & known].mean() for name, error in squared.items()}
        for part, rows in parts.items()
    }
)
errors["forward, beyond"] = {
    name: error[parts["forward"] & ~known].mean() for name, error in squared.items()
}
print("Mean squared error against the truth; the noise has 0.09\n")
print(errors.to_string(float_format="{:.3f}".format))

# %%
# "Beyond" is where a spiral goes on farther than any observed one: there the model
# fails, as it has to. The picture shows a spiral of each kind whose neighbourhood was
# observed.

whole = pd.Series(known, truth.index).groupby(level="series").all()
figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
for ax, k in zip(axes, (0, 1), strict=True):
    series = next(number for number in whole.index[whole] if number % 2 == k)
    curve, path = truth.loc[series], forecast.loc[series]
    ax.plot(curve["x"], curve["y"], color="0.8", lw=6, label="truth")
    spans = {
        "reconstruction": (path.loc[0:249], "#0072B2", "-"),
        "forward": (path.loc[249:], "#D55E00", "--"),
        "backward": (path.loc[:0], "#009E73", ":"),
    }
    for name, (part, color, style) in spans.items():
        ax.plot(part["x"], part["y"], color=color, ls=style, lw=2.2, label=name)
    dots = observed.loc[series]
    ax.plot(dots["x"], dots["y"], "o", color="black", ms=3.5, label="observed")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(("Clockwise", "Counterclockwise")[k])
    ax.spines[["top", "right"]].set_visible(False)
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
