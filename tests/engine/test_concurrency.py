"""Fits side by side: in threads, in forked processes, over several threads each."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from sklode import LatentODELSTMForecaster, LatentODERNNForecaster
from sklode.engine import runs
from sklode.engine.threads import n_threads, one_torch_thread
from tests.epochs import after_each_epoch
from tests.series import on_engine, tiny, uneven_stamps, waves


@pytest.fixture
def threads_are_woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Share even a small batch over two threads; list which threads took a part."""
    seen: list[int] = []
    each_block = runs._each_block

    def recording(n: int, cost: int, work: Any, *given: Any, **how: Any) -> list:
        def recorded(low: int, *others: Any) -> Any:
            seen.append(threading.get_ident())
            time.sleep(1e-3 if low else 3e-3)  # the first block is ready last
            return work(low, *others)

        return each_block(n, cost, recorded, *given, **how)

    monkeypatch.setattr(runs, "_each_block", recording)
    monkeypatch.setattr(runs, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(runs, "_BLOCK", 8)
    monkeypatch.setattr(runs, "_ALIKE", 8)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield seen
    torch.set_num_threads(before)


def fit(kind: Any = LatentODELSTMForecaster, seed: int = 0) -> pd.Series:
    """Return what a fit on more windows than one block holds forecasts."""
    y = waves(uneven_stamps(40, seed), seed)
    settings = {"max_epochs": 2, "lr": 0.02, "random_state": seed}
    return tiny(kind, **settings).fit(y).predict([1, 2, 5])


def test_fits_in_two_threads_are_those_of_fits_alone(
    threads_are_woken: list[int],
) -> None:
    kinds = [LatentODELSTMForecaster, LatentODERNNForecaster] * 2
    alone = [fit(kind, seed) for seed, kind in enumerate(kinds)]
    assert len(set(threads_are_woken)) > 1
    with ThreadPoolExecutor(len(kinds)) as pool:
        together = list(pool.map(fit, kinds, range(len(kinds))))
    for forecast, expected in zip(together, alone, strict=True):
        pd.testing.assert_series_equal(forecast, expected, rtol=0, atol=0)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("engine", "seen"), [("fused", (1, 2)), ("eager", (2, 2))])
def test_torch_keeps_to_one_thread_beside_threads_of_the_engine(
    engine: str, seen: tuple[int, int], threads_are_woken: list[int]
) -> None:
    def numbers() -> tuple[int, int]:
        return torch.get_num_threads(), n_threads()

    found = []
    with ThreadPoolExecutor(1) as pool, on_engine(engine):
        with after_each_epoch(
            lambda _: found.append((numbers(), pool.submit(numbers).result()))
        ):
            tiny().fit(waves())
    assert set(found) == {(seen, (2, 2))}  # other threads are not limited
    with pytest.raises(ValueError, match="inside"), one_torch_thread():
        raise ValueError("inside")
    assert numbers() == (2, 2)


CHILDREN = """
import multiprocessing, os, sys
import joblib, torch
from sklode.engine import runs
from tests.engine.test_concurrency import fit

def fit_on_two_threads(seed):
    runs._WORTH_A_THREAD, runs._BLOCK, runs._ALIKE = 0, 8, 8
    torch.set_num_threads(2)
    return fit(seed=seed), os.getpid()

if __name__ == "__main__":
    expected = [fit_on_two_threads(seed)[0] for seed in range(2)]
    assert runs._threads_of(os.getpid(), 2)._threads  # the parent's have worked
    if sys.argv[1] == "loky":
        call = joblib.delayed(fit_on_two_threads)
        loky = joblib.Parallel(2, backend="loky", timeout=120)
        got = loky(call(seed) for seed in range(2))
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as workers:
            got = workers.map_async(fit_on_two_threads, range(2), 1).get(timeout=60)
    for (forecast, process), alone in zip(got, expected):
        assert process != os.getpid()
        print(float(abs(forecast - alone).max()))
    assert fit_on_two_threads(0)[0].equals(expected[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "loky"])
def test_fits_in_children_of_a_process_that_has_fitted(
    tmp_path: Path, start: str
) -> None:
    """A fork takes none of its parent's threads along, and must not wait for them."""
    if start not in ("loky", *multiprocessing.get_all_start_methods()):
        pytest.skip("no fork on this system")
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    root = str(Path(runs.__file__).parents[2])
    # where the tests run on one thread, the children shall not
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, str(script), start],
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": root},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.0", "0.0"]
