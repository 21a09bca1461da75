"""A model with a network, as a weights file holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sklode.data.scaling import Normalisation
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel, build_network
from sklode.prediction.saving import ModelFormat, require

__all__ = ["NETWORK_FORMAT"]


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
        require(array.shape == (size,) and np.isfinite(array).all(), f"the {name}")
        require("scale" not in name or (array > 0).all(), f"a {name} of zero or less")
    found = model.calibration or Calibration.none(n_channels)
    require(found.scales.shape == (len(found.lags), n_channels), "other scales")
    require(len(found.lags) and np.isfinite(found.lags).all(), "a calibration")
    is_scale = (found.scales >= 0) & np.isfinite(found.scales)
    require(is_scale.all() and (np.diff(found.lags) >= 0).all(), "a calibration")
    held = model.held
    require(held is None or held.shape == (n_channels,), "other constants")
    counts = [model.window_length - 1, model.horizon, model.best_epoch]
    require(all(type(n) is int and n >= 0 for n in counts), f"the lengths {counts}")
    require(0 <= model.share <= 1, f"the share {model.share}")
    n_levels = n_channels if model.level is None else len(model.level.channels)
    require(n_levels == n_channels, "levels of other channels")
    units = model.time_unit, model.longest_gap
    require(all(0 < unit < np.inf for unit in units), f"the units of time {units}")
    numbers = [number for row in model.rows for number in row.values()]
    require(all(type(x) in (int, float) for x in numbers), "a history of no numbers")
    parts = model.network
    tensors = {name: torch.from_numpy(x) for name, x in parts["weights"].items()}
    for name, tensor in tensors.items():
        require(tensor.isfinite().all(), f"{name} that is not finite")
    settings = kind._of_settings({**model.architecture, "engine": parts["engine"]})
    # a network is no deeper than it has arrays: what is not there is not built
    require(settings.field_depth <= len(tensors), "fewer arrays than layers")
    with torch.device("meta"):  # where it takes no memory
        network: Any = build_network(settings, n_channels, n_controls, parts["anchor"])
    network.load_state_dict(tensors, assign=True)  # refuses other names and shapes
    types = {tensor.dtype for tensor in tensors.values()} - {torch.bool}
    require(types in ({torch.float32}, {torch.float64}), f"weights of types {types}")
    modules = [type(part).__name__ for part in network.modules()]
    require(modules == parts["modules"], f"a network of {parts['modules']}")
    network.engine = parts["engine"]
    network.settle(parts["device"])
    return replace(model, network=network.eval(), stopped=None)


_OWN = FittedModel, Normalisation, Calibration

NETWORK_FORMAT = ModelFormat(
    kinds={
        "device": (torch.device, str, torch.device),
        **{kind.__name__: (kind, vars, kind) for kind in _OWN},
    },
    apart=_apart,
    together=_together,
)
