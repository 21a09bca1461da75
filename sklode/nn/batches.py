"""Windows of series as tensors, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.windows import WindowSet
from sklode.nn.decoders import ControlPath
from sklode.nn.shapes import Controls, Mask, Times, Values


class Batch(NamedTuple):
    """Windows of series, side by side; padded stamps repeat the last one, unobserved.

    The first ``n_seen`` stamps are what the encoder may see, but for those ``hidden``
    from it. ``scored`` marks the entries that the likelihood counts, by default all
    that were observed.
    """

    times: Times
    values: Values
    mask: Mask
    n_seen: int
    controls: Controls | None = None
    scored: Mask | None = None
    hidden: Tensor | None = None  # (batch, n_seen), bool

    @property
    def n_scored(self) -> int:
        """Number of entries that the likelihood counts."""
        return int((self.mask if self.scored is None else self.scored).sum())

    @property
    def path(self) -> ControlPath | None:
        """The controls at their stamps, where the model takes any."""
        return None if self.controls is None else ControlPath(self.times, self.controls)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on ``device``."""
        parts: list[Any] = [x.to(device) if isinstance(x, Tensor) else x for x in self]
        return Batch(*parts)


def make_batch(
    windows: WindowSet,
    which: NDArray[np.int64],
    device: torch.device,
    scored_from: NDArray[np.int64] | None = None,
    hidden: Tensor | None = None,
) -> Batch:
    """Return windows as a batch on a device, see `WindowSet.gather`."""
    arrays = windows.gather(which, scored_from)
    tensors: list[Any] = [None if x is None else torch.from_numpy(x) for x in arrays]
    times, values, mask, controls, scored = tensors
    n_seen = windows.window_length
    batch = Batch(times, values, mask, n_seen, controls, scored, hidden)
    return batch.to(device)
