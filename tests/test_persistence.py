from __future__ import annotations

import io
import json
import pickle
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    StructuralForecaster,
    __version__,
)
from sklode import persistence as saving
from sklode.data.errors import WeightsFileError
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
    tiny().fit(y, X=X, fh=[1, 3]).save_weights(path)
    return path.read_bytes()


def text_of(content: bytes) -> Any:
    """Return what the text of a file says."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["sklode"])


def changed(content: bytes, path: Path, change: Change) -> Path:
    """Write a file with another text or other arrays, and the checksum of these."""
    found, arrays = text_of(content), safetensors.numpy.load(content)
    change(found, arrays)
    found["sha256"] = saving._BLANK.decode()
    metadata = {"sklode": json.dumps(found)}
    path.write_bytes(saving._sealed(safetensors.numpy.save(arrays, metadata=metadata)))
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
    forecaster = tiny(model="paper").fit(channels(uneven_stamps()))
    forecaster.save_weights(path)
    with safetensors.safe_open(path, "np") as file:
        found = json.loads(file.metadata()["sklode"])
        for name, weights in forecaster.network_.state_dict().items():
            stored = file.get_tensor(f"model.network.weights.{name}")
            np.testing.assert_array_equal(stored, weights.numpy(), strict=True)
        values = file.get_tensor("_history.given.values")
    np.testing.assert_array_equal(values, forecaster._history.rows.values)
    assert (found["format_version"], found["sklode_version"]) == (
        saving.FORMAT_VERSION,
        __version__,
    )
    assert found["state"]["parameters"]["hidden_size"] == 3


def test_without_safetensors_the_command_that_installs_it_is_told(
    fitted: Any, path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(written)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for call in (fitted.save_weights, load):
        with pytest.raises(ImportError, match="pip install safetensors"):
            call(path)
    assert path.read_bytes() == written


@pytest.mark.parametrize("step", ["os.fsync", "Path.replace"])
def test_a_save_that_fails_leaves_the_earlier_file_and_another_follows_the_link(
    step: str, fitted: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError("no space left")

    target = path.with_name("target")
    target.write_bytes(b"earlier")
    path.symlink_to(target)
    with monkeypatch.context() as patch:
        patch.setattr(f"sklode.persistence.{step}", full)
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
    message = r"file must be there; got '.*weights', .* that save_weights was given"
    with pytest.raises(FileNotFoundError, match=message):
        load(path)
    for ask in (load, fitted.save_weights):
        with pytest.raises(IsADirectoryError, match=r"got the folder '.*Name a file"):
            ask(tmp_path)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(FileNotFoundError, match=r"folder .*got '.*weights'\. Make it"):
        fitted.save_weights(path)


# Damage, and files of others


def test_a_file_that_was_cut_or_changed_is_refused(path: Path, written: bytes) -> None:
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


@pytest.mark.parametrize("number", [13, 24])
def test_files_of_other_formats_are_refused(
    number: int, path: Path, written: bytes
) -> None:
    text = {"format_version": number, "sklode_version": "9"}
    changed(written, path, lambda found, _: found.update(text))
    expected = rf"got version {number} of the format, not 14 .* 23\. Use sklode 9 "
    with pytest.raises(WeightsFileError, match=expected):
        load(path)


def test_an_archive_is_told(path: Path) -> None:
    waves_fitted = LatentODELSTMForecaster(random_state=0).fit(waves())
    waves_fitted.save(path)
    archive = path.with_suffix(".zip")
    expected = r"an archive, as save writes it\. Use LatentODELSTM.*load_from_path"
    with pytest.raises(WeightsFileError, match=expected):
        load(archive)


def test_other_versions_and_classes_are_told(path: Path, written: bytes) -> None:
    first = {"format_version": "1", "sklode_version": "0.1.0", "state": "{}"}
    path.write_bytes(safetensors.numpy.save({"x": np.zeros(3)}, metadata=first))
    with pytest.raises(WeightsFileError, match=r"version 1 .*Use sklode 0\.1\.0"):
        load(path)
    path.write_bytes(written)
    expected = r"a LatentODELSTMForecaster, not a LatentODEForecaster\. Use LatentODEL"
    with pytest.raises(WeightsFileError, match=expected):
        LatentODEForecaster.load_weights(path)


# Files that were made up, with a right checksum


def times(**changes: Any) -> Any:
    """Return an index as it is written."""
    index = {"ticks": [0], "kind": "int64", "freq": None, "name": None}
    return {"@index": index | changes}


MODEL, ROWS = "/model/@LatentODEModel/", "/_history/@History/given/@Observations/"
WEIGHTS = MODEL + "network/@network/weights"
WEIGHT = "model.network.weights.posterior_head.0.weight"

MADE_UP: list[tuple[str, Any, str]] = [
    ("/_cutoff", {"@eval": "1"}, "KeyError: 'eval'"),
    ("/_cutoff", times(kind="datetime64[us, dateutil//etc/hosts]"), "dateutil"),
    ("/parameters/x", 1, "no parameter 'x'"),
    (WEIGHTS, {}, "Missing key"),
    (WEIGHTS + "/x", {"@array": "x"}, "KeyError: 'x'"),
    (WEIGHTS + "/x", {"@array": WEIGHT}, "Unexpected key"),
    (MODEL + "architecture/hidden_size", 10**7, "size mismatch"),
    (ROWS + "values", {"@array": WEIGHT}, "rows of no series"),
    ("_history.given.bounds", (1, 2**60), "rows of no series"),
]


# Of each model with a network, what one answers that format 14 holds
NETWORKS_14 = {
    "hybrid": [0.3767127, 22.0752561, 0.3897324, 22.0328314],
    "paper": [-0.0071497, 19.0461229, 0.0901331, 18.899985],
}


@pytest.mark.parametrize("kind", NETWORKS_14)
def test_a_network_of_format_14_answers_as_it_did(kind: str) -> None:
    path = Path(__file__).parent / "format_14" / f"{kind}.safetensors"
    forecast = load(path).predict([1, 3]).to_numpy().ravel()[:4]
    np.testing.assert_allclose(forecast, NETWORKS_14[kind], rtol=1e-5)


def test_a_file_tells_how_far_a_network_learned_to_look(path: Path) -> None:
    forecaster = tiny(model="paper", horizon=3).fit(waves(pd.RangeIndex(40)))
    forecaster.save_weights(path)
    told = load(path).summary(0)["network"]
    assert told == forecaster.summary(0)["network"]
    assert "it learned to look 3 ahead" in told
    # older ones do not, and nothing is said of it
    older = load(Path(__file__).parent / "format_14" / "paper.safetensors")
    assert older.summary(0)["network"] == "is the whole forecast"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        older.predict([50])


# Of format 14: what the forecaster said when it was written, and at which steps
FORMAT_14: dict[str, tuple[list[int], list[float], list[float]]] = {
    # a panel of two groups, with scales of their own
    "panel": (
        [1, 4],
        [
            0.2,
            0.2,
            0.1879978,
            0.1879978,
            0.2120021,
            0.2120021,
            0.2,
            0.2,
            102.6736182,
            189.6868079,
            202.2995183,
            376.126567,
            396.7519442,
            750.1125282,
            810.6492633,
            1509.9787185,
        ],
        [
            0.0,
            1.127138,
            0.0,
            1.120359,
            0.0,
            1.131908,
            0.0,
            1.127138,
            181.00217,
            198.359496,
            359.036152,
            393.151737,
            713.589455,
            786.590642,
            1430.408731,
            1589.127917,
        ],
    ),
    # columns that follow each other, and tell of each other at the same time
    "columns": (
        [1, 9],
        [13.3595538, 10.4956885, 5.499562, 13.7171659, 5.4139805, 5.6632287],
        [6.999151, 20.193852, -5.151903, 15.462282, -0.327165, 11.564703],
    ),
}


@pytest.mark.parametrize("kind", FORMAT_14)
@pytest.mark.usefixtures("as_a_normal")  # what errors ahead tell is no part of a file
def test_a_file_of_format_14_answers_as_it_did(kind: str) -> None:
    steps, points, ends = FORMAT_14[kind]
    path = Path(__file__).parent / "format_14" / f"{kind}.safetensors"
    found = StructuralForecaster.load_weights(path)
    forecast = found.predict(steps).to_numpy().ravel()
    np.testing.assert_allclose(forecast, points, rtol=1e-6)
    interval = found.predict_interval(steps[-1:], coverage=0.9).to_numpy().ravel()
    np.testing.assert_allclose(interval, ends, rtol=1e-5)


# Of formats 15 and 16: shops and first day that are asked, and what was answered;
# coefficients of 15 are of each series alone, and those of 16 have a mean
SHARED = {
    15: ("abc", "2026-02-14", [19.7444086, 24.1093174, 19.7015691, 24.2753229]),
    16: (
        ["a", "b", "new"],
        "2026-02-12",
        [19.8303994, 25.7794278, 22.1191611, 28.0611053, 20.8138834],
    ),
}


@pytest.mark.parametrize("number", SHARED)
def test_effects_of_a_panel_answer_as_they_did(number: int) -> None:
    shops, first, expected = SHARED[number]
    path = Path(__file__).parent / f"format_{number}" / "shared.safetensors"
    found = StructuralForecaster.load_weights(path)
    days = pd.date_range(first, periods=2)
    rows = pd.MultiIndex.from_product([[*shops], days], names=["shop", "day"])
    X = pd.DataFrame({"promo": [0.0, 1.0] * 3}, rows)
    forecast = found.predict_at(rows, X=X).y[: len(expected)]
    np.testing.assert_allclose(forecast, expected, rtol=1e-6)


NAMED_17 = {
    "weeks": [100.021595, 99.997909, 99.982202, 99.974225, 99.972074, 99.973308],
    "windows": [99.901331, 99.914243, 99.922418, 99.928007, 99.931999, 99.934942],
}


@pytest.mark.parametrize("kind", NAMED_17)
def test_named_days_of_format_17_answer_as_they_did(kind: str) -> None:
    path = Path(__file__).parent / "format_17" / f"{kind}.safetensors"
    found = StructuralForecaster.load_weights(path)
    forecast = found.predict(fh=range(1, 7))
    np.testing.assert_allclose(forecast, NAMED_17[kind], rtol=1e-6)


def test_days_of_format_18_do_not_look_a_year_back() -> None:
    path = Path(__file__).parent / "format_18" / "days.safetensors"
    forecast = StructuralForecaster.load_weights(path).predict(fh=range(1, 7))
    expected = [99.966484, 100.132386, 100.107246, 100.461127, 100.352319, 100.19751]
    np.testing.assert_allclose(forecast, expected, rtol=1e-6)


def test_a_network_of_format_19_reads_columns_of_X_as_they_are() -> None:
    path = Path(__file__).parent / "format_19" / "controls.safetensors"
    stamps = pd.date_range("2026-03-02", periods=6, freq="D")
    X = pd.DataFrame({"u": np.sin(np.arange(60, 66) / 3)}, stamps)
    forecast = load(path).predict(fh=range(1, 7), X=X)
    expected = [13.3027889, 13.996424, 14.0112305, 14.1543005, 14.4238168, 14.8015524]
    np.testing.assert_allclose(forecast, expected, rtol=1e-5)


def test_networks_of_format_20_look_ahead_alone() -> None:
    path = Path(__file__).parent / "format_20" / "doses.safetensors"
    X = pd.DataFrame({"dose": [0.0, 0.0, 5.0, 0.0]}, [20, 160, 162, 165])
    forecast = load(path).predict_at(X.index, X=X).to_numpy().ravel()
    expected = [1.3257783, 0.8235765, 1.0116717, 1.1168068]
    np.testing.assert_allclose(forecast, expected, rtol=1e-5)


def test_days_of_format_21_look_a_year_back_alone() -> None:
    path = Path(__file__).parent / "format_21" / "year.safetensors"
    forecaster = StructuralForecaster.load_weights(path)
    weights = forecaster.components_[["year_before", "week_before"]].iloc[0]
    assert weights["year_before"] > 0.5
    assert weights["week_before"] == 0.0
    forecast = forecaster.predict(fh=range(1, 4))
    expected = [87.8072746, 94.3319207, 96.3557349]
    np.testing.assert_allclose(forecast, expected, rtol=1e-5)


@pytest.mark.usefixtures("as_a_normal")
def test_effects_of_format_14_answer_as_they_did() -> None:
    """A curve, a memory, levels, days' shapes and named days of hourly rows."""
    folder = Path(__file__).parent / "format_14"
    found = StructuralForecaster.load_weights(folder / "effects.safetensors")
    X = pd.read_csv(folder / "effects.csv", index_col=0, parse_dates=True)
    X.index.freq = "h"
    names = set(found.components_.index.get_level_values("part"))
    assert {"u (curve)", "u (line, late)", "kind (levels)", "holidays"} <= names
    assert {"day", "day of Sat, Sun"} <= names
    forecast = found.predict(X.index, X=X).to_numpy()[::6]
    expected = [19.8114773, 23.945436, 16.9586719, 13.3331568]
    np.testing.assert_allclose(forecast, expected, rtol=1e-6)
    ends = found.predict_interval(X.index, X=X, coverage=0.9).to_numpy()[::6]
    expected = [19.305345, 20.318013, 23.431504, 24.46015]
    np.testing.assert_allclose(ends.ravel()[:4], expected, rtol=1e-5)


def test_files_that_say_level_are_read_as_they_were_meant(path: Path) -> None:
    before = Path(__file__).parent / "format_14" / "paper.safetensors"

    def say_level(text: Any, arrays: Any) -> None:
        parameters = text["state"]["parameters"]
        parameters |= {"level": "series", "model": "hybrid"}

    changed(before.read_bytes(), path, say_level)
    found = load(path)
    assert found.get_params()["model"] == "paper"
    found.save_weights(path)
    pd.testing.assert_frame_equal(load(path).predict([1, 3]), found.predict([1, 3]))


def test_what_was_pretrained_in_the_format_before_is_fitted_on() -> None:
    path = Path(__file__).parent / "format_14" / "without_network.safetensors"
    found = load(path)
    stamps = pd.date_range("2024-01-01", periods=40)
    y = pd.Series(np.sin(np.arange(40) / 5), stamps, name="a")
    forecast = found.fit(y).predict([1])
    assert forecast.iloc[0] == pytest.approx(np.sin(8), abs=0.1)


@pytest.mark.parametrize(("place", "value", "message"), MADE_UP)
def test_what_no_forecaster_stored_is_refused(
    place: str, value: Any, message: str, path: Path, written: bytes
) -> None:
    with pytest.raises(WeightsFileError, match=message):
        load(changed(written, path, put(place, value)))


# What cannot be stored

HOLIDAYS = pd.offsets.CustomBusinessDay(holidays=["2021-03-12"])
RNG = np.random.RandomState(0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("_state", "new", "has not been fitted"),
        ("freq", HOLIDAYS, "CustomBusinessDay.*, which its name does not tell"),
        ("random_state", RNG, "type RandomState as parameters.random_state"),
        ("n_samples", Fraction(1, 3), "type Fraction as parameters.n_samples"),
    ],
)
def test_what_would_not_come_back_is_not_saved(
    name: str, value: Any, message: str, fitted: Any, path: Path
) -> None:
    setattr(fitted, name, value)
    with pytest.raises(ValueError, match=message):
        fitted.save_weights(path)
    assert not list(path.parent.iterdir())


def test_a_column_may_be_named_like_the_place_of_the_checksum(path: Path) -> None:
    y = channels().rename(columns=lambda name: f"{name}{64 * '#'}")
    tiny().fit(y).save_weights(path)
    assert list(load(path).predict([1]).columns) == list(y.columns)
