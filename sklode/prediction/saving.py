"""One file format: a fitted or pretrained forecaster, from which nothing is executed.

The layout is that of safetensors: named arrays and a text, which is JSON here. The file
holds parameters, the series seen and the model. sktime's own state is no part of it: it
fits a loaded forecaster to one row, without a training, before series and model return.

Nothing that a file names is imported, called or looked up: the class is the one that
loads, and all is checked before it is believed. The checksum shows damage, not malice.
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
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from pandas.tseries.frequencies import to_offset
from sktime.datatypes import convert_to
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.errors import WeightsFileError
from sklode.data.history import History
from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation
from sklode.data.ticks import stamps_of, ticks_of
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel, build_network

__all__ = ["FORMAT_VERSION", "load", "save"]

FORMAT_VERSION = 2
"""Rises with every change of what a file holds; files of other versions are refused."""

_KEY = "sklode"
"""Of the text in a file's metadata. Of several keys safetensors mixes the order."""

_CONTAINERS = (
    *("pd.Series", "pd.DataFrame", "np.ndarray", "pd-multiindex", "pd_multiindex_hier"),
    *("numpy3D", "nested_univ", "df-list"),
)
"""sktime's names for what y may be passed in; others need packages of their own."""


def save(path: str | os.PathLike[str], forecaster: Any) -> None:
    """Write a forecaster, see its ``save_weights``."""
    arrays: dict[str, Any] = {}
    found = {"format_version": FORMAT_VERSION, "sklode_version": version("sklode")}
    found["state"] = _plain(_state_of(forecaster), "", arrays)
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
        forecaster = _forecaster(kind, _restored(state, arrays))
        _require(not arrays, f"arrays of unknown names, such as {list(arrays)[:1]}")
        return forecaster
    except WeightsFileError:
        raise
    except Exception as error:  # whatever content leads to that was made up
        _refuse(f"something else ({type(error).__name__}: {str(error)[:500]})")


def _refuse(got: str, remedy: str = "Write it anew, or use pickle.") -> NoReturn:
    raise WeightsFileError(
        f"a weights file must hold what save_weights can store; got {got}. {remedy}"
    )


def _require(condition: Any, got: str) -> None:
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
    found = vars(forecaster)
    parameters = forecaster.get_params(deep=False)
    if parameters.get("callbacks"):
        parameters["callbacks"] = None
        warnings.warn("a weights file has no callbacks; pass them again", stacklevel=4)
    if found.get("_y") is not None or found.get("_X") is not None:
        warnings.warn("a weights file has no data of remember_data=True", stacklevel=4)
    state = {
        "class": type(forecaster).__name__,
        "encoder": forecaster.encoder,
        "parameters": parameters,
        "config": forecaster.get_config(),
        "pretrained": _apart(found.get("pretrained_")),
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
        state["model"] = _apart(found["_model"])
    return state


def _forecaster(kind: Any, state: dict[str, Any]) -> Any:
    """Return the forecaster that is made of what `_state_of` returns."""
    forecaster = kind._of_settings(state["parameters"])
    if state["pretrained"] is not None:
        forecaster.pretrained_ = _together(kind, state["pretrained"])
        forecaster._pretrained_attrs = ["pretrained_"]
        forecaster._state = "pretrained"
    if state.get("model") is not None:
        history = _history(state["history"])
        model = _together(kind, state["model"])
        (container, names), cutoff = state["y"], state["cutoff"]
        seed, fh = state["predict_seed"], state["fh"]
        sizes = [len(names), len(history.channels), len(history.controls)]
        columns = [len(model.columns[k]) for k in (0, 0, 1)]
        _require(sizes == columns, f"{sizes} columns for a model of {columns}")
        _require(model.clock == history.observations.clock, "a model of another clock")
        _require(type(seed) is int and 0 <= seed < 2**31, f"the seed {seed!r}")
        _require(len(cutoff) == 1, "no cutoff")
        _require(container in _CONTAINERS, f"y in the container {container!r}")
        row = pd.DataFrame(0.0, history.rows_at(cutoff)[[0]], names)
        if fh is not None:
            offsets, steps = fh[0].dtype == object, fh[0]
            fh = list(steps) if offsets else ForecastingHorizon(steps, fh[1])
        forecaster._is_trained = True
        row = convert_to(row, container, store={"name": names[0]})
        forecaster.fit(row, fh=fh)
        del forecaster._is_trained
        forecaster._history, forecaster._predict_seed = history, seed
        forecaster._set_cutoff(cutoff)
        forecaster._set_model(model)
    _require(forecaster.state != "new", "neither a fitted nor a pretrained one")
    return forecaster.set_config(**state["config"])


def _history(parts: dict[str, Any]) -> History:
    """Return the history that is made of these parts, checked."""
    rows, ends = parts["rows"], parts["rows"].bounds
    _require(len(rows.keys) == len(parts["steps"]), "other series")
    _require(ends.dtype == np.int64 and len(ends) == len(rows.keys) + 1, "no bounds")
    whole = ends[0] == 0 and ends[-1] == len(rows.ticks) and (np.diff(ends) > 0).all()
    _require(whole, "rows of no series")  # nor more than there are
    history = History(**parts)
    index, names = history.index(rows), history.controls
    _require(index.is_unique, "stamps twice")
    X = pd.DataFrame(rows.controls, index, names) if names else None
    y = pd.DataFrame(rows.values, index, history.channels)
    read = Observations.from_frame(y, X)
    same = read.keys == rows.keys and np.array_equal(read.ticks, rows.ticks)
    _require(same, "rows of series that are out of order")
    lengths = (int, pd.Timedelta, pd.offsets.BaseOffset)
    _require(all(isinstance(s, lengths) for s in history.steps), "steps of no length")
    return replace(history, rows=read)


def _apart(model: FittedModel | None) -> FittedModel | None:
    """Return a model with a dict in place of its network, see `_together`."""
    if model is None:
        return None
    network: Any = model.network
    parts: Any = {
        "weights": {k: x.cpu().numpy() for k, x in network.state_dict().items()},
        "modules": [type(part).__name__ for part in network.modules()],
        "anchor": str(network.anchor.kind),
        "engine": network.engine,
        "device": str(next(network.parameters()).device),
    }
    return replace(model, network=parts, stopped=None)


def _together(kind: Any, model: Any) -> FittedModel:
    """Return a model, checked, with the network that it tells of."""
    n_channels, n_controls = map(len, model.columns)
    for name, array in vars(model.normalisation).items():
        size = n_controls if name.startswith("control") else n_channels
        _require(array.shape == (size,) and np.isfinite(array).all(), f"the {name}")
        _require("scale" not in name or (array > 0).all(), f"a {name} of zero or less")
    found = model.calibration or Calibration.none(n_channels)
    _require(found.scales.shape == (len(found.lags), n_channels), "other scales")
    _require(len(found.lags) and np.isfinite(found.lags).all(), "a calibration")
    is_scale = (found.scales >= 0) & np.isfinite(found.scales)
    _require(is_scale.all() and (np.diff(found.lags) >= 0).all(), "a calibration")
    held = model.held
    _require(held is None or held.shape == (n_channels,), "other constants")
    counts = [model.window_length - 1, model.horizon, model.best_epoch]
    _require(all(type(n) is int and n >= 0 for n in counts), f"the lengths {counts}")
    units = model.time_unit, model.longest_gap
    _require(all(0 < unit < np.inf for unit in units), f"the units of time {units}")
    numbers = [number for row in model.rows for number in row.values()]
    _require(all(type(x) in (int, float) for x in numbers), "a history of no numbers")
    parts = model.network
    tensors = {name: torch.from_numpy(x) for name, x in parts["weights"].items()}
    for name, tensor in tensors.items():
        _require(tensor.isfinite().all(), f"{name} that is not finite")
    settings = kind._of_settings({**model.architecture, "engine": parts["engine"]})
    # a network is no deeper than it has arrays: what is not there is not built
    _require(settings.field_depth <= len(tensors), "fewer arrays than layers")
    with torch.device("meta"):  # where it takes no memory
        network: Any = build_network(settings, n_channels, n_controls, parts["anchor"])
    network.load_state_dict(tensors, assign=True)  # refuses other names and shapes
    types = {tensor.dtype for tensor in tensors.values()} - {torch.bool}
    _require(types in ({torch.float32}, {torch.float64}), f"weights of types {types}")
    modules = [type(part).__name__ for part in network.modules()]
    _require(modules == parts["modules"], f"a network of {parts['modules']}")
    network.engine = parts["engine"]
    network.settle(parts["device"])
    return replace(model, network=network.eval(), stopped=None)


def _plain(value: Any, where: str, arrays: dict[str, Any]) -> Any:
    """Return a value as JSON holds it; arrays go to ``arrays``, by where they are.

    None, bool, int, float, str, lists and dicts are themselves; anything else is a dict
    whose one key says, after an @, which of `_KINDS` the rest is to make.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_plain(item, f"{where}.{k}", arrays) for k, item in enumerate(value)]
    if type(value) is dict and all(isinstance(k, str) and k[:1] != "@" for k in value):
        inside = f"{where}.".lstrip(".")
        return {key: _plain(value[key], inside + key, arrays) for key in value}
    if isinstance(value, np.ndarray):
        arrays[where] = value
        return {"@array": where}
    for name, (types, apart, _) in _KINDS.items():
        if isinstance(value, types):
            return {f"@{name}": _plain(apart(value), where, arrays)}
    what = f"{value!r} of type {type(value).__name__} as {where}"
    _refuse(what, "Use numbers, texts, dates, stamps, steps and tuples, or pickle.")


def _restored(data: Any, arrays: dict[str, Any]) -> Any:
    """Return the value that `_plain` described; its arrays leave ``arrays``."""
    if isinstance(data, list):
        return [_restored(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    found = {key: _restored(item, arrays) for key, item in data.items()}
    name = next(iter(found), "")
    if not name.startswith("@"):
        return found
    if name == "@array":
        return arrays.pop(found[name])
    make, parts = _KINDS[name[1:]][2], found[name]
    return make(**parts) if isinstance(parts, dict) else make(parts)


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
    _require(known and "tz" not in kind and "dateutil" not in kind, f"the index {kind}")
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
    _require(known, f"a RandomState of {state['bit_generator']}")
    rng = np.random.RandomState()
    rng.set_state(state)
    return rng


_STAMP = pd.Timestamp, pd.Timedelta, pd.Period
_OWN = FittedModel, Normalisation, Calibration, Observations
_KINDS: dict[str, tuple[Any, Callable[[Any], Any], Callable[..., Any]]] = {
    "tuple": (tuple, list, tuple),
    "index": (pd.Index, _parts_of_index, _index),
    "stamp": (
        _STAMP,
        lambda at: _parts_of_index(pd.Index([at])),
        lambda **p: _index(**p)[0],
    ),
    "date": (datetime.date, str, datetime.date.fromisoformat),
    "offset": (pd.offsets.BaseOffset, _parts_of_offset, _offset),
    "device": (torch.device, str, torch.device),
    "rng": (np.random.RandomState, lambda rng: rng.get_state(legacy=False), _generator),
    **{kind.__name__: (kind, vars, kind) for kind in _OWN},
}
"""What is not plain: its types, how it is taken apart, and how it is made."""
