from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import pytest

from sklode.latent_ode.network import LatentODE
from tests.cases import slow
from tests.fitted import KINDS, assert_same, assert_same_forecaster
from tests.series import panel, tiny, uneven_stamps, waves

ROOT = Path(__file__).parents[2]


def by_pickle(forecaster: Any, folder: Path) -> Any:
    return pickle.loads(pickle.dumps(forecaster))


def by_joblib(forecaster: Any, folder: Path) -> Any:
    joblib.dump(forecaster, folder / "forecaster.joblib", compress=3)
    return joblib.load(folder / "forecaster.joblib")


def by_deepcopy(forecaster: Any, folder: Path) -> Any:
    return copy.deepcopy(forecaster)


def in_a_zip_by_sktime(forecaster: Any, folder: Path) -> Any:
    forecaster.save(folder / "forecaster").close()
    return type(forecaster).load_from_path(folder / "forecaster.zip")


def by_weights(forecaster: Any, folder: Path) -> Any:
    forecaster.save_weights(folder / "forecaster")
    return type(forecaster).load_weights(folder / "forecaster")


FAST = "series", "panel_with_controls"
SOME = "pretrained_and_fitted", "without_flow"
OTHERS = [kind for kind in KINDS if kind not in FAST]

USUAL = by_pickle, by_weights
RARE = by_joblib, by_deepcopy, in_a_zip_by_sktime


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *product(USUAL, FAST),
        *[slow(by_pickle, kind) for kind in SOME],
        *[slow(by_weights, kind) for kind in OTHERS],
        *[slow(way, "series") for way in RARE],
    ],
)
def test_a_forecaster_comes_back_the_same(
    way: Callable[[Any, Path], Any], kind: str, tmp_path: Path
) -> None:
    fitted = KINDS[kind]()
    found = way(fitted.forecaster, tmp_path)
    assert found.network_ is not fitted.forecaster.network_
    assert_same_forecaster(fitted.forecaster, found, fitted)


@pytest.mark.parametrize("way", [slow(by_pickle), by_weights])
def test_a_pretrained_forecaster_comes_back_pretrained(
    way: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    forecaster = tiny().pretrain(panel())
    found = way(forecaster, tmp_path)
    assert found.state == "pretrained"
    assert found.pretrained_ is not forecaster.pretrained_
    y = waves(uneven_stamps())
    predictions = [one.fit(y).predict(fh=[1, 2]) for one in (forecaster, found)]
    assert_same(*predictions)


def test_files_leave_out_remembered_data_with_a_warning(tmp_path: Path) -> None:
    y = waves(uneven_stamps())
    saved = tiny().set_config(remember_data=True).fit(y)
    with pytest.warns(UserWarning, match="has no data") as record:
        loaded = by_weights(saved, tmp_path)
    assert {w.filename for w in record} == {__file__}
    assert loaded.get_config()["remember_data"]
    late = waves(uneven_stamps(start="2021-03-02"))
    found = [one.update(late).predict(fh=[1]) for one in (saved, loaded)]
    assert_same(*found)
    assert loaded._y.index.equals(late.index)


# Devices


def test_a_network_comes_back_from_where_it_was_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(LatentODE, "to", lambda _, device: asked.append(str(device)))
    tiny(device="meta").fit(waves(uneven_stamps()))
    assert asked == ["meta", "cpu"]


def test_a_file_of_a_gpu_is_loaded_on_the_cpu_without_one(tmp_path: Path) -> None:
    forecaster = tiny().fit(waves(uneven_stamps()))
    expected = forecaster.predict(fh=[1])
    forecaster.device = "cuda:7"
    found = by_weights(forecaster, tmp_path)
    assert_same(found.predict(fh=[1]), expected)
