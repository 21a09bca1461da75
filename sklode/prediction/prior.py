"""Draw new series: trajectories of the decoder that continue no series at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from sklode.data.windows import WindowSet
from sklode.nn import ControlPath, LatentODE, make_batch
from sklode.nn.modes import own_modes

Array = NDArray[np.floating]

STARTS = ("windows", "normal")
"""Where z0 is drawn from: the aggregate posterior of the windows, or N(0, I)."""

_WINDOWS_AT_ONCE = 512
_STATES_AT_ONCE = 2**20
"""Bounds on a pass: its paths, and paths times stamps or steps."""


def new_series(
    network: LatentODE,
    windows: WindowSet,
    times: Array,
    controls: tuple[Array, Array] | None,
    n_draws: int,
    seed: int,
    start: str,
    noise: bool,
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    r"""Yield all stamps' numbers with series that begin as training windows do.

    .. math::
        w \sim U\{1, \dots, W\}, \quad z_0 \sim q(z_0 \mid x_w)
        \text{ or } N(0, I), \quad
        x(t) = \hat x(z(t)) + \epsilon, \quad z(t_0) = z_0

    The first is the aggregate posterior (Makhzani et al. 2015; Tomczak and Welling
    2018), which is what the decoder was trained on. The ELBO pulls it towards N(0, I)
    only as far as KL is worth its weight against the likelihood of a whole window.

    ``times``, (stamp,), and those of ``controls``, (row,) and (row, control), are time
    units since the series' beginning; paths are (sample, stamp, channel), normalised.
    The first draws do not depend on how many follow, nor a draw's value at a stamp on
    which others are asked.
    """
    like = next(network.parameters())
    chosen = _stream(seed, 0).integers(len(windows), size=n_draws)
    eps = _stream(seed, 1).standard_normal((n_draws, network.latent_size))
    spacing = network.decoder.solver.grid_spacing
    n_states = max(len(times), int(np.ptp(times) / spacing), 1)
    at_once = min(max(_STATES_AT_ONCE // n_states, 1), _WINDOWS_AT_ONCE)
    parts = []
    for low in range(0, n_draws, at_once):
        part = slice(low, low + at_once)
        with own_modes(gradients=False):
            batch = make_batch(windows, chosen[part], like.device)
            posterior = network.encode(batch)
            z0 = torch.from_numpy(eps[part]).to(like)
            if start == "windows":
                z0 = posterior.q_z0.mean + posterior.q_z0.stddev * z0
            t0, path = posterior.t0.unsqueeze(-1), None
            if controls is not None:
                given, values = (torch.from_numpy(x).to(like) for x in controls)
                path = ControlPath(t0 + given, values.expand(len(z0), -1, -1))
            asked = t0 + torch.from_numpy(times).to(like)
            p_x = network.decode(z0, posterior, asked, path)
        parts.append(p_x.mean.cpu().numpy())
    paths = np.concatenate(parts).astype(np.float64)
    if noise:
        scale = network.emission.noise_scale.detach().cpu().numpy()
        for k, time in enumerate(times):
            bits = int(np.float64(time).view(np.uint64))
            white = _stream(seed, 2, bits).standard_normal((n_draws, len(scale)))
            paths[:, k] += scale * white
    yield np.arange(len(times)), paths


def _stream(seed: int, *purpose: int) -> np.random.Generator:
    """Return the random numbers that serve one purpose."""
    return np.random.default_rng([seed, *purpose])
