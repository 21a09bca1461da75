"""A model with a network, as a weights file holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sklode.data.origins import Units
from sklode.data.scaling import Normalisation
from sklode.prediction.ahead import AheadModel, Stacking, build_ahead
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel, build_network
from sklode.prediction.saving import ModelFormat, require


def _apart(model: Any) -> Any:
    """Return a model with a dict in place of its network, see `_together`."""
    if model is None or model.network is None:
        return model
    network: Any = model.network
    parts: Any = {
        "weights": {k: x.cpu().numpy() for k, x in network.state_dict().items()},
        "modules": [type(part).__name__ for part in network.modules()],
        "engine": network.engine,
        "device": str(next(network.parameters()).device),
    }
    if isinstance(model, AheadModel):
        parts |= {"reach": network.reach, "looks_back": network.looks_back}
    return replace(model, network=parts)


def _together(kind: Any, model: Any) -> Any:
    """Return a model, checked, with the network that it tells of."""
    counts = [model.window_length - 1, model.best_epoch]
    require(all(type(n) is int and n >= 0 for n in counts), f"the lengths {counts}")
    numbers = [number for row in model.rows for number in row.values()]
    require(all(type(x) in (int, float) for x in numbers), "a history of no numbers")
    if type(model) is AheadModel:
        return _with_level(kind, model)
    require(type(model) is FittedModel, "no model")
    n_channels, n_controls = map(len, model.columns)
    for name, array in vars(model.normalisation).items():
        size = n_controls if name.startswith("control") else n_channels
        require(array.shape == (size,) and np.isfinite(array).all(), f"the {name}")
        require("scale" not in name or (array > 0).all(), f"a {name} of zero or less")
    found = model.calibration or Calibration.none(n_channels)
    require(found.scales.shape == (len(found.lags), n_channels), "other scales")
    require(len(found.lags) and np.isfinite(found.lags).all(), "a calibration")
    is_scale = (found.scales >= 0) & np.isfinite(found.scales)
    require(is_scale.all() and (np.diff(found.lags) >= 0).all(), "a calibration")
    held = model.held
    require(held is None or held.shape == (n_channels,), "other constants")
    horizon = model.horizon
    require(type(horizon) is int and horizon >= 0, f"the lengths {[horizon]}")
    require(0 < model.time_unit < np.inf, f"the unit of time {model.time_unit}")

    def build(settings: Any, parts: dict[str, Any]) -> Any:
        return build_network(settings, n_channels, n_controls)

    return replace(model, network=_network(kind, model, build))


def _with_level(kind: Any, model: AheadModel) -> AheadModel:
    """Return a model of a level, checked; with its network, where it has one."""
    n_channels, n_controls = map(len, model.columns)
    units, found = model.units, model.weighed
    for name in ("location", "scale", "least", "control_location", "control_scale"):
        array = getattr(units, name)
        size = n_controls if name.startswith("control") else n_channels
        require(array.shape == (size,), f"the {name}")
        require(name == "least" or np.isfinite(array).all(), f"the {name}")
        require("scale" not in name or (array > 0).all(), f"a {name} of zero or less")
    require(0 < units.time < np.inf, f"the unit of time {units.time}")
    require(len(model.level.channels) == n_channels, "levels of other channels")
    shape = len(found.leads), n_channels
    require(found.weights.shape == found.factors.shape == shape, "other weights")
    bounded = (found.weights >= 0) & (found.weights <= 1) & (found.factors > 0)
    finite = np.isfinite(found.leads).all() and np.isfinite(found.factors).all()
    require(bounded.all() and finite and np.isfinite(found.reach), "weights of no use")
    if model.network is None:
        kind._of_settings(model.architecture)
        return model

    def build(settings: Any, parts: dict[str, Any]) -> Any:
        reach, looks_back = parts["reach"], parts["looks_back"]
        require(type(looks_back) is bool and 0 < reach < np.inf, f"the reach {reach}")
        return build_ahead(settings, n_channels, n_controls, reach, looks_back)

    return replace(model, network=_network(kind, model, build))


def _network(kind: Any, model: Any, build: Any) -> Any:
    """Return the network that a model tells of."""
    parts = model.network
    tensors = {name: torch.from_numpy(x) for name, x in parts["weights"].items()}
    for name, tensor in tensors.items():
        require(tensor.isfinite().all(), f"{name} that is not finite")
    settings = kind._of_settings({**model.architecture, "engine": parts["engine"]})
    # a network is no deeper than it has arrays: what is not there is not built
    require(settings.field_depth <= len(tensors), "fewer arrays than layers")
    with torch.device("meta"):  # where it takes no memory
        network = build(settings, parts)
    network.load_state_dict(tensors, assign=True)  # refuses other names and shapes
    types = {tensor.dtype for tensor in tensors.values()} - {torch.bool}
    require(types in ({torch.float32}, {torch.float64}), f"weights of types {types}")
    modules = [type(part).__name__ for part in network.modules()]
    require(modules == parts["modules"], f"a network of {parts['modules']}")
    network.engine = parts["engine"]
    network.settle(parts["device"])
    return network.eval()


_OWN = FittedModel, Normalisation, Calibration, AheadModel, Units, Stacking

NETWORK_FORMAT = ModelFormat(
    kinds={
        "device": (torch.device, str, torch.device),
        **{kind.__name__: (kind, vars, kind) for kind in _OWN},
    },
    apart=_apart,
    together=_together,
)
