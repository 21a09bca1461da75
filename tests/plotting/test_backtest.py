"""Pictures of a backtest."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from sklode.plotting import plot_backtest, plot_forecast


def results() -> pd.DataFrame:
    index = pd.MultiIndex.from_product(
        [["2024", "2025"], ["forecaster", "last value"]], names=["origin", "method"]
    )
    table = pd.DataFrame({"MAE": [1.0, 2.0, 3.0, 6.0], "coverage": 0.8}, index)
    table.attrs["coverage"] = 0.9
    return table


def test_errors_of_each_method_and_coverage_are_drawn() -> None:
    errors, coverage = plot_backtest(results())
    drawn = {line.get_label(): list(line.get_ydata()) for line in errors.lines}
    assert drawn == {
        "forecaster, 2 on average": [1.0, 3.0],
        "last value, 4 on average": [2.0, 6.0],
    }
    assert [list(line.get_ydata()) for line in coverage.lines] == [
        [0.8, 0.8],
        [0.9, 0.9],
    ]
    plt.close("all")


def test_the_best_methods_of_a_backtest_are_drawn_apart() -> None:
    names = ["forecaster", "last value", "drift", "seasonal naive", "7 d before"]
    names += ["364 d before", "mean of 4 weeks", "hour of the week"]
    index = pd.MultiIndex.from_product([["2024"], names], names=["origin", "method"])
    table = pd.DataFrame({"MAE": [9.0, 8, 1, 7, 2, 3, 5, 4], "coverage": 0.8}, index)
    errors, _ = plot_backtest(table)
    drawn = [str(line.get_label()).split(",")[0] for line in errors.lines]
    assert drawn == ["forecaster", "drift", *names[4:]]
    looks = {(line.get_color(), line.get_marker()) for line in errors.lines}
    assert len(looks) == len(errors.lines)
    plt.close("all")


def test_another_table_is_refused() -> None:
    with pytest.raises(TypeError, match=r"what sklode\.model_selection\.backtest ret"):
        plot_backtest(pd.DataFrame({"MAE": [1.0]}))


def test_a_forecast_in_the_place_of_y_is_refused() -> None:
    y = pd.Series(range(20), dtype=float)
    ahead = pd.Series([1.0, 2.0], index=[20, 21])
    with pytest.raises(ValueError, match=r"Swap them: plot_forecast\(y, y_pred\)"):
        plot_forecast(ahead, y)
    plot_forecast(y, pd.Series([1.0], index=[-3]))  # a backcast
    plt.close("all")
