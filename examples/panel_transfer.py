"""
A panel, and transfer: learn from many, forecast from few
=========================================================

Forty valleys were counted for decades: hares, and the lynx that eat them. In six others
counting began with twelve irregular counts each. ``pretrain`` learns one model from the
forty, each with its own stamps and length; ``fit`` takes up the six. ::

    python examples/panel_transfer.py [--output panel_transfer.png]
"""

import argparse

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

from sklode import LatentODELSTMForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Learn from many series for a few.")
parser.add_argument("--output", default="panel_transfer.png", help="picture's path")
output = parser.parse_args().output

# %%
# One law, many histories
# -----------------------
# Lotka and Volterra's law: hares multiply and are eaten, lynx multiply as they eat. All
# valleys obey it from a beginning of their own. They are counted about once a year,
# with errors of a standard deviation of 0.2 (thousands).

START, YEAR = pd.Timestamp("1900-01-01"), pd.Timedelta("365.25D")
N_SEEN, N_AHEAD = 12, 20
rng = np.random.default_rng(0)


def law(t: float, state: np.ndarray) -> list[float]:
    """Return the growth of hares and lynx."""
    hares, lynx = state
    return [0.6 * hares * (1 - lynx / 2), 0.5 * lynx * (hares / 3 - 1)]


def valley() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts of a valley, and the truth at the same days."""
    path = solve_ivp(
        law, (0, 100), rng.uniform([1.5, 0.8], [6, 4]), dense_output=True, rtol=1e-6
    ).sol
    days = np.unique(np.rint(365.25 * np.cumsum(rng.exponential(1.0, 40))))
    stamps = START + pd.to_timedelta(days - days[0], unit="D")
    truth = pd.DataFrame(
        path(np.asarray((stamps - START) / YEAR)).T, stamps, ["hares", "lynx"]
    )
    return truth + 0.2 * rng.standard_normal(truth.shape), truth


def panel(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Stack series into a panel."""
    return pd.concat(parts, names=["valley", "date"])


many = panel({f"valley {k}": valley()[0] for k in range(1, 41)})
new = {f"new {k}": valley() for k in range(1, 7)}
seen = panel({name: counts[:N_SEEN] for name, (counts, _) in new.items()})
to_come = slice(N_SEEN, N_SEEN + N_AHEAD)
later = panel({name: truth[to_come] for name, (_, truth) in new.items()})

# %%
# Pretrain, then fit
# ------------------
# ``finetune_epochs=0`` keeps the pretrained model as it is: ``fit`` only takes up the
# new series. ``None`` trains on for a fifth of the epochs, on the new series alone.
# ``predict_at`` asks each series at its own stamps.

SETTINGS = {"window_length": N_SEEN, "horizon": N_AHEAD, "random_state": 0}
as_it_is = LatentODELSTMForecaster(max_epochs=30, finetune_epochs=0, **SETTINGS)
as_it_is.pretrain(many)
tuned = as_it_is.clone().set_params(finetune_epochs=None)
forecasts = {
    "pretrained, as it is": as_it_is.fit(seen).predict_at(later.index),
    "pretrained, fine-tuned": tuned.fit(seen).predict_at(later.index),
}

# %%
# Without the forty: a model of the six alone; the mean of all counts; the last count.

alone = LatentODELSTMForecaster(max_epochs=300, **SETTINGS).fit(seen)
forecasts["the six alone"] = alone.predict_at(later.index)
valleys = later.index.get_level_values("valley")
forecasts["mean of the forty"] = later * 0 + many.mean()
last = seen.groupby("valley").last()
forecasts["last count"] = last.loc[valleys].set_index(later.index)
errors = pd.Series(
    {
        name: (((forecast - later) ** 2).mean() / many.var()).mean()
        for name, forecast in forecasts.items()
    }
)
print(
    f"Mean squared error of the next {N_AHEAD} stamps, over the variance of all counts"
)
print(errors.round(3).to_string())

# %%
# Twelve counts are enough to know where on its cycle a valley is, and too few to learn
# the law as well. They are too few for fine-tuning, too: it makes the pretrained model
# worse.

shown = ["new 1", "new 2", "new 3"]
ends = later.reset_index("date").groupby("valley")["date"].max()
every = pd.MultiIndex.from_tuples(
    [
        (name, date)
        for name in shown
        for date in pd.date_range(seen.loc[name].index[-1], ends[name], freq="30D")
    ],
    names=["valley", "date"],
)
axes = plot_forecast(
    seen.loc[shown],
    {"as it is": as_it_is.predict_at(every), "alone": alone.predict_at(every)},
    y_test=later.loc[shown],
    labels=["counted", "pretrained on forty valleys", "the six alone", "truth"],
    title="Twelve counts, and the twenty stamps after them",
    x_label="",
)
figure = axes[0, 0].figure
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
