"""The forecasters: sktime's contract over Latent ODEs, and over a level alone."""

from sklode.forecasters.latent import (
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
