"""All numbers that a fit and its forecasts give, to be compared bit by bit.

A module of its own, so that other processes can import it without the tests.
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import torch

from tests.series import on_engine, tiny, uneven_stamps, waves

ENGINES = ["eager", "fused"]


def fingerprint() -> dict[str, str]:
    """Return the digest of the bits of each answer of a fresh forecaster."""
    y = waves(uneven_stamps())
    forecaster = tiny(early_stopping=True, max_epochs=3).fit(y)
    parts = [p.detach().flatten() for p in forecaster.network_.parameters()]
    rows = forecaster.history_.drop(columns="seconds")
    stamps = y.index[[0, 5]].append(y.index[-1:] + np.timedelta64(9, "m"))
    answers = {
        "weights": torch.cat(parts).numpy(),
        "history": rows.to_numpy(),
        "forecast": forecaster.predict([-2, 1, 5]).to_numpy(),
        "stamps": forecaster.predict_at(stamps).to_numpy(),
        "interval": forecaster.predict_interval([1, 5]).to_numpy(),
        "paths": forecaster.sample([1, 5]).to_numpy(),
        "updated": forecaster.update(y[-3:]).predict([1]).to_numpy(),
    }
    return {name: _digest(values) for name, values in answers.items()}


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def fingerprints(n_threads: int | None = None) -> dict[str, dict[str, str]]:
    """Return those of every engine."""
    if n_threads is not None:
        torch.set_num_threads(n_threads)
    found = {}
    for engine in ENGINES:
        with on_engine(engine):
            found[engine] = fingerprint()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fingerprints(torch.get_num_threads())))
