"""Windows of series as tensors, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.windows import WindowSet
from sklode.nn.shapes import Controls, Mask, Times, Values

__all__ = ["Batch", "make_batch"]


class Batch(NamedTuple):
    """Windows of series, side by side; padded stamps repeat the last one, unobserved.

    The first ``n_seen`` stamps are what the encoder may see, but for those ``hidden``
    from it. ``scored`` marks the entries that the likelihood counts, by default all
    that were observed. ``n_elsewhere`` counts windows of the same batch that other
    processes have, before and after these.
    """

    times: Times
    values: Values
    mask: Mask
    n_seen: int
    controls: Controls | None = None
    scored: Mask | None = None
    hidden: Tensor | None = None  # (batch, n_seen), bool
    n_elsewhere: tuple[int, int] = (0, 0)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on ``device``."""
        moved: dict[str, Any] = {
            name: x.to(device)
            for name, x in self._asdict().items()
            if isinstance(x, Tensor)
        }
        return self._replace(**moved)


def make_batch(
    windows: WindowSet,
    which: NDArray[np.int64],
    device: torch.device,
    scored_from: NDArray[np.int64] | None = None,
    hidden: torch.Tensor | None = None,
) -> Batch:
    """Return windows as a batch on a device, see `WindowSet.gather`."""
    arrays = windows.gather(which, scored_from)
    batch = Batch(
        torch.from_numpy(arrays.times),
        torch.from_numpy(arrays.values),
        torch.from_numpy(arrays.mask),
        windows.window_length,
        None if arrays.controls is None else torch.from_numpy(arrays.controls),
        None if arrays.scored is None else torch.from_numpy(arrays.scored),
        hidden,
    )
    return batch.to(device)
