"""A fitted model as plain data and arrays, and the way back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.errors import WeightsFileError
from sklode.data.windows import Normalisation
from sklode.levels.anchors import ANCHORS
from sklode.prediction.calibration import Calibration
from sklode.prediction.model import FittedModel, build_network
from sklode.prediction.plain_data import plain, restored
from sklode.prediction.weights_file import Arrays, require
from sklode.training.parameters import check_parameters

__all__ = ["model_from", "parts_of"]

_ENGINES = ("fused", "eager")
_REAL = np.dtype(np.float64)
_NORMALISATION = ("location", "scale", "control_location", "control_scale")


def parts_of(model: FittedModel, prefix: str, arrays: Arrays) -> dict[str, Any]:
    """Return a model as plain data; its arrays go to ``arrays``, under a prefix.

    Raises
    ------
    WeightsFileError
        If the network is not built of the modules that its settings name.
    """
    network, normalisation = model.network, model.normalisation
    n_channels, n_controls = (
        len(x) for x in (normalisation.location, normalisation.control_location)
    )
    encoder = {nn.RNN: "rnn", nn.ODERNN: "ode-rnn", nn.ODELSTM: "ode-lstm"}.get(
        type(network.encoder), "other"
    )
    kind = str(network.anchor.kind)
    if encoder == "other" or not _is_built(model, encoder, n_channels, n_controls):
        raise WeightsFileError(
            "a weights file holds networks of sklode's own modules; got another one: "
            f"{[type(part).__name__ for part in network.children()]}. Use pickle."
        )
    for name, tensor in network.state_dict().items():
        arrays[f"{prefix}.network.{name}"] = tensor.detach().cpu().numpy()
    for name in _NORMALISATION:
        arrays[f"{prefix}.{name}"] = getattr(normalisation, name)
    if model.calibration is not None:
        arrays[f"{prefix}.lags"] = model.calibration.lags
        arrays[f"{prefix}.scales"] = model.calibration.scales
    return {
        "anchor": kind,
        "sizes": [n_channels, n_controls],
        "engine": network.engine,
        "device": str(next(network.parameters()).device),
        "time_unit": plain(model.time_unit, "the time unit"),
        "longest_gap": float(model.longest_gap),
        "clock": model.clock,
        "lengths": [int(model.window_length), int(model.horizon)],
        "architecture": plain(model.architecture, "a setting of the network"),
        "rows": plain([list(row.values()) for row in model.rows], "the history"),
        "row_names": list(model.rows[0]) if model.rows else [],
        "best_epoch": int(model.best_epoch),
        "columns": [plain(list(names), "a column") for names in model.columns],
        "calibrated": model.calibration is not None,
    }


def _empty_network(
    architecture: dict[str, Any],
    encoder: str,
    n_channels: int,
    n_controls: int,
    anchor: str,
) -> nn.LatentODE:
    """Return the network that settings name without memory for its weights."""
    settings = SimpleNamespace(**architecture, encoder=encoder)
    with torch.device("meta"):
        return build_network(settings, n_channels, n_controls, anchor)


def _is_built(
    model: FittedModel, encoder: str, n_channels: int, n_controls: int
) -> bool:
    """Return whether a network is made of the modules that its settings name."""
    kind = str(model.network.anchor.kind)
    empty = _empty_network(model.architecture, encoder, n_channels, n_controls, kind)
    found = [type(part) for part in model.network.modules()]
    return found == [type(part) for part in empty.modules()]


def model_from(kind: Any, data: dict[str, Any], prefix: str, arrays: Arrays) -> Any:
    """Return the model that `parts_of` described; its arrays leave ``arrays``.

    Parameters
    ----------
    kind : type
        The forecaster's class.

    Raises
    ------
    WeightsFileError
        If arrays are missing, or of another shape, or not finite.
    """
    (n_channels, n_controls), anchor = data["sizes"], data["anchor"]
    known = type(n_channels) is int and type(n_controls) is int
    require(known and n_channels > 0 <= n_controls, "sizes that are none")
    require(anchor in (*ANCHORS, "linear"), f"the level {str(anchor)[:40]!r}")
    network = _network_from(kind, data, prefix, arrays)
    normalisation = Normalisation(
        *(arrays.pop(f"{prefix}.{n}") for n in _NORMALISATION)
    )
    for name in _NORMALISATION:
        size = n_controls if name.startswith("control") else n_channels
        _check_array(getattr(normalisation, name), (size,), f"{prefix}.{name}")
    positive = (normalisation.scale > 0).all() and (
        normalisation.control_scale > 0
    ).all()
    require(bool(positive), "a scale that is not positive")
    lengths, unit, best = (
        data["lengths"],
        restored(data["time_unit"]),
        data["best_epoch"],
    )
    longest = data["longest_gap"]
    counts = [*lengths, best]
    require(all(type(n) is int and n >= 0 for n in counts), f"the lengths {counts}")
    require(lengths[0] > 0, "a window without rows")
    require(type(unit) is float and 0 < unit < np.inf, f"the time unit {unit!r}")
    require(type(longest) is float and longest > 0, f"the longest gap {longest!r}")
    names, clock = data["row_names"], data["clock"]
    require(type(clock) is str, "no clock")
    rows = [dict(zip(names, row, strict=True)) for row in restored(data["rows"])]
    y_names, X_names = (restored(names) for names in data["columns"])
    lists = type(y_names) is list and type(X_names) is list
    require(lists and [len(y_names), len(X_names)] == data["sizes"], "other columns")
    return FittedModel(
        network,
        normalisation,
        unit,
        longest,
        clock,
        lengths[0],
        lengths[1],
        restored(data["architecture"]),
        rows,
        best,
        (y_names, X_names),
        _calibration_from(data, prefix, arrays, n_channels),
    )


def _network_from(
    kind: Any, data: dict[str, Any], prefix: str, arrays: Arrays
) -> nn.LatentODE:
    architecture = restored(data["architecture"])
    unknown = set(architecture) - set(kind.get_param_names())
    require(not unknown, f"unknown settings {sorted(unknown)[:3]}")
    check_parameters(kind(**{**architecture, "device": "cpu"}))
    begin = f"{prefix}.network."
    found = {
        name[len(begin) :]: arrays.pop(name)
        for name in list(arrays)
        if name.startswith(begin)
    }
    # a network is no deeper than it has arrays: what is not there is not built
    require(architecture["field_depth"] <= len(found), "fewer arrays than layers")
    settings = {**kind.get_param_defaults(), **architecture}
    n_channels, n_controls = data["sizes"]
    network = _empty_network(
        settings, kind.encoder, n_channels, n_controls, data["anchor"]
    )
    expected = network.state_dict()
    differing = sorted(set(expected) ^ set(found))
    require(not differing, f"missing or unknown weights, such as {differing[:1]}")
    dtypes = {np.dtype(np.float32), np.dtype(np.float64)}
    dtype = found[next(iter(network.state_dict()))].dtype
    require(dtype in dtypes, f"weights of type {dtype}")
    for name, tensor in expected.items():
        real = tensor.is_floating_point()
        _check_array(
            found[name],
            tuple(tensor.shape),
            begin + name,
            dtype if real else np.dtype(bool),
        )
    weights = {name: torch.from_numpy(array) for name, array in found.items()}
    network.load_state_dict(weights, assign=True)
    network.engine = data["engine"]
    require(network.engine in _ENGINES, "an unknown engine")
    network.settle(data["device"])
    return network.eval()


def _check_array(
    array: NDArray[Any],
    shape: tuple[int, ...],
    name: str,
    dtype: np.dtype = _REAL,
) -> None:
    require(
        array.shape == shape and array.dtype == dtype,
        f"{name} of shape {array.shape} and type {array.dtype}, expected {shape} and "
        f"{dtype}",
    )
    require(bool(np.isfinite(array).all()), f"{name} that is not finite")


def _calibration_from(
    data: dict[str, Any], prefix: str, arrays: Arrays, n_channels: int
) -> Calibration | None:
    if not data["calibrated"]:
        return None
    lags, scales = arrays.pop(f"{prefix}.lags"), arrays.pop(f"{prefix}.scales")
    _check_array(lags, (len(scales),), f"{prefix}.lags")
    _check_array(scales, (len(lags), n_channels), f"{prefix}.scales")
    require(bool((np.diff(lags) >= 0).all() and (scales >= 0).all()), "a calibration")
    return Calibration(lags, scales)
