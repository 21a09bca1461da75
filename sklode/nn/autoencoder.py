"""What the networks share beside encoder and decoder."""

from __future__ import annotations

from typing import Any

from torch import nn


def perceptron(
    inputs: int, width: int, outputs: int, activation: Any = nn.Tanh
) -> nn.Sequential:
    """Return a network of one hidden layer."""
    return nn.Sequential(
        nn.Linear(inputs, width), activation(), nn.Linear(width, outputs)
    )


class Autoencoder(nn.Module):
    """A network with an encoder and a decoder, or None for that."""

    encoder: Any
    decoder: Any

    def engines(self) -> tuple[str, ...]:
        """Return which engine runs the encoder, and the decoder if any."""
        example = next(self.parameters())
        parts = [part for part in (self.encoder, self.decoder) if part is not None]
        return tuple("fused" if p.compiles(example) else "eager" for p in parts)
