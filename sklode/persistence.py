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
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
import pandas as pd
import torch
from pandas.tseries.frequencies import to_offset
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from sklode.data.arrays import Array, Flags
from sklode.data.calendars import Calendar, RowPeriod
from sklode.data.errors import WeightsFileError
from sklode.data.history import History
from sklode.data.links import IDENTITY, Link
from sklode.data.observations import Observations
from sklode.data.scaling import Units
from sklode.data.ticks import stamps_of, ticks_of
from sklode.hybrid import network as hybrid
from sklode.hybrid.controls import ControlForms
from sklode.hybrid.model import HybridModel, NetworkWeights
from sklode.latent_ode import network as latent_ode
from sklode.latent_ode.model import LatentODEModel
from sklode.nn.autoencoder import Autoencoder
from sklode.nn.settings import NetworkSettings
from sklode.structural.candidates import FEWEST_HARMONICS, Candidate, Model
from sklode.structural.coefficients import (
    CoefficientPrior,
    Pooled,
    Pooling,
    RandomCoefficients,
)
from sklode.structural.components.space import Form
from sklode.structural.coupling.coupling import Coupling
from sklode.structural.coupling.next_rows import NextRows
from sklode.structural.coupling.same_time import SameTime
from sklode.structural.design import Design
from sklode.structural.effects import basis, lags, modulation
from sklode.structural.effects.effect import Effect
from sklode.structural.filter.system import STEP, THRESHOLD, Rule
from sklode.structural.model import ColumnModel, StructuralModel
from sklode.structural.predictive.limits import LargestMoves
from sklode.structural.results import StructuralFit
from sklode.structural.scaling import RandomEffects, Scaling
from sklode.training.parameters import MODEL_OF_LEVEL

Plain: TypeAlias = Any
"""What JSON holds: None, bool, int, float, str, and lists and dicts of these."""

Parts: TypeAlias = dict[str, Any]
"""What an object is made of, by the names of its parts."""

Make: TypeAlias = Callable[..., object]
"""Makes an object of its parts."""

_Model = TypeVar("_Model", LatentODEModel, HybridModel)
_Forecaster = TypeVar("_Forecaster", bound=BaseForecaster)

FORMAT_VERSION = 23  # rises with every change of what a file holds
_READ = (*range(14, 23), FORMAT_VERSION)  # what the older ones lack has a default
_KEY = "sklode"  # of the text in a file's metadata
_BLANK = b"#" * 64  # where the checksum will be

# What sktime's fits set, and at last our own, beside its parameters and model.
_ATTRIBUTES = (
    "_state",
    "_cutoff",
    "_fh",
    "_is_vectorized",
    "_y_metadata",
    "_y_mtype_last_seen",
    "_converter_store_y",
    "_pretrained_attrs",
    "pretrained_",
    "_history",
    "_predict_seed",
)


def save(path: str | os.PathLike[str], forecaster: BaseForecaster) -> None:
    """Write a forecaster, see its ``save_weights``."""
    arrays: dict[str, Array] = {}
    found = {
        # first: nothing that a user named stands before it and looks like it
        "sha256": _BLANK.decode(),
        "format_version": FORMAT_VERSION,
        "sklode_version": version("sklode"),
        "class": type(forecaster).__name__,
        "state": _plain(_state_of(forecaster), "", arrays),
    }
    metadata = {_KEY: json.dumps(found)}
    content = _sealed(_safetensors().save(arrays, metadata=metadata))
    path = Path(os.path.realpath(path))
    _check_no_folder(path)
    if not path.parent.exists():  # else the error names another file
        raise FileNotFoundError(
            f"the folder of a weights file must be there; got {str(path)!r}. Make it "
            "first: pathlib.Path(path).parent.mkdir(parents=True)."
        )
    # in the same folder, so that to replace is to rename, which fails or is done whole;
    # and on the disk by then, else a crash could leave the name of a file without text
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


def load(path: str | os.PathLike[str], kind: type[_Forecaster]) -> _Forecaster:
    """Return the forecaster of a file, of the class ``kind``."""
    path = Path(path)
    _check_no_folder(path)
    if not path.exists():
        raise FileNotFoundError(
            f"a weights file must be there; got {str(path.absolute())!r}, where none "
            "is. Pass the path that save_weights was given."
        )
    content = path.read_bytes()
    if content[:2] == b"PK":  # as archives begin
        _refuse("an archive, as save writes it", f"Use {kind.__name__}.load_from_path.")
    read = _safetensors().load
    try:
        # first, so that the header is known to be one
        arrays = read(content)
        found = _text_of(content)
        if _sealed(content.replace(found["sha256"].encode(), _BLANK, 1)) != content:
            _refuse("content that differs from its checksum", "Get the file again.")
        # texts of a file that was made up may be of any length
        name = str(found["class"])[:80]
        if name != kind.__name__:
            what = f"a {name}, not a {kind.__name__}"
            _refuse(what, f"Use {name}.load_weights(path).")
        makers = {name: one.make for name, one in _KINDS.items()}
        if found["format_version"] < 22:
            makers |= _MAKERS_21
        if found["format_version"] < 20:
            makers |= _MAKERS_19
        if found["format_version"] < 18:
            makers |= _MAKERS_17
        if found["format_version"] < 17:
            makers |= _MAKERS_16
        if found["format_version"] == 14:
            makers |= _MAKERS_14
        return _forecaster(kind, _restored(found["state"], arrays, makers))
    except WeightsFileError:
        raise
    except Exception as error:  # whatever made-up content leads to
        _refuse(f"something else ({type(error).__name__}: {str(error)[:500]})")


def _check_no_folder(path: Path) -> None:
    """Check that a path of a file is not one of a folder."""
    if path.is_dir():
        raise IsADirectoryError(
            "a weights file must be a file; "
            f"got the folder {str(path)!r}. "
            f"Name a file in it: path = {str(path / 'forecaster.safetensors')!r}."
        )


def _text_of(content: bytes) -> Parts:
    """Return the text of a file, if its version can be read."""
    # safetensors: the header's length in 8 bytes, the header in JSON, the arrays
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    metadata = header["__metadata__"]
    # the first version had no such key, but held its number
    found: Parts = json.loads(metadata[_KEY]) if _KEY in metadata else metadata
    number, writer = found["format_version"], str(found["sklode_version"])[:20]
    if number not in _READ:
        known = " or ".join(map(str, _READ))
        what = f"version {str(number)[:20]} of the format, not {known}"
        remedy = (
            f"Use sklode {writer} as it was when it wrote the file, "
            "or fit anew and save that."
        )
        _refuse(what, remedy)
    return found


def _refuse(got: str, remedy: str = "Write it anew, or use pickle.") -> NoReturn:
    raise WeightsFileError(
        f"a weights file must hold what save_weights can store; got {got}. {remedy}"
    )


def _safetensors() -> ModuleType:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "save_weights and load_weights need safetensors, which is not installed. "
            "Install it with pip install safetensors, or use pickle."
        ) from error
    return safetensors.numpy


def _sealed(content: bytes) -> bytes:
    """Return a file's content with the checksum of all of it."""
    # of the content with the blank: a checksum cannot be part of what it is taken of
    digest = hashlib.sha256(content).hexdigest().encode()
    return content.replace(_BLANK, digest, 1)


def _state_of(forecaster: BaseForecaster) -> Parts:
    """Return what a forecaster is made of."""
    found = vars(forecaster)
    if found.get("_y") is not None or found.get("_X") is not None:
        warnings.warn("a weights file has no data of remember_data=True", stacklevel=4)
    state = {name: found[name] for name in _ATTRIBUTES if name in found}
    # a copy without sktime's own objects, which are of the columns that were read
    state["_y_metadata"] = dict(found["_y_metadata"])
    state["_y_metadata"].pop("feature_kind", None)
    state["parameters"] = forecaster.get_params(deep=False)
    state["config"] = forecaster.get_config()
    state["model"] = found.get("_model")
    return state


def _forecaster(kind: type[_Forecaster], state: Parts) -> _Forecaster:
    """Return a forecaster that is made of what `_state_of` returned."""
    parameters = _renamed(state["parameters"])
    forecaster = kind(**parameters).set_config(**state["config"])
    # what a fit would set comes before the model, which answers for the history
    attributes = {name: state[name] for name in _ATTRIBUTES if name in state}
    vars(forecaster).update(attributes)
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
    # a dict with other keys is a list of "items", so that an @ always is a kind
    if type(value) is dict and all(map(_is_plain_key, value)):
        # no dot before the outermost
        inside = f"{where}.".lstrip(".")
        return {k: _plain(value[k], inside + k, arrays) for k in value}
    if isinstance(value, np.ndarray):
        # safetensors writes memory as it lies, and views may have strides
        arrays[where] = value.copy(order="C")
        return {"@array": where}
    for name, kind in _KINDS.items():
        if isinstance(value, kind.types):
            parts = _plain(kind.take_apart(value), where, arrays)
            return {f"@{name}": parts}
    what = f"{value!r} of type {type(value).__name__} as {where}"
    _refuse(what, "Use numbers, texts, dates, stamps, steps and tuples, or pickle.")


def _is_plain_key(key: object) -> bool:
    return isinstance(key, str) and not key.startswith("@")


def _restored(data: Plain, arrays: dict[str, Array], makers: dict[str, Make]) -> Any:
    """Return the value that `_plain` described."""
    if isinstance(data, list):
        return [_restored(item, arrays, makers) for item in data]
    if not isinstance(data, dict):
        return data
    # what is inside comes first: parts are made before what they are parts of
    found = {key: _restored(item, arrays, makers) for key, item in data.items()}
    name = next(iter(found), "")
    if not name.startswith("@"):
        return found
    if name == "@array":
        return arrays[found[name]]
    make, parts = makers[name[1:]], found[name]
    return make(**parts) if isinstance(parts, dict) else make(parts)


def _parts_of_index(index: pd.Index) -> Parts:
    # the kind of periods says their frequency
    is_period = isinstance(index, pd.PeriodIndex)
    freq = None if is_period else getattr(index, "freq", None)
    return {
        "ticks": ticks_of(index).tolist(),
        "kind": str(index.dtype),
        "freq": freq,
        "name": index.name,
    }


def _index(
    ticks: list[int], kind: str, freq: pd.offsets.BaseOffset | None, name: Hashable
) -> pd.Index:
    # pandas would open what the zone names
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
    # some names say too little: the holidays of business days, say
    with contextlib.suppress(ValueError):
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


def _model(
    kind: Callable[..., _Model],
    build: Callable[..., Autoencoder],
    network: Parts | None,
    **parts: Any,
) -> _Model:
    """Return a model with its networks, if it has one."""
    architecture = parts["architecture"] = _renamed(parts["architecture"])
    architecture.setdefault("n_networks", 1)  # before format 20
    units: Units = parts["units"]
    sizes = len(units.location), len(units.control_location)

    def made_of(written: Parts) -> Autoencoder:
        # where it takes no memory, whatever sizes a file holds
        with torch.device("meta"):
            made = build(NetworkSettings.of(architecture), *sizes, **written["sizes"])
        weights = written["weights"].items()
        tensors = {name: torch.from_numpy(x) for name, x in weights}
        # refuses other names and shapes
        made.load_state_dict(tensors, assign=True)
        return made.eval()

    if network is None:
        return kind(network=None, **parts)
    if parts.get("others"):
        parts["others"] = tuple(made_of(one) for one in parts["others"])
    if parts.get("backward"):
        parts["backward"] = made_of(parts["backward"])
    return kind(network=made_of(network), **parts)


def _renamed(settings: Parts) -> Parts:
    """Return settings, of which one was called level in format 14."""
    model = MODEL_OF_LEVEL.get(settings.get("level", ""))
    if model is None:
        return settings
    others = {name: value for name, value in settings.items() if name != "level"}
    return others | {"model": model}


def _history_14(
    fills: Array | None = None, blurs: Array | None = None, **parts: Any
) -> History:
    """Return a history of format 14, which had other names for filled X."""
    return History(imputations=fills, input_deviations=blurs, **parts)


def _effect_14(
    column: int,
    knots: tuple[float, ...],
    memory: float,
    days: tuple[int, ...],
    waves: int,
    size: float,
    kinds: int,
    sides: bool,
    levels: int,
    delay: float = 0.0,
) -> Effect:
    """Return an effect of format 14, whose columns below zero were the calendar's."""
    of: basis.Basis = basis.Line(column)
    if column < 0:
        of = basis.Constant()
    elif knots:
        of = basis.Spline(column, knots)
    elif levels:
        of = basis.Levels(column, levels)
    along: modulation.Modulation = modulation.ALWAYS
    if column == -3:
        along = modulation.NamedDays(kinds, sides)
    elif column == -2:
        along = modulation.Month(waves)
    elif waves:
        along = modulation.Day(days, waves, has_mean=column == -1)
    lag: lags.Lag = lags.NOW
    if memory or delay:
        lag = lags.Memory(memory) if memory else lags.Delay(delay)
    return Effect(of, lag, along, size)


def _candidate_14(
    form: Form,
    logs: Array,
    weight: float,
    location: float,
    scale: float,
    link: Link = IDENTITY,
    harmonics: int = FEWEST_HARMONICS,
    threshold: float = THRESHOLD,
    steps: bool = True,
    scale_spread: float = 0.0,
    centred: bool = False,
    in_proportion: bool = False,
    rise: float = 1.0,
    error: float = 0.0,
    group: int = 0,
    units_of_series: None = None,
) -> Candidate:
    """Return a candidate of format 14, which had all fields side by side."""
    effects = None
    if scale_spread or centred:
        effects = RandomEffects(
            spread=scale_spread, has_location=centred, in_proportion=in_proportion
        )
    return Candidate(
        model=Model(
            form=form,
            theta=logs,
            harmonics=harmonics,
            rule=Rule(threshold=threshold, step=STEP if steps else np.inf),
        ),
        scaling=Scaling(
            location=location,
            scale=scale,
            link=link if form.linked else IDENTITY,
            random_effects=effects,
            smearing=rise,
            error=error,
        ),
        weight=weight,
        group=group,
    )


def _structural_model_14(
    channels: list[list[Candidate]],
    spans: list[float],
    bounds: Array,
    steps: Array,
    moves: list[LargestMoves],
    cross: NextRows,
    concurrent: SameTime,
    control_location: Array,
    control_scale: Array,
    effects: list[Effect],
    **design: Any,
) -> StructuralModel:
    """Return a model of format 14, which had a list of each part of columns."""
    each = zip(channels, spans, bounds, steps.tolist(), moves, strict=True)
    return StructuralModel(
        design=_design_21(
            location=control_location,
            scale=control_scale,
            effects=tuple(effects),
            **design,
        ),
        columns=[ColumnModel(*parts) for parts in each],
        coupling=Coupling(same_time=concurrent, next_rows=cross),
    )


def _observations(**parts: Any) -> Observations:
    found = Observations(**parts)
    ends, n = found.bounds, len(found.ticks)
    fits = ends[0] == 0 and ends[-1] == n == len(found.values)
    # compiled code checks no index, and would read any memory
    if not fits or (found.lengths <= 0).any():
        _refuse("rows of no series")
    return found


def _parts_of_record(record: Any) -> Parts:
    if hasattr(record, "_asdict"):
        return record._asdict()
    # not asdict of dataclasses, which would take the parts apart as well
    return {one.name: getattr(record, one.name) for one in fields(record)}


# NamedTuples and dataclasses that are made of their fields.
_RECORDS = (
    History,
    Units,
    ControlForms,
    NetworkWeights,
    StructuralModel,
    ColumnModel,
    Design,
    Candidate,
    Model,
    Rule,
    Scaling,
    RandomEffects,
    CoefficientPrior,
    RandomCoefficients,
    Pooled,
    Pooling,
    Form,
    Effect,
    basis.Constant,
    basis.Line,
    basis.Logarithm,
    basis.Spline,
    basis.Levels,
    lags.Now,
    lags.Memory,
    lags.Impulse,
    lags.Age,
    lags.Delay,
    modulation.Always,
    modulation.Day,
    modulation.Month,
    modulation.NamedDays,
    modulation.Weeks,
    modulation.Steps,
    modulation.TradingDays,
    Coupling,
    NextRows,
    SameTime,
    LargestMoves,
    Link,
    Calendar,
    RowPeriod,
    StructuralFit,
)


class _Kind(NamedTuple):
    """What is not plain, how to take it apart, and how to make it."""

    types: type | tuple[type, ...]
    take_apart: Callable[[Any], object]
    make: Make


# By the name in a file. The first that fits is taken, as a NamedTuple is a tuple as
# well, and a time stamp a date.
_KINDS: dict[str, _Kind] = {
    **{kind.__name__: _Kind(kind, _parts_of_record, kind) for kind in _RECORDS},
    "Observations": _Kind(Observations, _parts_of_record, _observations),
    "LatentODEModel": _Kind(
        LatentODEModel,
        _parts_of_record,
        partial(_model, LatentODEModel, latent_ode.build_network),
    ),
    "HybridModel": _Kind(
        HybridModel,
        _parts_of_record,
        partial(_model, HybridModel, hybrid.build_network),
    ),
    "network": _Kind((latent_ode.LatentODE, hybrid.HybridODE), _parts_of_network, dict),
    "tuple": _Kind(tuple, list, tuple),
    "series": _Kind(
        pd.Series,
        lambda found: {"data": found.tolist(), "index": found.index},
        pd.Series,
    ),
    "table": _Kind(
        pd.DataFrame,
        lambda found: {name: found[name].tolist() for name in found},
        lambda **columns: pd.DataFrame(columns),
    ),
    "items": _Kind(dict, lambda found: list(found.items()), dict),
    "index": _Kind(pd.Index, _parts_of_index, _index),
    "stamp": _Kind(
        (pd.Timestamp, pd.Timedelta, pd.Period),
        lambda stamp: _parts_of_index(pd.Index([stamp])),
        lambda **parts: _index(**parts)[0],
    ),
    "date": _Kind(datetime.date, str, datetime.date.fromisoformat),
    "offset": _Kind(pd.offsets.BaseOffset, _parts_of_offset, _offset),
    "horizon": _Kind(
        ForecastingHorizon,
        lambda fh: {"values": fh.to_pandas(), "is_relative": fh.is_relative},
        ForecastingHorizon,
    ),
    "device": _Kind(torch.device, str, torch.device),
}


def _largest_moves_15(**parts: Any) -> LargestMoves:
    """Return the moves of a format that had another word for how a hull grows."""
    if "widening" in parts:
        parts["growth"] = parts.pop("widening")
    return LargestMoves(**parts)


def _random_coefficients_16(
    has_mean: Flags, spread: Array, in_y: Flags, is_centred: Flags, **parts: Any
) -> RandomCoefficients:
    """Return those of a format that held apart how each is pooled."""
    is_between = np.zeros(len(spread), dtype=bool)  # which only a fit asks for
    how = Pooled(has_mean, spread, in_y, is_centred, is_between)
    return RandomCoefficients(how=how, **parts)


def _named_days_17(window: int = 0, **parts: Any) -> modulation.NamedDays:
    """Return named days of a format that had windows for periods alone."""
    return modulation.NamedDays(window=window, of_periods=window > 0, **parts)


def _hybrid_model_19(units: Units, **parts: Any) -> object:
    """Return a model of a format whose networks read columns of X as they are."""
    forms = ControlForms.of_columns(len(units.control_location))
    return _KINDS["HybridModel"].make(units=units, forms=forms, **parts)


def _design_21(year: float | None = None, **parts: Any) -> Design:
    """Return a design of a format that looked a year back alone, or not at all."""
    periods = {} if year is None else {"year_before": year}
    return Design(periods=periods, **parts)


# What makes the kinds of formats before that had other names or parts.
_MAKERS_21: dict[str, Make] = {"Design": _design_21}
_MAKERS_19: dict[str, Make] = {"HybridModel": _hybrid_model_19}
_MAKERS_17: dict[str, Make] = {"NamedDays": _named_days_17}
_MAKERS_16: dict[str, Make] = {
    "LargestMoves": _largest_moves_15,
    "RandomCoefficients": _random_coefficients_16,
}
_MAKERS_14: dict[str, Make] = {
    "History": _history_14,
    "StructuralModel": _structural_model_14,
    "Candidate": _candidate_14,
    "Effect": _effect_14,
    "CrossChannel": NextRows,
    "Concurrent": SameTime,
}
