"""Settings of the paper's experiments: ours, and the paper's.

Each is a dict of constructor arguments of the forecasters; those of the climate and of
the stocks have one for each task:

    settings = {**CLIMATE["30/30"], "window_length": 30, "horizon": 30}
    forecaster = LatentODELSTMForecaster(**settings, random_state=0)
    forecaster.fit(train, X=features(train.index))
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    calendar_features,
)

__all__ = [
    "CLIMATE",
    "MODELS",
    "PAPER_CLIMATE",
    "PAPER_SPIRALS",
    "PAPER_STOCKS",
    "SPIRALS",
    "STOCKS",
    "features",
]

Settings = dict[str, Any]

MODELS: dict[str, tuple[Any, Settings]] = {
    "Latent ODE": (LatentODEForecaster, {"clip_norm": None}),
    "Latent ODE-RNN": (LatentODERNNForecaster, {"clip_norm": None}),
    "Latent ODE-LSTM": (LatentODELSTMForecaster, {"clip_norm": None}),
    "Latent ODE-LSTM+GC": (LatentODELSTMForecaster, {"clip_norm": 1.0}),
}
"""The classes, and the threshold of gradient clipping: the paper does not state its."""

TASKS = ("7/7", "15/15", "30/30", "365/60")


def features(index: pd.Index) -> pd.DataFrame:
    """Return X of the climate from its stamps alone: the year's sines and cosines."""
    return calendar_features(index, periods="year", harmonics=2)


# --- ours -----------------------------------------------------------------------------

SPIRALS: Settings = {
    "hidden_size": 32,
    "latent_size": 4,
    "field_width": 64,
    "field_depth": 2,
    "model": "paper",
    "batch_size": 50,
    "max_epochs": 200,
    "weight_decay": 0.05,
    "lr": 0.006,
    "step_size": 8.0,
}
"""Window and horizon are the set's: all N stamps, and a quarter of them. The solver's
step is that of N = 100, and a multiple of N in the others. Chosen on the seeds 100 to
106.
"""

_FORECASTS: Settings = {
    "model": "hybrid",
    "guard": True,
    "emission_width": 32,
    "thinning": 0.0,
    "max_epochs": 7,
    "weight_decay": 0.3,
    "step_size": 2.0,
}
"""One rule for climate and stocks, and for every task. Chosen by `tune.py`."""

CLIMATE: dict[str, Settings] = dict.fromkeys(TASKS, _FORECASTS)
STOCKS: dict[str, Settings] = dict.fromkeys(TASKS, _FORECASTS)

# --- the paper's ----------------------------------------------------------------------

_PAPER: Settings = {
    "field_depth": 1,
    "model": "paper",
    "thinning": 0.0,
}

PAPER_SPIRALS: Settings = {
    **_PAPER,
    "hidden_size": 25,
    "latent_size": 25,
    "field_width": 20,
    "emission_width": 20,
    "method": "rk4",
    "lr": 0.01,
    "batch_size": 1000,
    "max_epochs": 750,
}
"""The latent size is that of the encoder's output, which the paper gives as 25."""

_PAPER_FORECASTS: Settings = {
    **_PAPER,
    "hidden_size": 4,
    "latent_size": 4,
    "field_width": 25,
    "emission_width": 256,
    "method": "rk4",
    "step_size": 1.0,
    "lr": 0.0005,
    "batch_size": 64,
}
"""The paper does not state the batch size. It solves by Dormand and Prince's method,
"dopri5", the scripts' ``--solver dopri5``: on such slow fields a step of rk4 from one
row to the next is as good, and takes minutes where the other takes hours."""

PAPER_CLIMATE: dict[str, Settings] = {
    task: {**_PAPER_FORECASTS, "max_epochs": 50} for task in TASKS
}
PAPER_STOCKS: dict[str, Settings] = {
    task: {**_PAPER_FORECASTS, "max_epochs": 100} for task in TASKS
}
