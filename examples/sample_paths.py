"""
Sampling: futures of a series
=============================

A model learns a family of oscillations with phases and sizes of their own, at irregular
stamps. Ten paths continue one member of it from few noisy observations. ::

    python examples/sample_paths.py [--output sample_paths.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster

parser = argparse.ArgumentParser(description="Draw sample paths.")
parser.add_argument("--output", default="sample_paths.png", help="the picture's path")
output = parser.parse_args().output

# %%
# A family
# --------
# Forty damped oscillations of one period, each at its own stamps. The first one is kept
# apart.

START = pd.Timestamp("2026-01-01")
N_SERIES, N_STAMPS = 40, 50
rng = np.random.default_rng(0)
members = {}
for k in range(N_SERIES):
    hours = np.cumsum(rng.uniform(0.3, 1.7, N_STAMPS))
    size, phase = rng.uniform(2, 4), rng.uniform(0, 2 * np.pi)
    wave = size * np.exp(-hours / 40) * np.sin(2 * np.pi * hours / 12 + phase)
    values = 20 + wave + 0.4 * rng.standard_normal(N_STAMPS)
    stamps = START + pd.to_timedelta(hours, unit="h").round("s")
    members[k] = pd.DataFrame({"y": values}, stamps)
family = pd.concat(members, names=["series", "time"])
train, one = family.drop(index=0, level="series"), family.loc[0, "y"]

# %%
# Futures of one series
# ---------------------
# ``pretrain`` learns the family; ``fit`` with ``finetune_epochs=0`` only takes up what
# was seen of the new series. A path is one draw of the latent state, decoded
# everywhere: ``noise=False`` leaves the noise of single readings out.

forecaster = LatentODELSTMForecaster(
    level="series",
    hidden_size=16,
    latent_size=4,
    window_length=12,
    horizon=20,
    max_epochs=40,
    finetune_epochs=0,
    random_state=0,
).pretrain(train)
seen, later = one[:5], one[5:40]
ahead = pd.date_range(seen.index[0], later.index[-1], freq="15min")
futures = forecaster.fit(seen).sample(ahead, n_samples=100, noise=False)

# %%
# Five readings fix the phase of an oscillation that is known otherwise, so that its
# futures are much alike.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
paths = futures["y"].unstack("sample")
low, middle, high = paths.quantile([0.05, 0.5, 0.95], axis=1).to_numpy()
axes.fill_between(paths.index, low, high, color="#d2e5f1", label="90 % of 100 paths")
ten = axes.plot(paths.iloc[:, :10], color="0.15", lw=0.6, alpha=0.35)
ten[0].set_label("10 sample paths")
axes.plot(paths.index, middle, color="#0072B2", label="median")
axes.plot(seen, "o", color="0.45", ms=4, label="observed")
axes.plot(later.index, later, "o", mfc="white", mec="0.15", ms=4, label="held out")
axes.legend(frameon=False, fontsize="small", ncols=3, loc="lower center")
axes.set_title("A series of which five readings are known", loc="left")
axes.spines[["top", "right"]].set_visible(False)
axes.set(ylim=(15, 25), ylabel="y")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
