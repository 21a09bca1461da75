"""Past the longest lead that a network learned: its forecasts become rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.data.observations import Observations
from sklode.data.scaled_rows import KnownControls
from sklode.engine.threads import own_modes
from sklode.hybrid.guard import Evidence, network_weights_of
from sklode.hybrid.network import build_network
from sklode.hybrid.origins import Origins
from sklode.hybrid.restarts import ahead, farthest, restarted, stage
from sklode.hybrid.windows import Queries
from tests.latent_ode.test_windows import one_to_one
from tests.series import tiny_network

REACH, N_ROWS, LENGTHS = 5.0, 6, (9, 12)


def rows_of(
    values: Any, n_controls: int, lengths: tuple[int, ...] = LENGTHS
) -> Observations:
    keys = [(k, t) for k, n in enumerate(lengths) for t in range(n)]
    index = pd.MultiIndex.from_tuples(keys, names=["series", "t"])
    X = pd.DataFrame({f"u{c}": wave(index) for c in range(n_controls)}, index)
    return Observations.from_frame(pd.DataFrame(values, index, ["a", "b"]), X)


def wave(index: pd.MultiIndex) -> Any:
    return np.sin(index.get_level_values(1).to_numpy() / 2.0)


def known_of(n_controls: int, changed_from: float = np.inf) -> KnownControls | None:
    """Return controls from each last row on, which change from a lead on."""
    if not n_controls:
        return None
    lead = np.arange(30.0)
    values = [np.sin((n - 1 + lead) / 2) + (lead >= changed_from) for n in LENGTHS]
    bounds = np.array([0, 30, 60])
    return KnownControls(bounds, np.tile(lead, 2), np.concatenate(values)[:, None])


def asked(leads: list[float]) -> Queries:
    """Return queries of both channels of both series."""
    n = len(leads)
    return Queries(
        np.repeat([0, 1], 2 * n),
        np.tile([0, 1], 2 * n),
        np.tile(np.repeat(leads, 2), 2),
        np.full(4 * n, -1),
    )


def network_of(n_controls: int, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    made = build_network(tiny_network(), 2, n_controls, REACH)
    with torch.no_grad():
        made.own_lines.normal_(std=0.3)
    return made.eval()


def networks_of(n_controls: int) -> list[Any]:
    """Return two, of whose forecasts the mean counts."""
    return [network_of(n_controls, seed) for seed in (0, 1)]


@pytest.fixture(params=[0, 1], ids=["alone", "with X"])
def case(request: pytest.FixtureRequest) -> Any:
    n_controls = request.param
    values = np.random.default_rng(0).normal(size=(sum(LENGTHS), 2))
    seen = rows_of(values, n_controls)
    origins = Origins(seen, one_to_one(2, n_controls))
    windows = origins.seen(seen.bounds[1:] - 1, N_ROWS)

    def answers(leads: list[float], of: Any = restarted, **changed: Any) -> Any:
        known = known_of(n_controls, **changed)
        with own_modes(gradients=False):
            numbers = np.arange(2)
            return of(
                networks_of(n_controls),
                windows,
                asked(leads),
                numbers,
                known,
                np.zeros(2),
            )

    return answers, values, n_controls


def test_up_to_a_stage_nothing_restarts(case: Any) -> None:
    answers, _, _ = case
    assert stage(REACH) == 4
    leads = [0.5, 1.0, 4.0]
    np.testing.assert_array_equal(answers(leads), answers(leads, of=ahead))


def test_beyond_it_looks_ahead_from_its_forecasts_as_from_rows(case: Any) -> None:
    answers, values, n_controls = case
    found = answers([4.5, 7.0])
    # the same rows, and four more that it forecast
    forecast = answers([1.0, 2.0, 3.0, 4.0]).reshape(2, 4, 2)
    cut = LENGTHS[0]
    parts = [values[:cut], forecast[0], values[cut:], forecast[1]]
    longer = tuple(n + 4 for n in LENGTHS)
    seen = rows_of(np.concatenate(parts), n_controls, longer)
    origins = Origins(seen, one_to_one(2, n_controls))
    windows = origins.seen(seen.bounds[1:] - 1, N_ROWS)
    known = known_of(n_controls)
    if known is not None:
        known = known._replace(times=known.times - 4)
    with own_modes(gradients=False):
        expected = ahead(
            networks_of(n_controls),
            windows,
            asked([0.5, 3.0]),
            np.arange(2),
            known,
            np.zeros(2),
        )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_answers_follow_only_controls_up_to_them() -> None:
    values = np.random.default_rng(0).normal(size=(sum(LENGTHS), 2))
    seen = rows_of(values, 1)
    windows = Origins(seen, one_to_one(2, 1)).seen(seen.bounds[1:] - 1, N_ROWS)
    leads = [6.0, 9.0, 15.0, 19.0]
    with own_modes(gradients=False):
        one, other = (
            restarted(
                networks_of(1), windows, asked(leads), np.arange(2), known, np.zeros(2)
            )
            for known in (known_of(1), known_of(1, changed_from=13.0))
        )
    same = np.isclose(one, other, rtol=0, atol=1e-7).reshape(2, 4, 2)
    assert same[:, :2].all()
    assert not same[:, 2:].any()


def evidence(gain: float, seed: int = 0) -> Evidence:
    rng = np.random.default_rng(seed)
    error = rng.normal(size=600)
    return Evidence(
        cluster=np.arange(600) // 20,
        channel=np.zeros(600, int),
        lead=rng.uniform(1, REACH, 600),
        error=error,
        change=gain * error + 0.1 * rng.normal(size=600),
        deviation=np.ones(600),
    )


@pytest.mark.parametrize(
    ("near", "far", "counts"),
    [(1.0, 1.0, (True, True)), (1.0, -1.0, (True, False)), (-1.0, 1.0, None)],
)
def test_it_counts_beyond_where_restarts_are_right_too(
    near: float, far: float, counts: tuple[bool, bool] | None
) -> None:
    beyond = evidence(far, seed=1)._replace(lead=np.full(600, REACH))
    found = network_weights_of(
        [evidence(near)],
        n_channels=1,
        of_blocks=False,
        restarted=[beyond],
        farthest=farthest(REACH),
    )
    if counts is None:
        assert found is None
        return
    assert found is not None
    weights, _, _ = found.at(np.array([REACH / 2, 50 * stage(REACH)]))
    np.testing.assert_array_equal(weights[:, 0] > 0.9, counts)
    assert not found.at(np.array([farthest(REACH) + 1]))[0].any()
