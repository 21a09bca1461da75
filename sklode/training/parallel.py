"""Train one model in several processes: who has which windows, what they agree on.

All processes run the same program on the same data, as under ``torchrun``. Each takes
its share of the windows of every batch; gradients and losses are added up over all
(data-parallel training). Everything that a training decides, it decides on such sums,
so that all processes decide alike.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["ALONE", "Processes", "current", "data_parallel", "digest", "in_common"]

_GO_ON = "the processes that share a training must all go on; "

_INTERRUPTED, _FAILED = 1.0, 2.0


class Processes:
    """The processes that share a training, as one of them, number ``rank``, sees them.

    All must call the same methods in the same order. Alone (without a group of
    torch.distributed), nothing is sent.
    """

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self._interrupted = False
        self._process = os.getpid()
        self.rank, self.size, self.local_rank = 0, 1, 0
        if group is not None:
            self.rank, self.size = group.rank(), group.size()
            self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.is_first = self.rank == 0

    def share(self, n: int) -> slice:
        """Return which of ``n`` windows are this process' own; it may be none."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def add(
        self,
        numbers: Sequence[float] = (),
        gradient: Tensor | None = None,
        failure: BaseException | None = None,
    ) -> list[float]:
        """Return numbers' sums over all processes; replace the gradient by its sum.

        One message tells also what has gone wrong, so that none waits for another in
        vain: the failure of one is an error in all, and KeyboardInterrupt one in all.
        """
        if self.size == 1:
            if failure is not None:
                raise failure
            return list(numbers)
        fates = [0.0] * self.size
        if self._interrupted or isinstance(failure, KeyboardInterrupt):
            fates[self.rank] = _INTERRUPTED
        elif failure is not None:
            fates[self.rank] = _FAILED
        self._interrupted = False
        vector = torch.empty(0, dtype=torch.float64) if gradient is None else gradient
        message = torch.cat([vector, vector.new_tensor([*numbers, *fates])])
        with self._answered(failure):
            torch.distributed.all_reduce(message, group=self._group)
        vector.copy_(message[: len(vector)])
        sums = message[len(vector) :].tolist()
        fates = sums[len(numbers) :]
        if failure is not None:
            raise failure
        if _FAILED in fates:
            raise RuntimeError(
                f"{_GO_ON}number {fates.index(_FAILED)} of {self.size}, counted "
                "from 0, failed. Its own error says why."
            )
        if _INTERRUPTED in fates:
            raise KeyboardInterrupt
        return sums[: len(numbers)]

    @contextmanager
    def _answered(self, failure: BaseException | None = None) -> Iterator[None]:
        """Say what it means where another process does not answer."""
        try:
            yield
        except RuntimeError as error:
            if failure is not None:
                raise failure from error
            raise RuntimeError(
                f"{_GO_ON}one of {self.size} is gone, or did not answer in time. Its "
                "own error says why: mend that, and start all of them again."
            ) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise in all processes what the block raises in one; no messages in it."""
        failure = None
        try:
            yield
        except BaseException as error:
            failure = error
        self.add(failure=failure)

    def everyones(self, value: Any) -> list[Any]:
        """Return the values of all processes, in all of them."""
        values = [value] * self.size
        if self.size > 1:
            with self._answered():
                torch.distributed.all_gather_object(values, value, self._group)
        return values

    def share_weights(self, network: nn.Module) -> None:
        """Give the first process' weights to all: machines may round differently."""
        if self.size > 1:
            weights = {k: v.cpu() for k, v in network.state_dict().items()}
            network.load_state_dict(self.everyones(weights)[0])

    def check_same(self, named: Mapping[str, str]) -> None:
        """Check that all processes have the same parameters, and digests of data."""
        first, *others = self.everyones(named)
        for rank, other in enumerate(others, start=1):
            for name, here in first.items():
                there = other[name]
                if here != there:
                    raise ValueError(
                        "processes that share a training must call the same method on "
                        f"the same data, with the same parameters; got {name}={here} "
                        f"in process 0 and {name}={there} in {rank}. Read and set them "
                        "alike in all processes, or train a model in each, without "
                        "data_parallel()."
                    )

    @contextmanager
    def deferring_interrupts(self) -> Iterator[None]:
        """Let a first Ctrl-C wait until all processes can stop at the same step."""
        is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        is_main = threading.current_thread() is threading.main_thread()
        if self.size == 1 or not (is_ours and is_main):
            yield
            return

        def defer(*_: object) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)  # for a second

        signal.signal(signal.SIGINT, defer)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            late, self._interrupted = self._interrupted, False
        if late:
            raise KeyboardInterrupt

    def leave(self) -> None:
        """Hang up: processes that wait for this one then fail at once."""
        group, self._group = self._group, None
        if group is not None:  # that would end the program's own group
            torch.distributed.destroy_process_group(group)


ALONE = Processes()
"""A process that shares with no other."""

_SHARED = threading.local()
"""Its ``processes`` are those of the innermost `data_parallel` in this thread."""


def current() -> Processes:
    """Return the processes that share a training that begins now."""
    processes: Processes = getattr(_SHARED, "processes", ALONE)
    # threads and processes that were started in a block, as parallel searches do, are
    # alone: they cannot keep the order of messages
    return processes if processes._process == os.getpid() else ALONE


@contextmanager
def data_parallel(timeout: float = 1800.0) -> Iterator[Processes]:
    """Share every training in the block over the processes that ``torchrun`` started.

    In the block ``fit``, ``pretrain`` and ``update`` train one model together: each
    process takes its share of the windows of every batch, and all end with the same
    weights, which are, to rounding, those that one process would have found. All
    processes must run the same calls on the same data. Callbacks and ``verbose`` speak
    in the first process only; what they raise, or that they stop the training, counts
    for all. Without ``torchrun``, the block changes nothing.

    Parameters
    ----------
    timeout : float, default=1800.0
        Seconds after which a process that waits for another raises an error, at the
        block's beginning as well.

    Yields
    ------
    Processes
        With ``rank``, ``size`` and ``is_first``, for whatever one process is to do for
        all, such as saving.

    Raises
    ------
    RuntimeError
        If several processes were started and torch was built without distributed, or
        if one of them does not come.

    Notes
    -----
    A process group that the program has initialised is used as it is. Otherwise one is,
    from what torchrun tells: gloo, and nccl beside it where there are GPUs, of which
    each process takes the one of its local rank under ``device="cuda"``.

    Examples
    --------
    >>> from sklode.training import data_parallel
    >>> with data_parallel() as processes:
    ...     size = processes.size  # forecaster.fit(panel) would be shared by so many
    >>> size
    1
    """
    group = None if current().size > 1 else _group_of_all(timeout)
    if group is None:
        yield current()
        return
    processes = _SHARED.processes = Processes(group)
    try:
        yield processes
    finally:
        _SHARED.processes = ALONE
        processes.leave()


def _group_of_all(timeout: float) -> Any:
    """Return a group of all processes, or None where this is the only one."""
    is_available = torch.distributed.is_available()
    is_initialised = is_available and torch.distributed.is_initialized()
    if is_initialised:
        size = torch.distributed.get_world_size()
    else:  # what torchrun tells, and torch.distributed reads
        told = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        size = int(os.environ["WORLD_SIZE"]) if all(map(os.environ.get, told)) else 1
    if size == 1:
        return None
    if not is_available:
        raise RuntimeError(
            "data_parallel() needs torch.distributed; got a torch that was built "
            "without it. Install another build of torch, or start one process only."
        )
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    limit = timedelta(seconds=timeout)
    try:
        if not is_initialised:
            torch.distributed.init_process_group(backend, timeout=limit)
            # kept until then: the next block cannot initialise another one at the same
            # address, where that of this one is still written
            atexit.register(_end)
        # one of our own, whose end is not that of the program's
        return torch.distributed.new_group(backend=backend, timeout=limit)
    except RuntimeError as error:
        raise RuntimeError(
            "all processes must enter data_parallel(); one of them has not come within "
            f"{timeout:g} seconds. Its own error says why: mend that, or raise timeout."
        ) from error


def _end() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def in_common(rng: np.random.RandomState) -> np.random.RandomState:
    """Return a generator that is the same in all processes."""
    processes = current()
    # only numpy's own, of random_state=None, is another in each
    if processes.size == 1 or rng is not np.random.mtrand._rand:
        return rng
    return np.random.RandomState(processes.everyones(rng.randint(2**31 - 1))[0])


def digest(*parts: Any) -> str:
    """Return a digest of arrays, and of the text of what is none."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if not isinstance(part, np.ndarray):
            total.update(f"{part!s};".encode())
            continue
        total.update(f"{part.dtype} {part.shape}".encode())
        if np.issubdtype(part.dtype, np.floating):  # a NaN has many bit patterns
            part = np.where(np.isnan(part), np.nan, part)
        total.update(part.tobytes())
    return total.hexdigest()
