"""Anchors: the level of a window that the model works relative to.

A level that drifts (prices, concentrations) is known from the window itself; an anchor
takes it off the encoder's input and adds it to the emission, so that the latent
dynamics describe deviations only. ``"series"`` is no anchor: the paper's pure model.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sklode.data.checks import check_choice
from sklode.nn.shapes import Controls, Mask, Times, Values

__all__ = ["ANCHORS", "Anchor", "Level", "last_values"]

ANCHORS = ("series", "window", "last")

_INITIAL_DAMPING = -9.0
"""softplus(-9) = 0.0001 per ``time_unit_``: 1 % of the way to the mean after 80."""


class Level(NamedTuple):
    """The level of each window as a function of time.

    level(t) = mean + exp(-damping * |t - t_last|) * (last - mean)
    """

    mean: Tensor  # (batch, channel)
    last: Tensor  # (batch, channel)
    t_last: Tensor  # (batch, channel)
    damping: Tensor | None  # (channel,); None: the level is the mean

    def at(self, times: Times, controls: Controls | None = None) -> Values:
        """Return the level at ``times``, the same under any controls."""
        mean = self.mean.unsqueeze(1)
        if self.damping is None:
            return mean.expand(-1, times.shape[1], -1)
        distance = (times.unsqueeze(-1) - self.t_last.unsqueeze(1)).abs()
        weight = torch.exp(-self.damping * distance)
        return mean + weight * (self.last.unsqueeze(1) - mean)

    def repeated(self, n: int) -> Level:
        """Return the levels of ``n`` copies of the batch, one after the other."""
        mean, last, t_last = (x.repeat(n, 1) for x in self[:3])
        return Level(mean, last, t_last, self.damping)


def last_values(values: Values, mask: Mask) -> tuple[Tensor, Tensor]:
    """Return each channel's last observed value, (batch, channel), and which it is.

    The second is of shape (batch, 1, channel); the first one where there is none.
    """
    position = torch.arange(mask.shape[1], device=mask.device).view(1, -1, 1)
    latest = torch.where(mask, position, 0).amax(1, keepdim=True)
    return torch.gather(values, 1, latest).squeeze(1), latest


class Anchor(nn.Module):
    """Read the level of a window off its observations.

    Kinds: "series" is zero, the training mean that the data were centred at; "window"
    the window's mean; "last" the last value, damped towards the window's mean at a
    learned rate.
    """

    def __init__(self, kind: str, n_channels: int) -> None:
        check_choice("kind", kind, ANCHORS)
        super().__init__()
        self.kind = kind
        if kind == "last":
            self.raw_damping = nn.Parameter(torch.full((n_channels,), _INITIAL_DAMPING))

    def forward(
        self,
        times: Times,
        values: Values,
        mask: Mask,
        controls: Controls | None = None,
    ) -> Level:
        """Return the level of each window; zero of a channel without any observation.

        Values are zero where not observed; controls are not read.
        """
        if self.kind == "series":
            zeros = torch.zeros_like(values[:, 0])
            return Level(zeros, zeros, zeros, None)
        count = mask.sum(1)
        mean = values.sum(1) / count.clamp(min=1)
        last, latest = last_values(values, mask)
        t_last = torch.gather(times, 1, latest.squeeze(1))
        damping = None
        if self.kind == "last":
            damping = functional.softplus(self.raw_damping)
        return Level(mean, last, t_last, damping)
