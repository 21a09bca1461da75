"""Forecast stays in intensive care by the protocol of t-PatchGNN's authors.

Zhang et al., "Irregular Multivariate Time Series Forecasting: A Transformable Patching
Graph Neural Networks Approach" (ICML 2024): the first 24 hours of a stay are seen, and
every value of the next 24 is asked for at its own minute. 60 % of the stays train, 20 %
validate and 20 % test; values are scaled by each variable's range in the first two
parts. Errors are averaged by variable first. Ours is pretrained on the stays that
train, and fitted to the first days of the others without more training.

    python examples/benchmarks/physionet.py --data PATH [--seeds 0] [--stays 4000]

``--data``: the folder of the PhysioNet/Computing in Cardiology Challenge 2012
(https://physionet.org/content/challenge-2012), with ``set-a`` and others of text files;
or a table with the columns record, minute, channel and value.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sklode import LatentODELSTMForecaster
from sklode.model_selection import quantile_crps

DAY = 1440  # minutes
N_STAYS = 12_000  # of the whole challenge
LEVELS = (np.arange(10) + 0.5) / 10  # of quantiles
PUBLISHED = {"GraFITi": (4.89, 3.65), "t-PatchGNN": (4.98, 3.72)}
"""MSE in thousandths and MAE in hundredths, of 12,000 stays."""

_KEY, _ASKED = ["record", "minute", "channel"], ["record", "minute"]


def read(path: Path) -> pd.DataFrame:
    """Return values (record, minute, channel, value); those of one minute averaged."""
    if path.is_dir():
        files = sorted(path.glob("**/set-*/*.txt"))
        if not files:
            raise FileNotFoundError(
                f"the folder must hold set-a/*.txt and others; got {path}. Unpack the "
                "challenge's archives there."
            )
        table = pd.concat(stay(file) for file in files)
    else:
        table = pd.read_csv(path)
    return table.groupby(_KEY, as_index=False)["value"].mean()


def stay(file: Path) -> pd.DataFrame:
    """Return the values of one text file: Time (hh:mm), Parameter, Value."""
    table = pd.read_csv(file).dropna()
    table = table[table["Parameter"] != "RecordID"]
    time_of_day = table["Time"].str.split(":", expand=True).astype(int)
    values = {
        "record": int(file.stem),
        "minute": 60 * time_of_day[0] + time_of_day[1],
        "channel": table["Parameter"],
        "value": table["Value"].where(table["Value"] != -1),  # unknown, there
    }
    return pd.DataFrame(values).dropna()


def scaled(table: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return values in shares of their range, and the stays of three parts."""
    records = np.random.RandomState(seed).permutation(table["record"].unique())
    n = len(records)
    parts = np.split(records, [int(0.6 * n), int(0.8 * n)])
    known = table[table["record"].isin(np.concatenate(parts[:2]))]
    ends = known.groupby("channel")["value"].agg(["min", "max"])
    table = table[table["channel"].isin(ends.index)]
    own = ends.loc[table["channel"]].to_numpy().T
    width = np.where(own[1] > own[0], own[1] - own[0], 1.0)
    return table.assign(value=(table["value"].to_numpy() - own[0]) / width), parts


def wide(table: pd.DataFrame, channels: list[str]) -> pd.DataFrame:
    """Return a panel with a column for each channel."""
    panel = table.pivot(index=_ASKED, columns="channel", values="value")
    return panel.reindex(columns=channels)


def by_channel(channel: pd.Series, scores: np.ndarray) -> float:
    """Return the mean over channels of their means."""
    return float(pd.Series(scores).groupby(channel.to_numpy()).mean().mean())


def scores(table: pd.DataFrame, seed: int) -> dict[str, dict[str, float]]:
    """Return ours and the last value's errors on the stays that test."""
    table, (train, _, test) = scaled(table, seed)
    channels = sorted(table["channel"].unique())
    own = table[table["record"].isin(test)]
    seen, ahead = (own[own["minute"] < DAY], own[own["minute"] >= DAY])
    ahead = ahead[ahead["record"].isin(seen["record"])]
    start = time.perf_counter()
    forecaster = LatentODELSTMForecaster(finetune_epochs=0, random_state=seed)
    forecaster.pretrain(wide(table[table["record"].isin(train)], channels))
    seconds = time.perf_counter() - start
    forecaster.fit(wide(seen, channels))
    stamps = pd.MultiIndex.from_frame(ahead[_ASKED].drop_duplicates())
    row = stamps.get_indexer(pd.MultiIndex.from_frame(ahead[_ASKED]))
    column = np.searchsorted(channels, ahead["channel"])
    points = forecaster.predict_at(stamps).to_numpy()[row, column]
    quantiles = forecaster.predict_quantiles(stamps, alpha=[*LEVELS]).to_numpy()
    quantiles = quantiles.reshape(len(stamps), len(channels), -1)[row, column]
    last = seen.sort_values("minute").groupby(["record", "channel"])["value"].last()
    mean = table[table["record"].isin(train)].groupby("channel")["value"].mean()
    of_channel = ahead["channel"].map(mean).to_numpy()
    repeated = last.reindex(pd.MultiIndex.from_frame(ahead[["record", "channel"]]))
    repeated = np.where(np.isnan(repeated), of_channel, repeated)
    truth, found = ahead["value"].to_numpy(), {}
    for name, values in {"ours": points, "last value": repeated}.items():
        missed = values - truth
        found[name] = {
            "MSE e-3": 1e3 * by_channel(ahead["channel"], missed**2),
            "MAE e-2": 1e2 * by_channel(ahead["channel"], np.abs(missed)),
        }
    crps = quantile_crps(truth, quantiles, LEVELS)
    inside = (quantiles[:, 0] <= truth) & (truth <= quantiles[:, -1])
    found["ours"] |= {
        "CRPS e-2": 1e2 * by_channel(ahead["channel"], crps),
        "in 90 %": float(inside.mean()),
        "share": forecaster.network_share_,
        "seconds": seconds,
    }
    return found


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Print the errors of each seed, and what is published."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder or table")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--stays", type=int, help="so many of them; else all")
    given = parser.parse_args(arguments)
    table = read(given.data)
    records = table["record"].unique()[: given.stays]
    table = table[table["record"].isin(records)]
    print(f"{len(records):,} stays, {len(table):,} values", flush=True)
    rows = {}
    for seed in given.seeds:
        for name, found in scores(table, seed).items():
            rows[f"{name}, seed {seed}"] = found
            told = ", ".join(f"{key} {value:.3g}" for key, value in found.items())
            print(f"{name}, seed {seed}: {told}", flush=True)
    for name, (mse, mae) in PUBLISHED.items():
        rows[f"{name}, published"] = {"MSE e-3": mse, "MAE e-2": mae}
    result = pd.DataFrame.from_dict(rows, orient="index")
    print(f"\n{result.round(3).to_string()}")
    what = f"{N_STAYS:,} stays, of which these are {len(records):,}; "
    what = "" if len(records) == N_STAYS else what
    print(f"not comparable: published errors are of {what}other splits and five seeds")
    return result


if __name__ == "__main__":
    main()
