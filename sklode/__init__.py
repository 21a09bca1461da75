"""Forecasters in continuous time, for sktime and scikit-learn users.

A forecaster is loaded when it is first asked for: only the Latent ODEs need torch.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sklode import forecasters
from sklode.data.clock import calendar_features
from sklode.data.errors import (
    HistoryWarning,
    SolverError,
    TimesInValuesWarning,
    WeightsFileError,
)
from sklode.model_selection import AbsoluteHorizon, AlignedMetric

__version__ = version("sklode")

__all__ = [
    "AbsoluteHorizon",
    "AlignedMetric",
    "HistoryWarning",
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
    "SolverError",
    "StructuralForecaster",
    "TimesInValuesWarning",
    "WeightsFileError",
    "__version__",
    "calendar_features",
]

if TYPE_CHECKING:
    from sklode.forecasters import (
        LatentODEForecaster,
        LatentODELSTMForecaster,
        LatentODERNNForecaster,
        StructuralForecaster,
    )
else:

    def __getattr__(name: str) -> Any:
        if name not in forecasters.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(forecasters, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
