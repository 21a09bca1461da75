"""The examples run, and their figures are those of their methods."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.naive import NaiveForecaster

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    """Import an example, which lies outside of any package."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load("benchmark_against_arima")


def test_benchmark_prints_its_table_and_saves_a_picture(
    benchmark: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    table = benchmark.main(["--quick", "--output", "picture.png"])
    captured = capsys.readouterr()
    assert list(table.columns) == ["shampoo", "CO2, irregular", "mean rank", "seconds"]
    assert list(table.index) == list(benchmark.STYLES)
    assert (table > 0).all(axis=None)
    assert captured.err == ""
    assert all(name in captured.out for name in table.index)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    picture = matplotlib.image.imread(tmp_path / "picture.png")
    assert picture.std() > 0.05
    y = benchmark.load_shampoo_sales().to_numpy()
    step = np.abs(np.diff(y[:24])).mean()
    naive, seasonal = (
        np.abs(y[24:] - before).mean() / step for before in (y[23], y[12:24])
    )
    assert table.loc["naive", "shampoo"] == pytest.approx(naive)
    assert table.loc["seasonal naive", "shampoo"] == pytest.approx(seasonal)


def test_folds_of_the_benchmark_end_with_the_series(benchmark: ModuleType) -> None:
    for task in benchmark.load_tasks(quick=False).values():
        folds = list(task.splitter().split(task.y))
        assert len(folds) == task.n_folds
        assert folds[-1][1][-1] == len(task.y) - 1
        for train, test in folds:
            assert list(test) == list(range(len(train), len(train) + task.n_ahead))


def test_mean_rank_leaves_the_irregular_task_out(benchmark: ModuleType) -> None:
    def result(*scores: float) -> pd.DataFrame:
        seconds = {"fit_time_fold_0_test": 1.0, "pred_time_fold_0_test": 0.5}
        scored = {"MeanAbsoluteScaledError_mean": list(scores)}
        return pd.DataFrame({**scored, **seconds}, ["a", "b", "c"])

    table = benchmark.table_of(
        {"x": result(1, 2, 3), "y": result(2, 1, 1), "z, irregular": result(3, 2, 1)}
    )
    assert table["mean rank"].tolist() == [2.0, 1.75, 2.25]
    assert table["seconds"].tolist() == [4.5, 4.5, 4.5]


@pytest.mark.filterwarnings("ignore:The default of config:FutureWarning")
def test_grid_forecast_of_a_straight_line_is_read_at_the_stamps(
    benchmark: ModuleType,
) -> None:
    days = np.array([0, 3, 4, 9, 10, 17, 21, 22, 30, 31, 33, 40])
    index = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")
    y = pd.Series(2.0 * days + 1, index, name="line")
    drift = NaiveForecaster("drift")
    forecaster = benchmark.OnRegularGrid(drift, pd.Timedelta("3D"))
    stamps = index[-1] + pd.to_timedelta([1, 5, 20], unit="D")
    forecast = forecaster.fit(y[:-2]).predict(fh=stamps)
    expected = pd.Series(2.0 * (days[-1] + np.array([1, 5, 20])) + 1, stamps)
    pd.testing.assert_series_equal(forecast, expected, check_names=False)


def test_intervals_prints_what_they_cover_and_saves_a_picture(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["intervals.py", "--epochs", "2", "--output", "picture.png"]
    )
    monkeypatch.chdir(tmp_path)
    load("intervals").main()
    assert "90% intervals cover" in capsys.readouterr().out
    assert matplotlib.image.imread(tmp_path / "picture.png").std() > 0.05
