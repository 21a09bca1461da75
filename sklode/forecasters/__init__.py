"""The forecasters: sktime's contract over Latent ODEs, and over a level alone.

A class is loaded when it is first asked for: only the Latent ODEs need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "LatentODEForecaster",
    "LatentODELSTMForecaster",
    "LatentODERNNForecaster",
    "StructuralForecaster",
]

if TYPE_CHECKING:
    from sklode.forecasters.latent import (
        LatentODEForecaster,
        LatentODELSTMForecaster,
        LatentODERNNForecaster,
    )
    from sklode.forecasters.structural import StructuralForecaster
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "structural" if name == "StructuralForecaster" else "latent"
        return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
