"""Pictures of forecasts, levels, states and trainings, on matplotlib axes.

Every function takes the axes to draw on and returns them; without, it makes a figure.
None of them shows it, changes matplotlib's settings or the data that it is given. They
need matplotlib: without it an ImportError says how to install it.
"""

from sklode.plotting.backtest import plot_backtest
from sklode.plotting.components import plot_components
from sklode.plotting.phase import plot_phase
from sklode.plotting.series import plot_forecast
from sklode.plotting.training import plot_history

__all__ = [
    "plot_backtest",
    "plot_components",
    "plot_forecast",
    "plot_history",
    "plot_phase",
]
