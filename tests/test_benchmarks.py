"""The benchmarks run, their figures agree, and their contenders compute the same."""

from __future__ import annotations

import functools
import gzip
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sklode import nn
from sklode.structural.components import space

FOLDER = Path(__file__).parents[1] / "examples" / "benchmarks"
SIZES = (3, 7, 2, 5, 3, 4)

Load = Callable[[str], ModuleType]


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """Leave torch the threads that it had; benchmarks set them."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a script as it is when it is run: with its folder on the path."""
    monkeypatch.syspath_prepend(FOLDER)

    def load(name: str) -> ModuleType:
        module = importlib.import_module(name)
        if hasattr(module, "WORKLOADS"):
            sizes = importlib.import_module("workloads").Workload(*SIZES)
            monkeypatch.setattr(module, "WORKLOADS", {"W2": sizes})
        return module

    return load


def first_losses(step: Callable[[], float]) -> list[float]:
    return [step() for _ in range(3)]


def test_straightforward_loop_is_encoder_and_decoder_of_sklode(load: Load) -> None:
    plain, workloads = load("plain_torch"), load("workloads")
    sizes = workloads.Workload(*SIZES)
    weights, windows = plain.draw_weights(sizes), workloads.draw(sizes)
    windows.observed[:, -1] = True  # sklode's h rests until something is observed
    solver = nn.Solver("rk4", 1.0)
    flow, dynamics = (
        nn.VectorField(size, sizes.field_width, sizes.field_depth)
        for size in (sizes.hidden_size, sizes.latent_size)
    )
    encoder = nn.ODELSTM(sizes.n_channels, sizes.hidden_size, flow, solver)
    with torch.no_grad():
        for module, part in ((flow, "flow"), (dynamics, "dynamics")):
            linear = [*module.hidden, module.output]
            for layer, (weight, bias) in zip(linear, weights[part], strict=True):
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
        weight, bias = weights["cell"][0]
        by_state, by_input = weight.split([sizes.hidden_size, sizes.n_channels], 1)
        encoder.cell.weight_hh.copy_(by_state)
        encoder.cell.weight_ih.copy_(by_input)
        encoder.cell.bias_ih.copy_(bias)
        encoder.cell.bias_hh.zero_()
        h = encoder(windows.times, windows.values, windows.observed)
        torch.testing.assert_close(plain.encode(weights, windows), h)
        z = nn.Decoder(dynamics, solver)(
            windows.noise, windows.times[:, 0], windows.times
        )
        stepped = plain.decode(weights, windows.noise, windows)
        torch.testing.assert_close(stepped, z, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["torchdiffeq", "jax", "diffrax"])
def test_contender_trains_like_the_straightforward_loop(load: Load, name: str) -> None:
    if name in ("jax", "diffrax"):
        pytest.importorskip(name)
        pytest.importorskip("optax")
    benchmark = load("training_step")
    sizes = benchmark.WORKLOADS["W2"]
    expected = first_losses(benchmark.CONTENDERS["straightforward"](sizes))
    losses = first_losses(benchmark.CONTENDERS[name](sizes))
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[2] < losses[0]


def test_engines_train_alike(load: Load) -> None:
    benchmark = load("training_step")
    sizes = benchmark.WORKLOADS["W2"]
    eager, fused = (
        first_losses(benchmark.CONTENDERS[name](sizes)) for name in ("eager", "fused")
    )
    assert fused == pytest.approx(eager, rel=1e-4)
    assert fused[2] < fused[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options", "rows", "told"),
    [
        ("training_step", "--repeats 1 --contenders fused", ["W2"], "floor"),
        ("whole_fit", "--parts iterations --repeats 1", ["iterations"], "W2"),
        ("scaling", "--points 2 --repeats 1", ["stamps", "series", "neurons"], "expon"),
        ("choosing", "--series 1 --epochs 1 --settings euler", ["euler"], "euler"),
    ],
)
def test_script_prints_its_table(
    load: Load,
    script: str,
    options: str,
    rows: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(load(script).main(options.split())) == rows
    assert told in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--dask"]])
def test_parts_of_a_panel_know_what_a_sample_shares(
    load: Load, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if more:
        pytest.importorskip("distributed")
    module = load("panel_in_parts")
    errors = module.main(["--series", "60", "--parts", "12", "--sample", "30", *more])
    assert list(errors) == ["whole", "parts", "parts, pretrained"]
    assert errors["parts, pretrained"] < 1.1 * errors["whole"]
    assert errors["parts"] > 1.05 * errors["parts, pretrained"]
    assert capsys.readouterr().out.count("\n") == 4


@pytest.mark.slow
def test_irregular_series_are_compared_with_rivals(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("statsmodels")
    module = load("against_prophet")
    file = tmp_path / "series.tsf"
    values = ",".join(str(100 + k % 4) for k in range(120))
    header = "@attribute series_name string\n@frequency quarterly\n@missing false"
    file.write_text(f"@relation x\n{header}\n@equallength true\n@data\nT1:{values}\n")
    methods = ["sklode", "UnobservedComponents"]
    table = module.main(["--data", str(file), "--methods", *methods])
    assert (table["MASE"] < 0.1).all()  # a season without noise
    assert "1 series, 40 % of their rows dropped" in capsys.readouterr().out
    (task,) = module.tasks(module.of_file(file, 1))
    assert task.kept.mean() == pytest.approx(0.6, abs=0.15)
    step = task.past.diff().abs().mean()  # the season repeats without an error
    shifted = task.future.to_numpy() + 3.0
    paths = np.stack([shifted, shifted])
    told = module.Forecast(shifted, np.stack([shifted] * len(module.LEVELS), 1), paths)
    # a forecast without spread: the scores of its distribution are its error
    for name, score in task.scores(told).items():
        assert score == pytest.approx(3.0 / step), name


@pytest.mark.slow
def test_many_series_of_one_law_are_compared_with_boosting(load: Load) -> None:
    module = load("against_boosting")
    errors = module.main(["--seeds", "0", "--epochs", "1"])["MSE / variance"]
    assert errors["boosting on lags"] < 0.3 < errors["StructuralForecaster"]


@pytest.mark.slow
def test_gradients_of_the_adjoint_take_no_memory_of_steps(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("memory")
    monkeypatch.setattr(module.measuring, "in_own_process", lambda f, *given: f(*given))
    monkeypatch.setattr(module, "N_SERIES", 5)
    table = module.show_gradients(1)
    for method in module.METHODS:
        counts = [table[method, rate][0] for rate in module.RATES]
        assert counts[0] < counts[1] < counts[2]
    slow, fast = (table["dopri5_adjoint", module.RATES[k]][1] for k in (0, -1))
    assert fast < slow + 0.01


LAW = "wodarz_hamer_2007_b"
TABLE = """
| Dataset | JGD | LinODENet | GraFITi |
|:--|--:|:--|:--|
| LI01 | 0.112681 | **0.084± 0.009** | 0.202± 0.013 |
| WOD01 | 0.0122696 | 0.154± 0.016 | **0.113± 0.017** |
"""


@pytest.fixture
def physiome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A checkout with a set of a fold: waves of two columns that are asked on."""
    module = script("physiome")
    (tmp_path / "README.md").write_text(TABLE)
    for name in ("resources", "experiments/training"):
        (tmp_path / name).mkdir(parents=True)
    laws = pd.DataFrame({"model": [LAW, "li"], "high_score": [0.01226, 0.1127]})
    laws.to_csv(tmp_path / "resources" / "Top50_final.csv")
    folder = tmp_path / "data" / "final" / LAW / "0"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    steps = np.arange(100)
    waves = np.sin(steps / 7 + rng.uniform(0, 6, (20, 1)))[..., None] * [1.0, 2.0]
    waves[rng.random(waves.shape) < 0.5] = np.nan
    times = np.broadcast_to(steps / 99, (20, 100)).astype(np.float32)
    monkeypatch.setattr(
        sys.modules["__main__"], "IMTS_dataset", module.IMTS_dataset, raising=False
    )
    monkeypatch.setattr(module.IMTS_dataset, "__module__", "__main__")
    data = module.IMTS_dataset()
    for name, part in {
        "T": times[:, :50],
        "X": waves[:, :50],
        "TY": times[:, 50:99],
        "Y": waves[:, 50:99],
    }.items():
        setattr(data, name, torch.tensor(np.array(part, dtype=np.float32)))
    ends = {"train": range(14), "valid": range(14, 18), "test": range(18, 20)}
    for name, which in ends.items():
        torch.save(torch.utils.data.Subset(data, list(which)), folder / f"{name}.pt")
    return module, tmp_path, waves


def test_series_of_physiome_are_read_as_a_panel(physiome: Any) -> None:
    module, repo, waves = physiome
    part = module.read(repo / "data" / "final" / LAW / "0" / "test.pt")
    table = module.panel(part.T, part.X, 7)
    expected = waves[18, :50].astype(np.float32)
    known = ~np.isnan(expected).all(1)
    np.testing.assert_allclose(table.loc[7].to_numpy(), expected[known])
    assert table.loc[7].index.tolist() == np.flatnonzero(known).tolist()


@pytest.mark.slow
# so few epochs prove a network less far than the benchmark asks
@pytest.mark.filterwarnings("ignore:the network counts up to")
def test_a_law_of_physiome_is_scored_beside_its_published_errors(
    physiome: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    module, repo, _ = physiome
    chosen = ["--sets", LAW, "--folds", "0", "--epochs", "1", "--rival"]
    table = module.main(["--repo", str(repo), *chosen])
    printed = capsys.readouterr().out
    assert "GraFITi could not be run: " in printed
    assert "not comparable: published errors are of other draws" in printed
    row = table.loc[LAW]
    assert row["GraFITi, published"] == 0.113
    assert row["over the best"] == pytest.approx(row["MSE"] / 0.113)
    assert row["MSE"] < 1.0 < 2.5  # the waves' variance


@pytest.fixture
def stays(tmp_path: Path) -> Path:
    """A folder of 20 stays, each of 30 readings of two variables."""
    folder = tmp_path / "set-a"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for record in range(20):
        minutes = np.sort(rng.choice(2880, 30, replace=False))
        lines = ["00:00,RecordID,1", "00:07,Weight,-1"]
        for m in minutes:
            lines += [f"{m // 60:02d}:{m % 60:02d},HR,{80 + 5 * rng.normal():.2f}"]
            lines += [f"{m // 60:02d}:{m % 60:02d},Temp,{37 + rng.normal():.2f}"] * 2
        text = "\n".join(["Time,Parameter,Value", *lines])
        (folder / f"{record}.txt").write_text(text)
    return tmp_path


def test_stays_are_read_from_texts(stays: Path) -> None:
    module = script("physionet")
    table = module.read(stays)
    assert sorted(table["channel"].unique()) == ["HR", "Temp"]  # -1 is unknown
    assert len(table) == 20 * 30 * 2  # equal stamps are averaged
    channel = pd.Series(["a", "a", "a", "b"])
    assert module.by_channel(channel, np.array([1.0, 1.0, 1.0, 3.0])) == 2.0
    with pytest.raises(FileNotFoundError, match=r"must hold set-a/\*.txt"):
        module.read(stays / "set-a")


@pytest.mark.slow
def test_stays_are_scored_by_variable(
    stays: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = script("physionet").main(["--data", str(stays)])
    printed = capsys.readouterr().out
    assert "20 stays, 1,200 values" in printed
    assert "12,000 stays, of which these are 20" in printed
    ours, last = (result.loc[f"{name}, seed 0"] for name in ("ours", "last value"))
    assert ours["MSE e-3"] < 0.8 * last["MSE e-3"]  # of noise alone it is a half


@pytest.fixture
def last_values(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """statsforecast, with models that forecast the last value; what was asked of it."""
    asked: dict[str, Any] = {}

    class LastValue:
        def __init__(self, **settings: Any) -> None:
            asked.update(settings)

        def fit(self, y: np.ndarray) -> None:
            asked["fitted"] = y

        def forecast(self, y: np.ndarray, h: int) -> dict[str, np.ndarray]:
            asked["y"] = y
            return {"mean": np.full(h, y[-1])}

        forward = forecast

    names = ("AutoETS", "AutoTheta", "AutoARIMA")
    models = SimpleNamespace(**dict.fromkeys(names, LastValue))
    package = SimpleNamespace(models=models)
    monkeypatch.setitem(sys.modules, "statsforecast", package)
    monkeypatch.setitem(sys.modules, "statsforecast.models", models)
    return asked


def write_tsf(path: Path, attributes: str, lines: list[str]) -> None:
    named = "".join(f"@attribute {one}\n" for one in attributes.split(", "))
    path.write_text(f"@relation x\n{named}@missing false\n@data\n" + "\n".join(lines))


# four quarters again and again, half a unit more each year
QUARTERS = np.tile([1.0, 2, 4, 8], 10) + np.arange(40) // 4 / 2


@pytest.fixture
def monash(tmp_path: Path) -> Path:
    """A folder with three sets of the Monash repository."""
    texts = [",".join(map(str, y)) for y in (QUARTERS, np.ones(40), range(30))]
    write_tsf(
        tmp_path / "m1_quarterly_dataset.tsf",
        "series_name string, start_timestamp date",
        [f"T{k}:1980-01-01 00-00-00:{text}" for k, text in enumerate(texts[:2])],
    )
    write_tsf(
        tmp_path / "cif_2016_dataset.tsf",
        "series_name string, horizon numeric",
        [f"T0:12:{texts[0]}", f"T1:6:{texts[2]}"],
    )
    write_tsf(
        tmp_path / "nn5_daily_dataset_with_missing_values.tsf",
        "series_name string, start_timestamp date",
        [f"T0:1996-03-18 00-00-00:1,?,{texts[1]},{texts[1]}"],
    )
    return tmp_path


def test_published_sets_are_scored_by_the_protocol_of_monash(
    load: Load,
    monash: Path,
    last_values: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load("published")
    table = module.main(["--data", str(monash), "--sets", "m1_quarterly"])
    row = table.loc["m1_quarterly"]
    assert row["series"] == "1 of 203"  # the other never moves: no error to compare
    assert last_values["season_length"] == 4
    # the last value, 11.5, is off by 31/8; from year to year the past moves by 1/2
    assert row["ETS"] == row["Theta"] == pytest.approx(31 / 8 / 0.5)
    assert row["sklode"] < 1
    assert row["over the better"] == pytest.approx(row["sklode"] / row["ETS"])
    assert row["Monash's best"] == 1.658
    printed = capsys.readouterr().out
    mean = f"geometric mean: {row['over the better']:.3f}"
    assert f"over the better, {mean}, below 1 in 1 of 1 sets" in printed
    assert "published figures are of whole sets" in printed
    with pytest.raises(FileNotFoundError, match="must hold sets that are asked for"):
        module.main(["--data", str(monash), "--sets", "m1_yearly"])


def test_whole_sets_alone_are_compared_with_the_best_published(load: Load) -> None:
    module = load("published")
    scores = pd.DataFrame({"sklode": [1.4], "ETS": 2.0, "Theta": 1.6, "seconds": 1.0})
    births = module.summary("us_births", scores, 1)
    assert births["over the better"] == 1.4 / 1.6
    assert births["over the best"] == 1.4 / 1.453
    gaps = module.summary("nn5_daily_gaps", scores, 111)  # fev alone has a figure
    assert gaps["over the best"] == 1.4 / 0.548
    assert np.isnan(module.summary("nn5_daily_gaps", scores, 56)["over the best"])


def test_series_of_published_sets_are_cut_at_their_own_horizon(
    load: Load, monash: Path
) -> None:
    sets = dict(load("published").of_folder(monash))
    assert list(sets) == ["m1_quarterly", "cif_2016", "nn5_daily_gaps"]
    days = sets["nn5_daily_gaps"][0].past
    assert days.index[days.isna()].tolist() == [pd.Timestamp("1996-03-19")]
    assert [len(task.future) for task in sets["cif_2016"]] == [12, 6]
    quarters = sets["m1_quarterly"][0]
    assert str(quarters.past.index[0]) == "1980Q1"
    assert quarters.future.tolist() == QUARTERS[-8:].tolist()
    rising = sets["cif_2016"][1]
    assert rising.scale(12) == 12
    assert rising.scale(24) == 1  # too few rows for this season


def test_records_of_published_sets_keep_their_gaps(
    load: Load, tmp_path: Path, last_values: dict[str, Any]
) -> None:
    module = load("published")
    record = {"set": "nn5_daily", "id": "a", "freq": "D", "start": "1996-03-18"}
    y, z = [1.0, 2.0, None, 4.0, *map(float, range(5, 31))], [30.0, None, 34.0]
    with gzip.open(tmp_path / "some.json.gz", "wt") as file:
        json.dump([{**record, "y": y, "z": z}], file)
    ((name, (task,)),) = module.of_records(tmp_path / "some.json.gz")
    assert name == "nn5_daily_gaps"
    assert task.past.index[2] == pd.Timestamp("1996-03-20")
    assert np.isnan(task.past.iloc[2])
    scores = module.score([task], season=1, period=7)
    assert last_values["y"][2] == 3.0
    assert last_values["season_length"] == 7
    assert scores["ETS"].tolist() == [2.0]  # (0 + 4) / 2, of the rows that are known


GLUCOSE = "published models but ARIMA learned from all persons before"


@pytest.mark.slow
def test_glucose_is_scored_by_the_protocol_of_glucobench(
    tmp_path: Path, last_values: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("glucose")
    minutes = np.r_[np.arange(245) * 5, 1300 + np.arange(250) * 5]  # a gap of 80
    times = pd.Timestamp("2015-06-06 16:50:27") + pd.to_timedelta(minutes, "min")
    waves = [100 + 20 * np.sin(2 * np.pi * (minutes + k) / 180) for k in (0, 60)]
    tables = [
        pd.DataFrame({"id": f"Subject {k}", "time": times, "gl": waves[k].round(3)})
        for k in (0, 1)
    ]
    pd.concat(tables).to_csv(tmp_path / "iglu.csv")
    table = module.main(["--data", str(tmp_path / "iglu.csv"), "--arima"])
    printed = capsys.readouterr().out
    assert "990 readings; rows tested on: [250, 250]" in printed
    assert GLUCOSE in printed
    assert table.loc["StructuralForecaster", "mean MAE"] < 1  # of a wave of 20
    assert table.loc["ARIMA, run", "mean MAE"] > 5
    assert len(last_values["fitted"]) == 192
    assert table.loc["ARIMA, published", "mean MSE"] == 415.327
    with pytest.raises(ValueError, match="must have the columns id, time and gl"):
        module.read(FOLDER / "constants.csv")


def test_windows_and_persons_of_glucose_are_those_of_glucobench() -> None:
    module = script("glucose")
    stamps = pd.date_range("2015-06-06", periods=700, freq="5min")
    readings = pd.Series(np.arange(700.0), stamps)
    assert len(module.tested(readings)) == 432
    assert module.tested(readings[:500]).empty  # one piece, all of it to learn from
    assert module.tested(readings[:100]).empty
    (piece,) = module.pieces(readings.drop(readings.index[5:9]))
    assert piece.iloc[:12].tolist() == [*range(12)]
    found = module.errors(readings[:432], lambda seen: np.full(12, seen.iloc[-1]))
    assert len(found) == 38  # from row 6 to 228
    np.testing.assert_allclose(found, np.broadcast_to([650 / 12, 6.5], (38, 2)))
    # the log of GlucoBench leaves out persons 3 3 1 2 2 3 1 5 5 2, in this order
    by_person = [np.full((3, 2), float(k)) for k in range(5)]
    mean = (10 - 1.7) / 4
    assert module.over_seeds(by_person)["mean MSE"] == pytest.approx(mean)


@pytest.mark.slow
def test_rows_a_second_are_told(load: Load) -> None:
    table = load("rows_a_second").main(["--rows", "300"])
    assert table["case"].tolist() == ["half hours", "made up"]
    assert table["rows"].tolist() == [4032, 300]
    assert (table["seconds"] > 0).all()


@pytest.mark.slow
def test_real_rows_that_are_timed_are_read_from_files(
    load: Load, monash: Path, tmp_path: Path
) -> None:
    module = load("rows_a_second")
    stamps = pd.date_range("2012-01-01", periods=17_600, freq="30min", tz="UTC")
    columns = {"Demand": 4.0, "Temperature": 20.0, "Date": "x", "Holiday": True}
    victoria = pd.DataFrame(columns, stamps.rename("Time"))
    victoria["Demand"] += 0.1 * np.arange(17_600)
    victoria.to_csv(tmp_path / "load.csv")
    *halves, hours = module.of_victoria(tmp_path / "load.csv")
    assert [len(case.y) for case in halves] == [7000, 17_520, 17_600]
    assert (len(hours.y), len(hours.X)) == (8760, 8784)
    assert hours.y.diff().iloc[-1] == pytest.approx(0.2)
    few = module.Case("few", hours.y[-200:], 24, hours.X[-224:])
    assert few.seconds() > 0
    panel = module.of_months(monash)
    assert panel.name == "2 series of months"
    assert panel.y.groupby("series").size().tolist() == [28, 24]


def script(name: str) -> Any:
    """Import a script by another name, as its own may be a package's too."""
    spec = importlib.util.spec_from_file_location(
        f"script_{name}", FOLDER / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_coverage_is_counted_case_by_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("coverage")
    cases = ["--cases", "no break", "glucose"]
    options = [*cases, "--origins", "2", "--seeds", "0", "--data", str(tmp_path)]
    table = module.main(options)
    assert table.index.tolist() == ["no break"]
    assert table.loc["no break", "origins"] == 2
    assert 0.5 < table.loc["no break", "coverage"] <= 1
    assert "glucose: left out, " in capsys.readouterr().out
    past, ahead = module.broken("step", seed=0, since=40)
    before, after = past[:-40], past[-40:]
    assert after.mean() - before.mean() > 20
    assert (len(past), len(ahead)) == (module.N_ROWS, module.N_AHEAD)


@pytest.mark.slow
def test_what_is_known_is_measured_case_by_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    knowledge = script("knowledge")
    monkeypatch.setitem(knowledge.CASES, "of a table", absent)
    table = knowledge.main(["--cases", "growth", "of a table", "--seeds", "0"])
    printed = capsys.readouterr().out
    assert "of a table: left out, no table" in printed
    assert table.loc[("growth", "share outside"), "mean"] == 0
    assert table.loc[("growth", "over the logit by hand"), "mean"] < 2
    assert f"{table.iloc[0]['mean']:.3g}" in printed


def absent(seed: int, data: Path | None) -> dict[str, float]:
    raise FileNotFoundError("no table")


@pytest.mark.slow
def test_constants_are_halved_and_doubled_one_by_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    module = script("sensitivity")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # other processes ask it
    before = dict(space.BASE)
    chosen = ["--kinds", "growth", "--constants", 'PRIORS["slope"]', "_MANY", "CLEAR"]
    table = module.main([*chosen, "--folders", "structural"])
    assert before == space.BASE  # what is changed, is so in a process of its own
    by_constant = table.set_index(["constant", "factor"])
    # CLEAR is part of compiled code
    titles = ['PRIORS["slope"]', "_MANY"]
    assert by_constant.index.tolist() == [(x, f) for x in titles for f in (0.5, 2.0)]
    assert by_constant.loc[('PRIORS["slope"]', 0.5), "otherwise"] == 1
    told = by_constant.loc[("_MANY", 2.0), ["otherwise", "worst", "failed"]]
    assert told.tolist() == [0, 1.0, 0]
    assert "1 series" in capsys.readouterr().out
    table = module.main(["--panels", "--kinds", "ages", *chosen[2:]])
    assert "1 panel(s)" in capsys.readouterr().out
    changed = table.set_index(["constant", "factor"])["otherwise"]
    assert changed['PRIORS["slope"]', 0.5] == 1


@pytest.mark.parametrize(
    ("value", "factor", "expected"),
    [
        (0.2, 2.0, 0.4),
        (0.8, 2.0, 8 / 9),  # odds of 4 become 8
        (3, 0.5, 2),
        (1, 0.5, 1),
        ((2.0, 6), 2.0, (4.0, 12)),
        ({"step": 2}, 2.0, {"step": 4}),
        (True, 2.0, None),
    ],
)
def test_constants_are_scaled_by_their_kind(
    value: Any, factor: float, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    assert script("sensitivity").scaled(value, factor) == pytest.approx(expected)


SOURCE = '''
"""A module."""
# of rows,
# by hand
_FEW, _MANY = 3, 40_000
_ONE = 1.5  # a factor
_LISTED = 0.5, _ONE
"""Shares."""
WIDTHS = {
    "slope": (0.2, 1.0),  # of a line
    "OU": 2.0 ** np.arange(3),
}
_NAMES = "a", "b"
_FIRST, _SECOND = 0, 1
_KINDS, _OTHERS = range(2)
_BY_NAME = {"a": "b"}
_TICK = pd.Timedelta("1h")
small = 3
'''


def test_constants_are_read_from_sources_with_the_comments_beside_them(
    load: Load,
) -> None:
    found = load("constants_page").constants_in(SOURCE, "sklode.data.rows")
    assert [one[1:] for one in found] == [
        ("_FEW", None, "3", "of rows, by hand"),
        ("_MANY", None, "40_000", "of rows, by hand"),
        ("_ONE", None, "1.5", "a factor"),
        ("_LISTED", None, "0.5, _ONE", "Shares."),
        ("WIDTHS", "slope", "(0.2, 1.0)", "of a line"),
        ("WIDTHS", "OU", "2.0 ** np.arange(3)", ""),
    ]


def test_what_was_measured_follows_a_constant_that_moves(load: Load) -> None:
    module = load("constants_page")
    kept = functools.partial(module.Kept, half="+1.0 %", twice="-2.0 %")
    rows = [
        kept("sklode.structural.old", "_MOVED", "3", note="by trial"),
        kept("sklode.structural.rows", "_SET", "7", note="by trial"),
        kept("sklode.structural.rows", "_GONE", "1"),
        kept("sklode.structural.old", "_SAME", "5"),
        kept("sklode.structural.rows", "_SAME", "5", note="of rows"),
        kept("sklode.data.rows", "_NEW", "2"),
    ]
    sources = {
        "sklode.structural.rows": "_SET = 8\n_SAME = 5\n_NEW = 2\n",
        "sklode.structural.search.other": "_MOVED = 3\n_SAME = 5  # |a|\n",
    }
    constants = [
        x for name in sources for x in module.constants_in(sources[name], name)
    ]
    found = module.kept_of(constants, rows)
    text = module.page(constants, found)
    assert text.partition("## structural/\n\n")[2].splitlines() == [
        "| constant | value | what it is | half, twice |",
        "|---|---|---|---|",
        "| **rows.py** | | | |",
        "| `_SET` | `8` | by trial | ? |",  # measured of another value
        "| `_SAME` | `5` | of rows | +1.0 %, -2.0 % |",
        "| `_NEW` | `2` |  | ? |",  # of another package
        "| **search/other.py** | | | |",
        "| `_MOVED` | `3` | by trial | +1.0 %, -2.0 % |",
        r"| `_SAME` | `5` | \|a\| | +1.0 %, -2.0 % |",
    ]
    of_run = {"in": "sklode.structural.rows", "constant": "_NEW", "change": "+0.1 %"}
    table = [
        of_run | {"factor": "0.5", "otherwise": "3"},
        of_run | {"factor": "2.0", "otherwise": "0"},
    ]
    measured = module.with_measured(found, table)
    assert [x.measured for x in measured if x.constant == "_NEW"] == [
        "+0.1 %, no change"
    ]
    assert measured[3:] == found[3:]
    of_panels = module.with_measured(measured, table, "panels_")
    told = {x.constant: x.measured for x in of_panels[:3]}
    assert told == {"_SET": "?", "_SAME": "+1.0 %, -2.0 %", "_NEW": "+0.1 %, no change"}
    other = [row | {"change": "+7.0 %"} for row in table]
    told = module.with_measured(measured, other, "panels_")[2].measured
    assert told == "+0.1 %, no change; panels: +7.0 %, no change"


@pytest.mark.slow
def test_the_page_of_constants_is_what_its_script_writes(load: Load) -> None:
    module = load("constants_page")
    constants = module.constants_of()
    kept = module.kept_of(constants, module.read())
    written = module.PAGE.read_text("utf-8")
    told = "python examples/benchmarks/constants_page.py brings it up to date"
    assert written == module.page(constants, kept), told
    assert sum(bool(row.half) for row in kept) > 100
