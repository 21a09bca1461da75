"""
Clipping, and the norms of gradients
====================================

``clip_norm`` is the paper's "+ gradient clipping": a gradient whose norm, over all
parameters together, is above the threshold is scaled down to it. What does it do to a
training, and what do gradients look like that need it? ::

    python examples/clip_gradients.py [--output clip_gradients.png]
"""

import argparse
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from paper.jacobians import draw_flow, gradient_flow
from sklearn.exceptions import ConvergenceWarning

from sklode import LatentODEForecaster, LatentODELSTMForecaster

parser = argparse.ArgumentParser(description="Train with clipping and without.")
parser.add_argument("--output", default="clip_gradients.png", help="picture's path")
output = parser.parse_args().output

# %%
# A long window
# -------------
# Two sines at random times; the encoder walks over 100 of them.

rng = np.random.default_rng(0)
hours = np.cumsum(np.maximum(rng.exponential(1.0, 300), 1e-2))
signal = np.sin(2 * np.pi * hours / 20) + 0.5 * np.sin(2 * np.pi * hours / 7)
stamps = pd.Timestamp("2026-01-01") + pd.to_timedelta(hours, unit="h").round("s")
y = pd.Series(signal + 0.1 * rng.standard_normal(len(hours)), stamps, name="y")

# %%
# Three trainings
# ---------------
# Without clipping, with a threshold of 1, and with the median norm of the training
# without. ``history_`` has the mean norm of each epoch's gradients *before* clipping.

SETTINGS = {
    "level": "series",  # the paper's model
    "window_length": 100,
    "horizon": 30,
    "max_epochs": 60,
    "random_state": 0,
}
thresholds = {"not clipped": None, "clipped at 1": 1.0, "at the median": None}
fitted, rows = {}, {}
for name, clip_norm in thresholds.items():
    if name == "at the median":
        clip_norm = rows["not clipped"]["median norm"]
    forecaster = LatentODELSTMForecaster(clip_norm=clip_norm, **SETTINGS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        forecaster.fit(y)
    fitted[name], history = forecaster, forecaster.history_
    rows[name] = {
        "first loss": history["loss"].iloc[0],
        "last loss": history["loss"].iloc[-1],
        "median norm": history["grad_norm"].median(),
        "largest norm": history["grad_norm"].max(),
        "clipped": history["clipped_fraction"].mean(),
        "diverged": any(w.category is ConvergenceWarning for w in caught),
    }
table = pd.DataFrame(rows).T
print(table.to_string(float_format="{:.2f}".format))

# %%
# The three end at much the same loss: Adam divides each coordinate by its own usual
# size, so that the length of a gradient hardly matters. A threshold of 1 is below every
# norm here, so that clipping sets the length of all gradients; the median norm
# shortens those that stand out. It is a safeguard: one step of a norm a hundred times
# the usual can undo an epoch.
#
# What clipping cannot mend
# -------------------------
# Clipping shortens gradients that explode. Those that vanish on their way through the
# encoder stay as they are. ``gradient_flow`` of the paper's experiments, in
# ``examples/paper/jacobians.py``, measures how much of the error an observation still
# feels, against the visits between. See :doc:`/gradients`.

rnn = LatentODEForecaster(**SETTINGS).fit(y)
flows = {
    "ODE-LSTM": gradient_flow(fitted["clipped at 1"]),
    "RNN": gradient_flow(rnn),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
styles = ["-", "--", "-."]
colors = ["#0072B2", "#E69F00", "#009E73"]
for (name, forecaster), style, color in zip(
    fitted.items(), styles, colors, strict=True
):
    norms = forecaster.history_["grad_norm"]
    left.semilogy(norms, linestyle=style, color=color, label=name)
left.axhline(1.0, color="0.6", lw=0.8)
left.annotate("clip_norm=1", (22, 1.05), va="bottom", color="0.4")
left.set(xlabel="epoch", ylabel="mean norm of the gradient, before clipping")
left.set_title("Three trainings")
left.legend(frameon=False)
draw_flow(flows, right)
right.set_title("What is left on the way back")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
