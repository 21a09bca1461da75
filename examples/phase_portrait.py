"""
States that turn: a phase portrait
==================================

Hares and lynxes follow each other: where many are eaten, few are left to eat. A network
that learns from twenty such populations, each seen at its own days, has this law in its
latent states. ``plot_phase`` draws where they go, and arrows of how fast at each place:
of two latent states, or of the two columns. ::

    python examples/phase_portrait.py [--output phase_portrait.png]
"""

import argparse

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_phase

parser = argparse.ArgumentParser(description="Draw a phase portrait.")
parser.add_argument("--output", default="phase_portrait.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Hares and lynxes
# ----------------
# Twenty populations, from other numbers at first, each at thirty days of its own.


def change(_: float, numbers: np.ndarray) -> list[float]:
    """Return how fast hares and lynxes become more (Lotka and Volterra)."""
    hares, lynxes = numbers
    return [hares - 0.4 * hares * lynxes, 0.1 * hares * lynxes - 0.4 * lynxes]


rng = np.random.default_rng(0)
parts = {}
for number in range(20):
    days = np.sort(rng.uniform(0, 40, 30))
    begin = rng.uniform([2, 1], [8, 4])
    law = solve_ivp(change, (0, 40), begin, t_eval=days, rtol=1e-8)
    counts = law.y.T * np.exp(0.05 * rng.standard_normal((30, 2)))
    stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(days, "D").round("s")
    parts[number] = pd.DataFrame(counts, stamps, ["hares", "lynxes"])
y = pd.concat(parts, names=["population", "time"])

# %%
# The network learns the law
# --------------------------
# What it adds is proved on populations that it has not seen.

forecaster = LatentODELSTMForecaster(random_state=0).fit(y)
print(f"Of the network's forecasts {forecaster.network_share_:.0%} count.")
states = forecaster.encode()
print(states.iloc[:3, :4].round(2))

# %%
# Paths that close
# ----------------
# From each last row on, as long again as it was seen, paths close: populations come
# back to where they were.

axes = plot_phase(forecaster, columns=("hares", "lynxes"))
axes.figure.savefig(output, dpi=120)
print(f"The picture is in {output}")
