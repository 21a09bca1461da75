from __future__ import annotations

import copy
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch
from sktime.exceptions import NotFittedError

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    __version__,
    weights_file,
)
from sklode.data.errors import WeightsFileError
from tests.fitted import KINDS, assert_same, assert_same_forecaster, days
from tests.series import channels, panel, tiny, uneven_stamps, waves

load = LatentODELSTMForecaster.load_weights


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "forecaster.safetensors"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of a panel with controls, pretrained before."""
    y = panel((16, 12))
    X = y.to_numpy()[:, [0, 0]] ** 2
    X = pd.DataFrame(X, y.index, ["u", "v"])
    path = tmp_path_factory.mktemp("written") / "forecaster"
    tiny(finetune_epochs=1).pretrain(y, X=X).fit(y, X=X, fh=[1, 3]).save_weights(path)
    return path.read_bytes()


def resealed(
    content: bytes, path: Path, change: Callable[[Any, Any], None] | None
) -> Path:
    """Write the file with another state or other arrays, and their checksum."""
    path.write_bytes(content)
    state, arrays = weights_file.read(path)
    if change is not None:
        change(state, arrays)
    weights_file.write(path, state, arrays)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_forecaster_answers_and_learns_as_the_saved_one(
    kind: str, path: Path
) -> None:
    fitted = KINDS[kind]()
    saved = fitted.forecaster
    saved.save_weights(path)
    loaded: Any = type(saved).load_weights(path)
    assert vars(loaded).keys() == vars(saved).keys() - {"_warm_model"}
    assert_same_forecaster(saved, loaded, fitted)


def test_a_pretrained_forecaster_is_loaded_as_pretrained(path: Path) -> None:
    saved = tiny().pretrain(panel())
    saved.save_weights(path)
    loaded = load(path)
    assert loaded.state == "pretrained"
    with pytest.raises(NotFittedError):
        loaded.predict(fh=[1])
    y = waves(uneven_stamps())
    found = [forecaster.fit(y).predict(fh=[1, 2]) for forecaster in (saved, loaded)]
    assert_same(*found)
    assert loaded.clone().fit(y).predict(fh=[1, 2]).equals(found[0])


def test_a_loaded_forecaster_trains_on_from_its_weights(path: Path) -> None:
    y = waves(uneven_stamps())
    tiny(warm_start=True, lr=1e-12).fit(y).save_weights(path)
    loaded = load(path)
    before = copy.deepcopy(loaded.network_.state_dict())
    for name, weights in loaded.fit(y).network_.state_dict().items():
        torch.testing.assert_close(weights, before[name], rtol=0, atol=1e-6)


def test_saving_twice_gives_the_same_bytes_but_loading_gives_a_copy(
    path: Path, written: bytes
) -> None:
    path.write_bytes(written)
    loaded = load(path)
    with torch.no_grad():
        next(load(path).network_.parameters()).zero_()
    loaded.save_weights(path)
    assert path.read_bytes() == written


def test_precision_of_the_weights_is_kept(path: Path) -> None:
    saved = tiny(normalize="last", engine="eager").fit(waves(uneven_stamps()))
    saved.network_.double()
    saved.save_weights(path)
    loaded = load(path)
    assert next(loaded.network_.parameters()).dtype == torch.float64
    assert_same(saved.predict(fh=[1, 2]), loaded.predict(fh=[1, 2]))


def test_loading_draws_no_random_number(path: Path, written: bytes) -> None:
    path.write_bytes(written)
    before = torch.get_rng_state(), np.random.get_state(legacy=False)  # noqa: NPY002
    load(path)
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    assert_same(np.random.get_state(legacy=False), before[1])  # noqa: NPY002


# The layout


def test_the_safetensors_package_reads_the_file(path: Path) -> None:
    forecaster = tiny(normalize="linear").fit(channels(uneven_stamps()))
    forecaster.save_weights(path)
    tensors = safetensors.numpy.load_file(path)
    for name, weights in forecaster.network_.state_dict().items():
        found = tensors[f"model.network.{name}"]
        np.testing.assert_array_equal(found, weights.numpy(), strict=True)
    values = forecaster._history.observations.values
    np.testing.assert_array_equal(tensors["history.values"], values)
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "sklode forecaster"
    assert metadata["format_version"] == "1"
    assert metadata["sklode_version"] == __version__
    assert json.loads(metadata["state"])["parameters"]["hidden_size"] == 3


@pytest.mark.parametrize("length", range(8))
def test_arrays_begin_at_multiples_of_their_width(path: Path, length: int) -> None:
    arrays = {
        "a": np.ones(3, bool),
        "b": np.ones(3, np.float32),
        "c": np.ones((0, 2)),
        "d": np.arange(5),
    }
    weights_file.write(path, {"x": "x" * length}, arrays)
    written = path.read_bytes()
    size = int.from_bytes(written[:8], "little")
    header = json.loads(written[8 : 8 + size])
    for name, array in arrays.items():
        begin = 8 + size + header[name]["data_offsets"][0]
        assert begin % array.dtype.itemsize == 0
    state, found = weights_file.read(path)
    assert state == {"x": "x" * length}
    assert_same(dict(sorted(found.items())), arrays)
    assert_same(dict(sorted(safetensors.numpy.load_file(path).items())), arrays)


# Damage


def damaged(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(WeightsFileError):
        load(path)


def test_a_file_that_was_cut_off_is_refused(path: Path, written: bytes) -> None:
    near = [*range(140), *range(len(written) - 20, len(written))]
    for length in [*near, *range(140, len(written), 61)]:
        damaged(written[:length], path)
    damaged(written + b"\0", path)


def test_a_file_with_a_flipped_bit_is_refused(path: Path, written: bytes) -> None:
    for place in [*range(140), *range(140, len(written), 41)]:
        content = bytearray(written)
        content[place] ^= 1 << place % 8
        damaged(bytes(content), path)


def test_damage_is_told_from_foreign_files(path: Path, written: bytes) -> None:
    path.write_bytes(written[:-1])
    with pytest.raises(
        WeightsFileError, match=r"differs from its checksum\. Get the fi"
    ):
        load(path)
    path.write_bytes(b"time,value\n")
    with pytest.raises(
        WeightsFileError, match=r"one that save_weights wrote; got .*, w"
    ):
        load(path)
    safetensors.numpy.save_file({"x": np.zeros(3)}, path)
    with pytest.raises(WeightsFileError, match="one that save_weights wrote"):
        load(path)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "weights"
    with pytest.raises(FileNotFoundError, match=r"folder .*got '.*weights'\. Make it"):
        weights_file.write(path, {}, {})
    path.parent.mkdir(parents=True)
    weights_file.write(path, {}, {})
    assert list(path.parent.iterdir()) == [path]


# Files that were made up, with a right checksum


def reheaded(content: bytes, path: Path, change: Callable[[Any], object]) -> Path:
    """Write the file with another header, and its checksum."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    return sealed(json.dumps(header, separators=(",", ":")).encode(), content, path)


def sealed(header: bytes, content: bytes, path: Path, length: int = -1) -> Path:
    body = content[8 + int.from_bytes(content[:8], "little") :]
    length = len(header) if length < 0 else length
    start = 8 + len(weights_file._MARK)
    made = bytearray(length.to_bytes(8, "little") + header + body)
    made[start : start + 64] = weights_file._ZEROS
    digest = weights_file.hashlib.sha256(made).hexdigest()
    made[start : start + 64] = digest.encode()
    path.write_bytes(made)
    return path


def test_a_later_version_asks_for_an_upgrade(path: Path, written: bytes) -> None:
    def change(header: Any) -> None:
        header["__metadata__"] |= {"format_version": "2", "sklode_version": "9.1"}

    expected = r"up to version 1; got version 2 in .*, written by sklode 9\.1\. Upgrade"
    with pytest.raises(WeightsFileError, match=expected):
        load(reheaded(written, path, change))


def _metadata(**changes: Any) -> Callable[[Any], object]:
    return lambda header: header["__metadata__"].update(changes)


def _ticks(**changes: Any) -> Callable[[Any], object]:
    return lambda header: header["history.ticks"].update(changes)


def _without_last(header: Any) -> None:
    begins = {name: entry["data_offsets"] for name, entry in list(header.items())[1:]}
    del header[max(begins, key=lambda name: begins[name])]


UNNAMED, INCONSISTENT = "does not name its format", "its table of arrays is not consi"

HEADERS: dict[str, tuple[Callable[[Any], object], str]] = {
    "no format": (lambda h: h["__metadata__"].pop("format"), UNNAMED),
    "other format": (_metadata(format="x"), UNNAMED),
    "numbers in metadata": (_metadata(format_version=1), UNNAMED),
    "version of no number": (_metadata(format_version="-1"), "got version -1 in"),
    "no version": (lambda h: h["__metadata__"].pop("format_version"), "got version "),
    "no state": (lambda h: h["__metadata__"].pop("state"), "its header is no JSON"),
    "a list as state": (_metadata(state="[]"), "its header is no JSON object"),
    "deep": (_metadata(state="[" * 10**5), "its header is no JSON"),
    "a list as entry": (lambda h: h.update({"history.ticks": []}), INCONSISTENT),
    "another dtype": (_ticks(dtype="F16"), INCONSISTENT),
    "unhashable dtype": (_ticks(dtype=[]), INCONSISTENT),
    "larger": (_ticks(shape=[29]), INCONSISTENT),
    "negative": (_ticks(shape=[-28, -1]), INCONSISTENT),
    "huge": (_ticks(shape=[2**80, 0]), INCONSISTENT),
    "broken": (_ticks(shape=[28.0]), INCONSISTENT),
    "of texts": (_ticks(data_offsets=["0", "8"]), INCONSISTENT),
    "overlapping": (_ticks(data_offsets=[8, 8 + 28 * 8]), INCONSISTENT),
    "one missing": (lambda h: h.pop("history.ticks"), INCONSISTENT),
    "the last missing": (_without_last, "its arrays end at [0-9]+ of [0-9]+ bytes"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_made_up_header_is_refused(name: str, path: Path, written: bytes) -> None:
    change, message = HEADERS[name]
    with pytest.raises(WeightsFileError, match=message):
        load(reheaded(written, path, change))


def test_a_header_of_no_json_or_no_end_is_refused(path: Path, written: bytes) -> None:
    begin = weights_file._MARK + weights_file._ZEROS
    for header in (begin, begin + b'"}' + b"[" * 10**5, begin + b'","a":"\xff"}}'):
        with pytest.raises(WeightsFileError, match="no JSON"):
            load(sealed(header, written, path))
    with pytest.raises(WeightsFileError, match="its header claims 1152921504606846976"):
        load(sealed(begin, written, path, 2**60))


def _without(*names: str) -> Callable[[Any, Any], None]:
    def change(state: Any, arrays: Any) -> None:
        for name in names:
            del arrays[name]

    return change


def _set(value: Any, *names: str) -> Callable[[Any, Any], None]:
    def change(state: Any, arrays: Any) -> None:
        for name in names[:-1]:
            state = state[name]
        state[names[-1]] = value

    return change


def _array(name: str, change: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    def changed(state: Any, arrays: Any) -> None:
        arrays[name] = change(arrays[name])

    return changed


def _with(array: Any, value: Any, place: Any = 0) -> Any:
    array = array.copy()
    array[place] = value
    return array


WEIGHT = "model.network.translator.network.0.weight"

MADE_UP: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "a weight missing": (_without(WEIGHT), "missing or unknown weights"),
    "a scale missing": (_without("model.scale"), "KeyError: 'model.scale'"),
    "an array too many": (
        lambda s, a: a.update(extra=np.zeros(1)),
        "unknown names such as 'extra'",
    ),
    "a weight too many": (
        lambda s, a: a.update({"model.network.extra": np.zeros(1)}),
        "missing or unknown weights, such as .'extra'.",
    ),
    "another shape": (_array(WEIGHT, np.ravel), "shape"),
    "larger": (_array(WEIGHT, lambda a: a[:2]), r"expected \(3, 3\)"),
    "another type": (_array(WEIGHT, np.float64), "type float64, expected .* float32"),
    "weights of whole numbers": (
        lambda s, a: a.update(
            {k: v.astype(int) for k, v in a.items() if k.startswith(WEIGHT[:14])}
        ),
        "weights of type int64",
    ),
    "NaN": (_array(WEIGHT, lambda a: _with(a, np.nan)), "not finite"),
    "an unknown parameter": (_set(1, "parameters", "x"), "unknown parameters .'x'."),
    "a parameter out of range": (
        _set(-1, "parameters", "n_samples"),
        "'n_samples' parameter .* must be an int",
    ),
    "an unknown device": (_set("x", "parameters", "device"), "device"),
    "callbacks": (_set([1], "parameters", "callbacks"), "callbacks"),
    "a setting out of range": (
        _set(0, "model", "architecture", "dict", "hidden_size"),
        "'hidden_size' parameter",
    ),
    "an unknown setting": (_set(0, "model", "architecture", "dict", "x"), "settings"),
    "another size": (_set(4, "model", "architecture", "dict", "hidden_size"), "shape"),
    "a size beyond memory": (
        _set(10**5, "model", "architecture", "dict", "hidden_size"),
        "shape",
    ),
    "endless layers": (
        _set(10**9, "model", "architecture", "dict", "field_depth"),
        "fewer arrays than layers",
    ),
    "another level": (_set("x", "model", "anchor"), "the level 'x'"),
    "another engine": (_set(["x", "lanes"], "model", "engine"), "engine"),
    "another layout": (_set(["eager", "x"], "model", "engine"), "layout"),
    "channels that are none": (_set([0, 2], "model", "sizes"), "sizes"),
    "columns that are none": (_set([[], []], "model", "columns"), "other columns"),
    "no window": (_set([0, 2], "model", "lengths"), "a window without rows"),
    "a negative horizon": (_set([6, -2], "model", "lengths"), "the lengths"),
    "no time unit": (_set(0.0, "model", "time_unit"), "the time unit 0.0"),
    "another clock": (_set("integers", "model", "clock"), "another clock"),
    "no scale": (_array("model.scale", np.zeros_like), "not positive"),
    "a decreasing calibration": (
        _array("model.lags", lambda a: a[::-1].copy()),
        "a calibration",
    ),
    "an unknown attribute": (_set(1, "attributes", "predict"), "unknown attributes"),
    "a new state": (_set("new", "attributes", "_state"), "the state 'new'"),
    "no seed": (_set(-1, "attributes", "_predict_seed"), "the seed -1"),
    "no cutoff": (_set(None, "attributes", "_cutoff"), "no cutoff"),
    "no model": (_set(None, "model"), "TypeError"),
    "keys twice": (_set([["s0"], ["s0"]], "history", "keys"), "key twice"),
    "keys without levels": (_set([[], []], "history", "keys"), "keys without levels"),
    "a series more": (_set([["a"], ["b"], ["c"]], "history", "keys"), "other shapes"),
    "a step less": (_set([1], "history", "steps"), "series without an end"),
    "steps of no length": (_set(["1", "1"], "history", "steps"), "steps"),
    "an answer that is none": (_set(1, "history", "of_array"), "of_array"),
    "channels more": (_set(["a", "b"], "history", "channels"), "other shapes"),
    "times that fall": (
        _array("history.ticks", lambda a: _with(a, a[4], 5)),
        "stamps that do not increase",
    ),
    "times after the last": (
        _array("history.ticks", lambda a: _with(a, a[-1] + 1, -1)),
        "end before their rows",
    ),
    "infinite": (_array("history.values", lambda a: _with(a, np.inf)), "infinite"),
    "nothing observed": (
        _array("history.values", lambda a: _with(a, np.nan)),
        "rows without a value",
    ),
    "X missing": (_array("history.controls", lambda a: _with(a, np.nan)), "of X"),
    "bounds out of place": (
        _array("history.bounds", lambda a: _with(a, 1)),
        "rows of no series",
    ),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_what_no_forecaster_stored_is_refused(
    name: str, path: Path, written: bytes
) -> None:
    change, message = MADE_UP[name]
    with pytest.raises(WeightsFileError, match=message):
        load(resealed(written, path, change))


def leaves(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of plain data with each key in it."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from leaves(data[key])


STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1e308,
    "x",
    "dateutil//etc/hosts",
    [],
    [[1]],
    {},
    {"x": 1},
    {"float": "nan"},
    {"index": {"name": None, "range": [0, 2, 1]}},
    {"timestamp": [2**63 - 1, "s", "Europe"]},
    {"frequency": {"x": 1}},
    {"frequency": "-1D"},
)


def test_whatever_is_put_into_a_state_is_refused_or_loaded(
    path: Path, written: bytes
) -> None:
    path.write_bytes(written)
    state, arrays = weights_file.read(path)
    places = len(list(leaves(state)))
    n_refused = 0
    for k in range(0, places, 2):
        changed = copy.deepcopy(state)
        container, key = list(leaves(changed))[k]
        container[key] = STRANGE[(k // 2) % len(STRANGE)]
        weights_file.write(path, changed, arrays)
        try:
            load(path)
        except WeightsFileError:
            n_refused += 1
    assert n_refused > places / 5


def test_parameters_that_the_writer_did_not_know_have_defaults(
    path: Path, written: bytes
) -> None:
    def change(state: Any, arrays: Any) -> None:
        for known in (state["parameters"], state["model"]["architecture"]["dict"]):
            known.pop("thinning", None)
            known.pop("activation")

    loaded = load(resealed(written, path, change))
    assert (loaded.thinning, loaded.activation) == (0.5, "tanh")
    X = pd.DataFrame(0.0, loaded._history.rows_ahead(pd.RangeIndex(1, 4)), ["u", "v"])
    path.write_bytes(written)
    assert_same(loaded.predict(X=X), load(path).predict(X=X))


# Nothing is executed


class Payload:
    """Pickled, it writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_payloads_are_refused_and_not_run(tmp_path: Path, written: bytes) -> None:
    target, path = tmp_path / "ran", tmp_path / "file"
    payload = pickle.dumps(Payload(target))
    archive, stored = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("_metadata", payload)
        file.writestr("_obj", payload)
    torch.save(Payload(target), stored)
    whole = [payload, archive.getvalue(), stored.getvalue()]
    for content in [*whole, *(written + part for part in whole)]:
        damaged(content, path)
    assert not target.exists()
    pickle.loads(payload)
    assert target.exists()


def test_loading_never_unpickles(
    path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        pytest.fail("load_weights may not unpickle")

    for module, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (torch, "load"),
    ):
        monkeypatch.setattr(module, name, refuse)
    path.write_bytes(written)
    assert load(path).state == "fitted"


def test_a_class_that_a_file_names_is_compared_only(path: Path, written: bytes) -> None:
    path.write_bytes(written)
    expected = (
        r"must hold a LatentODERNNForecaster .*; got a LatentODELSTMForecaster\. Use "
        r"that class: LatentODELSTMForecaster\.load_weights\(path\)"
    )
    with pytest.raises(WeightsFileError, match=expected):
        LatentODERNNForecaster.load_weights(path)
    with pytest.raises(WeightsFileError, match=r"got a os\.system"):
        load(resealed(written, path, _set("os.system", "class")))
    with pytest.raises(WeightsFileError, match="must hold a LatentODELSTMForecaster"):
        load(resealed(written, path, _set("rnn", "encoder")))


# What cannot be stored


class Strange:
    """A label that no file holds."""


@pytest.fixture
def fitted() -> Any:
    return tiny().fit(waves(uneven_stamps()))


def refuses(forecaster: Any, path: Path, message: str) -> None:
    with pytest.raises(WeightsFileError, match=message):
        forecaster.save_weights(path)
    assert not list(path.parent.iterdir())


def test_labels_of_unknown_kinds_are_refused(path: Path) -> None:
    y = channels(uneven_stamps()).set_axis(["a", Strange()], axis=1)
    message = "got <.*Strange object.*> of type Strange as the name of a column of y. R"
    refuses(_fit_quietly(y), path, message)


def _fit_quietly(y: Any) -> Any:
    """Fit, and name the columns afterwards: sktime takes no objects."""
    forecaster = tiny().fit(y.set_axis(["a", "b"], axis=1))
    forecaster._history.channels[:] = list(y.columns)
    return forecaster


def test_steps_that_pandas_cannot_name_are_refused(path: Path) -> None:
    holidays = pd.offsets.CustomBusinessDay(holidays=["2021-03-12"])
    forecaster = tiny(freq=holidays).fit(waves(days()))
    refuses(forecaster, path, "CustomBusinessDay.* as parameter freq. Replace it")


def test_other_generators_are_refused(path: Path) -> None:
    rng = np.random.RandomState(np.random.PCG64(0))
    forecaster = tiny(random_state=rng).fit(waves())
    refuses(forecaster, path, "RandomStates of MT19937 only; got one of PCG64")


def test_networks_of_other_modules_are_refused(fitted: Any, path: Path) -> None:
    class Twice(type(fitted.network_.translator)):  # type: ignore[misc]
        pass

    fitted.network_.translator.__class__ = Twice
    refuses(fitted, path, "networks of sklode's own modules; got .*'Twice'.*Use pickle")
    fitted.network_.encoder = torch.nn.Identity()
    refuses(fitted, path, "networks of sklode's own modules; got .*'Identity'")


def test_weights_that_are_not_finite_are_refused(fitted: Any, path: Path) -> None:
    with torch.no_grad():
        next(fitted.network_.parameters()).fill_(np.nan)
    refuses(fitted, path, "must give the forecaster back; got .* that is not finite")


def test_a_parameter_that_was_spoilt_is_refused(fitted: Any, path: Path) -> None:
    fitted.n_samples = -1
    refuses(fitted, path, "'n_samples' parameter")
    fitted.n_samples = Fraction(1, 3)
    refuses(fitted, path, r"Fraction\(1, 3\) of type Fraction as parameter n_samples")


def test_an_unfitted_forecaster_is_not_saved(path: Path) -> None:
    with pytest.raises(NotFittedError, match="has not been fitted"):
        tiny().save_weights(path)
    assert not path.exists()


def test_a_description_beyond_the_layout_is_refused(
    fitted: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_file, "_LARGEST_HEADER", 1000)
    refuses(fitted, path, "must fit into 1000 bytes; got [0-9]+. Fit on fewer series")


def test_callbacks_are_left_out_with_a_warning(path: Path) -> None:
    class Silent:
        def on_fit_begin(self, forecaster: Any) -> None:
            pass

    forecaster = tiny(callbacks=[Silent()]).fit(waves())
    with pytest.warns(UserWarning, match="callbacks are left out. Pass them again"):
        forecaster.save_weights(path)
    assert load(path).callbacks is None
    assert len(forecaster.callbacks) == 1


def test_remembered_data_are_left_out_with_a_warning(path: Path) -> None:
    y = waves(uneven_stamps())
    forecaster = tiny().set_config(remember_data=True).fit(y)
    with pytest.warns(UserWarning, match="leaves out the copy .* remember_data=True"):
        forecaster.save_weights(path)
    loaded = load(path)
    assert loaded.get_config()["remember_data"]
    assert_same(forecaster.predict(fh=[1]), loaded.predict(fh=[1]))
    late = waves(uneven_stamps(start="2021-03-02"))
    found = [one.update(late).predict(fh=[1]) for one in (forecaster, loaded)]
    assert_same(*found)


@pytest.mark.parametrize("step", ["os.fsync", "Path.replace"])
def test_a_save_that_fails_leaves_the_earlier_file(
    step: str, fitted: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save_weights(path)
    before = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError("no space left")

    fitted.n_samples = 3
    monkeypatch.setattr(f"sklode.prediction.weights_file.{step}", full)
    with pytest.raises(OSError, match="no space left"):
        fitted.save_weights(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link_to_the_newer_file(fitted: Any, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch()
    link.symlink_to(target)
    fitted.save_weights(str(link))
    assert link.is_symlink()
    assert load(target).state == "fitted"


# Machines with other devices and packages


def test_a_network_of_a_gpu_is_loaded_on_the_cpu_where_there_is_none(
    path: Path, written: bytes
) -> None:
    resealed(written, path, _set("cuda:7", "model", "device"))
    loaded = load(path)
    assert next(loaded.network_.parameters()).device == torch.device("cpu")


def test_a_device_asked_for_by_name_and_not_there_is_told(
    path: Path, written: bytes
) -> None:
    resealed(written, path, _set("cuda:7", "parameters", "device"))
    with pytest.warns(UserWarning, match="'cuda:7' is not on this machine: forecasts "):
        loaded = load(path)
    path.write_bytes(written)
    X = pd.DataFrame(0.0, loaded._history.rows_ahead(pd.RangeIndex(1, 4)), ["u", "v"])
    assert_same(loaded.predict(X=X), load(path).predict(X=X))


def test_other_encoders_have_files_of_their_own(path: Path) -> None:
    saved = tiny(LatentODEForecaster).fit(waves())
    saved.save_weights(path)
    with pytest.raises(WeightsFileError, match="Use that class: LatentODEForecaster"):
        load(path)
    assert LatentODEForecaster.load_weights(path).state == "fitted"
