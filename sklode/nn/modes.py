"""Modes of torch that the caller has switched on, kept out of the network's work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from sklode.engine.threads import n_threads


@contextlib.contextmanager
def own_modes(gradients: bool) -> Iterator[None]:
    """Work outside the caller's ``no_grad``, inference mode, autocast and device.

    Else a fit inside ``torch.no_grad()`` has nothing to descend, and autocast rounds.
    All of these belong to the calling thread. With ``gradients`` operations are
    recorded for a backward pass.
    """
    n_threads()  # a thread's first; it could else take another fit's limit for its own
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(gradients))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
