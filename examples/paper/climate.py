"""The paper's daily climate of Delhi: fit once, forecast from every test day.

Four tasks (days seen / days to forecast), the four models with our settings and with
the paper's, and plain baselines of the same run. The data are Kaggle's "Daily Climate
time series data": download them and pass the folder. Errors are in units of the
training part's standard deviation. A table and a picture are the result.

    python examples/paper/climate.py --data FOLDER [--tasks 7/7] [--settings ours]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from forecasting import add_options, draw_origins, print_table, run
from protocol import Experiment, load_climate
from settings import CLIMATE, PAPER_CLIMATE, features

# Table "climate" of the paper.
PUBLISHED = {
    "7/7": (0.228, 0.227, 0.230),
    "15/15": (0.235, 0.232, 0.235),
    "30/30": (0.216, 0.212, 0.233),
    "365/60": (0.220, 0.219, 0.226),
}

UNITS = {"meantemp": "°C", "humidity": "%"}


def load(folder: Path) -> Experiment:
    """Return the series; the test part are the days from 2017 on."""
    train, test = load_climate(folder)
    return Experiment(pd.concat([train, test]), len(train))


def main(arguments: Sequence[str] | None = None) -> pd.DataFrame:
    """Fit, print the table, save the picture; return the errors of every fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    text = "folder of DailyDelhiClimateTrain.csv and DailyDelhiClimateTest.csv"
    parser.add_argument("--data", type=Path, required=True, help=text)
    add_options(parser, "climate")
    options = parser.parse_args(arguments)
    try:
        experiment = load(options.data)
    except FileNotFoundError as error:
        parser.error(str(error))
    options.output.mkdir(parents=True, exist_ok=True)
    settings = {"ours": (CLIMATE, features), "paper": (PAPER_CLIMATE, None)}
    table, forecasts = run(experiment, options, settings, seasonal=True)
    print_table(table, PUBLISHED, digits=3)
    if options.models:
        shown = [f"{options.models[-1]}, {whose}" for whose in options.settings]
        others = [*shown[1:], "ridge on anomalies"]
        path = options.output / "climate.png"
        draw_origins(experiment, forecasts, shown[0], others, path, UNITS)
        print(f"The picture is {path}")
    table.to_csv(options.output / "climate.csv", index=False)
    return table


if __name__ == "__main__":
    main()
