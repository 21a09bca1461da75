import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from sklode.latent_ode.network import Batch, LatentODE
from sklode.nn import ControlPath, Solver
from tests.networks import assert_same, gradients, latent_ode, one_series, windows

pytestmark = pytest.mark.usefixtures("float64")

EVERY_KIND = pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])


def everything(network: LatentODE, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
    """Return the bound's parts and the gradients of the ELBO."""
    bound = network(batch, noise)
    elbo = (bound.log_likelihood - bound.kl).sum()
    values = {"log_likelihood": bound.log_likelihood.detach(), "kl": bound.kl.detach()}
    return gradients(network, elbo) | values


def posterior(network: LatentODE, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    p = network.encode(batch)
    return p.q_z0.mean, p.q_z0.stddev, p.t0


def least_change(found: Tensor, before: Tensor) -> float:
    return float((found - before).abs().min().detach())


def test_masked_value_is_ignored_even_if_nan() -> None:
    network, batch, noise = latent_ode(), windows(), torch.randn(4, 3)
    assert batch.values.isnan().any()
    with_nan = everything(network, batch, noise)
    values = torch.where(batch.mask, batch.values, -1e6)
    filled = everything(network, batch._replace(values=values), noise)
    assert_same(with_nan, filled, 1e-14)
    assert all(bool(torch.isfinite(x).all()) for x in with_nan.values())


@EVERY_KIND
def test_observed_zero_is_an_observation(kind: str) -> None:
    network, batch = latent_ode(kind), windows(1, 4, 4)
    values, missing = batch.values.clone(), batch.mask.clone()
    values[0, [0, 2]], missing[0, [0, 2]] = 0.0, False
    zeros = batch._replace(values=values)
    dropped = zeros._replace(mask=missing)
    for x, y in zip(
        posterior(network, zeros), posterior(network, dropped), strict=True
    ):
        assert least_change(x, y) > 1e-4  # of t0 as well
    assert network(zeros).n_observed.item() == 8
    assert network(dropped).n_observed.item() == 4
    one = batch.mask.clone()
    one[0, 1, 0] = False  # a channel alone
    values[0, 1, 0] = 0.0
    found = posterior(network, zeros._replace(mask=one))[0]
    assert least_change(found, posterior(network, zeros)[0]) > 1e-5


@EVERY_KIND
def test_bound_of_shown_rows_is_that_of_torchs_distributions(kind: str) -> None:
    network, batch = latent_ode(kind, n_controls=1), windows(n_controls=1)
    noise = torch.randn(4, 3)
    hidden = torch.tensor(
        [[1, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0]]
    ).bool()
    bound = network(batch._replace(hidden=hidden), noise)
    for k in range(4):
        alone = one_series(batch, k)
        seen = slice(min(batch.n_seen, alone.times.shape[1]))
        shown = alone.mask[:, seen] & ~hidden[k, seen, None]
        values = torch.where(shown, alone.values[:, seen], torch.nan)
        assert alone.controls is not None
        controls = alone.controls[:, seen]
        n_seen = values.shape[1]
        p = network.encode(Batch(alone.times[:, seen], values, shown, n_seen, controls))
        z0 = p.q_z0.mean + p.q_z0.stddev * noise[k]
        x = network.decode(z0, p, alone.times, alone.path)
        scale = network.noise_scale
        mean, variance = p.q_z0.mean[0], p.q_z0.variance[0]
        kl = 0.5 * (mean**2 + variance - 1 - variance.log()).sum()
        # all that was observed counts, hidden rows and those after the window as well
        expected = Normal(x, scale).log_prob(alone.values.nan_to_num())
        expected = expected[alone.mask].sum()
        torch.testing.assert_close(bound.log_likelihood[k], expected)
        torch.testing.assert_close(bound.kl[k], kl)
    assert torch.equal(bound.n_observed, batch.mask.sum((1, 2)))


def test_no_state_before_t0_is_solved_for_where_nothing_was_observed() -> None:
    network, batch = latent_ode(), windows()
    batch.mask[0, :2] = False  # t0 of the first window is its third stamp
    queries: list[dict[str, Tensor]] = []
    network.decoder.register_forward_pre_hook(
        lambda _, z0, named: queries.append(named), with_kwargs=True
    )
    network(batch)
    t0, times = queries[0]["t0"], queries[0]["times"]
    assert float((times - t0.unsqueeze(-1)).min()) == 0.0


def test_only_scored_entries_are_counted() -> None:
    network, batch = latent_ode(), windows()
    tail = batch.mask.clone()
    tail[:, :6] = False
    whole = network(batch)
    parts = [network(batch._replace(scored=x)) for x in (batch.mask & ~tail, tail)]
    total = parts[0].log_likelihood + parts[1].log_likelihood
    torch.testing.assert_close(total, whole.log_likelihood)
    assert parts[1].n_observed.tolist() == tail.sum((1, 2)).tolist()
    assert torch.equal(parts[1].kl, whole.kl)


def test_posterior_head_gives_mean_and_log_variance() -> None:
    network: Any = latent_ode()
    last = network.posterior_head[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, -2.0, 0.5, 0.0, math.log(4), math.log(9)]))
    mean, stddev, _ = posterior(network, windows())
    torch.testing.assert_close(mean[0], torch.tensor([1.0, -2.0, 0.5]))
    torch.testing.assert_close(stddev[3], torch.tensor([1.0, 2.0, 3.0]))


def test_a_held_channel_is_its_constant_with_the_least_noise() -> None:
    network = latent_ode(n_channels=3)
    before = network.noise_scale.tolist()
    network.hold(torch.tensor([torch.nan, 0.7, torch.nan]))
    x = network.emission(torch.randn(5, 3))
    assert (x[:, 1] == 0.7).all()
    assert float(x[:, [0, 2]].std(0).min().detach()) > 0
    expected = pytest.approx([before[0], 1e-3, before[2]], rel=1e-5)
    assert network.noise_scale.tolist() == expected


def test_draws_are_decoded_as_each_on_its_own() -> None:
    network, batch = latent_ode(n_controls=1), windows(n_controls=1)
    p, path = network.encode(batch), batch.path
    draws = torch.randn(5, 4, 3)
    together = network.decode(draws, p, batch.times, path)
    for z0, found in zip(draws, together, strict=True):
        expected = network.decode(z0, p, batch.times, path)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_controls_reach_the_encoder_the_flow_and_the_emission() -> None:
    network, batch = latent_ode(n_controls=1), windows(n_controls=1)
    assert batch.controls is not None
    p, path = network.encode(batch), batch.path
    changed = batch.controls.clone()
    changed[:, 1] += 1.0
    other = batch._replace(controls=changed)
    assert least_change(network.encode(other).q_z0.mean, p.q_z0.mean) > 1e-6
    z0, queries = p.q_z0.mean, batch.times[:, 4:5]
    answers = [network.decode(z0, p, queries, u) for u in (path, other.path)]
    assert least_change(*answers) > 1e-6
    # at t0 nothing has flowed: only the emission reads the control
    start = p.t0.unsqueeze(-1)
    at_start = network.decode(z0, p, start, path)
    u0 = ControlPath(batch.times, batch.controls).at(start)
    expected = network.emission(torch.cat([z0.unsqueeze(1), u0], -1))
    torch.testing.assert_close(at_start, expected)


@pytest.mark.parametrize(
    ("network", "engines"),
    [
        (latent_ode("ode-lstm", engine="fused"), ("fused", "fused")),
        (latent_ode("ode-rnn", method="euler", engine="fused"), ("fused", "fused")),
        (latent_ode("rnn", engine="fused"), ("fused", "fused")),
        (latent_ode(depth=3, engine="fused"), ("eager", "eager")),
        (latent_ode(engine="eager"), ("eager", "eager")),
        (latent_ode(solver=Solver("dopri5"), engine="fused"), ("eager", "eager")),
        (latent_ode(engine="fused").half(), ("eager", "eager")),
        (latent_ode(engine="fused").double(), ("fused", "fused")),
    ],
)
def test_engine_runs_what_it_covers(
    network: LatentODE, engines: tuple[str, str]
) -> None:
    assert network.engines() == engines
    network.encoder.vector_field = nn.Sequential(nn.Linear(5, 5))  # the user's own
    assert network.engines()[0] == "eager"
