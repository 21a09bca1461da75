"""
How tall will it grow?
======================

Pines of fourteen seed sources were measured at 3, 5, 10, 15, 20 and 25 years. Seven
have the first two heights only: what are the other four? The seven that are grown tell
the curve; each young one finds its own place on it. ::

    python examples/growth.py [--output growth.png]
"""

import argparse
import io
import warnings

import pandas as pd
from statsmodels.formula.api import mixedlm

from sklode import StructuralForecaster
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Forecast the growth of trees.")
parser.add_argument("--output", default="growth.png", help="the picture's path")
output = parser.parse_args().output

# %%
# Fourteen pines
# --------------
# Heights in feet of loblolly pines, by seed source. They are R's data set Loblolly,
# from Kung, "Fitting logistic growth curve with predetermined carrying capacity",
# Proceedings of the Statistical Computing Section, American Statistical Association
# (1986).

HEIGHTS = """
source     3      5     10     15     20     25
301     4.51  10.89  28.72  41.74  52.70  60.92
303     4.55  10.92  29.07  42.83  53.88  63.39
305     4.79  11.37  30.21  44.40  55.82  64.10
307     3.91   9.48  25.66  39.07  50.78  59.07
309     4.81  11.20  28.66  41.66  53.31  63.05
311     3.88   9.40  25.99  39.55  51.46  59.64
315     4.32  10.43  27.16  40.85  51.33  60.07
319     4.57  10.57  27.90  41.13  52.43  60.69
321     3.77   9.03  25.45  38.98  49.76  60.28
323     4.33  10.79  28.97  42.44  53.17  61.62
325     4.38  10.48  27.93  40.20  50.06  58.49
327     4.12   9.92  26.54  37.82  48.43  56.81
329     3.93   9.34  26.08  37.79  48.31  56.43
331     3.46   9.05  25.85  39.15  49.12  59.49
"""
wide = pd.read_csv(io.StringIO(HEIGHTS), sep=r"\s+", index_col="source")
wide.columns = wide.columns.astype(int).rename("age")
panel = wide.stack().to_frame("height")
age = panel.index.get_level_values("age")
source = panel.index.get_level_values("source")

# %%
# Half of them tell of the others
# -------------------------------
# And the other way round, so that each is young once. A curve of age is found where
# some series of a panel are older than others. Beside it: the mean curve of the grown
# ones, moved to the last height of the young one, and two mixed models of statsmodels.
# One has the age and its square; the other a level of its own at each of the six ages,
# which it can have as all were measured at the same ones.

MIXED = {
    "mixed model, square": "height ~ age + age_2",
    "mixed model, six levels": "height ~ C(age)",
}


def mixed(formula: str, seen: pd.DataFrame, asked: pd.MultiIndex) -> pd.Series:
    """Fit a line of its own for each source, and forecast."""
    rows = seen.reset_index().eval("age_2 = age ** 2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few sources: it may not converge
        model = mixedlm(formula, rows, groups="source", re_formula="~age").fit()
    table = asked.to_frame(index=False).eval("age_2 = age ** 2")
    own = pd.DataFrame(model.random_effects).T.loc[table["source"]].to_numpy()
    values = model.predict(table) + own[:, 0] + own[:, 1] * table["age"]
    return pd.Series(values.to_numpy(), asked)


found = []
for half in (0, 1):
    is_young = source.isin(wide.index[half::2])
    seen, later = panel[~is_young | (age <= 5)], panel[is_young & (age > 5)]
    forecaster = StructuralForecaster().fit(seen)
    interval = forecaster.predict_interval(fh=later.index, coverage=0.9)
    grown, young = wide.drop(wide.index[half::2]).mean(), wide[half::2]
    moved = young * 0 + grown  # a row for each
    moved = moved.add(young[5] - grown[5], axis=0)
    columns = {
        "truth": later["height"],
        "mean curve, moved": moved.stack().reindex(later.index),
        **{name: mixed(formula, seen, later.index) for name, formula in MIXED.items()},
        "sklode": forecaster.predict_at(later.index)["height"],
        "low": interval.iloc[:, 0],
        "high": interval.iloc[:, 1],
    }
    found.append(pd.DataFrame(columns))
found = pd.concat(found)
errors = found.drop(columns=["truth", "low", "high"]).sub(found["truth"], axis=0).abs()
table = errors.groupby("age").mean().T.assign(mean=errors.mean())
inside = found["truth"].between(found["low"], found["high"]).mean()
print("Mean absolute error of fourteen sources at each age, feet\n")
print(table.round(2).to_string())
print(f"\nInside the 90 % interval: {inside:.0%}")
print("Found:", ", ".join(forecaster.components_.index.get_level_values("part")))

# %%
# Nothing was told of the curve or of the ages, and any age can be asked for. A single
# young one among grown ones would not show that age counts: take those of a kind
# together.
#
# The picture
# -----------
# Four of the second seven.

names = list(later.index.unique("source")[:4])
fine = pd.MultiIndex.from_product([names, range(6, 26)], names=["source", "age"])
axes = plot_forecast(
    seen.loc[names],
    forecaster.predict_at(fine),
    forecaster.predict_interval(fh=fine, coverage=0.9),
    y_test=later.loc[names],
)
figure = axes[0].figure
figure.set_size_inches(7.8, 5.4)
figure.suptitle("Measured at 3 and 5 years, and the twenty years after")
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
