"""
A panel, and transfer: learn from many, forecast from few
=========================================================

Forty valleys were counted for decades: hares, and the lynx that eat them. In six others
counting began with twelve irregular counts each. ``pretrain`` learns one model from the
forty, each with its own stamps and length; ``fit`` takes up the six. In six more, far
in the south, all goes a quarter faster: there ``fit`` has to train on. ::

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


def law(t: float, state: np.ndarray, pace: float) -> list[float]:
    """Return the growth of hares and lynx."""
    hares, lynx = state
    growth = 0.6 * hares * (1 - lynx / 2), 0.5 * lynx * (hares / 3 - 1)
    return [pace * growth[0], pace * growth[1]]


def valley(pace: float = 1.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts of a valley, and the truth at the same days."""
    start = rng.uniform([1.5, 0.8], [6, 4])
    path = solve_ivp(
        law, (0, 100), start, args=(pace,), dense_output=True, rtol=1e-6
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


Valleys = dict[str, tuple[pd.DataFrame, pd.DataFrame]]


def split(valleys: Valleys) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the first counts of each valley, and the truth at the stamps after."""
    to_come = slice(N_SEEN, N_SEEN + N_AHEAD)
    return (
        panel({name: counts[:N_SEEN] for name, (counts, _) in valleys.items()}),
        panel({name: truth[to_come] for name, (_, truth) in valleys.items()}),
    )


many = panel({f"valley {k}": valley()[0] for k in range(1, 41)})
groups = {
    "new": split({f"new {k}": valley() for k in range(1, 7)}),
    "south": split({f"south {k}": valley(1.25) for k in range(1, 7)}),
}

# %%
# Pretrain, then fit
# ------------------
# ``finetune_epochs=0`` keeps the pretrained model as it is: ``fit`` only takes up the
# new series. ``None``, the default, trains on with them alone, in a hundred steps at
# 0.3 times ``lr``. Clones keep what was pretrained. A third model knows only the six.

SETTINGS = {"window_length": N_SEEN, "horizon": N_AHEAD, "random_state": 0}
family = LatentODELSTMForecaster(max_epochs=30, finetune_epochs=0, **SETTINGS)
family.pretrain(many)
models = {
    "pretrained, as it is": family,
    "pretrained, fine-tuned": family.clone().set_params(finetune_epochs=None),
    "the six alone": LatentODELSTMForecaster(max_epochs=300, **SETTINGS),
}
fitted = {
    group: {name: model.clone().fit(seen) for name, model in models.items()}
    for group, (seen, _) in groups.items()
}

# %%
# ``predict_at`` asks each series at its own stamps. Beside the models: the mean of all
# counts, and the last one.


def errors_in(group: str) -> pd.Series:
    """Return mean squared errors over the variance of all counts."""
    seen, later = groups[group]
    found = {name: one.predict_at(later.index) for name, one in fitted[group].items()}
    found["mean of the forty"] = later * 0 + many.mean()
    last = seen.groupby("valley").last()
    valleys = later.index.get_level_values("valley")
    found["last count"] = last.loc[valleys].set_index(later.index)
    return pd.Series(
        {
            name: (((forecast - later) ** 2).mean() / many.var()).mean()
            for name, forecast in found.items()
        }
    )


errors = pd.DataFrame({group: errors_in(group) for group in groups})
print(
    f"Mean squared error of the next {N_AHEAD} stamps, over the variance of all counts"
)
print(errors.round(3).to_string())

# %%
# Twelve counts are enough to know where on its cycle a valley is, and too few to learn
# the law as well. Where the forty's law holds, the model is best as it is: the new
# counts are few and noisy, and have nothing to teach. Where it does not, fine-tuning
# finds the new pace, and what it needs of the rest is in the weights already.

SHOWN = {"new": ["new 1", "new 2"], "south": ["south 1", "south 2"]}
curves: dict[str, list[pd.DataFrame]] = {name: [] for name in models}
for group, names in SHOWN.items():
    seen, later = groups[group]
    days = {
        name: pd.date_range(
            seen.loc[name].index[-1], later.loc[name].index[-1], freq="30D"
        )
        for name in names
    }
    every = pd.MultiIndex.from_tuples(
        [(name, day) for name in names for day in days[name]], names=["valley", "date"]
    )
    for name, one in fitted[group].items():
        curves[name].append(one.predict_at(every))

axes = plot_forecast(
    pd.concat([groups[group][0].loc[names] for group, names in SHOWN.items()]),
    {name: pd.concat(parts) for name, parts in curves.items()},
    y_test=pd.concat([groups[group][1].loc[names] for group, names in SHOWN.items()]),
)
figure = axes[0, 0].figure
figure.suptitle("Twelve counts, and the twenty stamps after them")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
