"""Channels that move together inform each other; others are as if they were alone."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.history import History
from sklode.structural import fit as levels
from sklode.structural.filtered_model import FilteredModel
from tests.cases import slow
from tests.series import led
from tests.structural.followers import gain_of_the_leader, level, plain, unrelated


@pytest.fixture(autouse=True, scope="module")
def _without_delays() -> Iterator[None]:
    """Leave to innovations what a delay would tell, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "likely_delays", lambda tables, gaps: [[]] * len(tables))
        yield


@pytest.fixture(scope="module")
def fitted() -> StructuralForecaster:
    return plain().fit(led()[:-20])


def test_a_channel_that_follows_is_forecast_by_the_one_it_follows() -> None:
    assert gain_of_the_leader() < 0.6


@pytest.mark.parametrize(("n", "most"), [(2, 0), slow(8, 2)])
def test_chance_is_not_taken_for_what_columns_tell(n: int, most: int) -> None:
    told = sum(
        int(level(y).coupling.next_rows.weights.any((0, 1)).sum()) for y in unrelated(n)
    )
    assert told <= most  # of two a pair


def test_level_says_which_columns_are_told(fitted: StructuralForecaster) -> None:
    told = fitted.components_["cross"].groupby(level="channel").all()
    assert told.to_dict() == {"leader": False, "follower": True}


def test_rows_up_to_the_last_one_are_not_shifted(fitted: StructuralForecaster) -> None:
    y = led()[:-20]
    alone = plain().fit(y[["follower"]]).predict_at(y.index)
    found = fitted.predict_at(y.index)["follower"]
    np.testing.assert_allclose(found, alone["follower"], atol=1e-9)


@pytest.mark.usefixtures("as_a_normal")
def test_quantiles_and_paths_are_shifted_with_the_median(
    fitted: StructuralForecaster,
) -> None:
    fh = [1, 2, 3]
    median = fitted.predict(fh)["follower"]
    quantiles = fitted.predict_quantiles(fh, alpha=[0.05, 0.5, 0.95])["follower"]
    assert np.allclose(quantiles[0.5], median)
    middle = quantiles[[0.05, 0.95]].mean(axis=1)
    width = quantiles[0.95] - quantiles[0.05]
    assert (np.abs(middle - median) < 0.05 * width).all()
    paths = fitted.sample(fh, n_samples=2000)
    middle = paths["follower"].groupby(level=-1).median()
    assert np.abs(middle.to_numpy() - median.to_numpy()).max() < 0.1 * width.max()


@pytest.mark.parametrize("gaps", [slow(False), True])
def test_an_update_gives_what_all_rows_at_once_give(gaps: bool) -> None:
    """However the rows come, and where a channel misses the last ones."""
    y = led(300, gaps=gaps)
    y.iloc[250::7, 0] = np.nan
    y.iloc[-1, 1] = np.nan
    start = History.of(y[:200], None).observations
    found = level(y[:200])
    assert found.coupling.next_rows.weights.any()
    whole = FilteredModel.filter(found, History.of(y, None).observations)
    grown = FilteredModel.filter(found, start)
    for end in (201, 230, 231, 299, 300):
        grown = grown.updated(History.of(y[:end], None).observations)
    for one, other in zip(grown.columns, whole.columns, strict=True):
        np.testing.assert_allclose(one.sums, other.sums, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_panel_is_pooled() -> None:
    """Series too short to prove anything prove it together."""
    parts = {k: led(40, seed=k) for k in range(30)}
    assert level(pd.concat(parts)).coupling.next_rows.weights[0, :, 1].any()


def test_a_shift_in_the_units_of_a_logarithm_keeps_y_positive() -> None:
    y = np.exp(0.1 * led(400))
    forecaster = plain(logarithm=True).fit(y)
    assert forecaster._model.structural.coupling.next_rows.weights[0, :, 1].any()
    paths = forecaster.sample(fh=[1, 30])
    assert (paths.to_numpy() > 0).all()
