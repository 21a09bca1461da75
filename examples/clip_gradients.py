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
from paper.jacobians import gradient_flow
from sklearn.exceptions import ConvergenceWarning

from sklode import LatentODEForecaster, LatentODELSTMForecaster
from sklode.plotting import plot_gradient_flow
from sklode.training import clipping_report

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
# Four trainings
# --------------
# Adam with its default step, and plain gradient descent with one of 0.02, each without
# clipping and with a threshold of 1. ``history_`` has the mean norm of each epoch's
# gradients *before* clipping. A training that diverges says so in a warning.

SETTINGS = {"window_length": 100, "horizon": 30, "max_epochs": 60, "random_state": 0}
OPTIMIZERS = {
    "Adam": {"optimizer": "adam"},
    "gradient descent": {"optimizer": "sgd", "lr": 0.02},
}
fitted, rows = {}, {}
for optimizer, how in OPTIMIZERS.items():
    for clip_norm in (None, 1.0):
        forecaster = LatentODELSTMForecaster(clip_norm=clip_norm, **how, **SETTINGS)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            forecaster.fit(y)
        name = f"{optimizer}, " + ("clipped" if clip_norm else "not clipped")
        fitted[name], report = forecaster, clipping_report(forecaster)
        rows[name] = {
            "first loss": forecaster.history_["loss"].iloc[0],
            "last loss": forecaster.history_["loss"].iloc[-1],
            "median norm": report.median_norm,
            "largest norm": report.max_norm,
            "clipped": report.clipped_fraction,
            "diverged": any(w.category is ConvergenceWarning for w in caught),
        }
table = pd.DataFrame(rows).T
print(table.to_string(float_format="{:.2f}".format))

# %%
# - *Gradient descent* makes steps as long as the gradient. Without clipping some are
#   too long: the training ends worse than it has been, and the last good weights are
#   kept. With clipping the same step size does.
# - *Adam* divides each coordinate by its own usual size, so that the norm hardly
#   matters: with clipping and without, it ends at much the same loss. Here a threshold
#   of 1 is below nearly every norm, so that clipping sets the length of all gradients.
#   ``clip_norm="auto"`` takes the threshold from the norms of the first epochs.
#
# What clipping cannot mend
# -------------------------
# Clipping shortens gradients that explode. Those that vanish on their way through the
# encoder stay as they are. ``gradient_flow`` of the paper's experiments, in
# ``examples/paper/jacobians.py``, measures how much of the error an observation still
# feels, against the visits between. See :doc:`/gradients`.

rnn = LatentODEForecaster(**SETTINGS).fit(y)
flows = {
    "ODE-LSTM": gradient_flow(fitted["Adam, clipped"]),
    "RNN": gradient_flow(rnn),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
styles = ["-", "--", "-.", ":"]
colors = ["#0072B2", "#E69F00", "#000000", "#009E73"]
for (name, forecaster), style, color in zip(
    fitted.items(), styles, colors, strict=True
):
    norms = forecaster.history_["grad_norm"]
    left.semilogy(norms, linestyle=style, color=color, label=name)
left.axhline(1.0, color="0.6", lw=0.8)
left.annotate("clip_norm=1", (22, 1.05), va="bottom", color="0.4")
left.set(xlabel="epoch", ylabel="mean norm of the gradient, before clipping")
left.set_title("Four trainings")
left.legend(frameon=False)
plot_gradient_flow(flows, title="What is left on the way back", ax=right)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
