"""A fitted forecaster as plain data and arrays, and the way back, without pickle.

Nothing that a file names is imported, called or looked up: the class is the one that
loads, every attribute is known here, and all is checked before it is believed.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pandas as pd
import torch
from sktime.datatypes._dtypekind import DtypeKind
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.errors import WeightsFileError
from sklode.data.history import History
from sklode.data.horizons import OffsetHorizon
from sklode.prediction import weights_file
from sklode.prediction.model import FittedModel
from sklode.prediction.plain_data import plain, restored
from sklode.prediction.stored_history import history_from, parts_of_history
from sklode.prediction.stored_model import model_from, parts_of
from sklode.prediction.weights_file import Arrays, require
from sklode.training.parameters import check_parameters

__all__ = ["load", "save"]


_KEPT = (
    "_config_dynamic",
    "_converter_store_y",
    "_cutoff",
    "_is_vectorized",
    "_predict_seed",
    "_state",
    "_tags_dynamic",
    "_y_metadata",
    "_y_mtype_last_seen",
)
"""Attributes, most of them sktime's, that are stored as they are."""

_STATES = ("pretrained", "fitted")


def save(path: str | os.PathLike[str], forecaster: Any) -> None:
    """Write a fitted or pretrained forecaster, see `sklode.prediction.weights_file`.

    Raises
    ------
    WeightsFileError
        If something of it cannot be stored; then nothing is written.
    """
    found = vars(forecaster)
    arrays: Arrays = {}
    attributes = {
        name: found[name] for name in _KEPT if name in found and name != "_y_metadata"
    }
    state = {
        "class": type(forecaster).__name__,
        "encoder": forecaster.encoder,
        "parameters": _plain_parameters(forecaster),
        "attributes": {name: plain(attributes[name], name) for name in attributes},
        "y_metadata": _plain_metadata(found["_y_metadata"]),
        "fh": _plain_horizon(found.get("_fh")),
        "history": None,
        "model": None,
        "pretrained": None,
    }
    if forecaster._state == "fitted":
        history = forecaster._history
        state["history"] = parts_of_history(history, arrays)
        state["model"] = parts_of(forecaster._model, "model", arrays)
    if found.get("pretrained_") is not None:
        pretrained = forecaster.pretrained_
        state["pretrained"] = parts_of(pretrained, "pretrained", arrays)
    try:
        _forecaster(type(forecaster), state, dict(arrays))
    except WeightsFileError as error:
        raise WeightsFileError(
            "a weights file must give the forecaster back; got one that it would not: "
            f"{error} Or use pickle."
        ) from error
    if found.get("_y") is not None or found.get("_X") is not None:
        warnings.warn(
            "a weights file leaves out the copy of the data that remember_data=True "
            "keeps; forecasts need it not.",
            stacklevel=3,
        )
    weights_file.write(path, state, arrays)


def load(path: str | os.PathLike[str], kind: type) -> Any:
    """Return the forecaster of a file, which must be of the class ``kind``.

    Raises
    ------
    WeightsFileError
        If the file is none of these, damaged, of another class or a later version, or
        holds what no forecaster could have stored.
    """
    return _forecaster(kind, *weights_file.read(path))


def _forecaster(kind: Any, state: dict[str, Any], arrays: Arrays) -> Any:
    name = state.get("class")
    if name != kind.__name__ or state.get("encoder") != kind.encoder:
        raise WeightsFileError(
            f"a weights file must hold a {kind.__name__} to be loaded as one; got a "
            f"{str(name)[:80]}. Use that class: {str(name)[:80]}.load_weights(path)."
        )
    try:
        found = _built(kind, state, arrays)
    except WeightsFileError:
        raise
    except Exception as error:  # all that is done here is done to what the file says
        raise WeightsFileError(
            "a weights file must hold what save_weights stores; got something else: "
            f"{type(error).__name__}: {str(error)[:500]}. Write the file anew."
        ) from error
    require(not arrays, f"arrays of unknown names such as {next(iter(arrays), '')!r}")
    return found


def _built(kind: Any, state: dict[str, Any], arrays: Arrays) -> Any:
    parameters = _parameters_from(kind, state["parameters"])
    attributes = {name: restored(data) for name, data in state["attributes"].items()}
    unknown = set(attributes) - set(_KEPT)
    require(not unknown, f"unknown attributes {sorted(unknown)[:3]}")
    require(attributes["_state"] in _STATES, f"the state {attributes['_state']!r}")
    attributes["_y_metadata"] = _metadata_from(state["y_metadata"])
    attributes["_fh"] = _horizon_from(state["fh"])
    model = None
    if attributes["_state"] == "fitted":
        history = history_from(state["history"], arrays)
        model = model_from(kind, state["model"], "model", arrays)
        _check_belong(history, model, attributes)
        attributes["_history"] = history
    if state["pretrained"] is not None:
        start = model_from(kind, state["pretrained"], "pretrained", arrays)
        attributes |= {"pretrained_": start, "_pretrained_attrs": ["pretrained_"]}
    require("pretrained_" in attributes or model is not None, "neither model")
    forecaster = kind(**parameters)
    forecaster.__dict__.update(attributes)
    if model is not None:
        forecaster._set_model(model)
    return forecaster


def _check_belong(
    history: History, model: FittedModel, attributes: dict[str, Any]
) -> None:
    """Check that a model can forecast from a history."""
    columns = len(history.channels), len(history.controls)
    sizes = model.normalisation.location, model.normalisation.control_location
    require(columns == tuple(map(len, sizes)), "a model of other columns")
    require(model.clock == history.observations.clock, "a model of another clock")
    seed = attributes["_predict_seed"]
    require(type(seed) is int and 0 <= seed < 2**31, f"the seed {seed!r}")
    cutoff = attributes["_cutoff"]
    require(isinstance(cutoff, pd.Index) and len(cutoff) == 1, "no cutoff")


def _plain_parameters(forecaster: Any) -> dict[str, Any]:
    """Return the constructor's parameters, of those that are objects what they hold."""
    found: dict[str, Any] = {}
    for name, value in forecaster.get_params(deep=False).items():
        if name == "callbacks" and value:
            warnings.warn(
                "a weights file holds no code: callbacks are left out. Pass them "
                "again to fit on with them.",
                stacklevel=4,
            )
            value = None
        if isinstance(value, torch.device):
            found[name] = {"device": str(value)}
        elif isinstance(value, np.random.RandomState):
            found[name] = {"random_state": _plain_generator(value)}
        else:
            found[name] = plain(value, f"parameter {name}")
    return found


def _plain_generator(rng: np.random.RandomState) -> dict[str, Any]:
    state: Any = rng.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise WeightsFileError(
            "a weights file holds RandomStates of MT19937 only; got one of "
            f"{state['bit_generator']}. Use np.random.RandomState(seed), an int, or "
            "pickle."
        )
    words = state["state"]["key"].tolist(), int(state["state"]["pos"])
    return {"words": words, "spare": [int(state["has_gauss"]), state["gauss"]]}


def _parameters_from(kind: Any, data: dict[str, Any]) -> dict[str, Any]:
    unknown = set(data) - set(kind.get_param_names())
    require(not unknown, f"unknown parameters {sorted(unknown)[:3]}")
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict) and "device" in value:
            found[name] = torch.device(value["device"])
        elif isinstance(value, dict) and "random_state" in value:
            words, spare = (
                value["random_state"]["words"],
                value["random_state"]["spare"],
            )
            rng = np.random.RandomState()
            rng.set_state(("MT19937", *words, *spare))
            found[name] = rng
        else:
            found[name] = restored(value)
    # the device need not be here
    check_parameters(kind(**{**found, "device": "cpu", "callbacks": None}))
    device = found.get("device", "auto")
    require(device == "auto" or torch.device(device) is not None, "no device")
    require(not found.get("callbacks"), "callbacks")
    return found


def _plain_metadata(metadata: dict[str, Any]) -> Any:
    kinds = [DtypeKind(kind).name for kind in metadata["feature_kind"]]
    return plain({**metadata, "feature_kind": kinds}, "sktime's description of y")


def _metadata_from(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = restored(data)
    return {**found, "feature_kind": [DtypeKind[k] for k in found["feature_kind"]]}


def _plain_horizon(fh: ForecastingHorizon | None) -> Any:
    if fh is None:
        return None
    freq = getattr(fh, "_freq", None)
    return {
        "steps": plain(fh.to_pandas(), "the horizon given to fit"),
        "is_relative": bool(fh.is_relative),
        "freq": plain(freq, "the frequency of the horizon given to fit"),
    }


def _horizon_from(data: Any) -> ForecastingHorizon | None:
    if data is None:
        return None
    steps, freq = restored(data["steps"]), restored(data["freq"])
    require(isinstance(steps, pd.Index), "a horizon without steps")
    if steps.dtype == object:
        fh = OffsetHorizon(steps)
    else:
        fh = ForecastingHorizon(steps, is_relative=data["is_relative"])
    fh._freq = freq
    return fh
