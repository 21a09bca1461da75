"""One file format: a fitted or pretrained forecaster, of which nothing is executed.

The layout is that of safetensors: named arrays, and a text in JSON. The file
holds parameters, series and model. Nothing that it names is imported or
called: it says which of `_KINDS` a value is. The checksum shows damage, not malice.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import torch
from pandas.tseries.frequencies import to_offset
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.arrays import Array
from sklode.data.calendars import Calendar
from sklode.data.errors import WeightsFileError
from sklode.data.history import History
from sklode.data.links import Link
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.data.ticks import stamps_of, ticks_of
from sklode.hybrid import network as hybrid
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.latent_ode import network as latent_ode
from sklode.latent_ode.model import LatentODEModel
from sklode.nn.autoencoder import Autoencoder
from sklode.nn.settings import NetworkSettings
from sklode.structural.candidates import Candidate
from sklode.structural.concurrent import Concurrent
from sklode.structural.cross_channel import CrossChannel
from sklode.structural.effects import Effect
from sklode.structural.fit import StructuralFit
from sklode.structural.limits import LargestMoves
from sklode.structural.model import StructuralModel
from sklode.structural.state_space import Form
from sklode.training.parameters import MODEL_OF_LEVEL

Plain: TypeAlias = Any
"""What JSON holds: None, bool, int, float, str, and lists and dicts of these."""

Parts: TypeAlias = dict[str, Any]
"""What an object is made of, by the names of its parts."""

FORMAT_VERSION = 14  # rises with every change of what a file holds
_READ = (13, FORMAT_VERSION)  # what the older ones lack has a default
_KEY = "sklode"  # of the text in a file's metadata
_BLANK = b"#" * 64  # where the checksum will be

_ATTRIBUTES = (
    *("_state", "_cutoff", "_fh", "_is_vectorized", "_y_metadata"),
    *("_y_mtype_last_seen", "_converter_store_y", "_pretrained_attrs"),
    *("pretrained_", "_history", "_predict_seed"),
)
"""What sktime's and our own fits set, beside what a model tells."""


def save(path: str | os.PathLike[str], forecaster: Any) -> None:
    """Write a forecaster, see its ``save_weights``."""
    arrays: dict[str, Array] = {}
    found = {
        "sha256": _BLANK.decode(),  # first: nothing before looks like it
        "format_version": FORMAT_VERSION,
        "sklode_version": version("sklode"),
        "class": type(forecaster).__name__,
        "state": _plain(_state_of(forecaster), "", arrays),
    }
    metadata = {_KEY: json.dumps(found)}
    content = _sealed(_safetensors().save(arrays, metadata=metadata))
    path = Path(os.path.realpath(path))
    if not path.parent.exists():  # else the error names another file
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
    """Return the forecaster of a file, of the class ``kind``."""
    content, read = Path(path).read_bytes(), _safetensors().load
    try:
        arrays = read(content)  # so that the header is known to be one
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        metadata = json.loads(header)["__metadata__"]
        # the first version had no such key, but told its number
        found = json.loads(metadata[_KEY]) if _KEY in metadata else metadata
        number, writer = found["format_version"], str(found["sklode_version"])[:20]
        if number not in _READ:
            known = " or ".join(map(str, _READ))
            what = f"version {str(number)[:20]} of the format, not {known}"
            _refuse(what, f"Use sklode {writer}, which wrote it; not this one.")
        if _sealed(content.replace(found["sha256"].encode(), _BLANK, 1)) != content:
            _refuse("content that differs from its checksum", "Get the file again.")
        name = str(found["class"])[:80]
        if name != kind.__name__:
            what = f"a {name}, not a {kind.__name__}"
            _refuse(what, f"Use {name}.load_weights(path).")
        return _forecaster(kind, _restored(found["state"], arrays))
    except WeightsFileError:
        raise
    except Exception as error:  # whatever made-up content leads to
        _refuse(f"something else ({type(error).__name__}: {str(error)[:500]})")


def _refuse(got: str, remedy: str = "Write it anew, or use pickle.") -> NoReturn:
    raise WeightsFileError(
        f"a weights file must hold what save_weights can store; got {got}. {remedy}"
    )


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "save_weights and load_weights need safetensors, which is not installed. "
            'Install it with pip install "sklode[save]", or use pickle.'
        ) from error
    return safetensors.numpy


def _sealed(content: bytes) -> bytes:
    """Return a file's content with the checksum of all of it."""
    digest = hashlib.sha256(content).hexdigest().encode()
    return content.replace(_BLANK, digest, 1)


def _state_of(forecaster: Any) -> Parts:
    found = vars(forecaster)
    if found.get("_y") is not None or found.get("_X") is not None:
        warnings.warn("a weights file has no data of remember_data=True", stacklevel=4)
    state = {name: found[name] for name in _ATTRIBUTES if name in found}
    state["_y_metadata"] = dict(found["_y_metadata"])
    state["_y_metadata"].pop("feature_kind", None)  # of the columns that were read
    state["parameters"] = forecaster.get_params(deep=False)
    state["config"] = forecaster.get_config()
    state["model"] = found.get("_model")
    return state


def _forecaster(kind: Any, state: Parts) -> Any:
    forecaster = kind(**_renamed(state["parameters"])).set_config(**state["config"])
    vars(forecaster).update({k: state[k] for k in _ATTRIBUTES if k in state})
    if state["model"] is not None:
        forecaster._set_model(state["model"])
    return forecaster


def _plain(value: object, where: str, arrays: dict[str, Array]) -> Plain:
    """Return a value as JSON holds it; arrays go to ``arrays``, by place.

    None, bool, int, float, str, lists and dicts are themselves; anything else is a dict
    whose one key says, after an @, which of `_KINDS` the rest is to make.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_plain(x, f"{where}.{k}", arrays) for k, x in enumerate(value)]
    if type(value) is dict and all(isinstance(k, str) and k[:1] != "@" for k in value):
        inside = f"{where}.".lstrip(".")
        return {k: _plain(value[k], inside + k, arrays) for k in value}
    if isinstance(value, np.ndarray):
        arrays[where] = value.copy(order="C")  # views may have strides
        return {"@array": where}
    for name, (types, apart, _) in _KINDS.items():
        if isinstance(value, types):
            return {f"@{name}": _plain(apart(value), where, arrays)}
    what = f"{value!r} of type {type(value).__name__} as {where}"
    _refuse(what, "Use numbers, texts, dates, stamps, steps and tuples, or pickle.")


def _restored(data: Plain, arrays: dict[str, Array]) -> Any:
    """Return the value that `_plain` described."""
    if isinstance(data, list):
        return [_restored(item, arrays) for item in data]
    if not isinstance(data, dict):
        return data
    found = {key: _restored(item, arrays) for key, item in data.items()}
    name = next(iter(found), "")
    if not name.startswith("@"):
        return found
    if name == "@array":
        return arrays[found[name]]
    kind, renamed = _EARLIER.get(name[1:], (name[1:], {}))
    make, parts = _KINDS[kind][2], found[name]
    if not isinstance(parts, dict):
        return make(parts)
    return make(**{renamed.get(part, part): x for part, x in parts.items()})


def _parts_of_index(index: pd.Index) -> Parts:
    # the kind of periods says their frequency
    freq = None if isinstance(index, pd.PeriodIndex) else getattr(index, "freq", None)
    kind, ticks = str(index.dtype), ticks_of(index).tolist()
    return {"ticks": ticks, "kind": kind, "freq": freq, "name": index.name}


def _index(
    ticks: list[int], kind: str, freq: pd.offsets.BaseOffset | None, name: Hashable
) -> pd.Index:
    if "dateutil" in kind:
        _refuse(f"the index {kind}, whose zone is a file of this machine")
    like = pd.Index([], dtype=kind)
    index = stamps_of(np.array(ticks, np.int64), like).astype(kind).rename(name)
    if freq is not None:
        index.freq = freq
    return index


def _parts_of_offset(offset: pd.offsets.BaseOffset) -> str | Parts:
    if type(offset) is pd.DateOffset:
        return {"n": offset.n, "normalize": offset.normalize, **offset.kwds}
    with contextlib.suppress(ValueError):  # some names say too little
        if to_offset(offset.freqstr) == offset:
            return offset.freqstr
    _refuse(f"the step {offset!r}, which its name does not tell")


def _offset(name: str | None = None, **parts: int) -> pd.offsets.BaseOffset:
    return pd.DateOffset(**parts) if name is None else to_offset(name)


def _parts_of_network(network: Autoencoder) -> Parts:
    is_hybrid = isinstance(network, hybrid.HybridODE)
    return {
        "sizes": {"reach": network.reach} if is_hybrid else {},
        "weights": {k: x.cpu().numpy() for k, x in network.state_dict().items()},
    }


def _model(kind: Any, build: Any, network: Parts | None, **parts: Any) -> Any:
    parts["architecture"] = _renamed(parts["architecture"])
    model = kind(network=network, **parts)
    if network is None:
        return model
    settings = NetworkSettings.of(model.architecture)
    with torch.device("meta"):  # where it takes no memory
        made = build(settings, *model.sizes, **network["sizes"])
    tensors = {name: torch.from_numpy(x) for name, x in network["weights"].items()}
    made.load_state_dict(tensors, assign=True)  # refuses other names and shapes
    return replace(model, network=made.eval())


def _ahead_model(n_rows: int, **parts: Any) -> Any:
    """Return the hybrid model, or without a window the structural one alone."""
    if parts["window_length"]:
        return _model(HybridModel, hybrid.build_network, **parts)
    units: Units = parts["units"]
    return StructuralFit(
        sizes=(len(units.location), len(units.control_location)),
        n_rows=n_rows,
        **{name: parts[name] for name in ("structural", "clock", "columns")},
        architecture=parts["architecture"],
    )


def _renamed(settings: Parts) -> Parts:
    """Return settings of which one was called level in the format before this one."""
    model = MODEL_OF_LEVEL.get(settings.get("level", ""))
    if model is None:
        return settings
    others = {name: value for name, value in settings.items() if name != "level"}
    return others | {"model": model}


def _observations(**parts: Any) -> Observations:
    found = Observations(**parts)
    ends, n = found.bounds, len(found.ticks)
    fits = ends[0] == 0 and ends[-1] == n == len(found.values)
    if not fits or (found.lengths <= 0).any():  # kernels would read any memory
        _refuse("rows of no series")
    return found


def _parts_of_record(record: Any) -> Parts:
    if hasattr(record, "_asdict"):
        return record._asdict()
    return {one.name: getattr(record, one.name) for one in fields(record)}


_RECORDS = (
    *(History, Units, NetworkWeights, StructuralModel, Candidate, Form, Effect),
    *(CrossChannel, Concurrent, LargestMoves, Link, Calendar, StructuralFit),
)

_EARLIER: dict[str, tuple[str, dict[str, str]]] = {
    "Level": ("StructuralModel", {"company": "concurrent"}),
    "Component": ("Candidate", {"apart": "scale_spread"}),
    "Cross": ("CrossChannel", {}),
    "Company": ("Concurrent", {}),
    "Moves": ("LargestMoves", {}),
    "Stacking": ("NetworkWeights", {}),
    "FittedModel": ("LatentODEModel", {}),
    "AheadModel": ("AheadModel", {"level": "structural", "stacking": "weights"}),
}
"""What kinds, and parts of them, were called in the format before this one."""

_KINDS: dict[str, tuple[Any, Callable[[Any], Plain], Callable[..., object]]] = {
    **{kind.__name__: (kind, _parts_of_record, kind) for kind in _RECORDS},
    "Observations": (Observations, _parts_of_record, _observations),
    "LatentODEModel": (
        LatentODEModel,
        _parts_of_record,
        partial(_model, LatentODEModel, latent_ode.build_network),
    ),
    "HybridModel": (
        HybridModel,
        _parts_of_record,
        partial(_model, HybridModel, hybrid.build_network),
    ),
    "AheadModel": ((), _parts_of_record, _ahead_model),  # of the format before
    "network": ((latent_ode.LatentODE, hybrid.HybridODE), _parts_of_network, dict),
    "tuple": (tuple, list, tuple),
    "series": (
        pd.Series,
        lambda found: {"data": found.tolist(), "index": found.index},
        pd.Series,
    ),
    "table": (
        pd.DataFrame,
        lambda found: {name: found[name].tolist() for name in found},
        lambda **columns: pd.DataFrame(columns),
    ),
    "items": (dict, lambda found: list(found.items()), dict),
    "index": (pd.Index, _parts_of_index, _index),
    "stamp": (
        (pd.Timestamp, pd.Timedelta, pd.Period),
        lambda stamp: _parts_of_index(pd.Index([stamp])),
        lambda **parts: _index(**parts)[0],
    ),
    "date": (datetime.date, str, datetime.date.fromisoformat),
    "offset": (pd.offsets.BaseOffset, _parts_of_offset, _offset),
    "horizon": (
        ForecastingHorizon,
        lambda fh: {"values": fh.to_pandas(), "is_relative": fh.is_relative},
        ForecastingHorizon,
    ),
    "device": (torch.device, str, torch.device),
}
"""What is not plain: types, how to take apart, and how to make."""
