"""A batch in blocks of series, which threads take up."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from sklode.engine.fields import Array
from sklode.engine.threads import n_threads

_BLOCK = 64
"""Most series of a block: what a step works on stays in the caches."""

_WORTH_A_THREAD = 30_000_000
"""Multiplications, over all steps, from which threads are worth waking."""

_KEPT_AT_MOST = 2**28
"""Bytes kept for the backward pass; blocks beyond are computed once more there."""


def by_step(part: Array) -> Array:
    """Return (series, step, ...) as (step, series * ...)."""
    n_series, n_steps, *sizes = part.shape
    by_step = np.ascontiguousarray(part.swapaxes(0, 1))
    return by_step.reshape(n_steps, n_series * math.prod(sizes))


class Blocks:
    """The blocks of a batch; ``cost`` are the multiplications of a step of a series.

    They do not depend on the number of threads, and sums over them are added in their
    order, so that results repeat bit by bit.
    """

    def __init__(self, n_series: int, n_steps: int, cost: int) -> None:
        n = max(-(-n_series // _BLOCK), 1)
        cuts = [k * n_series // n for k in range(n + 1)]
        self.ranges = list(itertools.pairwise(cuts))
        self.in_threads = n > 1 and n_series * n_steps * cost >= _WORTH_A_THREAD

    def each(self, work: Callable[[int, int], Any], keeps: bool) -> list[Any]:
        """Call ``work(low, high)`` for each block; return what is to be kept of it."""
        budget = [_KEPT_AT_MOST if keeps else 0]

        def limited(low: int, high: int) -> Any:
            kept = work(low, high)
            budget[0] -= sum(part.nbytes for part in kept)
            return kept if budget[0] >= 0 else None

        return self._map(limited, *zip(*self.ranges, strict=True))

    def sums(
        self,
        work: Callable[..., tuple[Array, ...]],
        kept: list[Any],
        again: Callable[[int, int], Any],
    ) -> list[Array]:
        """Return the sums of what ``work(low, high, kept)`` gives for the blocks."""

        def known(low: int, high: int, kept: Any) -> tuple[Array, ...]:
            return work(low, high, again(low, high) if kept is None else kept)

        first, *others = self._map(known, *zip(*self.ranges, strict=True), kept)
        totals = list(first)
        for other in others:
            for total, part in zip(totals, other, strict=True):
                total += part
        return totals

    def _map(self, work: Callable[..., Any], *given: Any) -> list[Any]:
        n = min(n_threads(), len(self.ranges)) if self.in_threads else 1
        if n <= 1:
            return list(map(work, *given))
        return list(_threads_of(os.getpid(), n).map(work, *given))


@functools.cache
def _threads_of(process: int, n: int) -> ThreadPoolExecutor:
    """Return so many threads that wait for work; a forked process has its own."""
    return ThreadPoolExecutor(n)
