"""The whole model through the engine against the same model in plain torch."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from sklode.engine.tableaus import TABLEAUS
from sklode.latent_ode.network import Batch, LatentODE
from sklode.nn import Solver
from tests.networks import assert_same, gradients, latent_ode, windows
from tests.problems import MERSON, twice
from tests.series import on_engine, tiny, waves


def both(**settings: object) -> tuple[LatentODE, LatentODE]:
    """Return the same network twice: through the engine, and in plain torch."""
    fused = latent_ode(**settings, engine="fused")  # type: ignore[arg-type]
    eager = latent_ode(**settings, engine="eager")  # type: ignore[arg-type]
    eager.load_state_dict(fused.state_dict())
    assert fused.engines() == ("fused", "fused")
    return fused, eager


def everything(network: LatentODE, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
    bound = network(batch, noise)
    elbo = (bound.log_likelihood - bound.kl).sum()
    return gradients(network, elbo) | {
        "log_likelihood": bound.log_likelihood.detach(),
        "kl": bound.kl.detach(),
    }


@pytest.mark.usefixtures("float64", "merson")
@pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])
@pytest.mark.parametrize("method", [*TABLEAUS, "merson"])
@pytest.mark.parametrize(("n_controls", "depth"), [(0, 2), (2, 1)])
def test_bound_and_its_gradients_equal_those_of_torch(
    kind: str, method: str, n_controls: int, depth: int
) -> None:
    fused, eager = both(kind=kind, method=method, n_controls=n_controls, depth=depth)
    batch = windows(n_controls=n_controls, longest_gap=3.0)
    noise = torch.randn(4, 3)
    assert_same(everything(fused, batch, noise), everything(eager, batch, noise), 1e-10)


@pytest.mark.usefixtures("float64")
def test_ten_stages_are_two_steps_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLEAUS, "merson", MERSON)
    monkeypatch.setitem(TABLEAUS, "twice", twice(MERSON))
    batch, noise = windows(longest_gap=0.9), torch.randn(4, 3)
    fused, eager = both(solver=Solver("twice", 1.0))
    assert_same(everything(fused, batch, noise), everything(eager, batch, noise), 1e-10)
    flow, z = fused.decoder.vector_field, torch.randn(2, 3)
    whole = Solver("twice").step(flow, z, torch.ones(2, 1))
    halves = Solver("merson").trajectory(flow, z, torch.full((2, 2), 0.5))
    torch.testing.assert_close(whole, halves[:, -1], atol=1e-14, rtol=0)


@pytest.mark.usefixtures("float64")
def test_answers_before_and_after_t0_equal_those_of_torch() -> None:
    fused, eager = both(solver=Solver("rk4", 0.6), n_controls=1)
    batch = windows(n_controls=1)
    queries = 6 * torch.randn(4, 8)
    answers = []
    for network in (fused, eager):
        p = network.encode(batch)
        answers.append(network.decode(p.q_z0.mean, p, queries, batch.path))
    torch.testing.assert_close(answers[0], answers[1], atol=1e-11, rtol=0)


def test_engine_changes_no_parameter_and_no_input() -> None:
    network, _ = both(n_controls=1)
    batch = windows(n_controls=1)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    inputs = [x.clone() for x in batch if isinstance(x, Tensor)]
    everything(network, batch, torch.randn(4, 3))
    assert_same(dict(network.state_dict()), before, 0.0)
    after = [x for x in batch if isinstance(x, Tensor)]
    for x, y in zip(inputs, after, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
def test_every_engine_trains_to_the_same_forecasts() -> None:
    y, steps = waves(pd.RangeIndex(40)), [-3, 1, 2, 8]
    # where one rounding more leads training elsewhere, engines cannot agree
    calm = {"batch_size": 8, "lr": 0.02, "window_length": 12, "horizon": 6}
    sizes = {"hidden_size": 6, "latent_size": 3, "field_width": 6, "max_epochs": 20}
    found = {}
    for engine in ("eager", "fused"):
        with on_engine(engine):
            found[engine] = tiny(**calm, **sizes).fit(y).predict(steps)
    np.testing.assert_allclose(
        found["fused"], found["eager"], rtol=0, atol=1e-3 * np.std(y)
    )
