"""The model of ``plain_torch`` in JAX: scans over the stamps, or diffrax's solver.

Both in one jitted step with optax's Adam; import it once torch's threads are set.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

if torch.get_num_threads() == 1:  # JAX reads these when it starts
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("NPROC", "1")

import jax
import jax.numpy as jnp
import optax
from jax import lax, nn
from plain_torch import NOISE, Weights, backward_in_time, draw_weights
from workloads import Workload, draw

__all__ = ["by_scan", "with_diffrax"]

Array = jax.Array


class Data(NamedTuple):
    """Windows; of those that the encoder visits, backward, the stamp comes first."""

    visited: tuple[Array, Array, Array]  # values, signed gaps, observed
    gaps: Array  # (series, stamp)
    times: Array
    values: Array
    observed: Array
    noise: Array


def field(layers: Any, y: Array) -> Array:
    """Return dy/dt."""
    *inside, (weight, bias) = layers
    for w, b in inside:
        y = jnp.tanh(y @ w.T + b)
    return y @ weight.T + bias


def rk4(layers: Any, y: Array, dt: Array) -> Array:
    """Take a step of Kutta's 3/8 rule."""
    k1 = field(layers, y)
    k2 = field(layers, y + dt * k1 / 3)
    k3 = field(layers, y + dt * (k2 - k1 / 3))
    k4 = field(layers, y + dt * (k1 - k2 + k3))
    return y + dt * (k1 + 3 * (k2 + k3) + k4) * 0.125


def encode(weights: Any, data: Data, flow: Callable[..., Array] = rk4) -> Array:
    """Return h at the first stamp."""
    ((weight, bias),) = weights["cell"]

    def visit(carry: tuple[Array, Array], at: tuple[Array, ...]) -> tuple[Any, None]:
        h, c = carry
        x, gap, observed = at
        h = flow(weights["flow"], h, gap)
        gates = jnp.concatenate([h, x], 1) @ weight.T + bias
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c_new = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h_new = nn.sigmoid(o) * jnp.tanh(c_new)
        return (h + observed * (h_new - h), c + observed * (c_new - c)), None

    start = jnp.zeros((len(data.values), len(bias) // 4))
    (h, _), _ = lax.scan(visit, (start, start), data.visited)
    return h


def decode(weights: Any, z0: Array, data: Data) -> Array:
    """Return z at every stamp."""

    def step(z: Array, gap: Array) -> tuple[Array, Array]:
        z = rk4(weights["dynamics"], z, gap)
        return z, z

    _, states = lax.scan(step, z0, data.gaps.T[..., None])
    return states.swapaxes(0, 1)


def loss_of(
    weights: Any,
    data: Data,
    encoder: Callable[..., Array] = encode,
    decoder: Callable[..., Array] = decode,
) -> Array:
    """Return the negative evidence lower bound, averaged over the series."""
    h = encoder(weights, data)
    weight, bias = weights["translator"][0]
    mean, log_variance = jnp.split(h @ weight.T + bias, 2, axis=1)
    z0 = mean + jnp.exp(0.5 * log_variance) * data.noise
    (w1, b1), (w2, b2) = weights["emission"]
    x = nn.relu(decoder(weights, z0, data) @ w1.T + b1) @ w2.T + b2
    squares = ((x - data.values) / NOISE) ** 2
    entries = 0.5 * squares + math.log(NOISE) + 0.5 * math.log(2 * math.pi)
    surprise = (entries.sum(-1) * data.observed).sum(1)
    kl = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum(1)
    return (surprise + kl).mean()


def training(load: Workload, loss: Callable[[Any, Data], Array]) -> Callable[[], float]:
    """Return a function that trains one step by Adam and returns its loss."""
    weights = _arrays(draw_weights(load))
    windows = draw(load)
    values, gaps, observed = backward_in_time(windows)
    data = Data(
        tuple(
            jnp.asarray(x.transpose(0, 1).numpy())
            for x in (values, gaps[..., None], observed[..., None])
        ),
        *(
            jnp.asarray(x.numpy())
            for x in (windows.gaps, windows.times, windows.values, windows.observed)
        ),
        jnp.asarray(windows.noise.numpy()),
    )
    optimizer = optax.adam(1e-3)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Any, state: Any) -> tuple[Any, Any, Array]:
        value, gradients = jax.value_and_grad(loss)(weights, data)
        changes, state = optimizer.update(gradients, state)
        return optax.apply_updates(weights, changes), state, value

    state = optimizer.init(weights)

    def step() -> float:
        nonlocal weights, state
        weights, state, value = update(weights, state)
        return float(value)

    return step


def _arrays(weights: Weights) -> Any:
    return jax.tree.map(lambda x: jnp.array(x.detach().numpy()), weights)


def by_scan(load: Workload) -> Callable[[], float]:
    """Return a step whose loops over the stamps are ``lax.scan``."""
    return training(load, loss_of)


def with_diffrax(load: Workload) -> Callable[[], float]:
    """Return a step that leaves every solve to ``diffrax.diffeqsolve``.

    The encoder's time is rescaled, one unit per gap; the decoder solves over all of a
    series' own stamps at once, one step between two.
    """
    import diffrax
    import numpy as np

    class Kutta(diffrax.AbstractERK):
        """The 3/8 rule, which diffrax does not have."""

        tableau = diffrax.ButcherTableau(
            c=np.array([1 / 3, 2 / 3, 1]),
            b_sol=np.array([1, 3, 3, 1]) / 8,
            b_error=np.zeros(4),
            a_lower=(np.array([1 / 3]), np.array([-1 / 3, 1]), np.array([1, -1, 1])),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms: Any) -> int:
            return 4

    def flow(layers: Any, h: Array, gap: Array) -> Array:
        term = diffrax.ODETerm(lambda s, y, _: gap * field(layers, y))
        solved = diffrax.diffeqsolve(term, Kutta(), 0.0, 1.0, 1.0, h, max_steps=1)
        return solved.ys[-1]

    def decoder(weights: Any, z0: Array, data: Data) -> Array:
        term = diffrax.ODETerm(lambda t, y, _: field(weights["dynamics"], y))

        def solve(z: Array, times: Array) -> Array:
            return diffrax.diffeqsolve(
                *(term, Kutta(), times[0], times[-1], None, z),
                saveat=diffrax.SaveAt(ts=times),
                stepsize_controller=diffrax.StepTo(ts=times),
                max_steps=len(times),
            ).ys

        return jax.vmap(solve)(z0, data.times)

    return training(
        load, partial(loss_of, encoder=partial(encode, flow=flow), decoder=decoder)
    )
