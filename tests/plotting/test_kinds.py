"""Whatever can be forecast can be drawn: every index, panel and model of the tests."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_forecast, plot_history
from tests.fitted import KINDS

pytestmark = pytest.mark.slow  # a fit of each kind, and the text of many ticks


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_fitted_can_be_drawn(kind: str) -> None:
    asked = KINDS[kind]()
    forecaster, fh, X = asked.forecaster, asked.fh, asked.X
    y = forecaster._history.frame()
    forecast = forecaster.predict(fh, X=X)
    if isinstance(forecast, pd.Series):
        y = y.iloc[:, 0]
    if isinstance(forecast, pd.Series | pd.DataFrame):  # an array has no stamps
        interval = forecaster.predict_interval(fh, X=X, coverage=[0.5, 0.9])
        plot_forecast(y, forecast, interval)
    plot_history(forecaster)
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
