"""Windows, what a network reads before its origins, and queries after these.

Tested in tests/hybrid/test_restarts.py and tests/hybrid/test_origins.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.scaled_rows import KnownControls
from sklode.hybrid.network import HybridBatch, HybridODE
from sklode.nn import ControlPath


class Queries(NamedTuple):
    """Values that are asked for, sorted by window."""

    window: Numbers  # (answer,)
    channel: Numbers
    lead: Array  # in units of time
    row: Numbers  # where they stand, -1 where nowhere

    def part(self, which: Numbers | Flags | slice) -> Queries:
        """Return some of them."""
        return Queries._make(column[which] for column in self)


class Windows(NamedTuple):
    """What is read before origins, (window, row, ...), latest rows first."""

    ages: Array  # (window, row), from a row to the origin
    values: Array
    mask: Flags
    controls: Array | None

    def part(self, which: slice) -> Windows:
        """Return some of them."""
        several = (None if table is None else table[which] for table in self)
        return Windows._make(several)

    def after(self, times: Array, values: Array, controls: Array | None) -> Windows:
        """Return them with rows that follow, at increasing ``times`` after origins.

        The last is the new origin. ``values`` and ``controls`` have it first. As many
        rows are left.
        """
        n_rows, end = self.ages.shape[1], times[-1]
        ages = np.broadcast_to(end - times[::-1], values.shape[:2])

        def latest(new: Array, old: Array | Flags) -> Array:
            both: Array = np.concatenate([new, old], axis=1)[:, :n_rows]
            return both

        both = None
        if self.controls is not None and controls is not None:
            both = latest(controls, self.controls)
        return Windows(
            latest(ages.astype(np.float32), self.ages + np.float32(end)),
            latest(values, self.values),
            latest(np.ones(values.shape), self.mask) > 0,
            both,
        )


def batch_of(
    windows: Windows,
    queries: Queries,
    path: ControlPath | None,
    network: HybridODE,
    hidden: Flags | None = None,
    target: Array | None = None,
) -> HybridBatch:
    """Return windows with the queries of them.

    The encoder does not see ``hidden`` rows, (window, row); ``target`` is the
    truth, (answer,).
    """
    ages, values, mask, controls = windows
    if hidden is not None:
        mask = mask & ~hidden[..., None]
    if target is None:
        target = np.zeros(len(queries.lead))
    return HybridBatch(
        times=_tensor(ages, network),
        values=_tensor(values, network),
        mask=_tensor(mask, network),
        controls=None if controls is None else _tensor(controls, network),
        path=path,
        window=_tensor(queries.window, network),
        channel=_tensor(queries.channel, network),
        lead=_tensor(queries.lead, network),
        target=_tensor(target, network),
    )


def control_path(
    known: KnownControls | None,
    series: Numbers,
    start: Array,
    length: float,
    network: HybridODE,
) -> ControlPath | None:
    """Return ``known`` controls as a network reads them, from ``start`` so far on.

    Each path, (path,), is that of a series, and its times count from its start.
    """
    if known is None:
        return None
    # a step's control is that of its middle: it may lie beyond the last stamp
    decoder = network.decoder
    spacing = 0.0 if decoder is None else decoder.solver.grid_spacing
    times, values = known.paths(series, start, start + length + spacing)
    since = (times - start[:, None]).astype(np.float32)
    rates = None if known.rates is None else _tensor(known.rates, network)
    return ControlPath(
        _tensor(since, network), _tensor(values, network), rates, known.runs_back
    )


def _tensor(array: Array | Flags | Numbers, network: HybridODE) -> torch.Tensor:
    """Return values in a network's precision; indices and masks stay what they are."""
    like = next(network.parameters())
    found = torch.as_tensor(array, device=like.device)
    return found.to(like.dtype) if found.is_floating_point() else found
