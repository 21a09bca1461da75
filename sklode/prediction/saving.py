"""One file format: a fitted or pretrained forecaster, from which nothing is executed.

The layout is that of safetensors: named arrays and a text, which is JSON here. The file
holds parameters, the series seen and the model. sktime's own state is no part of it: it
fits a loaded forecaster to one row, without a training, before series and model return.

Nothing that a file names is imported, called or looked up: the class is the one that
loads, and all is checked before it is believed. The checksum shows damage, not malice.

What a class of forecasters learns is stored by its own `ModelFormat`.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from sktime.datatypes import convert_to
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.errors import WeightsFileError
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.ticks import stamps_of, ticks_of
from sklode.levels.level import Level

Kinds: TypeAlias = dict[str, tuple[Any, Callable[[Any], Any], Callable[..., Any]]]

FORMAT_VERSION = 6
"""Rises with every change of what a file holds; files of other versions are refused."""

_KEY = "sklode"
"""Of the text in a file's metadata. Of several keys safetensors mixes the order."""

_CONTAINERS = (
    *("pd.Series", "pd.DataFrame", "np.ndarray", "pd-multiindex", "pd_multiindex_hier"),
    *("numpy3D", "nested_univ", "df-list"),
)
"""sktime's names for what y may be passed in; others need packages of their own."""


class ModelFormat(NamedTuple):
    """How the model of a class of forecasters is stored, and made again.

    A model is taken apart into what `_plain` takes and the classes of ``kinds``.
    """

    kinds: Kinds  # what is not plain, see `_KINDS`
    apart: Callable[[Any], Any]  # of a model; None stays None
    together: Callable[[Any, Any], Any]  # of the forecasters' class, and the parts


def save(path: str | os.PathLike[str], forecaster: Any) -> None:
    """Write a forecaster, see its ``save_weights``."""
    arrays: dict[str, Any] = {}
    found = {"format_version": FORMAT_VERSION, "sklode_version": version("sklode")}
    found["state"] = _plain(_state_of(forecaster), "", arrays, _kinds(type(forecaster)))
    found["sha256"] = _checksum(found, arrays)
    content = _safetensors().save(arrays, metadata={_KEY: json.dumps(found)})
    path = Path(os.path.realpath(path))
    if not path.parent.exists():  # the system would name the file beside
        raise FileNotFoundError(
            f"the folder of a weights file must be there; got {str(path)!r}. Make it "
            "first: pathlib.Path(path).parent.mkdir(parents=True)."
        )
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        load(beside, type(forecaster))  # what cannot be read replaces nothing
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], kind: Any) -> Any:
    """Return the forecaster of a file, see ``load_weights`` of the class ``kind``."""
    content, read = Path(path).read_bytes(), _safetensors().load
    try:
        arrays = read(content)  # so that the header is known to be one
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        metadata = json.loads(header)["__metadata__"]
        # the first version had no such key, but told its number
        found = json.loads(metadata[_KEY]) if _KEY in metadata else metadata
        number, writer = found["format_version"], str(found["sklode_version"])[:20]
        if number != FORMAT_VERSION:
            what = f"version {str(number)[:20]} of the format, not {FORMAT_VERSION}"
            _refuse(what, f"Use sklode {writer}, which wrote it; not this one.")
        if found.pop("sha256") != _checksum(found, arrays):
            _refuse("content that differs from its checksum", "Get the file again.")
        state = found["state"]
        name = str(state["class"])[:80]
        if (name, state["encoder"]) != (kind.__name__, kind.encoder):
            what = f"a {name}, not a {kind.__name__}"
            _refuse(what, f"Use {name}.load_weights(path).")
        forecaster = _forecaster(kind, _restored(state, arrays, _kinds(kind)))
        require(not arrays, f"arrays of unknown names, such as {list(arrays)[:1]}")
        return forecaster
    except WeightsFileError:
        raise
    except Exception as error:  # whatever content leads to that was made up
        _refuse(f"something else ({type(error).__name__}: {str(error)[:500]})")


def _refuse(got: str, remedy: str = "Write it anew, or use pickle.") -> NoReturn:
    raise WeightsFileError(
        f"a weights file must hold what save_weights can store; got {got}. {remedy}"
    )


def require(condition: Any, got: str) -> None:
    """Refuse a file that holds something else."""
    if not condition:
        _refuse(got)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "save_weights and load_weights need safetensors, which is not installed. "
            'Install it with pip install "sklode[save]", or use pickle.'
        ) from error
    return safetensors.numpy


def _checksum(found: dict[str, Any], arrays: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(found).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _state_of(forecaster: Any) -> dict[str, Any]:
    """Return what a forecaster is made of, see `_forecaster`."""
    found, kind = vars(forecaster), type(forecaster)
    parameters = forecaster.get_params(deep=False)
    if found.get("_y") is not None or found.get("_X") is not None:
        warnings.warn("a weights file has no data of remember_data=True", stacklevel=4)
    state = {
        "class": kind.__name__,
        "encoder": kind.encoder,
        "parameters": parameters,
        "config": forecaster.get_config(),
        "pretrained": kind._model_format.apart(found.get("pretrained_")),
    }
    if forecaster.state == "fitted":
        y, fh = found["_y_metadata"], found["_fh"]
        names = list(y["feature_names"])
        if y["mtype"] == "pd.Series":  # which may have no name
            names = [found["_converter_store_y"]["name"]]
        state["y"] = [y["mtype"], names]
        state["cutoff"] = forecaster.cutoff
        state["fh"] = None if fh is None else [fh.to_pandas(), fh.is_relative]
        state["predict_seed"] = found["_predict_seed"]
        parts = dict(vars(found["_history"]))
        parts.pop("observations")  # those of its rows that have a value
        state["history"] = parts
        state["model"] = kind._model_format.apart(found["_model"])
    return state


def _forecaster(kind: Any, state: dict[str, Any]) -> Any:
    """Return the forecaster that is made of what `_state_of` returns."""
    forecaster = kind._of_settings(state["parameters"])
    if state["pretrained"] is not None:
        forecaster.pretrained_ = kind._model_format.together(kind, state["pretrained"])
        forecaster._pretrained_attrs = ["pretrained_"]
        forecaster._state = "pretrained"
    if state.get("model") is not None:
        history = _history(state["history"])
        model = kind._model_format.together(kind, state["model"])
        (container, names), cutoff = state["y"], state["cutoff"]
        seed, fh = state["predict_seed"], state["fh"]
        sizes = [len(names), len(history.channels), len(history.controls)]
        columns = [len(model.columns[k]) for k in (0, 0, 1)]
        require(sizes == columns, f"{sizes} columns for a model of {columns}")
        require(model.clock == history.observations.clock, "a model of another clock")
        require(type(seed) is int and 0 <= seed < 2**31, f"the seed {seed!r}")
        require(len(cutoff) == 1, "no cutoff")
        require(container in _CONTAINERS, f"y in the container {container!r}")
        row = pd.DataFrame(0.0, history.rows_at(cutoff)[[0]], names)
        fh = None if fh is None else ForecastingHorizon(*fh)
        forecaster._is_trained = True
        row = convert_to(row, container, store={"name": names[0]})
        forecaster.fit(row, fh=fh)
        del forecaster._is_trained
        forecaster._history, forecaster._predict_seed = history, seed
        forecaster._set_cutoff(cutoff)
        forecaster._set_model(model)
    require(forecaster.state != "new", "neither a fitted nor a pretrained one")
    return forecaster.set_config(**state["config"])


def _history(parts: dict[str, Any]) -> History:
    """Return the history that is made of these parts, checked."""
    rows, ends = parts["rows"], parts["rows"].bounds
    require(len(rows.keys) == len(parts["steps"]), "other series")
    require(ends.dtype == np.int64 and len(ends) == len(rows.keys) + 1, "no bounds")
    whole = ends[0] == 0 and ends[-1] == len(rows.ticks) and (np.diff(ends) > 0).all()
    require(whole, "rows of no series")  # nor more than there are
    history, shape = History(**parts), rows.values.shape
    require(history.raw is None or history.raw.shape == shape, "other values")
    index, names = history.index(rows), history.controls
    require(index.is_unique, "stamps twice")
    X = pd.DataFrame(rows.controls, index, names) if names else None
    y = pd.DataFrame(rows.values, index, history.channels)
    read = Observations.from_frame(y, X)
    same = read.keys == rows.keys and np.array_equal(read.ticks, rows.ticks)
    require(same, "rows of series that are out of order")
    lengths = (int, pd.Timedelta, pd.offsets.BaseOffset)
    require(all(isinstance(s, lengths) for s in history.steps), "steps of no length")
    return replace(history, rows=read)


def _plain(value: Any, where: str, arrays: dict[str, Any], kinds: Kinds) -> Any:
    """Return a value as JSON holds it; arrays go to ``arrays``, by where they are.

    None, bool, int, float, str, lists and dicts are themselves; anything else is a dict
    whose one key says, after an @, which of ``kinds`` the rest is to make.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        items = enumerate(value)
        return [_plain(item, f"{where}.{k}", arrays, kinds) for k, item in items]
    if type(value) is dict and all(isinstance(k, str) and k[:1] != "@" for k in value):
        inside = f"{where}.".lstrip(".")
        return {k: _plain(value[k], inside + k, arrays, kinds) for k in value}
    if isinstance(value, np.ndarray):
        arrays[where] = value
        return {"@array": where}
    for name, (types, apart, _) in kinds.items():
        if isinstance(value, types):
            return {f"@{name}": _plain(apart(value), where, arrays, kinds)}
    what = f"{value!r} of type {type(value).__name__} as {where}"
    _refuse(what, "Use numbers, texts, dates, stamps, steps and tuples, or pickle.")


def _restored(data: Any, arrays: dict[str, Any], kinds: Kinds) -> Any:
    """Return the value that `_plain` described; its arrays leave ``arrays``."""
    if isinstance(data, list):
        return [_restored(item, arrays, kinds) for item in data]
    if not isinstance(data, dict):
        return data
    found = {key: _restored(item, arrays, kinds) for key, item in data.items()}
    name = next(iter(found), "")
    if not name.startswith("@"):
        return found
    if name == "@array":
        return arrays.pop(found[name])
    make, parts = kinds[name[1:]][2], found[name]
    return make(**parts) if isinstance(parts, dict) else make(parts)


def _kinds(kind: Any) -> Kinds:
    return {**_KINDS, **kind._model_format.kinds}


def _parts_of_index(index: pd.Index) -> dict[str, Any]:
    kind = "range" if isinstance(index, pd.RangeIndex) else str(index.dtype)
    items = list(index) if kind == "object" else ticks_of(index).tolist()
    step = index.step if kind == "range" else getattr(index, "freq", None)
    step = None if kind.startswith("period") else step  # which is the kind
    return {"items": items, "kind": kind, "step": step, "name": index.name}


def _index(items: list[Any], kind: str, step: Any, name: Any) -> pd.Index:
    if kind == "object":
        return pd.Index(items, dtype=object, name=name)
    if kind == "range":  # no longer than its items
        return pd.RangeIndex(items[0], items[0] + step * len(items), step, name=name)
    timelike = kind.startswith(("datetime64[", "timedelta64[", "period["))
    known = timelike or kind.lower().startswith(("int", "uint"))
    # zones of dateutil are files of this machine
    require(known and "tz" not in kind and "dateutil" not in kind, f"the index {kind}")
    ticks = np.array(items, np.int64)
    index = stamps_of(ticks, pd.Index([], dtype=kind)).astype(kind).rename(name)
    if step is not None:
        index.freq = step
    return index


def _parts_of_offset(offset: pd.offsets.BaseOffset) -> Any:
    if type(offset) is pd.DateOffset:
        return {"n": offset.n, "normalize": offset.normalize, **offset.kwds}
    with contextlib.suppress(ValueError):  # some names say nothing, or too little
        if to_offset(offset.freqstr) == offset:
            return offset.freqstr
    _refuse(f"the step {offset!r}, which its name does not tell")


def _offset(name: str | None = None, **parts: Any) -> pd.offsets.BaseOffset:
    return pd.DateOffset(**parts) if name is None else to_offset(name)


def _generator(**state: Any) -> np.random.RandomState:
    known = state["bit_generator"] == "MT19937" and 0 <= state["state"]["pos"] <= 624
    require(known, f"a RandomState of {state['bit_generator']}")
    rng = np.random.RandomState()
    rng.set_state(state)
    return rng


_STAMP = pd.Timestamp, pd.Timedelta, pd.Period
_KINDS: Kinds = {
    "tuple": (tuple, list, tuple),
    "index": (pd.Index, _parts_of_index, _index),
    "stamp": (
        _STAMP,
        lambda at: _parts_of_index(pd.Index([at])),
        lambda **p: _index(**p)[0],
    ),
    "date": (datetime.date, str, datetime.date.fromisoformat),
    "offset": (pd.offsets.BaseOffset, _parts_of_offset, _offset),
    "rng": (np.random.RandomState, lambda rng: rng.get_state(legacy=False), _generator),
    "Observations": (Observations, vars, Observations),
    "Level": (Level, vars, Level.of_parts),
}
"""What is not plain: its types, how it is taken apart, and how it is made."""
