"""The forecasters: sktime's contract over Latent ODEs, and over a level alone."""

from sklode.forecasters.latent_ode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
)
from sklode.forecasters.structural import StructuralForecaster

__all__ = [
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
    "StructuralForecaster",
]
