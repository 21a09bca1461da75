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

from sklode import LatentODELSTMForecaster
from sklode.datasets import load_co2

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


def test_calendar_example_prints_its_table_and_saves_a_picture(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    example = load("calendar_season")
    errors = example.main(["--quick"])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert all(
        f"{name:28}{error:8.2f}" in captured.out for name, error in errors.items()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["calendar.png"]
    assert matplotlib.image.imread(tmp_path / "calendar.png").std() > 0.05
    y, _ = example.make_temperature()
    test = y["2025":]
    mean = y[:"2024"].mean()
    assert errors["training mean"] == pytest.approx(((test - mean) ** 2).mean())
    train = y[:"2024"]

    def design(index: pd.DatetimeIndex) -> np.ndarray:
        phase = 2 * np.pi * (index.dayofyear.to_numpy() - 1) / 365.25
        waves = [f(k * phase) for k in (1, 2) for f in (np.sin, np.cos)]
        return np.column_stack([np.ones(len(index)), *waves])

    weights, *_ = np.linalg.lstsq(design(train.index), train.to_numpy(), rcond=None)
    residuals = test - design(test.index) @ weights
    assert errors["regression on the waves"] == pytest.approx(
        (residuals**2).mean(), rel=0.01
    )


def test_gaps_example_prints_its_table_and_saves_a_picture(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = load("impute_gaps")
    monkeypatch.chdir(tmp_path)
    table = example.main(["--quick", "--output", "picture.png"])
    captured = capsys.readouterr()
    assert list(table.index) == ["series 0", "mean"]
    methods = [example.SPLINE, example.LINE, example.OURS]
    assert [name for part, name in table if part == "gap"] == methods
    methods.append(example.MIRRORED)
    assert [name for part, name in table if part == "before"] == methods
    assert (table > 0).all(axis=None)
    assert captured.err == ""
    assert all(name in captured.out for name in example.STYLES)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    assert matplotlib.image.imread(tmp_path / "picture.png").std() > 0.05
    problem = example.make_problem(0)
    first = problem.kept.iloc[0]
    expected = ((problem.early - first) ** 2).mean()
    assert table.loc["mean", ("before", example.LINE)] == pytest.approx(expected)


def test_what_the_gaps_example_cuts_out_is_not_learned_from() -> None:
    example = load("impute_gaps")
    for seed in range(5):
        kept, gap, early, signal = example.make_problem(seed)
        assert (len(kept), len(gap), len(early)) == (270, 20, 10)
        assert early.index[-1] < kept.index[0]
        assert not ((kept.index >= gap.index[0]) & (kept.index <= gap.index[-1])).any()
        noise = pd.concat([early, kept, gap])
        noise -= signal(noise.index)
        assert noise.std() == pytest.approx(0.1, rel=0.2)
        assert abs(noise.mean()) < 0.03


def test_line_and_spline_of_the_gaps_example_are_exact_on_their_own_kind() -> None:
    example = load("impute_gaps")
    hours = pd.to_timedelta([0, 1, 3, 4, 9, 12, 13], unit="h")
    known, asked = example.START + hours[[0, 1, 4, 5, 6]], example.START + hours[[2, 3]]
    t, at = example.hours(known), example.hours(asked)
    np.testing.assert_allclose(
        example.line(pd.Series(2 * t + 1, known), asked), 2 * at + 1
    )
    cubic = pd.Series(t**3 - t, known)
    np.testing.assert_allclose(example.spline(cubic, asked), at**3 - at, atol=1e-9)


def test_mirrored_answers_of_the_gaps_example_stand_at_their_own_stamps() -> None:
    example = load("impute_gaps")
    settings = {**example.QUICK, "random_state": 0}
    fitted = example.Fitted(example.make_problem(0), settings)
    kept, early = fitted.problem.kept, fitted.problem.early
    asked: list[pd.DatetimeIndex] = []

    class Clock:
        def predict(self, fh: pd.DatetimeIndex) -> pd.Series:
            asked.append(fh)
            return pd.Series(example.hours(fh), fh)

    fitted.backward = Clock()
    index = early.index.append(kept.index[:3])
    answer = fitted.answers(index)[example.MIRRORED]
    np.testing.assert_allclose(answer[:10], -example.hours(early.index))
    assert np.isnan(answer[10:]).all()
    assert asked[0].is_monotonic_increasing
    assert example.mirrored(kept.index)[-1] < asked[0][0]


@pytest.mark.parametrize("name", ["missing_values", "sample_paths"])
def test_example_prints_its_table_and_saves_a_picture(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    table = load(name).main(["--quick", "--output", "picture.png"])
    captured = capsys.readouterr()
    assert captured.err == ""
    assert all(column in captured.out for column in table.columns)
    assert (table > 0).all(axis=None)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    assert matplotlib.image.imread(tmp_path / "picture.png").std() > 0.05


def test_channels_of_the_example_are_never_observed_together() -> None:
    example = load("missing_values")
    y = example.observations()
    assert not y.notna().all(axis=1).any()
    stamps = y["flow"].dropna().index - example.START
    hours = stamps / pd.Timedelta("1h")
    begin, end = example.SILENT
    assert not ((hours > begin) & (hours < end)).any()
    assert y["level"].dropna().index.isin(y.index[y["flow"].isna()]).all()


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


@pytest.mark.slow
def test_the_quickstart_sees_the_season_of_the_weekly_record() -> None:
    settings = load("quickstart").SETTINGS
    y = load_co2()
    train, test = y[:"1999-06-30"], y["1999-07-01":]
    forecaster = LatentODELSTMForecaster(**settings).fit(train)
    error = ((forecaster.predict(fh=test.index) - test) ** 2).mean()
    # last year and its drift: 0.73; a line through ten years: 4.3
    assert error < 1.0
