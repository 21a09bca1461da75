"""A seed decides every bit, and nothing of the process is changed on the way."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.controls import controls
from tests.epochs import interrupt
from tests.fingerprints import ENGINES, fingerprint, fingerprints
from tests.series import channels, on_engine, panel, tiny, uneven_stamps, waves

ROOT = Path(__file__).parents[1]
each_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with on_engine(request.param):
        yield request.param


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, str]]:
    return fingerprints()


@each_engine
def test_a_seed_repeats_every_bit(
    engine: str, expected: dict[str, dict[str, str]]
) -> None:
    assert fingerprint() == expected[engine]


@pytest.mark.slow
@each_engine
def test_fits_in_several_threads_at_once_are_those_of_one(
    engine: str, expected: dict[str, dict[str, str]]
) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fingerprint(), range(4)))
    assert found == [expected[engine]] * 4


@pytest.mark.slow
def test_pythons_hash_seed_changes_no_bit(expected: dict[str, dict[str, str]]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.fingerprints"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONHASHSEED": "4242",
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == expected


@contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextmanager
def other_generators() -> Iterator[None]:
    """Draw from everything that is global; the test's own fixture restores torch's."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    torch.manual_seed(5)
    yield
    np.random.set_state(states[0])  # noqa: NPY002
    random.setstate(states[1])


MODES: dict[str, Callable[[], Any]] = {
    "float64 by default": float64_by_default,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
    "another device": lambda: torch.device("meta"),
    "numpy's errors raised": lambda: np.errstate(all="raise"),
    "other global generators": other_generators,
}


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_process_change_no_bit(
    engine: str, mode: str, expected: dict[str, dict[str, str]]
) -> None:
    with MODES[mode]():
        assert fingerprint() == expected[engine]


STAMPS = uneven_stamps(30)


def process_state() -> dict[str, Any]:
    """Return what a program shares with all of its libraries."""
    return {
        "numpy's generator": repr(np.random.get_state()),  # noqa: NPY002
        "torch's generator": torch.get_rng_state().numpy().tobytes(),
        "Python's generator": random.getstate(),
        "torch's threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch's defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "torch's modes": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
        ),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "numpy's errors": (np.geterr(), np.geterrcall(), np.get_printoptions()),
        "environment": (dict(os.environ), os.getcwd(), list(sys.path)),
    }


@contextmanager
def process_unchanged() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(3)  # another number than any limit of ours
    try:
        before = process_state()
        yield
        after = process_state()
    finally:
        torch.set_num_threads(n_threads)
    assert {name for name in before if after[name] != before[name]} == set()


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """One forecaster an engine, which also do what happens once a process."""
    models = {}
    for name in ENGINES:
        with on_engine(name):
            models[name] = tiny().fit(waves(STAMPS)[:24])
            models[name].predict_interval([1])
    return models


@pytest.mark.slow
@each_engine
def test_nothing_of_the_process_is_changed(
    engine: str, fitted: dict[str, Any], tmp_path: Path
) -> None:
    y = waves(STAMPS)
    with process_unchanged():
        forecaster = tiny(early_stopping=True)
        forecaster.fit(y[:24], fh=[1, 2])
        forecaster.predict()
        forecaster.predict_interval()
        forecaster.predict_proba()
        forecaster.sample()
        forecaster.update(y[24:])
        forecaster.predict_residuals()
        forecaster.score(y)
        forecaster.save(tmp_path / "saved")
        tiny().pretrain(panel()).fit(y)
    for mode in MODES.values():  # which are the user's again
        with mode(), process_unchanged():
            tiny().fit(y[:24]).predict_interval([1])


class Broken(Exception):
    """Raised where a training or a solver stands."""


@each_engine
@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, MemoryError])
def test_nothing_of_the_process_is_changed_by_a_training_that_breaks_off(
    engine: str, error: type[BaseException], fitted: dict[str, Any]
) -> None:
    y = waves(STAMPS)[:24]
    told: Any = pytest.raises(error)
    if error is KeyboardInterrupt:  # after the first epoch it keeps what was learned
        told = pytest.warns(match="interrupted after 1 of 2")
    with process_unchanged(), told, interrupt(error()):
        tiny(max_epochs=2).fit(y)


def test_generators_of_gpus_are_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed seeds them too, and fork_rng restores only those named."""

    def seeded(*args: Any) -> None:
        raise AssertionError("a generator that is not ours was seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeded)
    tiny().fit(waves()).sample([1])


def test_what_the_user_passed_is_left_as_it_was() -> None:
    y, X = channels(STAMPS), controls(STAMPS)
    y.iloc[4, 0] = np.nan
    y.iloc[7] = np.nan
    fh = pd.DatetimeIndex(STAMPS[24:], name="when")
    passed = [y[:24], X[:24], fh, X, y[24:], X[24:]]
    before = [part.copy() for part in passed]
    forecaster = tiny().fit(passed[0], passed[1])
    for question in (
        lambda: forecaster.predict(fh, X=passed[3]),
        lambda: forecaster.predict_at(fh, X=passed[3]),
        lambda: forecaster.sample(fh, X=passed[3]),
        lambda: forecaster.score(passed[4], X=passed[3]),
        lambda: forecaster.update(passed[4], passed[5]),
    ):
        question()
    for part, copy in zip(passed, before, strict=True):
        if isinstance(part, pd.Index):
            pd.testing.assert_index_equal(part, copy, exact=True)
        else:
            pd.testing.assert_frame_equal(part, copy, check_exact=True)
