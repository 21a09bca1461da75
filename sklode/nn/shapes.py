"""The axes of every array and tensor in the package, named once.

Batch first everywhere; sample paths stand in front of the batch.

=========  ==================================================================
letter     axis
=========  ==================================================================
batch      series, or windows of series, that are processed side by side
time       stamps, increasing; padded at the end by repeating the last stamp
channel    columns of y
control    columns of X
state      a hidden state h (encoder) or a latent state z (decoder)
step       solver steps, in the order in which they are taken
sample     draws of z0
=========  ==================================================================
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

Times: TypeAlias = Tensor
"""(batch, time), floating, dimensionless: in units of ``time_unit_``."""

Values: TypeAlias = Tensor
"""(batch, time, channel); an entry whose mask is False is ignored."""

Mask: TypeAlias = Tensor
"""(batch, time, channel), bool; True where the entry was observed."""

Controls: TypeAlias = Tensor
"""(batch, time, control), exogenous values at the stamps of `Times`."""

State: TypeAlias = Tensor
"""(batch, state)."""

States: TypeAlias = Tensor
"""(batch, time, state)."""

Steps: TypeAlias = Tensor
"""(batch, step), signed lengths of solver steps; 0 where a series rests."""
