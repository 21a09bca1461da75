"""Pictures of a backtest."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def at_origins(origins: pd.Index) -> pd.DataFrame:
    """Return results at some origins."""
    names = ["forecaster", "mean of 4 weeks", "hour of the week", "28 d before"]
    index = pd.MultiIndex.from_product([origins, names], names=["origin", "method"])
    return pd.DataFrame({"MAE": 1.0, "coverage": 0.8}, index)


START = pd.Timestamp("2024-04-02 22:00", tz="Australia/Melbourne")
THREE_WEEKS_ON = START + pd.DateOffset(days=21)  # at another offset
BACK = pd.date_range("2024-04-06 15:00", periods=2, freq="h", tz="UTC")  # clocks, there


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        (pd.Index([START, THREE_WEEKS_ON]), ["2024-04-02", "2024-04-23"]),
        (
            START + pd.to_timedelta([0, 5], "h"),
            ["2024-04-02 22:00", "2024-04-03 03:00"],
        ),
        (
            START + pd.to_timedelta([0, 1], "s"),
            [f"2024-04-02 22:00:0{k}" for k in (0, 1)],
        ),
        (
            BACK.tz_convert("Australia/Melbourne"),
            [f"2024-04-07 02:00:00+{hours}:00" for hours in (11, 10)],
        ),
        (pd.period_range("2024-01", periods=2, freq="M"), ["2024-01", "2024-02"]),
        (pd.RangeIndex(3, 5), ["3", "4"]),
    ],
)
def test_origins_are_told_by_what_differs(
    origins: pd.Index, expected: list[str]
) -> None:
    for axes in plot_backtest(at_origins(origins)):
        axes.figure.canvas.draw()
        assert [one.get_text() for one in axes.get_xticklabels()] == expected


@pytest.mark.parametrize("hours", [1, 24])
@pytest.mark.parametrize("n", [1, 3, 10, 40])
def test_the_whole_picture_is_in_its_figure(n: int, hours: int) -> None:
    origins = START + pd.to_timedelta(hours * np.arange(n), "h")
    sheet = plot_backtest(at_origins(origins))
    figure = sheet[0].figure
    figure.canvas.draw()
    parts = [*sheet, *figure.legends]
    boxes = [one.get_tightbbox(figure.canvas.get_renderer()) for one in parts]
    for box in boxes:
        assert (box.min >= 0).all()
        assert (box.max <= figure.bbox.max).all()
    assert max(box.height for box in boxes) > 0.4 * figure.bbox.height
    for axes in sheet:
        assert 1 <= len(axes.get_xticks()) <= 12
        assert axes.yaxis.label.get_window_extent().height < axes.bbox.height


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"MAE": [1.0]}),
        results()[["MAE"]],
        results()["MAE"],
        results().drop("forecaster", level="method"),
        results()[:0],
        5,
    ],
)
def test_another_table_is_refused(table: Any) -> None:
    with pytest.raises(TypeError, match="takes the whole table of backtest") as told:
        plot_backtest(table)
    assert "what sklode.model_selection.backtest returns" in str(told.value)


def test_a_forecast_in_the_place_of_y_is_refused() -> None:
    y = pd.Series(range(20), dtype=float)
    ahead = pd.Series([1.0, 2.0], index=[20, 21])
    with pytest.raises(ValueError, match=r"Swap them: plot_forecast\(y, y_pred\)"):
        plot_forecast(ahead, y)
    plot_forecast(y, pd.Series([1.0], index=[-3]))  # a backcast
    plt.close("all")
