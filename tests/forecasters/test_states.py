"""Latent states: where a network stands, and what it does at any stamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode.engine.threads import own_modes
from tests.series import panel, tiny, uneven_stamps, waves

MODELS = "hybrid", "paper"


def made(model: str = "hybrid", **settings: Any) -> Any:
    guard = {"guard": False} if model == "hybrid" else {}
    return tiny(model=model, max_epochs=2, random_state=0, **guard, **settings)


def means(table: pd.DataFrame) -> Any:
    return table.xs("mean", axis=1, level="statistic").to_numpy()


def deviations(table: pd.DataFrame) -> Any:
    return table.xs("deviation", axis=1, level="statistic").to_numpy()


@pytest.mark.parametrize("model", MODELS)
def test_the_state_of_each_series_is_that_at_its_last_row(model: str) -> None:
    y = panel()
    forecaster = made(model).fit(y)
    found = forecaster.encode()
    last = y.groupby(level=0).tail(1).index
    assert found.index.equals(last)
    n_states = forecaster.latent_size
    assert found.columns.to_list() == [
        (k, name) for k in range(n_states) for name in ("mean", "deviation")
    ]
    assert (deviations(found) > 0).all()
    pd.testing.assert_frame_equal(forecaster.trajectory(last), found)
    back = forecaster.trajectory(last[::-1])
    pd.testing.assert_frame_equal(back, found[::-1], rtol=1e-5)


def test_deviations_at_a_row_are_those_of_the_posterior() -> None:
    forecaster = made(latent_size=3).fit(waves(uneven_stamps(40)))
    network, seen = forecaster.network_, forecaster._history.observations
    encoded: list[Any] = []
    origin = network._origin

    def noted(batch: Any) -> Any:
        encoded.append(origin(batch))
        return encoded[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_origin", noted)
        found = forecaster.encode()
    (z0,) = encoded
    assert len(seen.ticks) == 40
    np.testing.assert_allclose(means(found), z0.mean.detach(), rtol=1e-6)
    expected = torch.exp(0.5 * z0.log_variance.detach())
    np.testing.assert_allclose(deviations(found), expected, rtol=1e-5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("with_X", [False, True], ids=["alone", "with X"])
def test_other_series_are_encoded_as_if_held_and_nothing_is_learned(
    model: str, with_X: bool
) -> None:
    y = panel((20, 22, 24, 26))
    u = np.random.default_rng(0).normal(size=len(y))
    X = pd.DataFrame({"u": u}, y.index) if with_X else None
    forecaster = made(model).fit(y, X=X)
    before, steps = forecaster.encode(), [1, 2]
    ahead = None if X is None else X.groupby(level=0).tail(2)
    if ahead is not None:
        late = ahead.index.get_level_values(1) + pd.Timedelta("2D")
        ahead.index = pd.MultiIndex.from_arrays(
            [ahead.index.get_level_values(0), late], names=y.index.names
        )
        steps = ahead.index
    expected = forecaster.predict(steps, X=ahead)
    some = y.loc[["s1", "s3"]]
    found = forecaster.encode(some, X=None if X is None else X.loc[["s1", "s3"]])
    near: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
    pd.testing.assert_frame_equal(found, before.loc[["s1", "s3"]], **near)
    pd.testing.assert_frame_equal(forecaster.predict(steps, X=ahead), expected)
    alone = forecaster.encode(y.loc["s2"], X=None if X is None else X.loc["s2"])
    np.testing.assert_allclose(alone, before.loc[["s2"]], **near)
    assert alone.index.equals(y.loc["s2"].index[-1:])


def test_a_state_of_the_hybrid_model_is_what_was_known_then() -> None:
    y = waves(uneven_stamps(60))
    changed = y.copy()
    changed.iloc[40:] += 50
    forecaster = made().fit(y)
    asked = y.index[20:40].append(y.index[39:40] + pd.Timedelta("1min"))
    expected = forecaster.trajectory(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecaster, "_history", made().fit(changed)._history)
        found = forecaster.trajectory(asked)
        other = forecaster.trajectory(y.index[41:])
    pd.testing.assert_frame_equal(found, expected)
    assert not np.isclose(other, forecaster.trajectory(y.index[41:])).all(axis=1).any()


def test_states_solve_the_networks_equation() -> None:
    y = waves(uneven_stamps(60))
    forecaster = made().fit(y)
    unit = forecaster.time_unit_
    stamps = y.index[-1] + pd.to_timedelta(np.array([1.9, 2.0, 2.1]) * unit)
    before, now, after = means(forecaster.trajectory(stamps))
    with own_modes(gradients=False):
        z = torch.tensor(now, dtype=torch.float32)[None]
        speed = forecaster.network_.decoder.vector_field(z, None)[0].numpy()
    np.testing.assert_allclose((after - before) / 0.2, speed, rtol=0.05, atol=2e-3)


@pytest.mark.slow
def test_states_of_many_columns_flow_each_by_itself() -> None:
    index = uneven_stamps(30)
    y = pd.DataFrame({f"c{k}": waves(index, k) for k in range(10)})
    forecaster = made(latent_size=2).fit(y)
    found = forecaster.trajectory(index[[15, 29]])
    assert found.shape == (2, 2 * 10 * 2)
    np.testing.assert_allclose(found.iloc[[1]], forecaster.encode(), atol=1e-6)


def test_X_moves_states_after_it_alone() -> None:
    y = waves(uneven_stamps(60))
    u = np.random.default_rng(0).normal(size=60)
    X = pd.DataFrame({"u": u}, y.index)
    forecaster = made().fit(y, X=X)
    steps = pd.to_timedelta(3 * np.arange(1, 7) * forecaster.time_unit_)
    ahead = y.index[-1] + steps
    known = pd.DataFrame({"u": np.zeros(6)}, ahead)
    other = known.copy()
    other.iloc[3:] = 5.0
    one = means(forecaster.trajectory(ahead, X=known))
    two = means(forecaster.trajectory(ahead, X=other))
    np.testing.assert_allclose(one[:2], two[:2], rtol=1e-5)
    assert (np.abs(one[3:] - two[3:]) > 1e-6).any(axis=1).all()


def test_what_has_no_state_is_refused() -> None:
    y = waves(uneven_stamps(40))
    forecaster = made().fit(y)
    early = y.index[:1] - pd.Timedelta("1D")
    with pytest.raises(ValueError, match="1 of 2 rows before their series' first"):
        forecaster.trajectory(early.append(y.index[:1]))
    with pytest.raises(TypeError, match="index must be a pandas Index"):
        forecaster.trajectory([1, 2])
    two = pd.DataFrame({"a": y, "b": y})
    with pytest.raises(ValueError, match=r"as many columns of y and X.* got .*2, 0"):
        forecaster.encode(two)
    few = tiny(model="hybrid").fit(y.iloc[:20])
    with pytest.raises(ValueError, match="guard=False"):
        few.encode()
