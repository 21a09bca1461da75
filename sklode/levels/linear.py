"""The linear anchor: a regression in continuous time from a window to what follows it.

Regressions on lagged values need a fixed number of evenly spaced lags. Here a window is
described by its means under weights that decay with age, which exist at any stamps, and
a forecast relaxes exponentially with the time ahead: with one mean and one rate it is
the conditional mean of an Ornstein-Uhlenbeck process, with more of them that of sums of
such processes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sklode.levels.anchors import last_values
from sklode.nn.shapes import Controls, Mask, Times, Values

__all__ = ["CROSS_CHANNELS", "N_AGES", "N_RATES", "LinearAnchor", "LinearLevel"]

N_AGES = 4
"""Means of a window that forget, by geometric steps from a time unit to its span."""

N_RATES = 3
"""Rates of relaxation, by geometric steps from a time unit to the horizon's span."""

CROSS_CHANNELS = 8
"""Up to so many channels, each is forecast from all of them; beyond, from itself."""


class LinearLevel(NamedTuple):
    """The level of each window as a function of time and of the controls.

    level(t) = base + sum_j phi_j(t - t_last) * terms_j + u(t) B
    """

    base: Tensor  # (batch, channel)
    t_last: Tensor  # (batch,)
    terms: Tensor  # (batch, rate, channel)
    rates: Tensor  # (rate,)
    walks: bool
    by_control: Tensor  # (control, channel)

    def at(self, times: Times, controls: Controls | None = None) -> Values:
        """Return the level at ``times`` under the controls there."""
        phi = relaxation(times - self.t_last.unsqueeze(-1), self.rates, self.walks)
        level = self.base.unsqueeze(1) + phi @ self.terms
        if controls is not None:
            level = level + controls @ self.by_control
        return level

    def repeated(self, n: int) -> LinearLevel:
        """Return the levels of ``n`` copies of the batch, one after the other."""
        return self._replace(
            base=self.base.repeat(n, 1),
            t_last=self.t_last.repeat(n),
            terms=self.terms.repeat(n, 1, 1),
        )


def relaxation(elapsed: Tensor, rates: Tensor, walks: bool) -> Tensor:
    r"""Return :math:`\phi_j` at times since the last observation, (..., rate).

    Of a walk, :math:`1 - \exp(-r_j \Delta)`: zero at, and before, the last observation,
    whose value is held there. Else :math:`\exp(-r_j |\Delta|)`: what is known of the
    present fades, forward and backward.
    """
    if walks:
        return -torch.expm1(-elapsed.clamp(min=0).unsqueeze(-1) * rates)
    return torch.exp(-elapsed.abs().unsqueeze(-1) * rates)


class LinearAnchor(nn.Module):
    r"""Read a level off a window that forecasts what follows it, linearly.

    .. math::
        \mathrm{level}(t) = b + \sum_j \phi_j(t - t_\mathrm{last}) \, W_j m + B u(t)

    m holds the window's means under weights exp(-age / a_k), of all channels and after
    B u(t) is taken off; b is the last value and :math:`\phi_j` rises from 0 ("walks"),
    or b is 0 and :math:`\phi_j` falls from 1. `fit_linear` finds the
    weights by ridge regression; they are no parameters, training leaves them.
    """

    kind = "linear"
    ages: Tensor  # (N_AGES,): a_k, in time units
    rates: Tensor  # (N_RATES + 1,): r_j; the last one is that of a walk's drift alone
    weights: Tensor  # (feature, N_RATES + 1, channel): W
    by_control: Tensor  # (control, channel): B
    walking: Tensor

    def __init__(self, n_channels: int, n_controls: int = 0) -> None:
        super().__init__()
        self.shared = n_channels <= CROSS_CHANNELS
        n_read = n_channels if self.shared else 1
        n_features = 1 + n_read * (N_AGES + 2)
        self.register_buffer("ages", torch.ones(N_AGES))
        self.register_buffer("rates", torch.ones(N_RATES + 1))
        weights = torch.zeros(n_features, N_RATES + 1, n_channels)
        self.register_buffer("weights", weights)
        self.register_buffer("by_control", torch.zeros(n_controls, n_channels))
        self.register_buffer("walking", torch.tensor(False))

    def forward(
        self,
        times: Times,
        values: Values,
        mask: Mask,
        controls: Controls | None = None,
    ) -> LinearLevel:
        """Return the level of each window, whose values are zero where not observed.

        A channel without any observation is taken to be at zero.
        """
        walks = bool(self.walking)
        if controls is not None:
            values = torch.where(mask, values - controls @ self.by_control, 0.0)
        last, t_last, features = self.describe(times, values, mask, walks)
        spec = "bf,fjc->bjc" if self.shared else "bcf,fjc->bjc"
        terms = torch.einsum(spec, features, self.weights)
        base = last if walks else torch.zeros_like(last)
        return LinearLevel(base, t_last, terms, self.rates, walks, self.by_control)

    def describe(
        self, times: Times, values: Values, mask: Mask, walks: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the last values, their common time, (batch,), and the features m.

        The time is that of the last stamp where any channel was observed. Features are
        (batch, feature), or (batch, channel, feature) where each is read for itself.
        """
        last, latest = last_values(values, mask)
        t_last = torch.gather(times, 1, latest.amax(-1)).squeeze(1)
        age = (t_last.unsqueeze(-1) - times).clamp(min=0).unsqueeze(-1)
        decay = torch.exp(-age / self.ages)  # (batch, time, age)
        decay = torch.cat([decay, torch.ones_like(age)], dim=-1)  # the plain mean
        known = mask.to(values.dtype)
        total = torch.einsum("bta,btc->bac", decay, values * known)
        weight = torch.einsum("bta,btc->bac", decay, known)
        # at ages where a weight underflows, in single precision, the mean is the last
        # value; in double precision too, in which the anchor is fitted
        tiny = torch.finfo(torch.float32).tiny
        means = total / weight.clamp(min=tiny)
        means = torch.where(weight > tiny, means, last.unsqueeze(1))
        level = last
        if walks:  # its level says nothing of its next step
            means, level = means - last.unsqueeze(1), torch.zeros_like(last)
        ones = torch.ones_like(last)
        if not self.shared:
            own = torch.stack([ones, level], dim=-1)
            return last, t_last, torch.cat([own, means.transpose(1, 2)], dim=-1)
        parts = [ones[:, :1], level, means.flatten(1)]
        return last, t_last, torch.cat(parts, dim=-1)
