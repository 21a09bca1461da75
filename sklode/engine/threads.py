"""Torch's number of threads: the user's, and one for a thread of its own accord."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

_LIMITED = threading.local()
"""Its ``users`` is the user's number of threads, in a thread that is limited."""

_SETTING = threading.Lock()
"""Held while torch's number for threads to come is another than the user's."""


def _renew_lock() -> None:
    global _SETTING
    _SETTING = threading.Lock()


if hasattr(os, "register_at_fork"):  # the thread that held it is not in the child
    os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing out this thread's operations, which take microseconds."""
    with _SETTING:
        own = torch.get_num_threads()
        outside = getattr(_LIMITED, "users", None)
        users = outside or own
        _set_torch_threads(1, users)
    _LIMITED.users = users
    try:
        yield
    finally:
        _LIMITED.users = outside
        with _SETTING:
            _set_torch_threads(own, users)


def _set_torch_threads(own: int, others: int) -> None:
    """Set torch's number for this thread, and that of threads still to come.

    torch sets both at once. A thread that first met torch during a limit would keep it
    for ever, and pass it on.
    """
    torch.set_num_threads(own)
    helper = threading.Thread(target=torch.set_num_threads, args=(others,))
    helper.start()
    helper.join()


def n_threads() -> int:
    """Return torch's number of threads, as the user set it."""
    users = getattr(_LIMITED, "users", None)
    if users is None:
        with _SETTING:
            users = torch.get_num_threads()
    return int(users)
