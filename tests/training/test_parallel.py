"""One model in several processes, and many models on a cluster of them.

The processes are real: started by torchrun, or the workers of a local dask cluster.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from sklode.training import parallel
from sklode.training.parallel import ALONE, Processes, current, data_parallel
from tests.series import tiny, waves
from tests.training import sharing

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


def one_of(rank: int, size: int) -> Processes:
    """Return a process as it sees itself among others, without a line to them."""
    processes = Processes()
    processes.rank, processes.size = rank, size
    return processes


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_window_is_one_process_share_and_shares_differ_by_one(size: int) -> None:
    for n in (0, 1, 2, 7, 64):
        shares = [np.arange(n)[one_of(rank, size).share(n)] for rank in range(size)]
        np.testing.assert_array_equal(np.concatenate(shares), np.arange(n))
        assert np.ptp([len(share) for share in shares]) <= 1


def test_without_torchrun_the_block_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for size in ("", "4"):  # of something else
        monkeypatch.setenv("WORLD_SIZE", size)
        with data_parallel() as processes:
            assert (processes.rank, processes.size, processes.is_first) == (0, 1, True)
            assert current() is ALONE
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("has_distributed", [False, True])
def test_where_the_others_cannot_be_found_that_is_told(
    monkeypatch: pytest.MonkeyPatch, has_distributed: bool
) -> None:
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "9"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)

    def wait(*_: object, timeout: timedelta, **__: object) -> None:
        raise RuntimeError(f"{timeout}")

    monkeypatch.setattr(torch.distributed, "is_available", lambda: has_distributed)
    monkeypatch.setattr(torch.distributed, "init_process_group", wait)
    message = r"needs torch\.distributed; got a torch that was built without it"
    if has_distributed:
        message = "one of them has not come within 3 seconds. Its own error says why"
    with pytest.raises(RuntimeError, match=message), data_parallel(timeout=3):
        pass


def test_a_forked_process_does_not_speak_for_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = one_of(1, 2)
    monkeypatch.setattr(parallel._SHARED, "processes", shared, raising=False)
    assert current() is shared
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert current() is ALONE


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_the_others_and_a_second_one_does_not() -> None:
    processes = one_of(0, 2)
    with processes.deferring_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert processes._interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        processes._interrupted = False  # told
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), processes.deferring_interrupts():
        signal.raise_signal(signal.SIGINT)  # and nothing more is told


# Two processes


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each scenario has left in each of two processes."""
    folder = tmp_path_factory.mktemp("left")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", "-m", "tests.training.sharing", str(folder)]
    told = {**os.environ, "PYTHONPATH": PATH, "OMP_NUM_THREADS": "1"}
    group = subprocess.Popen(command, cwd=folder, env=told, start_new_session=True)
    try:
        assert group.wait(timeout=300) == 0
    finally:  # nothing is left of what it started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group.pid, signal.SIGKILL)
    files = [folder / f"{rank}.pkl" for rank in range(2)]
    return [pickle.loads(file.read_bytes()) for file in files]  # our own


def assert_alike(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    tolerances: Any = {"rtol": tolerance, "atol": tolerance}
    for name in {"weights", "interval", "best"} & one.keys():
        np.testing.assert_allclose(one[name], other[name], **tolerances, err_msg=name)
    if "history" in one:
        pd.testing.assert_frame_equal(one["history"], other["history"], **tolerances)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sharing.SHARED, ids=lambda s: s.__name__)
def test_two_processes_end_with_the_same_bits_which_one_alone_finds_too(
    left: list[dict[str, Any]], scenario: Any
) -> None:
    one, other = (found[scenario.__name__] for found in left)
    assert_alike(one, other, 0.0)
    if scenario in sharing.ALIKE:
        assert_alike(one, scenario(ALONE), 1e-4)


@pytest.mark.slow
def test_all_stop_where_one_does(left: list[dict[str, Any]]) -> None:
    assert len(left[0]["decayed"]["history"]) < 20
    # callbacks are those of the first process
    assert [one["resumed"]["stopped"] for one in left] == [2, 2]
    assert [one["resumed"]["asked"] for one in left] == [2, 0]
    # a step that one process cannot solve is skipped by all
    history = left[0]["unsolved"]["history"]
    assert history["skipped_steps"].sum() == 1
    assert np.isfinite(history["loss"]).all()
    for one in left:  # Ctrl-C in one of them
        assert len(one["interrupted"]["history"]) == 2
        (warning,) = one["interrupted"]["warnings"]
        assert "training was interrupted in epoch 3 of 6; the best" in warning
        assert one["interrupted"]["restored"]
    assert left[0]["in_a_thread"]["size"] == 1
    assert_alike(left[0]["in_a_thread"], sharing.even(ALONE), 0.0)
    # the guide's program
    assert [one["guide"]["size"] for one in left] == [2, 2]
    assert_alike(left[0]["guide"], left[1]["guide"], 0.0)


@pytest.mark.slow
def test_an_error_in_one_process_is_one_in_all(left: list[dict[str, Any]]) -> None:
    told = {
        "y": r"ValueError: .*got digest of y=\w+ in process 0 and .*=\w+ in 1. Read",
        "lr": "ValueError: .*got lr=0.02 in process 0 and lr=1.02 in 1. Read and set",
        "seed": "ValueError: .*got digest of random_state=",
    }
    for name, message in told.items():
        for one in left:
            assert re.match(message, one["refused"][name]["error"])
    for name, rank, message in (
        ("callback", 0, "LookupError: pruned"),
        ("end", 0, "LookupError: pruned at the end"),
        ("step", 1, "MemoryError: no room"),
    ):
        assert left[rank]["failed"][name]["error"] == message
        other = left[1 - rank]["failed"][name]
        assert other["error"].startswith("RuntimeError: the processes that share")
        assert f"number {rank} of 2, counted from 0, failed. Its own" in other["error"]
        assert other["seconds"] < 30


@pytest.mark.slow
def test_a_process_that_leaves_is_not_waited_for_and_a_silent_one_until_the_timeout(
    left: list[dict[str, Any]],
) -> None:
    assert left[0]["sizes"] == {"in turn": (2, 2), "after": 1}
    assert left[1]["gone"]["error"] == "LookupError: no such file"
    for name in ("gone", "silent"):
        told = "RuntimeError: .* one of 2 is gone, or did not answer in time. Its own"
        assert re.match(told, left[0][name]["error"])
    assert left[0]["gone"]["seconds"] < 30
    assert left[0]["silent"]["seconds"] > 3.9


# Many models on a cluster


@pytest.mark.slow
def test_a_search_on_a_cluster_is_the_serial_one_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # dask itself sets it
    monkeypatch.setenv("PYTHONPATH", PATH)
    y, grid = waves(pd.RangeIndex(40)), {"hidden_size": [2, 3], "lr": [0.01, 0.05]}
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1}
    found = []
    with (
        distributed.LocalCluster(**options, dashboard_address=":0") as workers,
        distributed.Client(workers) as client,
    ):
        assert set(client.run(torch.get_num_threads).values()) == {1}
        for backend in ("dask", "sequential"):
            search = GridSearchCV(tiny(max_epochs=3), grid, cv=TimeSeriesSplit(2))
            with joblib.parallel_config(backend):
                found.append(search.fit(y))
    scores = [search.cv_results_["mean_test_score"] for search in found]
    np.testing.assert_array_equal(*scores)
    assert len(set(scores[0])) == 4
    forecasts = [search.predict([1, 2]) for search in found]
    pd.testing.assert_series_equal(*forecasts, check_exact=True)
