"""What a user of the structural forecaster can rely on, whatever its level finds."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.forecasters import structural as structural_module
from sklode.structural.filtered_model import FilteredModel
from tests.cases import mostly_slow, slow
from tests.fitted import assert_same
from tests.series import channels, panel, uneven_stamps, waves

STEPS = [1, 2, 5]


def structural(**settings: Any) -> Any:
    return StructuralForecaster(**{"n_samples": 7, "random_state": 0, **settings})


def answers(forecaster: Any, X: Any = None) -> dict[str, pd.DataFrame]:
    rows = forecaster._history.frame().index
    return {
        "predict": forecaster.predict(STEPS, X=X),
        "interval": forecaster.predict_interval(STEPS, X=X, coverage=[0.5, 0.9]),
        "var": forecaster.predict_var(STEPS, X=X),
        "sample": forecaster.sample(STEPS, X=X),
        "past": forecaster.predict_at(rows[::3], X=X),
        "level": forecaster.components_,
    }


def pretrained() -> Any:
    return structural().pretrain(panel()).fit(waves(uneven_stamps()))


KINDS = {
    "series": lambda: structural().fit(waves(uneven_stamps())),
    "channels": lambda: structural(logarithm=False).fit(channels()),
    "panel": lambda: structural(seasons=["1D", pd.DateOffset(weeks=1)]).fit(panel()),
    "pretrained and fitted": pretrained,
    "updated": lambda: structural(seasons=None).fit(waves()[:20]).update(waves()[20:]),
}


@pytest.mark.filterwarnings("ignore:a season can be learned:UserWarning")
@pytest.mark.parametrize("kind", mostly_slow(KINDS, "panel", "pretrained and fitted"))
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
        ("clean", "yes"),
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


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What levels were fitted with: number of rows, seasons."""
    found: list[Any] = []
    given = structural_module.fit_model

    def fit(observations: Any, seasons: Any, *others: Any) -> Any:
        found.append((len(observations.ticks), seasons))
        return given(observations, seasons, *others)

    monkeypatch.setattr(structural_module, "fit_model", fit)
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
    y = waves()
    forecaster = structural().fit(y[:20])
    asked = y.index[-1:] + 5
    before = forecaster.predict_at(asked)
    monkeypatch.delattr(FilteredModel, "filter")  # of all rows once more
    forecaster.update(y[20:22]).update(y[22:])
    assert not np.allclose(forecaster.predict_at(asked), before)


def test_a_fit_keeps_what_pretrain_found(fits: list[Any]) -> None:
    forecaster = structural().pretrain(panel())
    level = forecaster.pretrained_.structural
    y = waves(uneven_stamps())
    forecaster.fit(y[:4]).update(y[4:])
    assert len(fits) == 1
    assert forecaster._model.structural is level
    with pytest.raises(ValueError, match=r"same kind of index, 'datetimes .*integers"):
        forecaster.fit(waves())
    with pytest.raises(ValueError, match="same number of columns of y, 1; got 2"):
        forecaster.fit(channels(uneven_stamps()))
    of_x = structural().pretrain(panel(), X=panel().add_prefix("x"))
    with pytest.raises(ValueError, match=r"same columns of X, \['xy'\]; got \[\]"):
        of_x.fit(y)
    with pytest.raises(ValueError, match=r"the same logarithm, 'auto'; got False"):
        forecaster.set_params(logarithm=False).fit(y)


ASKING = {
    "interval": lambda f, fh, X: f.predict_interval(fh, X, [0.5, 0.9]),
    "quantiles": lambda f, fh, X: f.predict_quantiles(fh, X),
    "variance": lambda f, fh, X: f.predict_var(fh, X),
}


def rows_of_each(*asked: tuple[str, str]) -> pd.MultiIndex:
    rows = [(key, pd.Timestamp(stamp)) for key, stamp in asked]
    return pd.MultiIndex.from_tuples(rows, names=["series", "when"])


EACH = rows_of_each(
    ("s2", "2021-04-01 09:10"),
    ("s0", "2021-02-01 10:00"),
    ("s1", "2021-02-01 00:13"),
    ("s0", "2021-01-01 00:07"),
    ("s2", "2021-04-01 09:10"),
)
"""In no order, one of them twice: past, between and future."""


@pytest.mark.parametrize("question", mostly_slow(ASKING))
@pytest.mark.parametrize("has_controls", [slow(False), True])
def test_each_series_of_a_panel_has_intervals_at_its_own_stamps(
    question: str, has_controls: bool
) -> None:
    ask, y = ASKING[question], panel()
    y["other"] = 3 - y["y"].cumsum()
    X = pd.DataFrame({"u": np.arange(len(y)) % 5.0}, y.index) if has_controls else None
    ahead = pd.DataFrame({"u": [1.0, 2.0, 3.0, 4.0]}, EACH[:4]).sort_index()
    forecaster = structural(seasons=None).fit(y, X)
    given = ahead if has_controls else None
    found = ask(forecaster, EACH, given)
    pd.testing.assert_index_equal(found.index, EACH)
    for number, row in enumerate(EACH):
        same_stamp = pd.DatetimeIndex([row[1]], name="when")
        expected = ask(forecaster, same_stamp, given).loc[[row]]
        pd.testing.assert_frame_equal(found.iloc[[number]], expected)


def test_each_series_of_a_panel_has_paths_through_its_own_stamps() -> None:
    forecaster = structural(seasons=None, n_samples=2000).fit(panel())
    rows = EACH[:4]
    paths = forecaster.sample(rows)
    assert paths.index.names == ["sample", "series", "when"]
    pd.testing.assert_index_equal(paths.loc[7].index, rows)
    of_rows = paths["y"].to_numpy().reshape(2000, 4)
    quantiles = forecaster.predict_quantiles(rows, alpha=[0.1, 0.5, 0.9]).to_numpy()
    spread = quantiles[:, [2]] - quantiles[:, [0]]
    drawn = np.quantile(of_rows, [0.1, 0.5, 0.9], axis=0).T
    assert (np.abs(drawn - quantiles) < 0.1 * spread).all()
    assert forecaster.sample(rows, 3, noise=False).shape == (12, 1)


def growing(n: int = 60) -> pd.Series:
    """Return what grows by per cents, which is modelled on its logarithm."""
    rng = np.random.default_rng(0)
    values = np.exp(np.arange(n) / 20 + 0.1 * rng.normal(size=n))
    return pd.Series(values, pd.date_range("2026-01-01", periods=n), name="y")


def family() -> pd.DataFrame:
    return pd.concat({k: (k + 1) * growing() for k in range(2)}).to_frame("y")


CLOSED = pd.Series(0.0, pd.date_range("2026-03-02", periods=3), name="y")


def test_an_update_without_a_logarithm_finds_the_form_anew() -> None:
    forecaster = structural().fit(growing()).update(CLOSED)
    fresh = structural().fit(pd.concat([growing(), CLOSED]))
    assert_same({"": forecaster.predict(STEPS)}, {"": fresh.predict(STEPS)})


@pytest.mark.parametrize("is_pretrained", [False, True])
def test_a_model_that_is_kept_says_which_value_it_has_no_logarithm_of(
    is_pretrained: bool,
) -> None:
    told = "modelled on its logarithm, as before; 0 in column 'y' at 2026-03-02"
    forecaster = structural()
    if is_pretrained:
        forecaster.pretrain(family())
        with pytest.warns(UserWarning, match=told):
            forecaster.fit(pd.concat([growing(), CLOSED]))
    else:
        forecaster.fit(growing())
        with pytest.warns(UserWarning, match=told):
            forecaster.update(CLOSED, update_params=False)


@pytest.mark.parametrize("call", ["update", "fit"])
def test_a_logarithm_that_was_asked_for_is_checked_of_later_rows_too(call: str) -> None:
    forecaster = structural(logarithm=True)
    if call == "update":
        forecaster.fit(growing())
    else:
        forecaster.pretrain(family())
    with pytest.raises(ValueError, match=r"above zero; got 0 in column"):
        getattr(forecaster, call)(CLOSED)
