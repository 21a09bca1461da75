"""The constructor's parameters: what they mean, what they may be, and the check."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Protocol

import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from sklode.data.checks import SIZE, check_constraints
from sklode.data.known import KNOWN
from sklode.nn.encoders import check_encoder
from sklode.nn.solvers import methods

_POSITIVE = Interval(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
_COUNT = Interval(Integral, 0, None, closed="left")

MODEL_OF_LEVEL = {"auto": "hybrid", "series": "paper"}
"""Values of ``model`` by those of ``level``, its earlier name."""

# layers and batches of at least one
_SIZES = "hidden_size latent_size field_width field_depth emission_width batch_size"
_CONSTRAINTS: dict[str, list[object]] = {
    **{name: [SIZE] for name in _SIZES.split()},
    "window_length": [SIZE, None],
    "horizon": [_COUNT, None],
    "thinning": [Interval(Real, 0, 1, closed="left")],
    "model": [StrOptions({"hybrid", "paper"})],
    "level": [StrOptions({"deprecated", *MODEL_OF_LEVEL})],
    "step_size": [_POSITIVE],
    "clip_norm": [_POSITIVE, None],
    "kl_weight": [_NOT_NEGATIVE],
    "max_epochs": [SIZE, None],
    "lr": [_POSITIVE],
    "weight_decay": [_NOT_NEGATIVE],
    "n_networks": [Interval(Integral, 1, 100, closed="both")],
    "guard": ["boolean", StrOptions({"auto"})],
    "early_stopping": ["boolean"],
    "finetune_epochs": [_COUNT, None],
    "device": [str, torch.device],
    "verbose": [Interval(Integral, 0, 2, closed="both")],
}


class TrainingSettings(Protocol):
    """A forecaster's parameters, as a training reads them; see their docstrings."""

    encoder: str | type[nn.Module] | None
    own_encoder: str
    model: str
    level: str
    window_length: int | None
    horizon: int | None
    thinning: float
    clip_norm: float | None
    kl_weight: float
    max_epochs: int | None
    batch_size: int
    lr: float
    weight_decay: float
    n_networks: int
    guard: bool | str
    early_stopping: bool
    finetune_epochs: int | None
    device: str | torch.device


def check_parameters(forecaster: TrainingSettings) -> None:
    """Check every constructor parameter of a forecaster."""
    of_method = {"method": [StrOptions(set(methods()))]}
    check_constraints({**_CONSTRAINTS, **of_method}, forecaster)
    if forecaster.encoder is not None:
        check_encoder(forecaster.encoder)
    model = model_of(forecaster)
    if forecaster.level != "deprecated":
        if forecaster.model != "hybrid":
            raise ValueError(
                "level is the earlier name of model, so that one of them is given; got "
                f"model={forecaster.model!r} and level={forecaster.level!r}. Leave "
                "level out."
            )
        warnings.warn(
            f"level is now called model: use model={model!r} in place of level="
            f"{forecaster.level!r}, which goes in 0.5.",
            FutureWarning,
            stacklevel=2,
        )
    if forecaster.guard is True and model == "paper":
        raise ValueError(
            'guard=True belongs to model="hybrid", whose network has a structural '
            'model to prove itself beside; got model="paper". Use model="hybrid", or '
            'leave guard at "auto".'
        )
    if forecaster.n_networks > 1 and model == "paper":
        raise ValueError(
            'n_networks belongs to model="hybrid", whose networks are averaged; got '
            f'n_networks={forecaster.n_networks} and model="paper". Use '
            'model="hybrid", or leave n_networks at 1.'
        )
    given = [name for name in KNOWN if getattr(forecaster, name) is not None]
    if given and model == "paper":
        raise ValueError(
            f'{given[0]} belongs to model="hybrid"; got model="paper", which has no '
            f'place for it. Leave {given[0]} out, or use model="hybrid".'
        )
    resolve_device(forecaster.device)


def model_of(forecaster: TrainingSettings) -> str:
    """Return which model is named, by ``model`` or by its earlier name."""
    return str(MODEL_OF_LEVEL.get(forecaster.level, forecaster.model))


def resolve_device(name: str | torch.device) -> torch.device:
    """Return the device named."""
    try:
        # the engine is compiled for the CPU; a name alone does not tell whether torch
        # has the device, a tensor on it does
        device = torch.device("cpu" if name == "auto" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f'device must be "auto" or a device that torch has here; got {name!r}. Use '
            '"auto" or "cpu".'
        ) from error
    return device
