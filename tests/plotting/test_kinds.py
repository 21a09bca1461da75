"""Whatever can be forecast can be drawn: every index, panel and model of the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_forecast, plot_history
from tests.fitted import KINDS
from tests.plotting.test_series import band, points

pytestmark = pytest.mark.slow  # a fit of each kind, and the text of many ticks


def by_axes(table: Any) -> list[np.ndarray]:
    """Return what is known of each series and channel, in the order of their axes."""
    frame = pd.DataFrame(table)
    levels = list(range(frame.index.nlevels - 1))
    parts = [x for _, x in frame.groupby(level=levels)] if levels else [frame]
    columns = [part.iloc[:, k] for part in parts for k in range(frame.shape[1])]
    return [column.dropna().to_numpy() for column in columns]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_fitted_can_be_drawn(kind: str) -> None:
    asked = KINDS[kind]()
    forecaster, fh, X = asked.forecaster, asked.fh, asked.X
    forecast = forecaster.predict(fh, X=X)
    if isinstance(forecast, pd.Series | pd.DataFrame):  # an array has no stamps
        interval = forecaster.predict_interval(fh, X=X, coverage=[0.5, 0.9])
        is_series = isinstance(forecast, pd.Series)
        y = asked.seen.iloc[:, 0] if is_series else asked.seen
        axes = np.ravel(plot_forecast(y, forecast, interval))
        low, high = (
            by_axes(interval.loc[:, [x[-2:] == (0.9, end) for x in interval]])
            for end in ("lower", "upper")
        )
        drawn = zip(axes, by_axes(y), by_axes(forecast), low, high, strict=True)
        for one, seen, ahead, *ends in drawn:
            np.testing.assert_array_equal(points(one, "observed")[:, 1], seen)
            np.testing.assert_array_equal(points(one, "forecast")[:, 1], ahead)
            edges = band(one, "90 % interval")[:, 1:]
            np.testing.assert_allclose(edges, np.stack(ends, axis=1))
    loss = points(plot_history(forecaster)[0], "training loss")[:, 1]
    np.testing.assert_array_equal(loss, forecaster.history_["loss"].dropna())
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
