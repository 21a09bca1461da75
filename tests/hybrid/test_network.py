"""The network that looks ahead: what it reads, and what its answers depend on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sklode import nn
from sklode.hybrid.network import (
    HybridBatch,
    HybridODE,
    LinearFlow,
    huber_log_likelihood,
)

N_ROWS = 7


def network(n_channels: int = 2, n_controls: int = 0, engine: str = "eager") -> Any:
    torch.manual_seed(3)
    solver = nn.Solver("rk4", 1.0)
    solver.engine = engine
    field = nn.VectorField(5, 6)
    encoder = nn.ODELSTM(2 * n_channels + n_controls, 5, field, solver)
    decoder = None
    if n_channels <= 8:
        flow = nn.VectorField(3 * n_channels, 8, 1, n_controls)
        decoder = nn.Decoder(flow, solver)
    made: Any = HybridODE(encoder, decoder, n_channels, n_controls, 3, 12, 20.0)
    with torch.no_grad():  # so that states and lines say something
        made.own_lines.normal_()
        made.out[2].weight.mul_(10)
    return made


def batch(
    n_windows: int = 3, n_channels: int = 2, n_controls: int = 0, dtype: Any = None
) -> HybridBatch:
    g = torch.Generator().manual_seed(0)
    dtype = dtype or torch.float32

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=g).to(dtype)

    ages = random(n_windows, N_ROWS).cumsum(1)
    ages = ages - ages[:, :1]
    values = 2 * random(n_windows, N_ROWS, n_channels) - 1
    mask = random(n_windows, N_ROWS, n_channels) < 0.7
    mask[:, 0, 0] = True
    controls = path = None
    if n_controls:
        controls = random(n_windows, N_ROWS, n_controls)
        times = torch.tensor([0.0, 2.0, 4.0, 9.0], dtype=dtype).repeat(n_windows, 1)
        path = nn.ControlPath(times, random(n_windows, 4, n_controls))
    window = torch.arange(n_windows).repeat_interleave(4)
    channel = torch.arange(4 * n_windows) % n_channels
    lead = torch.tensor([0.5, 1.5, 3.0, 6.0], dtype=dtype).repeat(n_windows)
    target = random(4 * n_windows)
    return HybridBatch(
        ages, values, mask, controls, path, window, channel, lead, target
    )


def test_values_that_are_masked_change_nothing() -> None:
    made, given = network(), batch()
    garbage = torch.where(given.mask, given.values, torch.nan)
    expected = made.predict(given)
    torch.testing.assert_close(made.predict(given._replace(values=garbage)), expected)
    assert bool(torch.isfinite(expected).all())


def test_padding_changes_nothing() -> None:
    made, given = network(), batch()
    last = slice(-1, None)
    padded = given._replace(
        times=torch.cat([given.times, given.times[:, last]], 1),
        values=torch.cat([given.values, given.values[:, last]], 1),
        mask=torch.cat([given.mask, torch.zeros_like(given.mask[:, last])], 1),
    )
    torch.testing.assert_close(made.predict(padded), made.predict(given))


@pytest.mark.parametrize("n_channels", [1, 2, 10])
def test_a_window_is_answered_alike_alone_and_in_a_batch(n_channels: int) -> None:
    made, given = network(n_channels), batch(n_channels=n_channels)
    together = made.predict(given)
    for k in range(3):
        mine, one = given.window == k, slice(k, k + 1)
        alone = given._replace(
            times=given.times[one],
            values=given.values[one],
            mask=given.mask[one],
            window=given.window[mine] - k,
            channel=given.channel[mine],
            lead=given.lead[mine],
        )
        torch.testing.assert_close(made.predict(alone), together[4 * k : 4 * k + 4])


def test_other_answers_change_none() -> None:
    made, given = network(), batch()
    few = torch.arange(12) % 4 < 2
    part = given._replace(
        **{n: getattr(given, n)[few] for n in ("window", "channel", "lead", "target")}
    )
    torch.testing.assert_close(made.predict(part), made.predict(given)[few])


def test_what_a_channel_shows_moves_the_answers_of_the_others() -> None:
    made, given = network(), batch()
    other = given.values.clone()
    other[..., 0] += 1
    changed = (made.predict(given._replace(values=other)) - made.predict(given)).abs()
    assert bool((changed[given.channel == 1] > 1e-4).all())


def test_a_step_leaves_out_a_share_of_the_neurons_in_which_channels_meet() -> None:
    made, given = network(10), batch(n_windows=500, n_channels=10)
    entered: list[torch.Tensor] = []
    made.meeting[1][2].register_forward_pre_hook(lambda _, x: entered.append(x[0]))
    whole = made.predict(given)
    for seed in (0, 0, 1):
        made(given._replace(dropout=seed))
    every, once, again, other = entered
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    left = once != 0
    assert float(left.float().mean()) == pytest.approx(0.8, abs=0.01)
    torch.testing.assert_close(once[left], every[left] / 0.8)
    # what is forecast leaves out nothing, in training's mode as well
    assert bool((every != 0).all())
    torch.testing.assert_close(made.train().predict(given), whole)


def test_controls_ahead_act_from_their_time_on() -> None:
    made, given = network(n_controls=1), batch(n_controls=1)
    assert given.path is not None
    later = given.path.values.clone()
    later[:, 3] += 1  # between 4 and 9
    path = nn.ControlPath(given.path.times, later)
    changed = (made.predict(given._replace(path=path)) - made.predict(given)).abs()
    assert bool((changed[given.lead < 4] == 0).all())
    assert bool((changed[given.lead > 4] > 1e-6).all())


@pytest.mark.parametrize("n_channels", [2, 10])
def test_engines_agree_on_bound_and_gradients(n_channels: int) -> None:
    bounds, gradients = [], []
    for engine in ("eager", "fused"):
        made = network(n_channels, engine=engine)
        given = batch(n_channels=n_channels)
        assert set(made.engines()) == {engine}
        noise = torch.full((3, made.latent_size), 0.3)
        found = made(given, noise)
        (found.log_likelihood - found.kl).sum().backward()
        bounds.append(found.log_likelihood.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in made.parameters()]))
    torch.testing.assert_close(*bounds, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


def test_the_bound_is_the_likelihood_of_each_window_and_the_kl_of_its_state() -> None:
    made, given = network(), batch()
    made.weights[:] = torch.tensor([0.5, 2.0])
    made.kl_scale = 0.25
    bound = made(given)
    errors = given.target - made.predict(given)
    scale = made.noise_scale[given.channel]
    each = huber_log_likelihood(errors, scale)
    each = each * made.weights[given.channel]
    torch.testing.assert_close(bound.log_likelihood, each.view(3, 4).sum(1))
    mean, log_variance, *_ = made._origin(given)
    q = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    prior = torch.distributions.Normal(0.0, 1.0)
    kl = torch.distributions.kl_divergence(q, prior).sum(1)
    torch.testing.assert_close(bound.kl, 0.25 * kl)
    assert bound.n_observed.tolist() == [4, 4, 4]


def test_the_flow_of_many_channels_solves_its_linear_equation() -> None:
    torch.manual_seed(0)
    flow = LinearFlow(3, 5, 20.0).double()
    torch.nn.init.normal_(flow.raw_rates)
    channel, lead = torch.tensor([2, 0, 1, 2]), torch.tensor([0.0, 1.5, 7.0, 30.0])
    state = torch.randn(4, 5).double()
    found = flow(state, channel, lead.double())
    for k in range(4):
        a = torch.zeros(5, 5).double()
        for pair in range(2):
            speed = flow.speeds[channel[k], pair].detach()
            rate = torch.nn.functional.softplus(flow.raw_rates[channel[k], pair])
            a[pair, pair] = a[2 + pair, 2 + pair] = -rate.detach()
            a[pair, 2 + pair], a[2 + pair, pair] = -speed, speed
        expected = torch.linalg.matrix_exp(lead[k] * a) @ state[k]
        torch.testing.assert_close(found[k], expected)
    still = flow.speeds[:, :1]
    assert (still == 0).all()
    assert (flow.speeds[:, 1:] > 0).all()
