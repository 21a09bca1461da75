"""Draw new series: trajectories of the decoder that continue no series at all.

A new series begins as a randomly chosen training window does: its level is that
window's, and its z0 is drawn from that window's q(z0), or from N(0, I).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.windows import WindowSet
from sklode.nn import ControlPath, LatentODE, Posterior, make_batch
from sklode.nn.modes import own_modes

__all__ = ["STARTS", "Prior"]

Array = NDArray[np.floating]

STARTS = ("windows", "normal")
"""Where z0 is drawn from: the aggregate posterior of the windows, or N(0, I)."""

_WINDOWS_AT_ONCE = 512
_STATES_AT_ONCE = 2**20
"""Bounds on a pass: its paths, and paths times stamps or steps."""


class Prior:
    r"""The distribution of whole series that a network and its training windows give.

    .. math::
        w \sim U\{1, \dots, W\}, \quad z_0 \sim q(z_0 \mid x_w)
        \text{ or } N(0, I), \quad
        x(t) = \mathrm{level}_w(t) + \hat x(z(t)) + \epsilon, \quad z(t_0) = z_0

    The first is the aggregate posterior (Makhzani et al. 2015; Tomczak and Welling
    2018), which is what the decoder was trained on. The ELBO pulls it towards N(0, I)
    only as far as KL is worth its weight against the likelihood of a whole window.

    Parameters
    ----------
    network : LatentODE
        Fitted.
    windows : WindowSet
        The training windows, of which the seen part is encoded.
    """

    def __init__(self, network: LatentODE, windows: WindowSet) -> None:
        self.network = network
        self.windows = windows

    def draw(
        self,
        times: Array,
        controls: tuple[Array, Array] | None,
        n_draws: int,
        seed: int,
        start: str = "windows",
        noise: bool = True,
    ) -> Array:
        """Return new series, (sample, stamp, channel), in normalised units.

        The first draws do not depend on how many follow, nor a draw's value at a stamp
        on which others are asked.

        Parameters
        ----------
        times : ndarray of shape (stamp,)
            Since the beginning of the new series, in time units.
        controls : tuple of (times, values), or None
            Controls of the new series, (row,) and (row, control), normalised.
        n_draws : int
            Number of series.
        seed : int
            Of all random numbers.
        start : {"windows", "normal"}
            See `STARTS`.
        noise : bool
            Whether the emission's noise is added.
        """
        latent_size = self.network.latent_size
        chosen = _stream(seed, 0).integers(len(self.windows), size=n_draws)
        eps = _stream(seed, 1).standard_normal((n_draws, latent_size))
        spacing = self.network.decoder.solver.grid_spacing
        n_states = max(len(times), int(np.ptp(times) / spacing), 1)
        at_once = min(max(_STATES_AT_ONCE // n_states, 1), _WINDOWS_AT_ONCE)
        parts = [
            self._smooth(
                times,
                controls,
                chosen[low : low + at_once],
                eps[low : low + at_once],
                start,
            )
            for low in range(0, n_draws, at_once)
        ]
        paths = np.concatenate(parts).astype(np.float64)
        if noise:
            scale = self.network.emission.noise_scale.detach().cpu().numpy()
            for k, time in enumerate(times):
                bits = int(np.float64(time).view(np.uint64))
                white = _stream(seed, 2, bits).standard_normal((n_draws, len(scale)))
                paths[:, k] += scale * white
        return paths

    def _smooth(
        self,
        times: Array,
        controls: tuple[Array, Array] | None,
        chosen: NDArray[np.int64],
        eps: Array,
        start: str,
    ) -> Array:
        """Decode the draws that begin as the windows chosen."""
        posterior = self._posterior(chosen)
        z0 = self._tensor(eps)
        if start == "windows":
            z0 = posterior.q_z0.mean + posterior.q_z0.stddev * z0
        asked = posterior.t0.unsqueeze(-1) + self._tensor(times)
        path = None
        if controls is not None:
            given, values = (self._tensor(x) for x in controls)
            path = ControlPath(
                posterior.t0.unsqueeze(-1) + given,
                values.expand(len(chosen), -1, -1),
            )
        with own_modes(gradients=False):
            p_x = self.network.decode(z0, posterior, asked, path)
        mean: Array = p_x.mean.cpu().numpy()
        return mean

    def _posterior(self, chosen: NDArray[np.int64]) -> Posterior:
        """Encode the seen parts of windows."""
        with own_modes(gradients=False):
            return self.network.encode(
                make_batch(self.windows, chosen, self._parameter.device)
            )

    @property
    def _parameter(self) -> Tensor:
        return next(self.network.parameters())

    def _tensor(self, array: Array) -> Tensor:
        like = self._parameter
        return torch.as_tensor(array, dtype=like.dtype, device=like.device)


def _stream(seed: int, *purpose: int) -> np.random.Generator:
    """Return the random numbers that serve one purpose."""
    return np.random.default_rng([seed, *purpose])
