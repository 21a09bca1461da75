"""The settings that a network is built by.

Tested in tests/test_persistence.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from torch import nn


@dataclass(frozen=True)
class NetworkSettings:
    """What a forecaster's parameters say of its network; see their docstrings."""

    encoder: str | type[nn.Module]  # a key of `sklode.nn.encoders.ENCODERS`
    hidden_size: int
    latent_size: int
    field_width: int
    field_depth: int
    emission_width: int
    method: str  # of the solver
    step_size: float  # in units of time

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> NetworkSettings:
        """Return those among some settings."""
        return cls(**{one.name: settings[one.name] for one in fields(cls)})
