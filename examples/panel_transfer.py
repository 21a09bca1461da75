"""
When does a network pay?
========================

Forty valleys were counted for decades: hares, and the lynx that eat them. Counting
began in six others; there are twelve counts of each. All obey one law, which is not
linear, and no valley shows it alone. A network learns it from the forty. ::

    python examples/panel_transfer.py [--output panel_transfer.png]
"""

import argparse

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Learn from many series for a few.")
parser.add_argument("--output", default="panel_transfer.png", help="picture's path")
output = parser.parse_args().output

# %%
# One law, many histories
# -----------------------
# Lotka and Volterra's law, made here: hares multiply and are eaten, lynx multiply as
# they eat. Counts come about once a year, at random days, with errors of a standard
# deviation of 0.2 (thousands).

START, YEAR = pd.Timestamp("1900-01-01"), pd.Timedelta("365.25D")
N_SEEN, N_AHEAD = 12, 20
rng = np.random.default_rng(0)


def law(t: float, state: np.ndarray) -> list[float]:
    """Return the growth of hares and lynx."""
    hares, lynx = state
    return [0.6 * hares * (1 - lynx / 2), 0.5 * lynx * (hares / 3 - 1)]


def valley() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts of a valley, and the truth at the same days."""
    start = rng.uniform([1.5, 0.8], [6, 4])
    path = solve_ivp(law, (0, 100), start, dense_output=True, rtol=1e-6).sol
    days = np.unique(np.rint(365.25 * np.cumsum(rng.exponential(1.0, 40))))
    stamps = START + pd.to_timedelta(days - days[0], unit="D")
    years = np.asarray((stamps - START) / YEAR)
    truth = pd.DataFrame(path(years).T, stamps, ["hares", "lynx"])
    return truth + 0.2 * rng.standard_normal(truth.shape), truth


def panel(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Stack series into a panel."""
    return pd.concat(parts, names=["valley", "date"])


many = panel({f"valley {k}": valley()[0] for k in range(1, 41)})
valleys = {f"new {k}": valley() for k in range(1, 7)}
to_come = slice(N_SEEN, N_SEEN + N_AHEAD)
seen = panel({name: counts[:N_SEEN] for name, (counts, _) in valleys.items()})
later = panel({name: truth[to_come] for name, (_, truth) in valleys.items()})

# %%
# Pretrain on the forty, fit on the six
# -------------------------------------
# ``fit`` after ``pretrain`` takes up the new series; ``finetune_epochs=0`` says that
# they have nothing more to teach. The structural model ("level" below) is linear: it
# can be pretrained as well.

network = LatentODELSTMForecaster(
    window_length=N_SEEN,
    horizon=N_AHEAD,
    max_epochs=6,
    finetune_epochs=0,
    random_state=0,
)
fitted = {
    "level, the six alone": StructuralForecaster().fit(seen),
    "level, pretrained": StructuralForecaster().pretrain(many).fit(seen),
    "network, pretrained": network.pretrain(many).fit(seen),
}
forecasts = {name: one.predict_at(later.index) for name, one in fitted.items()}

# %%
# Gradient boosting
# -----------------
# On the last four counts and their ages, with the time ahead as a column: what is
# usually done where stamps are irregular.


def columns_of(counts: pd.DataFrame, k: int, days: pd.Index) -> np.ndarray:
    """Return a row for each day, of what is known after count k."""
    now = counts.index[k]
    ages = np.asarray((now - counts.index[k - 3 : k + 1]) / YEAR)
    known = np.append(counts.iloc[k - 3 : k + 1], ages)
    ahead = np.asarray((days - now) / YEAR)[:, None]
    return np.hstack([np.tile(known, (len(days), 1)), ahead])


learned, targets = [], []
for _, counts in many.groupby("valley"):
    counts = counts.droplevel("valley")
    for k in range(3, len(counts) - 1):
        learned.append(columns_of(counts, k, counts.index[k + 1 : k + 26]))
        targets.append(counts[k + 1 : k + 26])
boosting = MultiOutputRegressor(HistGradientBoostingRegressor(random_state=0))
boosting.fit(np.concatenate(learned), np.concatenate(targets))
asked = [
    columns_of(seen.loc[name], N_SEEN - 1, later.loc[name].index) for name in valleys
]
values = boosting.predict(np.concatenate(asked))
forecasts["boosting"] = pd.DataFrame(values, later.index, later.columns)
forecasts["mean of the forty"] = later * 0 + many.mean()

# %%
# The errors
# ----------

errors = pd.Series(
    {
        name: (((forecast - later) ** 2).mean() / many.var()).mean()
        for name, forecast in forecasts.items()
    }
).sort_values()
print(f"Mean squared error of the next {N_AHEAD} stamps, over the variance of counts\n")
print(errors.round(3).to_string())
print(f"\nShare of the network in its forecast: {network.network_share_:.2f}")

# %%
# The share is what the network has earned on counts that it had not seen, beside the
# structural model. Where it is 0, take ``StructuralForecaster``: it gives the same
# forecast, and nothing is trained.

names = ["new 1", "new 2"]
days = {
    name: pd.date_range(seen.loc[name].index[-1], later.loc[name].index[-1], freq="30D")
    for name in names
}
pairs = [(name, day) for name in names for day in days[name]]
every = pd.MultiIndex.from_tuples(pairs, names=["valley", "date"])
curves = {
    "network": fitted["network, pretrained"].predict_at(every),
    "level": fitted["level, pretrained"].predict_at(every),
}
interval = network.predict_interval(fh=every, coverage=0.9)
axes = plot_forecast(
    seen.loc[names], curves, {"network": interval}, y_test=later.loc[names]
)
figure = axes[0, 0].figure
figure.set_size_inches(7.8, 5)
figure.suptitle("Twelve counts, and the truth at the twenty stamps after them")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
