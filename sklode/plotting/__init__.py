"""Pictures of forecasts, trainings, gradients and latent paths, on matplotlib axes.

Every function takes the axes to draw on and returns them; without, it makes a figure.
None of them shows it, changes matplotlib's settings or the data that it is given.
"""

from sklode.plotting.forecasts import plot_forecast
from sklode.plotting.latent import plot_latent
from sklode.plotting.samples import plot_samples
from sklode.plotting.training import plot_gradient_flow, plot_history

__all__ = [
    "plot_forecast",
    "plot_gradient_flow",
    "plot_history",
    "plot_latent",
    "plot_samples",
]
