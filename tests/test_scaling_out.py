"""One model in several processes, and many models on a cluster of them.

The processes are real: started by torchrun, or the workers of a local dask cluster.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sktime.forecasting.model_selection import ForecastingGridSearchCV
from sktime.split import ExpandingWindowSplitter

from sklode import LatentODELSTMForecaster
from sklode.data.windows import WindowSet
from sklode.engine.threads import n_threads
from sklode.training import parallel as distributed
from sklode.training.batches import validation_batches
from sklode.training.loop import Trainer
from sklode.training.parallel import ALONE, Processes, current, data_parallel
from tests import sharing
from tests.series import tiny, waves
from tests.trainees import Trainee, batch, linear

ROOT = Path(__file__).parents[1]
LIMIT = 300.0
"""Seconds that the processes may take on a busy machine."""


def one_of(rank: int, size: int) -> Processes:
    """Return a process as it sees itself among others, without a line to them."""
    processes = Processes()
    processes.rank, processes.size = rank, size
    return processes


def environment() -> dict[str, str]:
    """Return the variables for processes that find sklode and its tests."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def started(
    *command: str, cwd: Path = ROOT, told: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen]:
    """Run a command; at the end nothing of it is left, nor of what it started."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env=environment() | dict(told or {}),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def torchrun(*command: str, cwd: Path = ROOT) -> str:
    """Run a program in two processes, and return what they print."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with started(*launcher, *command, cwd=cwd) as process:
        output, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each scenario has left in each of two processes."""
    folder = tmp_path_factory.mktemp("left")
    torchrun("-m", "tests.sharing", str(folder))
    return [
        pickle.loads((folder / f"{rank}.pkl").read_bytes()) for rank in range(2)
    ]  # our own


# One model in several processes


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_window_is_one_process_share_and_shares_differ_by_one(
    n: int, size: int
) -> None:
    everyone = [one_of(rank, size) for rank in range(size)]
    shares = [np.arange(n)[processes.rows(n)] for processes in everyone]
    np.testing.assert_array_equal(np.concatenate(shares), np.arange(n))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == everyone[0].largest_share(n)


def test_noise_of_a_share_is_that_of_its_windows_in_the_whole_batch() -> None:
    trainer = Trainer(Trainee(linear), max_epochs=1, lr=0.1)
    whole = batch()._replace(times=torch.zeros(7, 1))
    parts = [
        whole._replace(times=torch.zeros(n, 1), n_elsewhere=(before, 7 - before - n))
        for before, n in ((0, 3), (3, 0), (3, 4))
    ]
    draws = [
        trainer._noise(part, torch.Generator().manual_seed(1))
        for part in (whole, *parts)
    ]
    torch.testing.assert_close(torch.cat(draws[1:]), draws[0], rtol=0, atol=0)
    assert draws[0].unique().numel() == 7


def test_validation_windows_are_shared_and_scored_from_the_same_rows() -> None:
    times, values = np.arange(40.0), np.sin(np.arange(40.0))[:, None]
    windows = WindowSet(times, values, None, np.array([0, 40]), 6, 2)
    where = windows, np.array([30]), torch.device("cpu")
    (whole,) = validation_batches(*where)
    shares = [validation_batches(*where, one_of(rank, 3))[0] for rank in range(3)]
    for name in ("times", "values", "mask", "scored"):
        joined = torch.cat([getattr(share, name) for share in shares])
        torch.testing.assert_close(joined, getattr(whole, name), rtol=0, atol=0)


def test_without_torchrun_the_block_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with data_parallel() as processes:
        assert (processes.rank, processes.size, processes.is_first) == (0, 1, True)
        assert current() is ALONE
    monkeypatch.setenv("WORLD_SIZE", "4")  # of something else
    with data_parallel() as processes:
        assert processes.size == 1
    assert not torch.distributed.is_initialized()


def test_a_torch_without_distributed_is_refused_where_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "MASTER_PORT": "9"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with (
        pytest.raises(RuntimeError, match=r"needs torch\.distributed; got a torch"),
        data_parallel(),
    ):
        pass


def test_a_forked_process_does_not_speak_for_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = one_of(1, 2)
    monkeypatch.setattr(distributed._SHARED, "processes", shared, raising=False)
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


COMPARED = [
    "even",
    "uneven",
    "decayed",
    "stopped_early",
    "guarded",
    "pretrained",
    "stopped_by_callback",
    "checkpointed",
    "rounded",
]
"""Scenarios that one process alone can be compared with."""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_two_processes_find_what_one_finds(
    left: list[dict[str, Any]], name: str
) -> None:
    alone = sharing.SCENARIOS[name](ALONE)
    for shared in (one[name] for one in left):
        for what in ("weights", "forecast", "interval"):
            if what in alone:
                found, expected = shared[what], alone[what]
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        if "history" in alone:
            pd.testing.assert_frame_equal(
                shared["history"], alone["history"], rtol=1e-4, atol=1e-4
            )
            assert shared["epochs"] == alone["epochs"]
    assert np.ptp(alone["forecast"]) > 1e-3  # a forecast that tells


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMPARED, "unseeded", "unsolved_step"])
def test_processes_end_with_the_same_bits(
    left: list[dict[str, Any]], name: str
) -> None:
    one, other = (results[name] for results in left)
    for what in ("weights", "forecast", "interval"):
        if what in one:
            np.testing.assert_array_equal(one[what], other[what])
    assert one.get("digest") == other.get("digest")
    if "history" in one:
        pd.testing.assert_frame_equal(one["history"], other["history"])


@pytest.mark.slow
def test_a_batch_is_divided_even_where_somebody_gets_nothing(
    left: list[dict[str, Any]],
) -> None:
    sizes = [one["uneven"]["sizes"] for one in left]
    assert sizes[0][:4] == [1, 1, 1, 0]
    assert sizes[1][:4] == [2, 2, 2, 1]


@pytest.mark.slow
def test_early_stopping_stops_all_processes_before_the_last_epoch(
    left: list[dict[str, Any]],
) -> None:
    epochs = [one["stopped_early"]["epochs"] for one in left]
    assert epochs[0] == epochs[1]
    assert epochs[0][0] < 60


@pytest.mark.slow
def test_callbacks_are_those_of_the_first_process_and_stop_all(
    left: list[dict[str, Any]],
) -> None:
    assert [one["stopped_by_callback"]["first"] for one in left] == [2, 2]
    assert [one["stopped_by_callback"]["asked"] for one in left] == [2, 0]


@pytest.mark.slow
def test_callbacks_of_scikit_learn_hear_of_a_fit_in_the_first_process(
    left: list[dict[str, Any]],
) -> None:
    first, other = (one["listened"] for one in left)
    if not first:
        pytest.skip("scikit-learn has callbacks from 1.9 on")
    # setup, begin and end of the fit and of two epochs, teardown
    assert first["heard"] == [8, 8]
    assert other["heard"] == [0, 0]
    assert first["error"] == ("ValueError", "the end does not suit the listener")
    assert other["error"][0] == "RuntimeError"
    assert "number 0 of them, counted from 0, failed" in other["error"][1]


@pytest.mark.slow
def test_a_fit_in_a_thread_is_not_shared(left: list[dict[str, Any]]) -> None:
    found = left[0]["in_a_thread"]
    assert found["size"] == 1
    expected = tiny(**sharing.CALM).fit(sharing.panel()).predict([1, 2])
    np.testing.assert_array_equal(found["forecast"], expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("other_data", "got another y in process 1 than in process 0. Read and set"),
        ("other_rate", "got lr=0.02 in process 0 and lr=0.03 in 1. Read and set"),
        ("other_seed", "got another random_state in process 1 than in process 0."),
    ],
)
def test_what_differs_between_processes_is_refused_in_all(
    left: list[dict[str, Any]], name: str, told: str
) -> None:
    for one in left:
        kind, message = one[name]["error"]
        assert kind == "ValueError"
        assert told in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rank", "error"),
    [
        ("failed_callback", 0, ("LookupError", "pruned")),
        ("failed_end", 0, ("LookupError", "pruned at the end")),
        ("failed_step", 1, ("MemoryError", "no room")),
    ],
)
def test_an_error_in_one_process_ends_the_training_in_all(
    left: list[dict[str, Any]], name: str, rank: int, error: tuple[str, str]
) -> None:
    assert left[rank][name]["error"] == error
    kind, message = left[1 - rank][name]["error"]
    assert kind == "RuntimeError"
    assert f"number {rank} of them, counted from 0, failed. Its own" in message
    assert left[1 - rank][name]["seconds"] < 30


@pytest.mark.slow
def test_a_step_that_one_process_cannot_solve_is_skipped_by_all(
    left: list[dict[str, Any]],
) -> None:
    history = left[0]["unsolved_step"]["history"]
    assert history["skipped_steps"].sum() == 1
    assert np.isfinite(history["loss"]).all()


@pytest.mark.slow
def test_ctrl_c_in_one_process_stops_all_at_the_same_step(
    left: list[dict[str, Any]],
) -> None:
    one, other = (results["interrupted"] for results in left)
    for found in (one, other):
        assert found["epochs"][0] == 2
        (warning,) = found["warnings"]
        assert "training was interrupted in epoch 3 of 6; the best" in warning
        assert found["restored"]
    assert one["digest"] == other["digest"]


@pytest.mark.slow
def test_a_process_that_leaves_is_not_waited_for(left: list[dict[str, Any]]) -> None:
    assert left[0]["again"]["sizes"] == (2, 2)  # of two blocks, one after the other
    kind, message = left[0]["gone"]["error"]
    assert kind == "RuntimeError"
    assert "one of them is gone, or did not answer in time. Its own" in message
    assert left[0]["gone"]["seconds"] < 30
    assert left[1]["gone"]["error"] == ("LookupError", "no such file")
    assert left[0]["after"]["size"] == 1


@pytest.mark.slow
def test_a_process_that_is_silent_is_waited_for_until_the_timeout(
    left: list[dict[str, Any]],
) -> None:
    kind, message = left[0]["silent"]["error"]
    assert kind == "RuntimeError"
    assert "one of them is gone, or did not answer in time. Its own" in message
    assert left[0]["silent"]["seconds"] > 9


def group_of_two() -> dict[str, str]:
    """Return what two processes that find each other are told, but for their rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


WAITING = """
from sklode.training.parallel import data_parallel

with data_parallel(timeout=3):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_process_that_never_comes_is_waited_for_until_the_timeout(rank: str) -> None:
    with started("-c", WAITING, told={"RANK": rank, **group_of_two()}) as process:
        said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "one of them has not come within 3 seconds. Its own error says why" in said


DYING = """
import os, sys
from tests.series import panel, tiny
from sklode.training.parallel import data_parallel

class Die:
    def on_epoch_end(self, owner, row):
        if row["epoch"] == 2:
            os._exit(7)

with data_parallel(timeout=60) as processes:
    tiny(max_epochs=2000, callbacks=[Die()]).fit(panel())
"""


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others() -> None:
    group = group_of_two()
    with (
        started("-c", DYING, told={"RANK": "0", **group}) as first,
        started("-c", DYING, told={"RANK": "1", **group}) as second,
    ):
        second_said, _ = second.communicate(timeout=LIMIT)
        assert second.returncode == 1
        assert "RuntimeError: the 2 processes that share a training" in second_said
        first.communicate(timeout=30)
        assert first.returncode == 7


# Many models on a cluster


class Witness:
    """Write down which process trains, and how many threads it has for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> None:
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{torch.get_num_threads()} {n_threads()}\n")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Yield a client of two worker processes with one thread each."""
    distributed = pytest.importorskip("distributed")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.ExitStack() as stack,
    ):
        patch.delenv("OMP_NUM_THREADS", raising=False)  # dask itself sets it
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        workers = stack.enter_context(
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
            )
        )
        yield stack.enter_context(distributed.Client(workers))


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The default of config ``remember_data``:FutureWarning"
)
@pytest.mark.parametrize("library", ["sktime", "scikit-learn"])
def test_a_search_on_a_cluster_is_the_serial_one_bit_for_bit(
    cluster: Any, library: str, tmp_path: Path
) -> None:
    y = waves(pd.RangeIndex(40))
    grid = {"hidden_size": [2, 3, 4, 5], "lr": [0.01, 0.05]}

    def found(is_parallel: bool, **settings: Any) -> tuple[np.ndarray, pd.Series]:
        forecaster = tiny(max_epochs=5, **settings)
        if library == "sktime":
            cv = ExpandingWindowSplitter([1, 2], initial_window=20, step_length=8)
            backend = "dask" if is_parallel else "None"
            search = ForecastingGridSearchCV(forecaster, cv, grid, backend=backend)
        else:
            search = GridSearchCV(forecaster, grid, cv=TimeSeriesSplit(2))
        with (
            joblib.parallel_config("dask") if is_parallel else contextlib.nullcontext()
        ):
            search.fit(y)
        name = "mean_test_score"
        if library == "sktime":
            name = "mean_test_MeanAbsolutePercentageError"
        return np.asarray(search.cv_results_[name]), search.predict([1, 2])

    parallel = found(True, callbacks=[Witness(tmp_path)])
    serial = found(False)
    np.testing.assert_array_equal(parallel[0], serial[0])
    assert len(set(serial[0])) == 8
    pd.testing.assert_series_equal(parallel[1], serial[1], check_exact=True)
    seen = {int(p.name): set(p.read_text().splitlines()) for p in tmp_path.iterdir()}
    seen.pop(os.getpid())  # the best one is fitted again where the search was called
    assert seen
    assert set(seen) <= set(cluster.run(os.getpid).values())  # dask chooses how many
    assert all(threads == {"1 1"} for threads in seen.values())


@pytest.mark.slow
def test_each_worker_of_a_cluster_finds_what_its_caller_finds(cluster: Any) -> None:
    def found() -> tuple[int, pd.Series]:
        forecaster = tiny(max_epochs=5).fit(waves(pd.RangeIndex(40)))
        return os.getpid(), forecaster.predict([1, 2])

    workers = cluster.run(found)
    own, here = found()
    assert len({pid for pid, _ in workers.values()} - {own}) == 2
    for _, there in workers.values():
        pd.testing.assert_series_equal(there, here, check_exact=True)


# The guide and its figures


def script_of(heading: str, folder: Path) -> str:
    """Write the Python under a heading of the guide to a file, and return its path."""
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    path = folder / "train.py"
    path.write_text(code, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_the_guide_searches_on_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    path = Path(script_of("Many models: a dask cluster", tmp_path))
    body = textwrap.indent(path.read_text(encoding="utf-8"), "    ")
    path.write_text(f'if __name__ == "__main__":\n{body}', encoding="utf-8")
    with started(str(path)) as process:
        output, _ = process.communicate(timeout=LIMIT)
    found = re.findall(r"^(.*): (\{.*\})$", output, re.MULTILINE)
    assert [library for library, _ in found] == ["sktime", "scikit-learn"], output
    assert all(
        set(ast.literal_eval(best)) == {"hidden_size", "lr"} for _, best in found
    )


@pytest.mark.slow
def test_the_guide_trains_one_model_in_one_process_and_in_two(tmp_path: Path) -> None:
    script = script_of("One model: torchrun", tmp_path)
    with started(script, cwd=tmp_path) as process:
        alone, _ = process.communicate(timeout=LIMIT)
    forecast = LatentODELSTMForecaster.load_weights(
        tmp_path / "forecaster.sklode"
    ).predict([1, 2])
    (tmp_path / "forecaster.sklode").unlink()
    shared = torchrun(script, cwd=tmp_path)
    again = LatentODELSTMForecaster.load_weights(tmp_path / "forecaster.sklode")
    assert re.search(r"^1 processes, loss \d", alone, re.MULTILINE), alone
    assert re.search(r"^2 processes, loss \d", shared, re.MULTILINE), shared
    pd.testing.assert_frame_equal(again.predict([1, 2]), forecast, atol=1e-3)


@pytest.mark.slow
def test_the_benchmark_compares_processes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.syspath_prepend(ROOT / "examples" / "benchmarks")
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    benchmark = importlib.import_module("scaling_out")
    monkeypatch.setattr(benchmark, "PANELS", {"large": (5, 12, 3)})
    before = torch.get_num_threads()
    options = ["--repeats", "1", "--fits", "2", "--epochs", "2"]
    try:
        ratios = benchmark.main(["--parts", "models", "large", *options])
    finally:
        torch.set_num_threads(before)
    assert set(ratios["models"]) == {"serial", "2 workers"}
    assert set(ratios["large"]) == {"1 process", "2 threads", "2 processes"}
    assert ratios["large"]["1 process"] == (1, 1)
    said = capfd.readouterr().out
    assert "5 windows of 12: medians of 1 turns" in said
    (difference,) = re.findall(r"largest difference of a weight: (\S+)", said)
    assert float(difference) < 1e-3
