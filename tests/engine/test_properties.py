"""The fused engine against plain torch in double precision, at any size."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sklode import nn
from sklode.engine.tableaus import TABLEAUS
from sklode.latent_ode.network import Batch, LatentODE
from tests.networks import gradients, latent_ode


class Case(NamedTuple):
    """A network and windows for it."""

    seed: int = 0
    kind: str = "ode-lstm"
    method: str = "rk4"
    depth: int = 1
    width: int = 7
    hidden: int = 5
    latent: int = 3
    n_channels: int = 2
    n_controls: int = 0
    n_series: int = 3
    n_stamps: int = 9

    @property
    def step(self) -> float:
        """A power of two with which a series spans at most 8, where no field gets lost.

        Over longer ones random fields explode, and saturate what they feed: gradients
        then consist of slopes of which single precision keeps few digits.
        """
        return 2.0 ** min(math.floor(math.log2(8 / self.n_stamps)), 0)

    def network(self) -> LatentODE:
        """Return a random network of weights that float32 holds."""
        sizes = self.hidden, self.latent
        names = "width", "depth", "n_channels", "n_controls"
        shape: dict[str, Any] = {name: getattr(self, name) for name in names}
        solver = nn.Solver(self.method, self.step)
        return latent_ode(self.kind, sizes=sizes, solver=solver, gain=1.0, **shape)

    def batch(self) -> Batch:
        """Return windows with gaps of 0 and of many steps, padding, and masked rows."""
        size = (self.n_series, self.n_stamps)
        # binary fractions, so that single precision takes the same steps
        gaps = self.step * torch.randint(0, 96, size) / 64
        gaps[torch.rand(size) < 0.2] = 0.0
        gaps[torch.rand(size) < 0.05] = 3.5 * self.step
        rows = torch.rand(size) < 0.8
        rows[torch.rand(self.n_series) < 0.2, self.n_stamps // 2 :] = False
        gaps[~rows.flip(1).cummax(1).values.flip(1)] = 0.0  # padding rests
        mask = rows.unsqueeze(-1) & (torch.rand(*size, self.n_channels) < 0.8)
        mask[torch.rand(self.n_series) < 0.05] = False
        values = torch.randn(*size, self.n_channels)
        values[~mask] = torch.nan
        controls = torch.randn(*size, self.n_controls) if self.n_controls else None
        n_seen = max(2 * self.n_stamps // 3, 1)
        hidden = torch.rand(self.n_series, n_seen) < torch.rand(self.n_series, 1)
        hidden[torch.rand(self.n_series) < 0.5] = False
        return Batch(gaps.cumsum(1), values, mask, n_seen, controls, hidden=hidden)


def slopes(network: LatentODE, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
    bound = network(batch, noise)
    loss = (bound.log_likelihood - bound.kl).sum() / bound.n_observed.sum().clamp(min=1)
    return gradients(network, loss) | {"loss": loss.detach()}


def slopes_by(
    engine: str, case: Case, dtype: torch.dtype, noise_of_weights: float = 0.0
) -> dict[str, Tensor]:
    torch.manual_seed(case.seed)
    network: Any = case.network()
    batch = case.batch()
    noise = torch.randn(case.n_series, case.latent)
    network.encoder.solver.engine = engine
    assert network.engines() == (engine, engine)
    network.to(dtype)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1 + noise_of_weights * torch.randn_like(weight))
    floats: dict[str, Any] = {
        name: part.to(dtype)
        for name, part in batch._asdict().items()
        if isinstance(part, Tensor) and part.is_floating_point()
    }
    return slopes(network, batch._replace(**floats), noise.to(dtype))


@functools.lru_cache(maxsize=4)
def exact_slopes(case: Case) -> dict[str, Tensor]:
    """Return the bound's gradients by plain torch in double precision."""
    return slopes_by("eager", case, torch.float64)


def errors(got: dict[str, Tensor], case: Case) -> dict[str, float]:
    """Return each gradient's error, relative to its norm."""
    return {
        name: float((got[name].double() - value).norm() / value.norm())
        if value.any()
        else float(got[name].abs().max())
        for name, value in exact_slopes(case).items()
    }


def assert_exact(case: Case, dtype: torch.dtype, tolerance: float) -> None:
    """Assert errors within ``tolerance``, or what rounding of the weights explains."""
    found = errors(slopes_by("fused", case, dtype), case)
    if max(found.values()) > tolerance:
        rounding = torch.finfo(dtype).eps
        moved = errors(slopes_by("eager", case, torch.float64, rounding), case)
        tolerance = max(tolerance, 30 * max(moved.values()))
    name = max(found, key=lambda name: found[name])
    assert found[name] <= tolerance, name


def cases(least: int = 1) -> Any:
    """Return a strategy; hypothesis draws what stands first most often."""
    return st.builds(
        Case,
        seed=st.integers(0, 10**6),
        kind=st.sampled_from(["ode-lstm", "ode-rnn", "rnn"]),
        method=st.sampled_from([*TABLEAUS]),
        depth=st.sampled_from([2, 1]),
        width=st.sampled_from([7, 12, 20, 30, 5, least]),
        hidden=st.sampled_from([5, 8, 17, 25, 32, least]),
        latent=st.sampled_from([4, 8, 16, 20, least]),
        n_channels=st.integers(1, 3),
        n_controls=st.sampled_from([2, 0, 1]),
        n_series=st.sampled_from([3, 17, 2, 1]),
        n_stamps=st.sampled_from([9, 30, 100, 3, 2, 1]),
    )


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40)
def test_gradients_are_those_of_torch_at_any_size(data: st.DataObject) -> None:
    assert_exact(data.draw(cases()), torch.float64, 1e-12)
    # in single precision a saturated neuron keeps few digits of its slope 1 - h^2,
    # which is much of a gradient where there is but one
    assert_exact(data.draw(cases(least=4)), torch.float32, 1e-5)


SIZES: dict[str, Any] = {"depth": 2, "hidden": 8, "latent": 4, "width": 12}
WIDE = Case(n_controls=2, n_series=300, n_stamps=10, **SIZES)
LONG = Case(n_series=2, n_stamps=1000, **SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("case", [WIDE, LONG], ids=["wide", "long"])
def test_many_and_long_series_keep_their_digits(case: Case) -> None:
    assert max(errors(slopes_by("fused", case, torch.float64), case).values()) <= 1e-12
    tolerance = 1e-5 if case.n_stamps < 1000 else 1e-4
    single = errors(slopes_by("fused", case, torch.float32), case)
    assert max(single.values()) <= tolerance
