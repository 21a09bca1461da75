"""Fits side by side: in threads, in forked processes, over several threads each."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from sklode import LatentODELSTMForecaster, LatentODERNNForecaster
from sklode.engine import blocks, encode
from tests.epochs import after_each_epoch
from tests.networks import gradients, latent_ode, windows
from tests.series import tiny, uneven_stamps, waves

STEPS = [1, 2, 5]


@pytest.fixture
def threads_are_woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Share even a small batch over two threads; list which threads took a part."""
    seen: list[int] = []
    run_all = blocks.Blocks._map

    def recording(self: Any, work: Any, *given: Any) -> list:
        def recorded(*part: Any) -> Any:
            seen.append(threading.get_ident())
            time.sleep(1e-4)  # else one thread may take all blocks
            return work(*part)

        return run_all(self, recorded, *given)

    monkeypatch.setattr(blocks.Blocks, "_map", recording)
    monkeypatch.setattr(blocks, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(blocks, "_BLOCK", 8)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield seen
    torch.set_num_threads(before)


def fit(kind: Any = LatentODELSTMForecaster, seed: int = 0) -> pd.Series:
    """Return what a fit on more windows than one block holds forecasts."""
    y = waves(uneven_stamps(60, seed), seed)
    settings = {"max_epochs": 4, "lr": 0.02, "random_state": seed}
    return tiny(kind, **settings).fit(y).predict(STEPS)


@pytest.mark.slow
def test_fits_in_two_threads_are_those_of_fits_alone(
    threads_are_woken: list[int],
) -> None:
    kinds = [LatentODELSTMForecaster, LatentODERNNForecaster] * 2
    alone = [fit(kind, seed) for seed, kind in enumerate(kinds)]
    assert len(set(threads_are_woken)) > 1
    for _ in range(3):
        with ThreadPoolExecutor(len(kinds)) as pool:
            together = list(pool.map(fit, kinds, range(len(kinds))))
        for forecast, expected in zip(together, alone, strict=True):
            pd.testing.assert_series_equal(forecast, expected, rtol=0, atol=0)


def test_a_thread_that_begins_beside_a_fit_shares_out_as_one_alone(
    threads_are_woken: list[int],
) -> None:
    expected = fit()
    with ThreadPoolExecutor(1) as pool:
        beside: list[int] = []
        with after_each_epoch(
            lambda _: beside.append(pool.submit(torch.get_num_threads).result())
        ):
            tiny().fit(waves())
        assert set(beside) == {2}
        threads_are_woken.clear()
        forecast = pool.submit(fit).result()
    assert len(set(threads_are_woken)) > 1
    pd.testing.assert_series_equal(forecast, expected, rtol=0, atol=0)
    assert torch.get_num_threads() == 2


def test_threads_may_share_one_network(threads_are_woken: list[int]) -> None:
    """Whatever a call needs belongs to the call."""
    network = latent_ode(engine="fused")
    batches = [windows(33, 9 + k, 6) for k in range(4)]
    noise = torch.randn(33, 3)

    def slopes(batch: Any) -> list[torch.Tensor]:
        bound = network(batch, noise)
        loss = (bound.log_likelihood - bound.kl).sum()
        return list(gradients(network, loss).values())

    alone = [slopes(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for got, expected in zip(pool.map(slopes, batches), alone, strict=True):
                assert all(map(torch.equal, got, expected))


def test_an_error_in_one_part_is_raised_and_leaves_the_threads_usable(
    threads_are_woken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fit()

    def broken(*args: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(encode, "by_step", broken)
        with pytest.raises(MemoryError, match="no room"):
            fit()
    pd.testing.assert_series_equal(fit(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_number_of_threads_changes_sums_by_rounding_only(
    threads_are_woken: list[int], dtype: torch.dtype
) -> None:
    network = latent_ode(engine="fused", depth=2).to(dtype)
    batch = windows(70, 40, 30)
    batch = batch._replace(times=batch.times.to(dtype), values=batch.values.to(dtype))
    noise = torch.randn(70, 3, dtype=dtype)

    def bound_and_slopes(n_threads: int) -> dict[str, torch.Tensor]:
        torch.set_num_threads(n_threads)
        bound = network(batch, noise)
        loss = (bound.log_likelihood - bound.kl).sum()
        return gradients(network, loss) | {"kl": bound.kl.detach()}

    one, *others = (bound_and_slopes(n) for n in (1, 2, 3, 5))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for other in others:
        for name, value in one.items():
            assert (other[name] - value).norm() <= tolerance * value.norm(), name
    again = bound_and_slopes(3)
    assert all(torch.equal(again[name], value) for name, value in others[1].items())


def test_blocks_are_added_in_their_order_whichever_is_ready_first(
    monkeypatch: pytest.MonkeyPatch, threads_are_woken: list[int]
) -> None:
    network, batch, noise = latent_ode(engine="fused"), windows(70), torch.randn(70, 3)
    run_all = blocks.Blocks._map
    torch.set_num_threads(5)

    def slopes(seconds: Callable[[int], float]) -> list[torch.Tensor]:
        def delayed(self: Any, work: Any, *given: Any) -> list:
            def after_a_while(low: int, *others: Any) -> Any:
                time.sleep(seconds(low))
                return work(low, *others)

            return run_all(self, after_a_while, *given)

        with monkeypatch.context() as patch:
            patch.setattr(blocks.Blocks, "_map", delayed)
            bound = network(batch, noise)
            loss = (bound.log_likelihood - bound.kl).sum()
            return list(gradients(network, loss).values())

    first_to_last = slopes(lambda low: 1e-3 * min(low, 70))
    last_to_first = slopes(lambda low: 1e-3 * max(70 - low, 0))
    assert all(map(torch.equal, first_to_last, last_to_first))


CHILDREN = """
import multiprocessing, os, sys
import joblib, torch
from sklode.engine import blocks
from tests.engine.test_concurrency import fit

def fit_on_two_threads(seed):
    blocks._WORTH_A_THREAD, blocks._BLOCK = 0, 8
    torch.set_num_threads(2)
    return fit(seed=seed), os.getpid()

if __name__ == "__main__":
    expected = [fit_on_two_threads(seed)[0] for seed in range(2)]
    assert blocks._threads_of(os.getpid(), 2)._threads  # the parent's have worked
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
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(
            "fork",
            marks=pytest.mark.skipif(
                "fork" not in multiprocessing.get_all_start_methods(),
                reason="no fork on this system",
            ),
        ),
        pytest.param("loky", marks=pytest.mark.slow),
    ],
)
def test_fits_in_children_of_a_process_that_has_fitted(
    tmp_path: Path, start: str
) -> None:
    """A fork takes none of its parent's threads along, and must not wait for them."""
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    root = str(Path(blocks.__file__).parents[2])
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
