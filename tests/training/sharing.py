"""What processes that share a training do, for tests of what then becomes of it.

Run by torchrun, it writes what each scenario has left in each process to the folder
named by its argument.
"""

from __future__ import annotations

import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from sklode import LatentODERNNForecaster, nn
from sklode.data.errors import SolverError
from sklode.training import loop
from sklode.training.parallel import Processes, current, data_parallel
from tests.pages import python_of
from tests.series import panel, tiny, uneven_stamps, waves

Left = dict[str, Any]

CALM = {"lr": 0.005, "max_epochs": 6, "batch_size": 8, "step_size": 2.0}
"""A training so short and slow that rounding does not grow."""


def left_by(forecaster: Any) -> Left:
    """Return what a fit has left."""
    weights = forecaster.network_.state_dict().values()
    return {
        "weights": torch.cat([w.flatten() for w in weights]).numpy(),
        "history": forecaster.history_.drop(columns="seconds"),
        "best": forecaster.best_epoch_,
        "interval": forecaster.predict_interval([1, 2]).to_numpy(),
    }


def even(processes: Processes) -> Left:
    """Every batch has a window for everyone."""
    return left_by(tiny(**CALM).fit(panel()))


def uneven(processes: Processes) -> Left:
    """Batches of three, and of one at the end: then somebody has none."""
    forecaster = tiny(LatentODERNNForecaster, **{**CALM, "batch_size": 3})
    return left_by(forecaster.fit(waves(uneven_stamps(15 + 2))))  # ten windows


def decayed(processes: Processes) -> Left:
    """Two vectors of gradients, a threshold from the norms, and validation.

    And missing values, more in one share than in another.
    """
    settings: Left = {"weight_decay": 0.01, "clip_norm": "auto", "early_stopping": True}
    forecaster = tiny(**{**CALM, "max_epochs": 20}, **settings, n_iter_no_change=1)
    y = panel((40, 31, 28))
    other = y["y"].shift(1).where(np.arange(len(y)) % 3 > 0)
    with mock.patch.object(loop, "_IMPROVEMENT", 0.1):
        return left_by(forecaster.fit(y.assign(other=other)))


def further(processes: Processes) -> Left:
    """A guarded panel, then one of its series, then later rows of that, and X."""
    y = panel((30, 25))
    X = y.rename(columns={"y": "x"}) ** 2
    forecaster = tiny(**CALM, finetune_epochs=2, guard=True).pretrain(y, X=X)
    one, x = y.loc["s0"], X.loc["s0"]
    forecaster.fit(one[:20], X=x[:20]).update(one[20:28], X=x[20:28])
    weights = forecaster.network_.state_dict().values()
    return {"weights": torch.cat([w.flatten() for w in weights]).numpy()}


class Act:
    """Save and stop in an epoch, or fail there or at the end of the fit."""

    def __init__(self, at: int, fails: bool = False) -> None:
        self.at, self.fails = at, fails
        self.asked, self.saved = 0, None

    def on_epoch_end(self, owner: Any, row: dict[str, float]) -> bool:
        self.asked += 1
        if row["epoch"] == self.at and self.fails:
            raise LookupError("pruned")
        if row["epoch"] == self.at:
            self.saved = owner.checkpoint().set_params(callbacks=None)
        return row["epoch"] == self.at

    def on_fit_end(self, owner: Any) -> None:
        if not self.at:
            raise LookupError("pruned at the end")


def resumed(processes: Processes) -> Left:
    """All go on from what the first process, that of callbacks, saved at a stop."""
    act = Act(2)
    forecaster = tiny(**CALM, warm_start=True, callbacks=[act]).fit(panel())
    stopped = forecaster.n_epochs_
    saved = processes.everyones(act.saved)[0]
    return {**left_by(saved.fit(panel())), "stopped": stopped, "asked": act.asked}


def unseeded(processes: Processes) -> Left:
    """Processes that would each draw their own seed."""
    np.random.seed(processes.rank)  # noqa: NPY002
    return left_by(tiny(**{**CALM, "random_state": None}).fit(panel()))


def rounded(processes: Processes) -> Left:
    """The last process' machine begins and ends with other weights."""
    share = Processes.share_weights

    def moved(self: Processes, network: Any) -> None:
        if processes.rank == processes.size - 1 > 0:
            with torch.no_grad():
                next(network.parameters()).add_(0.01)
        share(self, network)

    with mock.patch.object(Processes, "share_weights", moved):
        return left_by(tiny(**CALM).fit(panel((40, 31))))


def in_a_thread(processes: Processes) -> Left:
    """A fit in another thread is not shared."""
    if not processes.is_first:
        return {}
    with ThreadPoolExecutor(1) as pool:
        size = pool.submit(lambda: current().size).result()
        return {
            **left_by(pool.submit(tiny(**CALM).fit, panel()).result()),
            "size": size,
        }


def error_of(call: Callable[[], object]) -> Left:
    """Return the error that a call ends in."""
    started = time.perf_counter()
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        seconds = time.perf_counter() - started
        return {"error": f"{type(error).__name__}: {error}", "seconds": seconds}
    return {"error": None}


def refused(processes: Processes) -> Left:
    """Each process has other values, another rate, another seed."""
    y, rank = panel(), processes.rank
    return {
        "y": error_of(lambda: tiny(**CALM).fit((1 + rank) * y)),
        "lr": error_of(lambda: tiny(**{**CALM, "lr": 0.02 + rank}).fit(y)),
        "seed": error_of(lambda: tiny(**{**CALM, "random_state": rank}).fit(y)),
    }


def nth_forward(processes: Processes, n: int, error: Any) -> Any:
    """Raise an error, or press Ctrl-C, at the n-th bound of the last process."""
    forward, calls = nn.LatentODE.forward, []

    def acting(self: Any, *args: Any) -> Any:
        calls.append(1)
        if processes.rank == processes.size - 1 and len(calls) == n:
            if error is KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
            else:
                raise error
        return forward(self, *args)

    return mock.patch.object(nn.LatentODE, "forward", acting)


def failed(processes: Processes) -> Left:
    """A callback, which the first process alone has, fails; a step of the last."""

    def fit(*callbacks: Any) -> Any:
        return tiny(**CALM, callbacks=callbacks).fit(panel())

    with nth_forward(processes, 4, MemoryError("no room")):
        step = error_of(fit)
    at_end = error_of(lambda: fit(Act(0, True)))
    at_epoch = error_of(lambda: fit(Act(2, True)))
    return {"step": step, "end": at_end, "callback": at_epoch}


def unsolved(processes: Processes) -> Left:
    """The last process cannot solve its windows of one step."""
    with nth_forward(processes, 4, SolverError("overflow")):
        return left_by(tiny(**CALM).fit(panel()))


def interrupted(processes: Processes) -> Left:
    """Ctrl-C in the last process, in the third epoch of two steps."""
    press = nth_forward(processes, 5, KeyboardInterrupt)
    with press, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forecaster = tiny(**{**CALM, "batch_size": 16}).fit(panel())
    handler = signal.getsignal(signal.SIGINT)
    told = [str(w.message) for w in caught]
    found = {"warnings": told, "restored": handler is signal.default_int_handler}
    return {**left_by(forecaster), **found}


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
        time.sleep(8)
    return error_of(lambda: tiny(**CALM).fit(panel()))


ALIKE = (even, uneven, decayed, further, resumed, rounded)
"""Scenarios that one process alone can be compared with."""

SHARED = (*ALIKE, unseeded, unsolved, interrupted)


def main(folder: Path) -> None:
    """Run all scenarios, and that of a process that is gone in a block of its own."""
    warnings.simplefilter("error")
    left: dict[str, Left] = {}
    with data_parallel(timeout=60) as processes:
        for scenario in (*SHARED, in_a_thread, refused, failed):
            left[scenario.__name__] = scenario(processes)
    with data_parallel(timeout=60) as again:
        left["sizes"] = {"in turn": (processes.size, again.size)}
        left["gone"] = gone(again)
    with data_parallel(timeout=4) as hasty:
        left["silent"] = silent(hasty)
    left["sizes"]["after"] = current().size
    names: dict[str, Any] = {}
    (program,) = (b.text for b in python_of("scaling.md") if "with data_p" in b.text)
    exec(program, names)  # our own page
    left["guide"] = {"size": names["processes"].size, **left_by(names["forecaster"])}
    (folder / f"{processes.rank}.pkl").write_bytes(pickle.dumps(left))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
