"""What the networks share beside encoder and decoder.

Tested in tests/latent_ode/test_network.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn

from sklode.nn.decoders import Decoder
from sklode.nn.encoders import Encoder


def cubature_points(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return the mean, and points that have it and these deviations, (1 + 2 d, ..., d).

    Of d independent components, each moved by sqrt(d) deviations to either side:
    Arasaratnam and Haykin, "Cubature Kalman Filters" (2009).
    """
    size = mean.shape[-1]
    away = math.sqrt(size) * deviation.unsqueeze(-2) * torch.eye(size).to(mean)
    moves = torch.cat([away, -away], dim=-2).movedim(-2, 0)
    return torch.cat([mean.unsqueeze(0), mean + moves])


def perceptron(
    inputs: int, width: int, outputs: int, activation: type[nn.Module] = nn.Tanh
) -> nn.Sequential:
    """Return a network of one hidden layer."""
    # the order of making is that of drawing: inner weights first
    return nn.Sequential(
        nn.Linear(inputs, width),
        activation(),
        nn.Linear(width, outputs),
    )


class TrainingBatch(Protocol):
    """What a training step reads of a batch itself; the rest is the network's."""

    @property
    def times(self) -> Tensor:
        """Time of each row, (batch, time)."""

    @property
    def values(self) -> Tensor:
        """Values, (batch, time, channel)."""


class Autoencoder(nn.Module, ABC):
    """A network with an encoder and a decoder, or None for that."""

    encoder: Encoder
    decoder: Decoder | None

    @property
    @abstractmethod
    def latent_size(self) -> int:
        """Size of the state at the origin that is drawn from its posterior."""

    def engines(self) -> tuple[str, ...]:
        """Return which engine runs the encoder, and the decoder if any."""
        # all parameters have one dtype and device, which decide what compiles
        example = next(self.parameters())
        compiles = [self.encoder.compiles(example)]
        if self.decoder is not None:
            compiles.append(self.decoder.compiles(example))
        return tuple("fused" if fused else "eager" for fused in compiles)
