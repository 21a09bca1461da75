"""What processes that share a training do, for tests of what then becomes of it.

Run by torchrun, it writes what each scenario has left in each process to the folder
named by its argument.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from sklode import LatentODERNNForecaster, nn
from sklode.data.errors import SolverError
from sklode.training import batches, fitting
from sklode.training.loop import Trainer
from sklode.training.parallel import Processes, current, data_parallel
from tests.series import panel, tiny, uneven_stamps, waves

Left = dict[str, Any]

CALM = {"lr": 0.02, "max_epochs": 6, "batch_size": 8, "step_size": 2.0}
"""A training so short and slow that rounding does not grow."""


def left_by(forecaster: Any, fh: Any = (1, 2)) -> Left:
    """Return what a fit has left."""
    weights = [w.detach().numpy() for w in forecaster.network_.state_dict().values()]
    return {
        "weights": np.concatenate([w.ravel() for w in weights]),
        "digest": hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest(),
        "history": forecaster.history_.drop(columns="seconds"),
        "epochs": (forecaster.n_epochs_, forecaster.best_epoch_),
        "forecast": forecaster.predict(list(fh)).to_numpy(),
        "interval": forecaster.predict_interval(list(fh)).to_numpy(),
    }


def even(processes: Processes) -> Left:
    """Every batch has a window for everyone."""
    return left_by(tiny(**CALM).fit(panel()))


def uneven(processes: Processes) -> Left:
    """Batches of three, and of one at the end: then somebody has none."""
    forecaster = tiny(LatentODERNNForecaster, **{**CALM, "batch_size": 3})
    y = waves(uneven_stamps(15 + 2))  # ten windows
    seen = []
    make = fitting.make_batch

    def watched(windows: Any, which: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(len(which))
        return make(windows, which, *args, **kwargs)

    with mock.patch.object(fitting, "make_batch", watched):
        forecaster.fit(y)
    return {**left_by(forecaster), "sizes": seen}


def decayed(processes: Processes) -> Left:
    """Several vectors of gradients, a threshold from the norms, averaged weights.

    And missing values, more in one share than in another.
    """
    settings = {"weight_decay": 0.01, "optimizer": "adamw", "averaging": 0.5}
    forecaster = tiny(**CALM, **settings, clip_norm="auto", engine="unrolled")
    y = panel()
    other = y["y"].shift(1).where(np.arange(len(y)) % 3 > 0)
    return left_by(forecaster.fit(y.assign(other=other)))


def stopped_early(processes: Processes) -> Left:
    """The validation loss decides when to stop, and which weights are the best."""
    settings = {"early_stopping": True, "validation_fraction": 0.3, "tol": 0.02}
    forecaster = tiny(**{**CALM, "lr": 0.05, "max_epochs": 60}, **settings)
    forecaster.set_params(n_iter_no_change=3, kl_annealing_epochs=0)
    return left_by(forecaster.fit(panel((40, 31, 28))))


def guarded(processes: Processes) -> Left:
    """A trial decides whether the training is kept."""
    forecaster = tiny(**{**CALM, "max_epochs": 2}, guard=True)
    return left_by(forecaster.fit(panel((40, 31, 28))))


def pretrained(processes: Processes) -> Left:
    """A panel, then one of its series, then later rows of that, and X."""
    y = panel((30, 25))
    X = y.rename(columns={"y": "x"}) ** 2
    forecaster = tiny(**CALM, finetune_epochs=2).pretrain(y, X=X)
    one, x = y.loc["s0"], X.loc["s0"]
    forecaster.fit(one[:20], X=x[:20]).update(one[20:28], X=x[20:28])
    network = forecaster.network_
    weights = torch.cat([w.flatten() for w in network.state_dict().values()])
    return {
        "weights": weights.numpy(),
        "forecast": forecaster.predict_at(one.index[28:], x[28:]).to_numpy(),
    }


class Stop:
    """Stop after some epochs, and count in which process that was asked."""

    def __init__(self, after: int) -> None:
        self.after, self.asked = after, 0

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> bool:
        self.asked += 1
        return row["epoch"] >= self.after


def stopped_by_callback(processes: Processes) -> Left:
    """A callback stops the training, which then goes on as if it had not."""
    stop = Stop(after=2)
    settings = {**CALM, "warm_start": True, "callbacks": [stop]}
    forecaster = tiny(**settings).fit(panel())
    first = forecaster.n_epochs_
    forecaster.callbacks = None
    return {**left_by(forecaster.fit(panel())), "first": first, "asked": stop.asked}


class Listener:
    """A callback of scikit-learn's that counts what it hears, and may fail at last."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.heard = fails, 0

    def setup(self, estimator: Any, context: Any) -> None:
        self.heard += 1

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.heard += 1

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.heard += 1
        if self.fails and context.task_name == "fit":
            raise ValueError("the end does not suit the listener")
        return False

    def teardown(self, estimator: Any, context: Any) -> None:
        self.heard += 1


def listened(processes: Processes) -> Left:
    """scikit-learn's callbacks listen, and fail at the very end."""
    if importlib.util.find_spec("sklearn.callback") is None:
        return {}
    heard: list[int] = []
    error: BaseException | None = None
    for fails in (False, True):
        listener = Listener(fails)
        forecaster = tiny(**{**CALM, "max_epochs": 2}).set_callbacks(listener)
        try:
            forecaster.fit(panel())
        except (ValueError, RuntimeError) as raised:
            error = raised
        heard.append(listener.heard)
    return {"heard": heard, "error": (type(error).__name__, str(error))}


class Checkpoint:
    """Pickle the forecaster, as it is then."""

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == 3:
            owner.callbacks, mine = None, owner.callbacks
            self.saved = pickle.dumps(owner)
            owner.callbacks = mine
        return False


def checkpointed(processes: Processes) -> Left:
    """All go on from what the first process has saved while it trained."""
    checkpoint = Checkpoint()
    settings = {**CALM, "warm_start": True, "callbacks": [checkpoint]}
    tiny(**settings).fit(panel())
    saved = processes.from_first(getattr(checkpoint, "saved", None))
    return left_by(pickle.loads(saved).fit(panel()))  # our own


def unseeded(processes: Processes) -> Left:
    """Processes that would each draw their own seed."""
    np.random.seed(processes.rank)  # noqa: NPY002
    forecaster = tiny(**{**CALM, "random_state": None}).fit(panel())
    return left_by(forecaster)


def rounded(processes: Processes) -> Left:
    """The last process' machine begins and ends with other weights and scales."""
    fresh, best = fitting.fresh_model, Trainer.load_best
    measured = fitting.measured_calibration

    @torch.no_grad()
    def moved(network: Any) -> None:
        for parameter in network.parameters():
            parameter.add_(0.01)

    def other_model(*args: Any) -> Any:
        model = fresh(*args)
        moved(model.network)
        return model

    def other_best(self: Any, network: Any, *args: Any) -> int:
        epoch = best(self, network, *args)
        moved(network)
        return epoch

    def other_scales(*args: Any) -> Any:
        found = measured(*args)
        assert found is not None
        return replace(found, scales=2 * found.scales)

    with contextlib.ExitStack() as stack:
        if processes.rank == processes.size - 1 > 0:
            for owner, name, other in (
                (fitting, "fresh_model", other_model),
                (Trainer, "load_best", other_best),
                (fitting, "measured_calibration", other_scales),
            ):
                stack.enter_context(mock.patch.object(owner, name, other))
        return left_by(tiny(**CALM).fit(panel((40, 31))))


def in_a_thread(processes: Processes) -> Left:
    """A fit in another thread is not shared."""
    if not processes.is_first:
        return {}
    with ThreadPoolExecutor(1) as pool:
        size = pool.submit(lambda: current().size).result()
        forecaster = pool.submit(tiny(**CALM).fit, panel()).result()
    return {**left_by(forecaster), "size": size}


def error_of(call: Callable[[], object]) -> Left:
    """Return the error that a call ends in."""
    started = time.perf_counter()
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        seconds = time.perf_counter() - started
        return {"error": (type(error).__name__, str(error)), "seconds": seconds}
    return {"error": None}


def other_data(processes: Processes) -> Left:
    """Each process has other values."""
    return error_of(lambda: tiny(**CALM).fit((1 + processes.rank) * panel()))


def other_rate(processes: Processes) -> Left:
    """Each process has another rate."""
    settings = {**CALM, "lr": (0.02, 0.03)[processes.rank]}
    return error_of(lambda: tiny(**settings).fit(panel()))


def other_seed(processes: Processes) -> Left:
    """Each process has another seed."""
    forecaster = tiny(**{**CALM, "random_state": processes.rank})
    return error_of(lambda: forecaster.fit(panel()))


class Fail:
    """Fail at the end of an epoch, or of the fit."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> bool:
        if row["epoch"] == self.at:
            raise LookupError("pruned")
        return False

    def on_fit_end(self, owner: Any) -> None:
        if not self.at:
            raise LookupError("pruned at the end")


def failed_callback(processes: Processes) -> Left:
    """A callback, which the first process alone has, raises an error."""
    return error_of(lambda: tiny(**CALM, callbacks=[Fail(2)]).fit(panel()))


def failed_end(processes: Processes) -> Left:
    """It does so when the training is over."""
    return error_of(lambda: tiny(**CALM, callbacks=[Fail(0)]).fit(panel()))


def nth_forward(processes: Processes, n: int, error: BaseException) -> Any:
    """Let the last process' network raise an error at its n-th bound."""
    forward, calls = nn.LatentODE.forward, []

    def failing(self: Any, *args: Any) -> Any:
        calls.append(1)
        if processes.rank == processes.size - 1 and len(calls) == n:
            raise error
        return forward(self, *args)

    return mock.patch.object(nn.LatentODE, "forward", failing)


def failed_step(processes: Processes) -> Left:
    """The last process runs out of memory in a step."""
    with nth_forward(processes, 4, MemoryError("no room")):
        return error_of(lambda: tiny(**CALM).fit(panel()))


def unsolved_step(processes: Processes) -> Left:
    """The last process cannot solve its windows of one step."""
    with nth_forward(processes, 4, SolverError("overflow")):
        return left_by(tiny(**CALM).fit(panel()))


def interrupted(processes: Processes) -> Left:
    """Ctrl-C in the last process, in the third epoch."""
    gather, calls = batches.make_batch, []
    n_steps = 2

    def interrupting(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if processes.rank == processes.size - 1 and len(calls) == 2 * n_steps + 1:
            signal.raise_signal(signal.SIGINT)
        return gather(*args, **kwargs)

    with (
        mock.patch.object(fitting, "make_batch", interrupting),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        forecaster = tiny(**{**CALM, "batch_size": 16}).fit(panel())
    found = {**left_by(forecaster), "warnings": [str(w.message) for w in caught]}
    handler = signal.getsignal(signal.SIGINT)
    return {**found, "restored": handler is signal.default_int_handler}


def gone(processes: Processes) -> Left:
    """The last process leaves before the others expect it."""

    def leave_or_fit() -> None:
        with data_parallel():  # the same one
            if processes.rank == processes.size - 1:
                processes.leave()
                raise LookupError("no such file")
            tiny(**CALM).fit(panel())

    return error_of(leave_or_fit)


def silent(processes: Processes) -> Left:
    """The last process is not there in time."""
    if processes.rank == processes.size - 1:
        time.sleep(20)
    return error_of(lambda: tiny(**CALM).fit(panel()))


SCENARIOS: dict[str, Callable[[Processes], Left]] = {
    scenario.__name__: scenario
    for scenario in (
        even,
        uneven,
        decayed,
        stopped_early,
        guarded,
        pretrained,
        stopped_by_callback,
        listened,
        checkpointed,
        unseeded,
        rounded,
        in_a_thread,
        other_data,
        other_rate,
        other_seed,
        failed_callback,
        failed_end,
        failed_step,
        unsolved_step,
        interrupted,
    )
}


def main(folder: Path) -> None:
    """Run all scenarios, and that of a process that is gone in a block of its own."""
    warnings.simplefilter("error")
    left: dict[str, Left] = {}
    with data_parallel(timeout=60) as processes:
        for name, scenario in SCENARIOS.items():
            left[name] = scenario(processes)
    with data_parallel(timeout=60) as again:
        left["again"] = {"sizes": (processes.size, again.size)}
        left["gone"] = gone(again)
    with data_parallel(timeout=10) as hasty:
        left["silent"] = silent(hasty)
    left["after"] = {"size": current().size}
    (folder / f"{processes.rank}.pkl").write_bytes(pickle.dumps(left))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
