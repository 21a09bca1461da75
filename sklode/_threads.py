"""Limits on the whole process that several threads may ask for at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["ONE_TORCH_THREAD", "SharedLimit", "n_threads"]


class SharedLimit:
    """A context that sets a limit, and restores what was before any thread set it.

    Where each thread restored what it found, one that entered during another's stay
    would leave the limit behind for ever.

    Parameters
    ----------
    enter : callable
        Sets the limit and returns what was before.
    leave : callable
        Takes that and restores it.
    in_every_thread : bool, default=False
        Whether the limit belongs to each thread, which then sets and restores it; else
        the first thread in sets it and the last one out restores it.
    """

    def __init__(
        self,
        enter: Callable[[], Any],
        leave: Callable[[Any], None],
        in_every_thread: bool = False,
    ) -> None:
        self._enter = enter
        self._leave = leave
        self._in_every_thread = in_every_thread
        self._lock = threading.Lock()
        self._n_inside = 0
        self._before: Any = None

    @property
    def before(self) -> Any:
        """What ``enter`` returned, while any thread is inside; else None."""
        return self._before if self._n_inside else None

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._before = self._enter()
            elif self._in_every_thread:
                self._enter()
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0 or self._in_every_thread:
                self._leave(self._before)


def _set_one_torch_thread() -> int:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return before


ONE_TORCH_THREAD = SharedLimit(
    _set_one_torch_thread, torch.set_num_threads, in_every_thread=True
)
"""Keeps torch from sharing out operations that take microseconds."""


def n_threads() -> int:
    """Return torch's number of threads, as the user set it."""
    return int(ONE_TORCH_THREAD.before or torch.get_num_threads())
