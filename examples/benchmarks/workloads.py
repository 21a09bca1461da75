"""What the benchmarks compute: sizes, windows, and the arithmetic that they need.

Every contender solves one step of the 3/8 rule per gap in the encoder and reads the
same windows: gaps between 0.6 and 1 solver steps, four stamps in five observed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["EMISSION_WIDTH", "WORKLOADS", "Windows", "Workload", "draw", "operations"]

EMISSION_WIDTH = 20
"""Neurons between z and the observation."""

SHORTEST_GAP, LONGEST_GAP = 0.6, 1.0
"""In solver steps."""


class Workload(NamedTuple):
    """Sizes of a batch and of a network; both fields have the same hidden layers."""

    n_series: int
    n_stamps: int
    n_channels: int
    hidden_size: int
    latent_size: int
    field_width: int
    field_depth: int = 2


WORKLOADS = {
    "W1": Workload(1000, 100, 2, 25, 25, 20),  # the paper's spirals
    "W2": Workload(32, 100, 2, 25, 25, 20),
    "W3": Workload(32, 365, 4, 4, 4, 25),  # the paper's climate
    "W4": Workload(1, 1000, 2, 32, 16, 64),
}


class Windows(NamedTuple):
    """Windows of irregular series, and noise for their z0."""

    times: Tensor  # (series, stamp), from 0
    gaps: Tensor  # (series, stamp): time since the stamp before; 0 at the first
    values: Tensor  # (series, stamp, channel)
    observed: Tensor  # (series, stamp), bool: the first stamp always is
    noise: Tensor  # (series, latent)


def draw(load: Workload) -> Windows:
    """Draw windows of a workload's size."""
    rng = np.random.default_rng(0)
    shape = (load.n_series, load.n_stamps)
    gaps = rng.uniform(SHORTEST_GAP, LONGEST_GAP, shape)
    gaps[:, 0] = 0
    observed = rng.random(shape) < 0.8
    observed[:, 0] = True
    return Windows(
        torch.tensor(gaps.cumsum(1), dtype=torch.float32),
        torch.tensor(gaps, dtype=torch.float32),
        torch.tensor(rng.standard_normal((*shape, load.n_channels))).float(),
        torch.tensor(observed),
        torch.tensor(rng.standard_normal((load.n_series, load.latent_size))).float(),
    )


def operations(load: Workload) -> int:
    """Return the operations in matrix products that a training step cannot do without.

    A multiplication and an addition count as two; the backward pass needs twice as many
    as the forward pass, by the products' two factors. Activations, gates, the loss and
    the optimiser are left out, so no implementation reaches this floor.
    """
    hidden, latent, channels = load.hidden_size, load.latent_size, load.n_channels
    gates = 4 * hidden * (hidden + channels)
    emission = EMISSION_WIDTH * (latent + channels)
    per_stamp = _solver_step(load, hidden) + gates + _solver_step(load, latent)
    per_series = load.n_stamps * (per_stamp + emission) + hidden * 2 * latent
    return 3 * 2 * load.n_series * per_series


def _solver_step(load: Workload, state_size: int) -> int:
    """Return the multiplications of a four-stage step of one series.

    Either each stage evaluates the field, W_o a(... a(W_1 y)), or the stages stay in
    its hidden space: W_1 y once, M = W_1 W_o from each stage to the next, and W_o once
    on the weighted sum of the four.
    """
    width = load.field_width
    inner = 4 * (load.field_depth - 1) * width**2
    evaluated = 4 * 2 * width * state_size
    in_hidden_space = 2 * width * state_size + 3 * width**2
    return inner + min(evaluated, in_hidden_space)
