"""What a user of the structural forecaster can rely on, whatever its level finds."""

from __future__ import annotations

import inspect
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import LatentODEForecaster, StructuralForecaster, WeightsFileError
from sklode.levels.answers import LevelAnswers
from sklode.levels.structural import StructuralLevel
from tests.fitted import assert_same
from tests.series import channels, panel, uneven_stamps, waves

STEPS = [1, 2, 5]


def structural(**settings: Any) -> Any:
    return StructuralForecaster(**{"n_samples": 7, "random_state": 0, **settings})


def answers(forecaster: Any, X: Any = None) -> dict[str, pd.DataFrame]:
    rows = forecaster._history.index()
    return {
        "predict": forecaster.predict(STEPS, X=X),
        "interval": forecaster.predict_interval(STEPS, X=X, coverage=[0.5, 0.9]),
        "var": forecaster.predict_var(STEPS, X=X),
        "sample": forecaster.sample(STEPS, X=X),
        "past": forecaster.predict_at(rows[::3], X=X),
        "level": forecaster.level_,
    }


def pretrained() -> Any:
    return structural().pretrain(panel()).fit(waves(uneven_stamps()))


KINDS = {
    "series": lambda: structural().fit(waves(uneven_stamps())),
    "channels": lambda: structural(logarithm=False).fit(channels()),
    "panel": lambda: structural(seasons=["1D", pd.DateOffset(weeks=1)]).fit(panel()),
    "array": lambda: structural(seasons=(4,)).fit(channels().to_numpy()),
    "pretrained and fitted": pretrained,
    "updated": lambda: structural(seasons=None).fit(waves()[:20]).update(waves()[20:]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_and_a_file_give_the_same_answers(kind: str, tmp_path: Path) -> None:
    forecaster = KINDS[kind]()
    found = answers(forecaster)
    assert_same(answers(pickle.loads(pickle.dumps(forecaster))), found)
    path = tmp_path / "forecaster"
    forecaster.save_weights(path)
    loaded = StructuralForecaster.load_weights(path)
    assert_same(answers(loaded), found)
    assert loaded.get_params() == forecaster.get_params()


def test_a_pretrained_one_is_saved(tmp_path: Path) -> None:
    forecaster = structural().pretrain(panel())
    forecaster.save_weights(tmp_path / "pretrained")
    loaded = StructuralForecaster.load_weights(tmp_path / "pretrained")
    assert loaded.state == "pretrained"
    y = waves(uneven_stamps())
    assert_same(answers(loaded.fit(y)), answers(forecaster.fit(y)))


def test_a_file_of_another_class_is_refused(tmp_path: Path) -> None:
    structural().fit(waves()).save_weights(tmp_path / "file")
    with pytest.raises(WeightsFileError, match=r"a StructuralForecaster, not a Latent"):
        LatentODEForecaster.load_weights(tmp_path / "file")


def test_a_file_whose_settings_are_none_is_refused(tmp_path: Path) -> None:
    forecaster = structural().fit(waves())
    for settings in ({"seasons": [0]}, {"logarithm": "yes"}, {"depth": 1}):
        model = replace(forecaster._model, architecture=settings)
        other = structural().fit(waves())
        other._set_model(model)
        # what is written is read again, before it replaces anything
        with pytest.raises(WeightsFileError, match=r"seasons|logarithm|depth"):
            other.save_weights(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seasons", "weekly"),
        ("seasons", 12),
        ("seasons", [0]),
        ("seasons", [None]),
        ("seasons", ("fortnightish",)),
        ("logarithm", "yes"),
        ("logarithm", None),
        ("n_samples", 0),
        ("n_samples", 2.5),
        ("freq", "fortnightish"),
        ("freq", "-1h"),
        ("random_state", "seed"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "pretrain"])
def test_a_bad_parameter_is_refused_by_name(call: str, name: str, value: Any) -> None:
    received = value[0] if isinstance(value, list | tuple) else value
    forecaster = structural(**{name: value})
    message = f"(?s){name}.*{re.escape(str(received))}"
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(forecaster, call)(panel())
    assert forecaster.state == "new"


def test_a_bad_season_of_the_index_leaves_the_fit_before() -> None:
    forecaster = structural(seasons=["1D"]).fit(waves(uneven_stamps()))
    found = answers(forecaster)
    with pytest.raises(TypeError, match="integers must be numbers"):
        forecaster.fit(waves())
    assert_same(answers(forecaster), found)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What levels were fitted with: number of rows, seasons."""
    found: list[Any] = []
    given = StructuralLevel.fit

    def fit(observations: Any, seasons: Any, logarithm: Any) -> Any:
        found.append((len(observations.ticks), seasons))
        return given(observations, seasons, logarithm)

    monkeypatch.setattr(StructuralLevel, "fit", fit)
    return found


def test_a_level_gets_seasons_in_ticks(fits: list[Any]) -> None:
    days = pd.date_range("2020-01-01", periods=24)
    for seasons in ("auto", None, [], [7, "14D"]):
        structural(seasons=seasons).fit(waves(days))
    week = 7 * 86_400e9
    assert [seasons for _, seasons in fits] == ["auto", (), (), (week, 2 * week)]


@pytest.mark.parametrize(("update_params", "n_fits"), [(True, 2), (False, 1)])
def test_hyperparameters_are_found_again_once_rows_have_doubled(
    fits: list[Any], update_params: bool, n_fits: int
) -> None:
    y = waves()
    forecaster = structural().fit(y[:10])
    for first in range(10, 24, 5):
        forecaster.update(y[first : first + 5], update_params=update_params)
    assert [n_rows for n_rows, _ in fits] == [10, 20][:n_fits]
    assert forecaster.cutoff[0] == y.index[-1]


def test_states_go_on_with_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    given = LevelAnswers.updated

    def updated(answers: Any, history: Any) -> Any:
        seen.append(len(history.observations.ticks))
        return given(answers, history)

    monkeypatch.setattr(LevelAnswers, "updated", updated)
    y = waves()
    forecaster = structural().fit(y[:20])
    asked = y.index[-1:] + 5
    before = forecaster.predict_at(asked)
    forecaster.update(y[20:22]).update(y[22:])
    assert seen == [22, 24]
    assert not np.allclose(forecaster.predict_at(asked), before)


def test_a_fit_keeps_what_pretrain_found(fits: list[Any]) -> None:
    forecaster = structural().pretrain(panel())
    level = forecaster.pretrained_.level
    y = waves(uneven_stamps())
    forecaster.fit(y[:4]).update(y[4:])
    assert len(fits) == 1
    assert forecaster._model.level is level
    with pytest.raises(ValueError, match=r"needs an index of datetimes .*integers"):
        forecaster.fit(waves())
    with pytest.raises(ValueError, match=r"as many columns as before, 1 and 0; got 2"):
        forecaster.fit(channels(uneven_stamps()))
    with pytest.raises(ValueError, match=r"the same logarithm, 'auto'; got False"):
        forecaster.set_params(logarithm=False).fit(y)


def test_pretraining_keeps_no_series() -> None:
    assert "_history" not in vars(structural().pretrain(panel()))


def test_a_refused_update_changes_nothing() -> None:
    forecaster = structural().fit(waves(uneven_stamps()))
    found = answers(forecaster)
    with pytest.raises(TypeError):
        forecaster.update(waves())
    with pytest.raises(ValueError, match="finite"):
        forecaster.update(waves(uneven_stamps(30))[24:] * np.inf)
    assert_same(answers(forecaster), found)


def test_every_parameter_is_documented() -> None:
    text = inspect.getdoc(StructuralForecaster) or ""
    sections = ["Parameters", "Attributes", "Notes", "References", "Examples"]
    assert re.findall(r"\n(\w+)\n-+\n", text) == sections
    parameters = text.partition("Parameters\n")[2].partition("\nAttributes")[0]
    names = re.findall(r"^(\w+) : ", parameters, re.MULTILINE)
    assert set(names) == set(StructuralForecaster().get_params())
