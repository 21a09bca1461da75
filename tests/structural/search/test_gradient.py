"""The slope of the loss is what differences of the loss tell."""

from __future__ import annotations

import numpy as np
import pytest

from sklode.structural.candidates import Model
from sklode.structural.components.space import Form
from sklode.structural.filter.system import THRESHOLD
from sklode.structural.rows import ChannelRows
from sklode.structural.search import gradient
from sklode.structural.search.posterior import Posterior
from tests.structural.processes import SPAN, candidate, table_of, with_threshold

FORMS = {
    "no season": candidate(noise=0.4),
    "seasons": candidate(Form((5.0, 11.0)), noise=0.4),
    "many waves": candidate(Form((24.0, 168.0)), harmonics=12),
    "memories that fade at once": candidate(velocity_memory=0.05, ou_memory=0.02),
    "returning": candidate(Form((5.0,), returning=True), noise=0.4),
    "returning, alike": candidate(
        Form(returning=True), velocity_memory=3.33, ou_memory=3.3301
    ),
    "returning at once": candidate(
        Form(returning=True), velocity_memory=0.05, ou_memory=0.02
    ),
    "a memory that lasts": candidate(velocity_memory=2000.0, velocity=4.0),
}
each_form = pytest.mark.parametrize("name", FORMS)


def rows(is_wild: bool) -> ChannelRows:
    """Return four series, one of them with errors, a step and equal stamps."""
    table = table_of((40, 1, 0, 12))
    if is_wild:
        table.values[20:24] += 40  # a step
        table.values[[5, 30]] *= 60  # far beyond the threshold
        table.values[32] += 9  # beyond it
        table.values[7] = np.nan
        table.times[10:14] = table.times[10]
        table.errors[:] = np.arange(len(table.times)) % 5  # of measurement
    return table


def slope_and_differences(one: Model, table: ChannelRows) -> tuple[np.ndarray, ...]:
    posterior = Posterior(one, np.full(len(one.theta), True), table, SPAN)
    loss, slope = posterior.with_slope()(one.theta)
    assert loss == pytest.approx(posterior(one.theta), rel=1e-12)
    steps = 1e-5 * np.eye(len(one.theta))
    pairs = [(posterior(one.theta + s), posterior(one.theta - s)) for s in steps]
    return slope, np.array([(up - down) / 2e-5 for up, down in pairs])


@each_form
@pytest.mark.parametrize("threshold", [THRESHOLD, np.inf])
@pytest.mark.parametrize("is_wild", [False, True])
def test_the_slope_is_that_of_the_loss(
    name: str, threshold: float, is_wild: bool
) -> None:
    one = with_threshold(FORMS[name], threshold).model
    slope, differences = slope_and_differences(one, rows(is_wild))
    size = np.abs(differences).max()
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-7 * size)


def test_series_in_turn_are_series_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, table = FORMS["seasons"].model, rows(is_wild=True)
    at_once, _ = slope_and_differences(one, table)
    monkeypatch.setattr(gradient, "_MOST_NUMBERS", 1)
    in_turn, _ = slope_and_differences(one, table)
    np.testing.assert_allclose(in_turn, at_once, rtol=1e-12)


def test_hyperparameters_that_no_float_holds_are_refused() -> None:
    one = FORMS["seasons"].model
    posterior = Posterior(one, np.full(len(one.theta), True), rows(False), SPAN)
    loss, slope = posterior.with_slope()(np.full(len(one.theta), 400.0))
    assert loss == 1e9
    assert not slope.any()
