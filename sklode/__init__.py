"""Forecasters in continuous time, for sktime and scikit-learn users."""

from importlib.metadata import version

from sklode.data.clock import calendar_features
from sklode.data.errors import HistoryWarning, SolverError, WeightsFileError
from sklode.forecasters.latent_ode import LatentODEForecaster
from sklode.forecasters.latent_ode_lstm import LatentODELSTMForecaster
from sklode.forecasters.latent_ode_rnn import LatentODERNNForecaster
from sklode.forecasters.structural import StructuralForecaster
from sklode.model_selection import AbsoluteHorizon, AlignedMetric
from sklode.transformers import (
    StructuralDetector,
    StructuralImputer,
    StructuralResampler,
)

__version__ = version("sklode")

__all__ = [
    "AbsoluteHorizon",
    "AlignedMetric",
    "HistoryWarning",
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
    "SolverError",
    "StructuralDetector",
    "StructuralForecaster",
    "StructuralImputer",
    "StructuralResampler",
    "WeightsFileError",
    "__version__",
    "calendar_features",
]
