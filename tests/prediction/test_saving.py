from __future__ import annotations

import functools
import io
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch

from sklode import LatentODEForecaster, LatentODELSTMForecaster, __version__, nn
from sklode.data.errors import WeightsFileError
from sklode.prediction import saving
from tests.series import channels, panel, tiny, uneven_stamps, waves

load = LatentODELSTMForecaster.load_weights

Change = Callable[[Any, Any], object]
"""Of what a file's text says, and of its arrays."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "forecaster"


@pytest.fixture
def fitted() -> Any:
    return tiny().fit(waves(uneven_stamps()))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of a panel with controls and a row without a value."""
    y = panel((16, 12))
    y.iloc[3] = np.nan
    X = pd.DataFrame(np.arange(56.0).reshape(28, 2), y.index, ["u", "v"])
    path = tmp_path_factory.mktemp("written") / "forecaster"
    forecaster = tiny(random_state=np.random.RandomState(3))
    forecaster.fit(y, X=X, fh=[1, 3]).save_weights(path)
    return path.read_bytes()


def told(content: bytes) -> Any:
    """Return what the text of a file says."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["sklode"])


def changed(content: bytes, path: Path, change: Change) -> Path:
    """Write a file with another text or other arrays, and the checksum of these."""
    found, arrays = told(content), safetensors.numpy.load(content)
    change(found, arrays)
    found.pop("sha256", None)
    found["sha256"] = saving._checksum(found, arrays)
    text = json.dumps(found)
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"sklode": text}))
    return path


def put(place: str, value: Any) -> Change:
    """Return a change of one place: in the state with slashes, else in an array."""

    def change(found: Any, arrays: Any) -> None:
        if "/" not in place:
            arrays[place] = arrays[place].astype(type(value[1]))
            arrays[place].reshape(-1)[value[0]] = value[1]
            return
        *outer, last = place.split("/")[1:]
        inside = found["state"]
        for key in outer:
            inside = inside[int(key) if isinstance(inside, list) else key]
        inside[int(last) if isinstance(inside, list) else last] = value

    return change


# The file


def test_the_safetensors_package_reads_the_file(path: Path) -> None:
    forecaster = tiny(level="series").fit(channels(uneven_stamps()))
    forecaster.save_weights(path)
    with safetensors.safe_open(path, "np") as file:
        found = json.loads(file.metadata()["sklode"])
        for name, weights in forecaster.network_.state_dict().items():
            stored = file.get_tensor(f"model.network.weights.{name}")
            np.testing.assert_array_equal(stored, weights.numpy(), strict=True)
        values = file.get_tensor("history.rows.values")
    np.testing.assert_array_equal(values, forecaster._history.rows.values)
    assert (found["format_version"], found["sklode_version"]) == (5, __version__)
    assert found["state"]["parameters"]["hidden_size"] == 3


def test_without_safetensors_the_command_that_installs_it_is_told(
    fitted: Any, path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(written)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (fitted.save_weights, load):
        with pytest.raises(ImportError, match=r'pip install "sklode\[save\]"'):
            call(path)
    assert path.read_bytes() == written


@pytest.mark.parametrize("step", ["os.fsync", "Path.replace", "load"])
def test_a_save_that_fails_leaves_the_earlier_file_and_another_follows_the_link(
    step: str, fitted: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError("no space left")

    target = path.with_name("target")
    target.write_bytes(b"earlier")
    path.symlink_to(target)
    with monkeypatch.context() as patch:
        patch.setattr(f"sklode.prediction.saving.{step}", full)
        with pytest.raises(OSError, match="no space left"):
            fitted.save_weights(path)
    assert target.read_bytes() == b"earlier"
    fitted.save_weights(str(path))
    assert path.is_symlink()
    assert load(target).state == "fitted"
    assert {*path.parent.iterdir()} == {path, target}


def test_files_and_folders_that_are_not_there_are_named(
    fitted: Any, tmp_path: Path
) -> None:
    path = tmp_path / "nowhere" / "weights"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(path)
    with pytest.raises(FileNotFoundError, match=r"folder .*got '.*weights'\. Make it"):
        fitted.save_weights(path)


# Damage, and files of others


def test_a_file_that_was_cut_off_or_changed_is_refused(
    path: Path, written: bytes
) -> None:
    size = len(written)
    contents = [written[:n] for n in [*range(0, size, 97), size - 1]]
    for place in [*range(140), *range(140, size, 41)]:
        flipped = bytes([written[place] ^ 1])
        contents.append(written[:place] + flipped + written[place + 1 :])
    for content in [*contents, written + b"\0"]:
        path.write_bytes(content)
        with pytest.raises(WeightsFileError):
            load(path)
    path.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    with pytest.raises(WeightsFileError, match=r"differs from its checksum\. Get the"):
        load(path)


class Payload:
    """Pickled, it fails when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("unpickled",)


def test_no_pickle_is_run(
    path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, archive = pickle.dumps(Payload()), io.BytesIO()
    torch.save(Payload(), archive)
    for place in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("unpickled"))
    whole = [payload, archive.getvalue(), b"time,value\n"]
    foreign = safetensors.numpy.save({"x": np.zeros(3)})
    for content in [*whole, *(written + part for part in whole), foreign]:
        path.write_bytes(content)
        with pytest.raises(WeightsFileError, match="must hold what save_weights can"):
            load(path)
    path.write_bytes(written)
    assert load(path).state == "fitted"


def test_other_versions_and_classes_are_told(path: Path, written: bytes) -> None:
    changed(written, path, lambda f, a: f.update(format_version=6, sklode_version="9"))
    with pytest.raises(WeightsFileError, match=r"version 6 .*not 5\. Use sklode 9, "):
        load(path)
    first = {"format_version": "1", "sklode_version": "0.1.0", "state": "{}"}
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)}, metadata=first))
    with pytest.raises(WeightsFileError, match=r"version 1 .*Use sklode 0\.1\.0"):
        load(path)
    path.write_bytes(written)
    expected = r"a LatentODELSTMForecaster, not a LatentODEForecaster\. Use LatentODEL"
    with pytest.raises(WeightsFileError, match=expected):
        LatentODEForecaster.load_weights(path)


# Files that were made up, with a right checksum

MODEL, PARTS = "/model/@FittedModel/", "/model/@FittedModel/network/"
SERIES = "/history/"
KEYS = SERIES + "rows/@Observations/keys/@tuple"
WEIGHT = "model.network.weights.translator.network.0.weight"
SEEN, SCALES = "history.rows.", "model.normalisation."


def times(**changes: Any) -> Any:
    """Return an index as it is written."""
    index = {"items": [0], "kind": "int64", "step": None, "name": None}
    return {"@index": index | changes}


OF_A_FILE = times(kind="datetime64[us, dateutil//etc/hosts]")

MADE_UP: list[tuple[str, Any, str]] = [
    ("/class", "os.system", r"a os\.system, not a LatentODELSTMForecaster\. Use os"),
    ("/encoder", "rnn", "not a LatentODELSTMForecaster"),
    ("/model", None, "neither a fitted nor a pretrained one"),
    ("/cutoff", {"@eval": "1"}, "KeyError: 'eval'"),
    ("/cutoff", OF_A_FILE, "the index datetime64"),
    ("/cutoff", times(items=[0, 1]), "no cutoff"),
    ("/predict_seed", -1, "the seed -1"),
    ("/y/0", "dask_panel", "y in the container 'dask_panel'"),
    ("/y/1", ["a", "b"], "columns for a model of"),
    ("/pretrained", {"x": 1}, "AttributeError"),
    ("/parameters/x", 1, "unexpected keyword argument 'x'"),
    ("/parameters/n_samples", -1, "'n_samples' parameter"),
    ("/parameters/device", "x", "RuntimeError.* device"),
    ("/parameters/random_state/@rng/state/pos", 9**9, "a RandomState"),
    (PARTS + "weights", {}, "fewer arrays than layers"),
    (PARTS + "weights/x", {"@array": "x"}, "KeyError: 'x'"),
    (PARTS + "weights/x", {"@array": SEEN + "ticks"}, f"KeyError: '{SEEN}ticks'"),
    (PARTS + "modules", ["x"], r"a network of .'x'."),
    (PARTS + "engine", "x", "'engine' parameter"),
    (PARTS + "device", "x", "RuntimeError.* device"),
    (MODEL + "architecture/activation", "x", "'activation' parameter"),
    (MODEL + "architecture/hidden_size", 10**7, "size mismatch"),
    (MODEL + "architecture/field_depth", 10**9, "fewer arrays than layers"),
    (MODEL + "columns/@tuple/0", [], "the location"),
    (MODEL + "window_length", 0, "the lengths .-1"),
    (MODEL + "horizon", -2, "the lengths"),
    (MODEL + "time_unit", 0.0, r"the units of time .0\.0"),
    (MODEL + "clock", "integers", "a model of another clock"),
    (MODEL + "rows", [{"loss": "x"}], "a history of no numbers"),
    (SERIES + "steps", [1], "other series"),
    (SERIES + "steps", ["1", "1"], "steps of no length"),
    (SERIES + "channels", ["a", "b"], "ValueError"),
    (SERIES + "controls", [], "columns for a model of"),
    (KEYS, [{"@tuple": ["s0"]}] * 2, "out of order|twice"),
    (KEYS, [{"@tuple": ["s0"]}], "other series"),
    (KEYS, [{"@tuple": []}] * 2, "ValueError"),
    (WEIGHT, (0, 1.0), "weights of types"),
    (WEIGHT, (0, np.float32(np.nan)), "translator.* that is not finite"),
    (SCALES + "scale", (0, 0.0), "a scale of zero or less"),
    (SCALES + "location", (0, np.inf), "the location"),
    ("model.calibration.lags", (0, 9e9), "a calibration"),
    ("model.calibration.scales", (0, np.nan), "a calibration"),
    (SEEN + "ticks", (5, 0), "out of order"),
    (SEEN + "values", (0, np.inf), "must be finite"),
    (SEEN + "controls", (0, np.nan), "none missing"),
    (SEEN + "bounds", (1, 2**60), "rows of no series"),
    (SEEN + "bounds", (1, np.uint32(2**32 - 1)), "no bounds"),
]


@pytest.mark.parametrize(("place", "value", "message"), MADE_UP)
def test_what_no_forecaster_stored_is_refused(
    place: str, value: Any, message: str, path: Path, written: bytes
) -> None:
    with pytest.raises(WeightsFileError, match=message):
        load(changed(written, path, put(place, value)))


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a state with each key in it."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 2**70, 1e308, "x", [], [[1]], {}, {"x": 1}, {"@array": "x"}),
    *({"@tuple": 1}, {"@date": "x"}, {"@offset": "-1D"}, {"@offset": {"x": 1}}),
    *(times(items=[0, 9]), times(items=[2**63]), times(kind="datetime64[s, Europe]")),
)


def test_whatever_is_put_into_a_state_is_refused_or_loaded(
    path: Path, written: bytes
) -> None:
    n_places, n_refused = len(list(places(told(written)["state"]))), 0
    for k in range(0, n_places, 3):

        def change(found: Any, arrays: Any, k: int = k) -> None:
            inside, key = list(places(found["state"]))[k]
            inside[key] = STRANGE[(k // 3) % len(STRANGE)]

        try:
            load(changed(written, path, change))
        except WeightsFileError:
            n_refused += 1
    assert n_refused > n_places / 6


# What cannot be stored


class Twice(nn.Translator):
    pass


HOLIDAYS = pd.offsets.CustomBusinessDay(holidays=["2021-03-12"])
OTHER_BITS = np.random.RandomState(np.random.PCG64(0))
NO_NUMBER = torch.tensor([np.nan])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("_state", "new", "has not been fitted"),
        ("_predict_seed", object(), "object.* of type object as predict_seed"),
        ("freq", HOLIDAYS, "CustomBusinessDay.*, which its name does not tell"),
        ("random_state", OTHER_BITS, "a RandomState of PCG64"),
        ("n_samples", Fraction(1, 3), "type Fraction as parameters.n_samples"),
        ("n_samples", -1, "'n_samples' parameter"),
        ("network_.translator.__class__", Twice, "a network of .*'Twice'"),
        ("network_.emission.raw_noise.data", NO_NUMBER, "noise that is not finite"),
    ],
)
def test_what_would_not_come_back_is_not_saved(
    place: str, value: Any, message: str, fitted: Any, path: Path
) -> None:
    *outer, last = place.split(".")
    setattr(functools.reduce(getattr, outer, fitted), last, value)
    with pytest.raises(ValueError, match=message):
        fitted.save_weights(path)
    assert not list(path.parent.iterdir())
