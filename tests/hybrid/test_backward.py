"""Before the first row a network of reversed time counts as far as it has proved to."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.hybrid import training as ahead
from sklode.hybrid.controls import ControlForms
from sklode.hybrid.guard import Validation
from sklode.hybrid.model import NetworkWeights
from sklode.hybrid.windows import control_path
from tests.hybrid.test_controls import REACH, READ, UNIT, rows_of
from tests.hybrid.test_guard import held_out, proof_of
from tests.hybrid.test_restarts import network_of
from tests.hybrid.test_training import auto
from tests.series import panel, uneven_stamps, waves

REACH_BACK = 6.0  # in units of time


def even(weight: float, reach: float = REACH_BACK) -> NetworkWeights:
    return NetworkWeights.even(weight, 1, reach)


def other(network: Any) -> Any:
    """Return a network of other weights."""
    found = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.mul_(1.3)
    return found


@pytest.fixture(scope="module")
def forecaster() -> Any:
    """Return one whose weights, not its training, are told."""
    fitted = auto(guard=False, max_epochs=2).fit(panel())
    model = replace(
        fitted._model, backward=other(fitted.network_), backward_weights=even(1.0)
    )
    fitted._set_model(model)
    return fitted


def before_and_after(forecaster: Any) -> pd.MultiIndex:
    """Return stamps before the first row of each series, at some rows, and after."""
    unit, rows = forecaster.time_unit_, panel().index
    parts = []
    for key, own in rows.to_frame(index=False).groupby("series").when:
        some = [own.iloc[0] - k * unit for k in (12, 7, 5, 2, 1)]
        some += [own.iloc[0], own.iloc[5], own.iloc[-1] + 2 * unit]
        parts += [(key, stamp) for stamp in some]
    return pd.MultiIndex.from_tuples(parts, names=rows.names)


def told(forecaster: Any, index: pd.Index, **fields: Any) -> np.ndarray:
    """Return forecasts by a model with other fields."""
    model, history = replace(forecaster._model, **fields), forecaster._history
    queries = history.queries(history.rows_of(index), None)
    found: np.ndarray = model.answers(history, 0, None).means(queries)[:, 0]
    return found


def test_it_counts_before_first_rows_as_far_as_it_was_proved(forecaster: Any) -> None:
    index = before_and_after(forecaster)
    first = panel().reset_index("when").groupby("series").when.first()
    early = first[index.get_level_values(0)].to_numpy() - index.get_level_values(1)
    early = early / forecaster.time_unit_
    with_it = forecaster.predict_at(index).to_numpy()[:, 0]
    without = told(forecaster, index, backward=None, backward_weights=None)
    counts = (early > 0) & (early <= REACH_BACK)
    np.testing.assert_array_equal(with_it != without, counts)
    half = told(forecaster, index, backward_weights=even(0.5))
    np.testing.assert_allclose(half, (with_it + without) / 2, rtol=1e-6)


def test_it_forecasts_as_one_of_series_that_run_the_other_way(forecaster: Any) -> None:
    # the same rows as a mirror shows them, asked after their last row
    y = panel()
    mirror = pd.Timestamp("2022-01-01")
    turned = y.reset_index("when")
    turned["when"] = mirror - (turned.when - mirror)
    turned = turned.set_index("when", append=True).sort_index()
    unit = forecaster.time_unit_
    leads = np.array([1.0, 2.5, 5.0])
    model = forecaster._model
    back = model.reversed
    seen = forecaster._history.observations.reversed()
    last = seen.bounds[1:] - 1
    rows, lead = np.repeat(last, 3), np.tile(leads, len(last))
    found = back.forecasts(seen, seen, rows, lead)
    as_turned = Observations.from_frame(turned)
    onwards = replace(model, network=model.backward)
    expected = onwards.forecasts(as_turned, as_turned, rows, lead)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # and that is what is answered at these stamps
    first = y.reset_index("when").groupby("series").when.first()
    index = pd.MultiIndex.from_tuples(
        [(key, stamp - k * unit) for key, stamp in first.items() for k in leads],
        names=y.index.names,
    )
    answered = forecaster.predict_at(index).to_numpy()
    np.testing.assert_allclose(answered, found, rtol=1e-5)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_predict_warns_where_most_lies_before_what_was_proved(
    forecaster: Any, share: float, recwarn: pytest.WarningsRecorder
) -> None:
    outside = round(share * 10)
    first = panel().index[0][1]
    unit = forecaster.time_unit_
    steps = [*np.linspace(1, 5, 10 - outside), *np.linspace(8, 9, outside)]
    index = pd.MultiIndex.from_tuples([("s0", first - k * unit) for k in steps])
    forecaster.predict_at(index)
    said = [str(one.message) for one in recwarn if "counts" in str(one.message)]
    assert len(said) == (outside > 5)
    if said:
        assert f"{outside} of 10 rows asked lie beyond" in said[0]
        assert "before its first" in said[0]


def test_what_is_told_names_how_far_it_counts(forecaster: Any) -> None:
    index = panel().index.get_level_values(1)
    text = forecaster._model.contribution(index)
    unit = forecaster.time_unit_
    reach = REACH_BACK * unit / pd.Timedelta("1min")
    assert f"and {reach:.4g} min before its first" in text
    alone = replace(forecaster._model, backward=None, backward_weights=None)
    assert "before its first" not in alone.contribution(index)


def test_it_is_kept_in_a_file_and_by_later_trainings(
    forecaster: Any, tmp_path: Path
) -> None:
    path = tmp_path / "forecaster"
    forecaster.save_weights(path)
    loaded = LatentODELSTMForecaster.load_weights(path)
    unit, first = forecaster.time_unit_, panel().index[0]
    index = pd.MultiIndex.from_tuples([(first[0], first[1] - 2 * unit)])
    expected = forecaster.predict_at(index)
    pd.testing.assert_frame_equal(loaded.predict_at(index), expected)
    later = waves(uneven_stamps(4, 9, "2022-01-01"), 5).to_frame()
    later = pd.concat({"s0": later}, names=["series", "when"])
    updated = copy.deepcopy(forecaster).update(later)
    kept = updated._model.backward.state_dict()
    for name, weight in forecaster._model.backward.state_dict().items():
        torch.testing.assert_close(kept[name], weight)


# Controls in reversed time


@pytest.mark.parametrize("asked", [9.5, 10.02, 11.5, 29.0, 51.0, 107.0])
@pytest.mark.parametrize("unit", [UNIT, 0.02])
def test_controls_are_the_same_at_any_time(unit: float, asked: float) -> None:
    # of a small unit doses have faded wholly before the next row
    every = rows_of("impulses", "held", "line")
    forms, network = ControlForms.of(every, unit, REACH), network_of(0)
    found = []
    for own, rows in (forms, every), (forms.reversed(), every.reversed()):
        known, seen = own.read(rows, rows.observed(), unit)
        units = Units.of(seen, unit)
        n = len(forms.columns)
        units = replace(units, control_location=np.zeros(n), control_scale=np.ones(n))
        first = seen.ticks[seen.bounds[:-1]]
        controls = own.known(known, since=first, units=units)
        lead = abs((-asked if own.runs_back else asked) - first) / unit
        start = np.zeros(1)
        path = control_path(controls, np.array([0]), start, 1e4, network)
        assert path is not None
        found.append(path.at(torch.tensor(lead[None], dtype=torch.float32))[0, 0])
    torch.testing.assert_close(found[0], found[1], rtol=2e-3, atol=1e-5)


def test_before_its_first_row_nothing_was_given_to_a_series() -> None:
    every = rows_of("impulses").reversed()
    forms = ControlForms.of(rows_of("impulses"), UNIT, REACH).reversed()
    known, seen = forms.read(every, every.observed(), UNIT)
    controls = forms.known(known, seen.ticks[seen.bounds[:-1]], Units.of(seen, UNIT))
    assert controls is not None
    n = len(forms.columns)
    controls = controls._replace(values=known.controls)
    start = np.array([(READ[-1] - READ[0]) / UNIT])
    path = control_path(controls, np.array([0]), start, REACH, network_of(0))
    assert path is not None
    # as far back as sums that grow would overflow
    late = path.at(torch.tensor([[1.0, 100.0, 1e6]]))
    np.testing.assert_array_equal(late.numpy(), np.zeros((1, 3, n)))


# What is proved


@pytest.fixture(scope="module")
def judged() -> tuple[Validation, Validation, Observations]:
    """Return what is asked in reversed time, and as it is."""
    walk = np.random.default_rng(0).normal(size=140).cumsum()
    rows = Observations.from_frame(pd.DataFrame({"walk": walk}))
    _, level, units = held_out(rows)
    turned = rows.reversed()
    cut = turned.bounds[1:] - 45
    onwards = proof_of(rows, 24, cut, level, units)
    model = replace(onwards.model, forms=onwards.model.forms.reversed())
    back = Validation.of(turned, every=turned, cut=cut, structural=level, model=model)
    return back, onwards, turned


def test_the_level_is_asked_for_what_came_before(
    judged: tuple[Validation, Validation, Observations],
) -> None:
    back, _, turned = judged
    queries = back.queries
    for window in np.unique(queries.window)[::10]:
        mine = queries.window == window
        first, end = back.before.bounds[window : window + 2]
        # ticks of reversed time are those of rows, below zero
        known = -back.before.ticks[first:end][::-1]
        values = back.before.values[first:end][::-1, 0]
        asked = -turned.ticks[queries.row[mine]]
        assert (asked < known.min()).all()
        truth = turned.values[queries.row[mine], 0]
        np.testing.assert_allclose(
            back.median[mine] + back.error[mine] * back.deviation[mine], truth
        )
        # a walk is expected to have begun where it was first seen
        assert abs(back.median[mine][0] - values[0]) < np.abs(np.diff(values)).mean()


def test_a_walk_is_as_hard_to_tell_either_way(
    judged: tuple[Validation, Validation, Observations],
) -> None:
    back, onwards, _ = judged
    ratio = np.median(back.deviation) / np.median(onwards.deviation)
    assert 0.7 < ratio < 1.4
    covered = (np.abs(back.error) < 1.645).mean()
    assert 0.7 < covered < 1.0


def many() -> pd.DataFrame:
    """Return as many series as a network is proved on whole ones of."""
    return pd.concat(
        {k: waves(uneven_stamps(16, k), k).to_frame() for k in range(22)},
        names=["series", "when"],
    )


def test_what_was_pretrained_looks_back_at_other_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: True)
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: even(1.0, 20.0))
    forecaster = auto(random_state=0, finetune_epochs=1).pretrain(many())
    learned = forecaster.pretrained_.backward.state_dict()
    y = waves(uneven_stamps(12, 40), 3)
    forecaster.fit(y)
    for name, weight in forecaster._model.backward.state_dict().items():
        torch.testing.assert_close(weight, learned[name])
    early = y.index[:1] - forecaster.time_unit_
    alone = StructuralForecaster(random_state=0).fit(y)
    assert abs(forecaster.predict(early) - alone.predict(early)).item() > 1e-4


@pytest.mark.slow
def test_one_that_does_not_prove_itself_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    y = many()
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: True)

    def only_onwards(folds: Any, *args: Any, **how: Any) -> Any:
        calls.append(folds)
        return even(1.0, 20.0) if len(calls) == 1 else None

    calls: list[Any] = []
    monkeypatch.setattr(ahead, "network_weights_of", only_onwards)
    forecaster = auto(random_state=0, verbose=2).fit(y)
    assert len(calls) == 2
    assert forecaster._model.backward is None
    assert forecaster.network_share_ == 1.0
    assert "before first rows nothing counts" in capsys.readouterr().out
    calls.clear()
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: even(1.0, 20.0))
    forecaster = auto(random_state=0).fit(y)
    assert forecaster._model.backward is not None
    assert forecaster._model.backward_weights.reach == 20.0
    # it has learned half as long, once of some and once of all series
    sizes = forecaster.history_.groupby("phase").size().tolist()
    assert sizes == [3, 3, 2, 2]
    # what is kept of the one that looks ahead
    assert 3 < forecaster.best_epoch_ <= 6
