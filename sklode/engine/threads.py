"""Torch's number of threads: the user's, and one beside the engine's own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits

_LIMITED = threading.local()
"""Its ``users`` is the user's number of threads, in a thread that is limited."""


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing out this thread's operations, which take microseconds.

    Its threads wait for work by spinning, on the cores that the engine needs.
    """
    before, _LIMITED.users = getattr(_LIMITED, "users", None), n_threads()
    try:
        with threadpool_limits(1, user_api="openmp"):  # of this thread alone
            yield
    finally:
        _LIMITED.users = before


def n_threads() -> int:
    """Return torch's number of threads, as the user set it."""
    return getattr(_LIMITED, "users", None) or torch.get_num_threads()
