"""What the networks share beside encoder and decoder.

Tested in tests/latent_ode/test_network.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from torch import Tensor, nn

from sklode.nn.decoders import Decoder
from sklode.nn.encoders import ODERNN


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

    encoder: ODERNN
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
