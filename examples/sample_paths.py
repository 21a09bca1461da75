"""
How likely is it to cross a limit?
==================================

A limit is crossed by readings, not by a mean, and the highest of a hundred readings is
higher than the highest mean. ``sample`` draws whole futures; count those that cross.
The series is CO2 at Mauna Loa. ::

    python examples/sample_paths.py [--output sample_paths.png]
"""

import argparse

import matplotlib.pyplot as plt
import pandas as pd

from sklode import StructuralForecaster
from sklode.data import load_co2
from sklode.plotting import plot_forecast

parser = argparse.ArgumentParser(description="Draw futures and count crossings.")
parser.add_argument("--output", default="sample_paths.png", help="the picture's path")
output = parser.parse_args().output

# %%
# The highest of two years, twelve times
# --------------------------------------
# Each summer from 1988 on: what will the highest reading of the next two years be? The
# baseline adds two years of growth to the highest reading of the last year.

y = load_co2()["1978":]
rows = {}
for year in range(1988, 2000):
    train, test = y[: f"{year}-06"], y[f"{year}-07" : f"{year + 2}-06"]
    forecaster = StructuralForecaster(random_state=0).fit(train)
    paths = forecaster.sample(fh=test.index, n_samples=300)["co2"].unstack("sample")
    highest = paths.max()
    growth = train[-52:].mean() - train[-104:-52].mean()
    rows[year] = {
        "truth": test.max(),
        "baseline": train[-52:].max() + 2 * growth,
        "median path": highest.median(),
        "5 %": highest.quantile(0.05),
        "95 %": highest.quantile(0.95),
    }
table = pd.DataFrame(rows).T
print(table.round(1).to_string())
errors = table[["baseline", "median path"]].sub(table["truth"], axis=0).abs().mean()
inside = table["truth"].between(table["5 %"], table["95 %"])
print(f"\nMean absolute error, ppm\n{errors.round(2).to_string()}")
print(f"The truth lies between 5 and 95 % in {inside.sum()} of {len(inside)} years.")

# %%
# When will 373 ppm be reached?
# -----------------------------
# Asked in June 1999, the year of the last row. A path has crossed from its first
# reading above the limit on.

LIMIT = 373.0
ahead = pd.date_range("1999-07-03", "2001-12-29", freq="7D")
paths = forecaster.sample(fh=ahead, n_samples=1000)["co2"].unstack("sample")
crossed = (paths > LIMIT).cummax().mean(axis=1)
first = y["1999-07":][lambda later: later > LIMIT].index[0]
print(f"\nBy the end of 2000 the chance is {crossed[:'2000'].iloc[-1]:.0%}.")
print(
    f"It came on {first:%d %B %Y}, when the chance was {crossed[:first].iloc[-1]:.0%}."
)

# %%
# The picture
# -----------

figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.5, 5), sharex=True, height_ratios=(2, 1), layout="constrained"
)
above.plot(paths.iloc[:, :30], color="#0072B2", lw=0.5, alpha=0.25)
above.plot([], color="#0072B2", lw=0.5, alpha=0.6, label="30 futures")
forecast = forecaster.predict(fh=ahead)
plot_forecast(train["1998":], forecast, y_test=y["1999-07":], ax=above)
above.axhline(LIMIT, color="#D55E00", lw=1, ls="--", label="limit")
above.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
above.set(ylabel="CO$_2$ (ppm)", ylim=(362, 380), xlabel="")
below.plot(crossed, color="#0072B2", label="chance to have crossed, from 1000 futures")
below.axvline(first, color="0.15", lw=1, label="first reading above the limit")
below.set(ylim=(0, 1), ylabel="chance")
below.legend(frameon=False, fontsize="small", loc="upper left")
for ax in (above, below):
    ax.spines[["top", "right"]].set_visible(False)
figure.savefig(output, dpi=120)
print(f"\nThe picture is in {output}")
