"""The paper's stocks at trading days: fit once, forecast from every fifth test row.

Four prices of a day are the channels; the gaps of the calendar, 1 to 5 days, stay. The
first 75 % of the rows are for training. The data are Kaggle's "DJIA 30 Stock Time
Series": download them and pass the folder. The last value is the baseline to respect.
Errors are in units of the training part's standard deviation.

    python examples/paper/stocks.py --data FOLDER [--stock IBM MSFT] [--tasks 7/7]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from forecasting import add_options, draw_origins, print_table, run
from protocol import Experiment, load_stock
from settings import PAPER_STOCKS, STOCKS

# Table "DJIA" of the paper: one stock that it does not name.
PUBLISHED = {
    "7/7": (0.025, 0.044, 0.077),
    "15/15": (0.030, 0.069, 0.125),
    "30/30": (0.096, 0.161, 0.198),
    "365/60": (0.245, 0.232, 0.233),
}


def load(path: Path) -> Experiment:
    """Return the series; the test part are the last quarter of its rows."""
    data = load_stock(path)
    return Experiment(data, int(0.75 * len(data)), every=5)


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Fit, print the tables, save the pictures; return the errors of every fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    text = "folder of the stocks' files, such as IBM.csv"
    parser.add_argument("--data", type=Path, required=True, help=text)
    parser.add_argument("--stock", nargs="+", default=["IBM", "MSFT", "JPM"])
    add_options(parser, "stocks")
    options = parser.parse_args(arguments)
    settings = {"ours": (STOCKS, None), "paper": (PAPER_STOCKS, None)}
    tables = []
    try:
        experiments = {k: load(options.data / f"{k}.csv") for k in options.stock}
    except FileNotFoundError as error:
        parser.error(str(error))
    options.output.mkdir(parents=True, exist_ok=True)
    for stock, experiment in experiments.items():
        print(f"\n{stock}")
        table, forecasts = run(experiment, options, settings, seasonal=False)
        means = print_table(table, PUBLISHED, digits=4)
        print("\nIn multiples of the last value's error")
        print((means / means.loc["last value"]).round(3).to_string())
        if options.models:
            shown = [f"{options.models[-1]}, {whose}" for whose in options.settings]
            path = options.output / f"{stock}.png"
            others = [*shown[1:], "last value"]
            draw_origins(experiment, forecasts, shown[0], others, path)
            print(f"The picture is {path}")
        tables.append(table.assign(stock=stock))
    found = pd.concat(tables, ignore_index=True)
    found.to_csv(options.output / "stocks.csv", index=False)
    return found


if __name__ == "__main__":
    main()
