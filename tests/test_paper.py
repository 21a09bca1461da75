"""The paper's experiments keep to the protocol, and their scripts run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from sklode import LatentODELSTMForecaster

SHARED = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the paper's data sets are not beside the checkout"
)

FOLDER = Path(__file__).parents[1] / "examples" / "paper"

Load = Callable[[str], ModuleType]

TINY: dict[str, Any] = {
    "hidden_size": 3,
    "latent_size": 2,
    "field_width": 3,
    "emission_width": 3,
    "model": "paper",
    "max_epochs": 1,
}


@pytest.fixture(autouse=True)
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a script as it is when it is run: with its folder on the path."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


def days(values: Any) -> pd.DataFrame:
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    index = pd.date_range("2020-01-01", periods=len(values))
    return pd.DataFrame(values, index, [f"c{k}" for k in range(values.shape[1])])


def noisy(n_rows: int, n_channels: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return days(rng.standard_normal((n_rows, n_channels)).cumsum(axis=0))


# --- the protocol ---------------------------------------------------------------------


def test_errors_are_in_units_of_the_training_part(load: Load) -> None:
    experiment = load("protocol").Experiment(days([0, 2, 4, 10, np.nan, 12]), 3)
    # mean 2 and standard deviation 2 of the training part
    np.testing.assert_allclose(
        experiment.scaled[:, 0], [-1, 0, 1, 4, np.nan, 5], equal_nan=True
    )
    np.testing.assert_array_equal(experiment.origins(2), [3, 4])
    # truths (4, -) and (-, 5): what is missing does not count
    assert experiment.mse(np.full((2, 2, 1), 4.0)) == pytest.approx(0.5)


def test_an_origin_leaves_its_horizon_and_sees_the_rows_before(load: Load) -> None:
    experiment = load("protocol").Experiment(days(np.arange(20.0)), 12, every=3)
    origins = experiment.origins(2)
    np.testing.assert_array_equal(origins, [12, 15, 18])
    panel = load("protocol").panel_of_histories(experiment, origins)
    assert panel.loc[15, "c0"].tolist() == list(range(15))
    np.testing.assert_array_equal(
        experiment.rows(origins, 2), [[12, 13], [15, 16], [18, 19]]
    )


def test_all_origins_together_give_what_updates_give_in_turn(load: Load) -> None:
    protocol, features = load("protocol"), load("settings").features
    experiment = protocol.Experiment(noisy(60), 50)
    arguments: dict[str, Any] = {**TINY, "window_length": 5, "horizon": 3}
    arguments["random_state"] = 4
    forecaster = LatentODELSTMForecaster(**arguments, finetune_epochs=0)
    together = protocol.forecast_origins(forecaster, experiment, 5, 3, features)
    one = LatentODELSTMForecaster(**arguments)
    one.fit(experiment.train, X=features(experiment.train.index))
    assert together.shape == (8, 3, 2)
    for k, origin in enumerate(experiment.origins(3)):
        if k:
            new = experiment.data.iloc[origin - 1 : origin]
            one.update(new, X=features(new.index), update_params=False)
        stamps = experiment.data.index[origin : origin + 3]
        alone = one.predict(fh=stamps, X=features(stamps))
        np.testing.assert_allclose(together[k], experiment.scale(alone), atol=1e-5)


def test_a_forecaster_that_would_learn_from_test_windows_is_refused(load: Load) -> None:
    protocol = load("protocol")
    experiment = protocol.Experiment(noisy(60), 50)
    with pytest.raises(ValueError, match="must have finetune_epochs=0"):
        protocol.forecast_origins(LatentODELSTMForecaster(), experiment, 5, 3)


BASELINES = {
    "training mean": 0.958,
    "last value": 0.466,
    "window mean": 0.355,
    "climatology": 0.367,
    "ridge on the window": 0.333,
    "ridge on differences": 0.327,
    "2 yearly harmonics": 0.341,
    "ridge on anomalies": 0.290,
}


@needs_data
def test_baselines_of_the_climate_are_those_of_the_protocol(load: Load) -> None:
    protocol, experiment = load("protocol"), load("climate").load(SHARED / "delhi")
    found = protocol.baselines(experiment, 7, 7, seasonal=True)
    errors = {name: experiment.mse(found[name]) for name in BASELINES}
    assert errors == pytest.approx(BASELINES, abs=0.005)


# --- the spirals ----------------------------------------------------------------------


def test_spirals_lie_on_the_curves_of_the_paper(load: Load) -> None:
    make_spirals = load("protocol").make_spirals
    _, truth = make_spirals(4, 30, random_state=0)
    outward = truth.loc[1] - [5, 0]  # counterclockwise: r = 0.3 t at the angle t
    radius = np.hypot(outward["x"], outward["y"])
    angle = np.unwrap(np.arctan2(outward["y"], outward["x"]))
    np.testing.assert_allclose(np.diff(radius), 0.3 * np.diff(angle), atol=1e-9)
    inward = truth.loc[0] + [5, 0]  # clockwise: r = 15 / s at the angle s
    radius = np.hypot(inward["x"], inward["y"])
    angle = np.unwrap(np.arctan2(inward["y"], inward["x"]))
    assert (np.diff(angle) < 0).all()
    np.testing.assert_allclose(np.diff(15 / radius), np.diff(angle), atol=1e-9)


def test_covered_and_beyond_are_scored_apart(load: Load) -> None:
    spirals = load("spirals")
    _, truth = spirals.make_set(30, 0, 40, per_series=False)
    offset = {"reconstruction": 1.0, "forward beyond": 3.0, "backward covered": 2.0}
    forecast = truth.copy()
    for part, by in offset.items():
        forecast.loc[spirals.parts_of(truth)[part]] += by
    expected = {part: offset.get(part, 0.0) ** 2 for part in spirals.PARTS}
    assert spirals.scores(forecast, truth) == pytest.approx(expected)


# --- the scripts ----------------------------------------------------------------------


def test_every_setting_is_one_of_the_forecasters(load: Load) -> None:
    settings = load("settings")
    known = set(LatentODELSTMForecaster.get_param_names())
    for name in ("CLIMATE", "STOCKS", "PAPER_CLIMATE", "PAPER_STOCKS"):
        assert list(getattr(settings, name)) == list(settings.TASKS)
        for task in getattr(settings, name).values():
            assert set(task) <= known
    assert set(settings.SPIRALS) | set(settings.PAPER_SPIRALS) <= known


@needs_data
def test_the_data_lose_their_sensor_errors_and_keep_their_gaps(load: Load) -> None:
    protocol = load("protocol")
    train, test = protocol.load_climate(SHARED / "delhi")
    assert (len(train), len(test)) == (1461, 114)
    assert train.index[-1] == pd.Timestamp("2016-12-31")
    experiment = load("climate").load(SHARED / "delhi")
    counts = [len(experiment.origins(ahead)) for ahead in (7, 15, 30, 60)]
    assert counts == [108, 100, 85, 55]
    for part in (train, test):
        pressure = part["meanpressure"]
        assert pressure.isna().any()
        assert pressure.dropna().between(900, 1100).all()
    ibm = protocol.load_stock(SHARED / "djia" / "IBM.csv")
    assert ibm.columns.tolist() == ["Open", "High", "Low", "Close"]
    assert len(ibm) == 3020


def test_missing_data_are_named_with_their_source(
    load: Load,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("climate", "stocks"):
        with pytest.raises(SystemExit):
            load(name).main(["--data", str(tmp_path)])
        assert "from Kaggle" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class KeepingMedians(LatentODELSTMForecaster):
    """Keeps the medians of what it was asked last, so that one training gives both."""

    def predict_at(self, index: pd.Index, X: Any = None) -> pd.DataFrame:
        found = self.predict_quantiles(index, X=X, alpha=[0.5])
        self.medians_ = found.droplevel(1, axis=1)
        return super().predict_at(index, X)


@pytest.mark.slow
@needs_data
def test_climate_is_as_good_as_the_best_plain_baseline(load: Load) -> None:
    protocol, settings = load("protocol"), load("settings")
    experiment = load("climate").load(SHARED / "delhi")
    arguments: dict[str, Any] = {**settings.CLIMATE["7/7"], "random_state": 0}
    arguments |= {"window_length": 7, "horizon": 7, "finetune_epochs": 0}
    forecaster = KeepingMedians(**arguments)
    found = protocol.forecast_origins(forecaster, experiment, 7, 7, settings.features)
    assert experiment.mse(found) <= 0.30
    # means of the wind, whose logarithm is modelled, are those of windier years
    medians = experiment.scale(forecaster.medians_).reshape(found.shape)
    assert experiment.mse(medians) <= 0.293


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(
    ("script", "options", "model", "told"),
    [  # the paper's figure, and the last value's
        ("climate", ["delhi"], "Latent ODE-RNN", ["0.228", "0.466"]),
        ("stocks", ["djia", "--stock", "IBM"], "Latent ODE-LSTM+GC", ["0.077"]),
    ],
)
def test_data_sets_print_their_tables_and_save_pictures(
    load: Load,
    script: str,
    options: list[str],
    model: str,
    told: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, *options = options
    few = "--tasks 7/7 --seeds 1 --settings paper --epochs 1".split()
    where = ["--data", str(SHARED / folder), "--output", str(tmp_path / "out")]
    table = load(script).main([*where, *options, *few, "--models", model])
    assert (table.loc[table["method"] == f"{model}, paper", "mse"] < 2).all()
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in told)
    (picture,) = (tmp_path / "out").glob("*.png")
    assert matplotlib.image.imread(picture).std() > 0.05


@pytest.mark.slow
def test_spirals_print_their_table_and_save_pictures(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--stamps", "10", "--series", "20", "--epochs", "1"]
    out = ["--output", str(tmp_path / "out"), "--settings", "ours"]
    table = load("spirals").main([*small, *out, "--per-series-stamps"])
    assert np.isfinite(table[list(load("spirals").PARTS)]).all(axis=None)
    assert "Gradient norms, N = 10, ours settings" in capsys.readouterr().out
    assert (tmp_path / "out" / "gradients-ours.png").exists()


@pytest.mark.slow
def test_tuning_of_spirals_runs(load: Load) -> None:
    tiny = ["--series", "4", "--epochs", "1", "--only", "lr"]
    chosen = load("tune").main(["spirals", *tiny])
    assert "max_epochs=1" in chosen.index[0]
