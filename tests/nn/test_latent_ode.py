import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sklode.nn import Batch, ControlPath, LatentODE, Solver
from sklode.nn.objectives import kl_to_standard_normal
from tests.networks import assert_same, gradients, latent_ode, one_series, windows

pytestmark = pytest.mark.usefixtures("float64")

EVERY_KIND = pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])


def with_noise(scale: float, kind: str = "ode-lstm") -> LatentODE:
    """Return a random network whose emission has a noise of this scale."""
    network = latent_ode(kind)
    with torch.no_grad():
        network.emission.raw_noise.fill_(math.log(math.expm1(scale - 1e-3)))
    return network


def everything(network: LatentODE, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
    """Return the bound's parts and the gradients of the ELBO."""
    bound = network(batch, noise)
    elbo = (bound.log_likelihood - bound.kl).sum()
    parts = {"log_likelihood": bound.log_likelihood, "kl": bound.kl}
    values = {name: part.detach() for name, part in parts.items()}
    return gradients(network, elbo) | values


def posterior(network: LatentODE, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    p = network.posterior(batch.times, batch.values, batch.mask, batch.controls)
    return p.q_z0.mean, p.q_z0.stddev, p.t0


def test_masked_value_is_ignored_even_if_nan() -> None:
    network, batch, noise = latent_ode(), windows(), torch.randn(4, 3)
    assert batch.values.isnan().any()
    with_nan = everything(network, batch, noise)
    for filler in (0.0, -1e6):
        values = torch.where(batch.mask, batch.values, filler)
        assert_same(
            with_nan, everything(network, batch._replace(values=values), noise), 1e-14
        )
    assert all(bool(torch.isfinite(x).all()) for x in with_nan.values())


@EVERY_KIND
def test_observed_zero_is_an_observation(kind: str) -> None:
    network, batch = with_noise(0.5, kind), windows(1, 4, 4)
    values = batch.values.clone()
    values[0, [0, 2]] = 0.0
    missing = batch.mask.clone()
    missing[0, [0, 2]] = False
    zeros = batch._replace(values=values)
    dropped = zeros._replace(mask=missing)
    for x, y in zip(
        posterior(network, zeros)[:2], posterior(network, dropped)[:2], strict=True
    ):
        assert float((x - y).abs().min().detach()) > 1e-4
    # it starts the window, and the likelihood counts it
    assert posterior(network, zeros)[2].item() == batch.times[0, 0].item()
    assert posterior(network, dropped)[2].item() == batch.times[0, 1].item()
    bound = network(zeros)
    assert bound.n_observed.item() == 8
    p = network.posterior(zeros.times, values, zeros.mask)
    x = network.decode(p.q_z0.mean, p, zeros.times).mean
    expected = -0.5 * ((x - values) / 0.5).square().sum()
    expected = expected - 8 * math.log(0.5 * math.sqrt(2 * math.pi))
    torch.testing.assert_close(bound.log_likelihood[0], expected)


def test_encoder_tells_a_missing_channel_from_a_zero() -> None:
    network, batch = latent_ode(), windows(1, 4, 4)
    values = batch.values.clone()
    values[0, 1, 0] = 0.0
    mask = batch.mask.clone()
    mask[0, 1, 0] = False
    zero = batch._replace(values=values)
    q_zero, q_missing = (
        posterior(network, b)[0] for b in (zero, zero._replace(mask=mask))
    )
    assert float((q_zero - q_missing).abs().min().detach()) > 1e-5


@EVERY_KIND
def test_window_has_the_same_bound_alone_and_in_a_batch(kind: str) -> None:
    network = latent_ode(kind, n_controls=1)
    batch, noise = windows(n_controls=1), torch.randn(4, 3)
    together = network(batch, noise)
    for k in range(4):
        alone = network(one_series(batch, k), noise[k : k + 1])
        for x, y in zip(alone, together, strict=True):
            torch.testing.assert_close(x[0], y[k], atol=1e-10, rtol=0)


@EVERY_KIND
def test_fully_masked_stamps_change_no_forecast(kind: str) -> None:
    network, batch = latent_ode(kind), windows(1, 5, 5)
    # before the first stamp, and after the last one
    first, last = batch.times[:, :1], batch.times[:, -1:]
    more = batch._replace(
        times=torch.cat([first - 3.3, first - 1, batch.times, last + 0.4], 1),
        values=nn.functional.pad(batch.values, (0, 0, 2, 1), value=7.0),
        mask=nn.functional.pad(batch.mask, (0, 0, 2, 1), value=False),
    )
    asked = first + torch.tensor([[-1.5, 0.5, 8.0]])
    answers = []
    for b in (batch, more):
        p = network.posterior(b.times, b.values, b.mask)
        answers.append(network.decode(p.q_z0.mean, p, asked).mean)
    torch.testing.assert_close(answers[1], answers[0], atol=1e-13, rtol=0)


@EVERY_KIND
def test_hidden_rows_are_decoded_but_not_encoded(kind: str) -> None:
    network, batch = (
        latent_ode(kind, n_controls=1),
        windows(n_controls=1),
    )
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
        p = network.posterior(alone.times[:, seen], values, shown, controls)
        z0 = p.q_z0.mean + p.q_z0.stddev * noise[k]
        x = network.decode(z0, p, alone.times, alone.path)
        expected = x.log_prob(alone.values)[alone.mask].sum()
        torch.testing.assert_close(bound.log_likelihood[k], expected)
        torch.testing.assert_close(bound.kl[k], kl_to_standard_normal(p.q_z0)[0])
    assert torch.equal(bound.n_observed, batch.mask.sum((1, 2)))


def test_t0_is_the_first_stamp_with_an_observation() -> None:
    batch = windows()
    t0 = posterior(latent_ode(), batch)[2]
    expected = batch.times[:, 0].clone()
    expected[2] = batch.times[2, 1]
    assert torch.equal(t0, expected)


def test_no_state_before_t0_is_solved_for_where_nothing_was_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, batch = latent_ode(), windows()
    batch.mask[0, :2] = False  # t0 of the first window is its third stamp
    asked = []
    decoder = network.decoder.forward

    def recorded(z0: Tensor, t0: Tensor, times: Tensor, *others: Any) -> Tensor:
        asked.append(times - t0.unsqueeze(-1))
        return decoder(z0, t0, times, *others)

    monkeypatch.setattr(network.decoder, "forward", recorded)
    network(batch)
    assert float(asked[0].min()) == 0.0
    assert float(asked[0].max()) > 0.0


def test_encoder_sees_only_the_window_and_the_likelihood_counts_all() -> None:
    network, batch = with_noise(1.0), windows()
    later = batch.values.clone()
    later[0, 6:] += 1.0
    before, after = network(batch), network(batch._replace(values=later))
    assert torch.equal(before.kl, after.kl)
    assert after.log_likelihood[0] != before.log_likelihood[0]
    assert torch.equal(after.log_likelihood[1:], before.log_likelihood[1:])
    earlier = batch.values.clone()
    earlier[0, 5] += 1.0
    assert network(batch._replace(values=earlier)).kl[0] != before.kl[0]
    assert before.n_observed.tolist() == batch.mask.sum((1, 2)).tolist()


def test_only_scored_entries_are_counted() -> None:
    network, batch = latent_ode(), windows()
    tail = batch.mask.clone()
    tail[:, :6] = False
    whole = network(batch)
    head_part, tail_part = (
        network(batch._replace(scored=scored)) for scored in (batch.mask & ~tail, tail)
    )
    torch.testing.assert_close(
        head_part.log_likelihood + tail_part.log_likelihood, whole.log_likelihood
    )
    assert tail_part.n_observed.tolist() == tail.sum((1, 2)).tolist()
    assert torch.equal(tail_part.kl, whole.kl)


@EVERY_KIND
def test_window_without_any_observation_counts_nothing(kind: str) -> None:
    network, batch = latent_ode(kind), windows()
    mask = batch.mask.clone()
    mask[3] = False
    bound = network(batch._replace(mask=mask))
    assert bound.log_likelihood[3] == 0.0
    assert bound.n_observed[3] == 0
    whole = network(batch)
    torch.testing.assert_close(bound.log_likelihood[:3], whole.log_likelihood[:3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [
        Solver("dopri5", rtol=1e-6),
    ],
    ids=["dopri5"],
)
def test_all_solvers_agree_on_the_bound_and_its_gradients(
    solver: Solver,
) -> None:
    reference = latent_ode(solver=Solver("rk4", 0.05))
    network = latent_ode(solver=solver)
    network.load_state_dict(reference.state_dict())
    batch, noise = windows(), torch.randn(4, 3)
    assert_same(
        everything(network, batch, noise), everything(reference, batch, noise), 1e-4
    )


def test_batch_moves_as_a_whole() -> None:
    moved = windows(n_controls=1).to("meta")
    tensors = [x for x in moved if isinstance(x, Tensor)]
    assert [x.device.type for x in tensors] == ["meta"] * 4
    assert (moved.n_seen, moved.scored) == (6, None)


def test_noise_moves_z0_by_standard_deviations() -> None:
    network, batch = latent_ode(), windows()
    noise = torch.randn(4, 3)
    p = network.posterior(batch.times[:, :6], batch.values[:, :6], batch.mask[:, :6])
    z0 = p.q_z0.mean + noise * p.q_z0.variance.sqrt()
    p_x = network.decode(z0, p, batch.times)
    entries = p_x.log_prob(batch.values.nan_to_num()) * batch.mask
    torch.testing.assert_close(
        network(batch, noise).log_likelihood, entries.sum((1, 2))
    )


def test_translator_gives_mean_and_log_variance() -> None:
    network: Any = latent_ode()
    last = network.translator.network[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, -2.0, 0.5, 0.0, math.log(4), math.log(9)]))
    mean, stddev, _ = posterior(network, windows())
    torch.testing.assert_close(mean[0], torch.tensor([1.0, -2.0, 0.5]))
    torch.testing.assert_close(stddev[3], torch.tensor([1.0, 2.0, 3.0]))


def test_a_held_channel_is_its_constant_with_the_least_noise() -> None:
    emission = latent_ode(n_channels=3).emission
    before = emission.noise_scale.tolist()
    channels = torch.tensor([False, True, False])
    emission.hold(channels, torch.tensor([torch.nan, 0.7, torch.nan]))
    x = emission(torch.randn(5, 3))
    assert (x[:, 1] == 0.7).all()
    assert float(x[:, [0, 2]].std(0).min().detach()) > 0
    found = emission.noise_scale.tolist()
    assert found[1] == pytest.approx(2e-3)
    assert [found[0], found[2]] == [before[0], before[2]]


def test_learned_emission_noise_is_positive_and_rises_to_the_residuals() -> None:
    network, batch = latent_ode(), windows()
    raw = network.emission.raw_noise
    with torch.no_grad():
        raw.fill_(-50.0)
        assert float(network.emission.noise_scale.min()) >= 1e-3
        raw.copy_(torch.tensor([-1.0, 1.0]))
        low, high = network.emission.noise_scale.tolist()
        assert low < high
    # at the likelihood's maximum s is the residuals' root mean square
    optimizer = torch.optim.LBFGS([raw], max_iter=100, tolerance_grad=1e-10)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -network(batch).log_likelihood.sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        p = network.posterior(
            batch.times[:, :6], batch.values[:, :6], batch.mask[:, :6]
        )
        x = network.decode(p.q_z0.mean, p, batch.times).mean
        squares = (x - batch.values).square().nan_to_num()
        rms = (squares.sum((0, 1)) / batch.mask.sum((0, 1))).sqrt()
        torch.testing.assert_close(network.emission.noise_scale, rms, atol=1e-4, rtol=0)


def test_draws_are_decoded_as_each_on_its_own() -> None:
    network, batch = latent_ode(n_controls=1), windows(n_controls=1)
    p, path = network.encode(batch), batch.path
    draws = torch.randn(5, 4, 3)
    together = network.decode_draws(draws, p, batch.times, path)
    for z0, found in zip(draws, together, strict=True):
        expected = network.decode(z0, p, batch.times, path).mean
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_controls_reach_the_encoder_the_flow_and_the_emission() -> None:
    network, batch = latent_ode(n_controls=1), windows(n_controls=1)
    controls = batch.controls
    assert controls is not None
    p = network.posterior(batch.times, batch.values, batch.mask, controls)
    path = ControlPath(batch.times, controls)
    asked = batch.times[:, 4:5]
    answer = network.decode(p.q_z0.mean, p, asked, path).mean

    changed = controls.clone()
    changed[:, 1] += 1.0
    q = network.posterior(batch.times, batch.values, batch.mask, changed)
    assert float((q.q_z0.mean - p.q_z0.mean).abs().min().detach()) > 1e-6
    flowed = network.decode(p.q_z0.mean, p, asked, ControlPath(batch.times, changed))
    assert float((flowed.mean - answer).abs().min().detach()) > 1e-6
    # at t0 nothing has flowed: only the emission reads the control
    start = p.t0.unsqueeze(-1)
    at_start = network.decode(p.q_z0.mean, p, start, path).mean
    u0 = path.at(start)
    expected = network.emission.network(torch.cat([p.q_z0.mean.unsqueeze(1), u0], -1))
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
    ids=[
        *("lstm", "rnn-cell", "no-flow", "three-layers", "off"),
        *("dopri5", "half", "double"),
    ],
)
def test_engine_runs_what_it_covers(
    network: LatentODE, engines: tuple[str, str]
) -> None:
    assert network.engines() == engines


def test_engine_leaves_fields_of_the_users_own_to_torch() -> None:
    network = latent_ode(engine="fused")
    network.decoder.vector_field = nn.Sequential(nn.Linear(3, 3))
    assert network.engines() == ("fused", "eager")
