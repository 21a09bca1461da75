from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import pytest
import torch

from sklode import nn
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


SOME = ("series", "panel_with_controls", "pretrained_and_fitted", "without_flow")

OTHERS = [kind for kind in KINDS if kind not in SOME]

USUAL = by_pickle, by_weights
RARE = by_joblib, by_deepcopy, in_a_zip_by_sktime


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *product(USUAL, SOME),
        *[pytest.param(way, "series", marks=pytest.mark.slow) for way in RARE],
        *[pytest.param(by_weights, k, marks=pytest.mark.slow) for k in OTHERS],
    ],
)
def test_a_forecaster_comes_back_the_same(
    way: Callable[[Any, Path], Any], kind: str, tmp_path: Path
) -> None:
    fitted = KINDS[kind]()
    found = way(fitted.forecaster, tmp_path)
    assert found.network_ is not fitted.forecaster.network_
    assert_same_forecaster(fitted.forecaster, found, fitted)


@pytest.mark.parametrize("way", USUAL)
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


CHILD = """
import pickle, sys
from pathlib import Path
from sklode import LatentODELSTMForecaster
folder = Path(sys.argv[1])
found = [
    pickle.loads((folder / "pickle").read_bytes()),
    LatentODELSTMForecaster.load_weights(folder / "weights"),
]
tables = [(f.predict(), f.predict_interval(), f.sample(), f.history_) for f in found]
(folder / "answers").write_bytes(pickle.dumps(tables))
"""


@pytest.mark.slow
def test_another_process_forecasts_the_same(tmp_path: Path) -> None:
    forecaster = KINDS["series"]().forecaster
    (tmp_path / "pickle").write_bytes(pickle.dumps(forecaster))
    forecaster.save_weights(tmp_path / "weights")
    subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    expected = forecaster.predict(), forecaster.predict_interval(), forecaster.sample()
    for found in pickle.loads((tmp_path / "answers").read_bytes()):
        for one, other in zip(found, (*expected, forecaster.history_), strict=True):
            assert_same(one, other)


# Devices: "meta" is one without memory, which stands for a GPU here


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a fitted forecaster whose network is on another device."""
    forecaster = tiny().fit(waves(uneven_stamps()))
    forecaster.network_.to("meta")

    def moved(self: Any, device: Any) -> Any:
        if str(device) not in ("cpu", "meta"):
            raise RuntimeError("no such device")
        self.to_empty(device=device)
        with torch.no_grad():
            for tensor in self.state_dict().values():
                tensor.zero_()
        return self

    # nothing can be copied from "meta"; what is copied does not matter here
    monkeypatch.setattr(nn.LatentODE, "to", moved)
    return forecaster


class Recorder(pickle.Pickler):
    """A pickler that notes the devices of all tensors."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.devices: list[str] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            self.devices.append(obj.device.type)
        return NotImplemented


def pickled_on_cuda(forecaster: Any) -> bytes:
    """Return a pickle in which the text "meta" is "cuda"."""
    return pickle.dumps(forecaster).replace(b"\x8c\x04meta", b"\x8c\x04cuda")


def devices_of(network: Any) -> set[str]:
    return {tensor.device.type for tensor in network.state_dict().values()}


def test_a_pickle_holds_tensors_of_the_cpu_only(elsewhere: Any) -> None:
    for pickled in (elsewhere, elsewhere.network_, elsewhere._model):
        recorder = Recorder()
        recorder.dump(pickled)
        assert set(recorder.devices) == {"cpu"}
    assert devices_of(elsewhere.network_) == {"meta"}


def test_a_pickle_goes_back_to_its_device(elsewhere: Any) -> None:
    found = pickle.loads(pickle.dumps(elsewhere))
    assert devices_of(found.network_) == {"meta"}
    assert found.network_ is found._model.network
    assert found.network_ is not elsewhere.network_


def test_a_pickle_stays_on_the_cpu_where_its_device_is_not(
    elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pickle.loads(pickled_on_cuda(elsewhere))
    assert devices_of(found.network_) == {"cpu"}
    assert found.predict(fh=[1]).shape == (1,)
    elsewhere.device = "cuda"
    found = pickle.loads(pickled_on_cuda(elsewhere))
    monkeypatch.undo()
    y = waves(uneven_stamps())
    with pytest.raises(ValueError, match="device must be"):
        found.update(y[-2:])
    found.device = "auto"
    found.update(y[-2:])
    assert found.predict(fh=[1]).shape == (1,)


def test_a_file_of_a_gpu_is_loaded_on_the_cpu_where_there_is_none(
    tmp_path: Path,
) -> None:
    forecaster = tiny().fit(waves(uneven_stamps()))
    expected = forecaster.predict(fh=[1])
    forecaster.device = "cuda:7"
    found = by_weights(forecaster, tmp_path)
    assert_same(found.predict(fh=[1]), expected)


def test_a_deep_copy_stays_on_its_device(elsewhere: Any) -> None:
    found = copy.deepcopy(elsewhere)
    assert devices_of(found.network_) == {"meta"}
    assert found.network_ is found._model.network
    assert found.network_ is not elsewhere.network_
    ours, theirs = found.network_.parameters(), elsewhere.network_.parameters()
    assert not {id(p) for p in ours} & {id(p) for p in theirs}
