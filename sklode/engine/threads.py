"""What torch is set to in a thread of ours: its threads and its modes.

Tested in tests/engine/test_concurrency.py.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import torch

# Its `users` is the user's number, in a thread that is limited.
_LIMITED = threading.local()

# Held while torch's number for threads to come is not the user's.
_SETTING = threading.Lock()

# A thread that held it is not in a fork's child, where nobody would release it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_SETTING.acquire,
        after_in_parent=_SETTING.release,
        after_in_child=_SETTING.release,
    )


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Keep torch from sharing out operations that take microseconds."""
    # a limit within a limit leaves that one as it was
    outside = getattr(_LIMITED, "users", None)
    users = n_threads()
    _LIMITED.users = users
    _set_torch_threads(own=1, others=users)
    try:
        yield
    finally:
        _LIMITED.users = outside
        _set_torch_threads(own=1 if outside else users, others=users)


def _set_torch_threads(own: int, others: int) -> None:
    """Set torch's number for this thread, and for threads to come.

    torch sets both at once: a thread that meets it in a limit would keep it.
    """
    # another thread that sets the others' number leaves this one's as it is
    with _SETTING:
        torch.set_num_threads(own)
        helper = threading.Thread(target=torch.set_num_threads, args=(others,))
        helper.start()
        helper.join()


def n_threads() -> int:
    """Return torch's number of threads, as the user set it."""
    with _SETTING:
        return getattr(_LIMITED, "users", None) or torch.get_num_threads()


@contextlib.contextmanager
def own_modes(gradients: bool) -> Iterator[None]:
    """Work outside the caller's ``no_grad``, inference mode, autocast and device.

    Else a fit inside ``torch.no_grad()`` has nothing to descend, and autocast rounds.
    With ``gradients`` operations are recorded for a backward pass.
    """
    # torch gives a thread its number when it first asks: in another fit's limit, for
    # which n_threads waits, that would be 1
    n_threads()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(gradients))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
