"""The benchmarks run, their figures agree, and their contenders compute the same."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import matplotlib.image
import pytest
import torch

from sklode import LatentODELSTMForecaster, nn

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


@pytest.mark.parametrize(
    "name",
    [
        "torchdiffeq",
        "jax",
        "diffrax",
        pytest.param(
            "compile",
            marks=[
                pytest.mark.slow,
                # torch.compile itself gives warnings of several kinds
                pytest.mark.filterwarnings("default"),
            ],
        ),
    ],
)
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


@pytest.mark.parametrize("n_series", [3, 5])
def test_engines_train_alike(load: Load, n_series: int) -> None:
    benchmark = load("training_step")
    sizes = benchmark.WORKLOADS["W2"]._replace(n_series=n_series)
    eager, fused = (
        first_losses(benchmark.CONTENDERS[name](sizes)) for name in ("eager", "fused")
    )
    assert fused == pytest.approx(eager, rel=1e-4)
    assert fused[2] < fused[0]


@pytest.mark.slow
def test_table_of_a_training_step_agrees_with_itself(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = load("training_step")
    contenders = ["fused", "eager", "torchdiffeq"]
    table = benchmark.main(
        ["--repeats", "1", "--no-memory", "--contenders", *contenders]
    )
    assert list(table) == ["W2"]
    measured = table["W2"]
    assert set(measured) == {*contenders, "straightforward", "floor"}
    loop, floor = measured["straightforward"], measured["floor"]
    for took in measured.values():
        assert took.speed_up * took.milliseconds == pytest.approx(loop.milliseconds)
        assert took.over_floor * floor.milliseconds == pytest.approx(took.milliseconds)
        assert took.megabytes is None
    out = capsys.readouterr().out
    assert all(name in out for name in measured)


@pytest.mark.slow
def test_iterations_of_fit_are_compared_with_the_loop(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = load("whole_fit")
    results = benchmark.main(["--parts", "iterations", "--repeats", "1"])
    assert list(results) == ["iterations"]
    measured = results["iterations"]["W2"]
    assert measured.reached == pytest.approx(measured.loop / measured.fit)
    assert measured.required == 18
    assert capsys.readouterr().out.splitlines()[-1].startswith("W2")


@pytest.mark.slow
def test_fits_of_few_epochs_are_scaled_to_all(load: Load) -> None:
    benchmark = load("whole_fit")
    y, longest_gap = benchmark.irregular_panel(4, 30, 2)
    assert 1 < longest_gap <= 1 / 0.6
    sizes = benchmark.sizes_of(benchmark.WORKLOADS["W2"])
    parameters = {**sizes, "max_epochs": 3}
    options = argparse.Namespace(epochs=2, fits=1)
    seconds = benchmark.whole_fits(y, parameters, options)
    assert set(seconds) == {"whole", *benchmark.ENGINES}
    took = benchmark.fit(y, parameters)
    assert took.n_epochs == 3
    assert 0 < took.trained < took.seconds


@pytest.mark.slow
def test_compiling_is_timed_with_and_without_a_cache(load: Load) -> None:
    results = load("whole_fit").main(["--parts", "compile"])
    assert set(results["compile"]) == {"cold", "warm"}


@pytest.mark.slow
def test_scaling_prints_its_tables_and_saves_a_picture(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaling = load("scaling")
    path = tmp_path / "scaling.png"
    options = ["--points", "2", "--repeats", "1", "--plot", str(path)]
    table = scaling.main(options)
    assert list(table) == ["stamps", "series", "neurons"]
    for axis, measured in table.items():
        assert measured.sizes == list(scaling.SIZES[axis][:2])
        found = scaling.exponent(measured.sizes, measured.milliseconds)
        assert measured.exponent == pytest.approx(found)
        floors = [
            scaling.operations(scaling.workload(axis, size)) for size in measured.sizes
        ]
        ratio = measured.floors[1] / measured.floors[0]
        assert ratio == pytest.approx(floors[1] / floors[0])
    assert capsys.readouterr().out.count("exponent") == 3
    assert matplotlib.image.imread(path).std() > 0.05


def test_import_is_compared_with_what_it_stands_on(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = load("import_time")
    taken = {
        "import sklode": iter([9.0, 3.0, 2.4, 1.0]),  # the first is not counted
        "import torch, sktime.forecasting.base": iter([9.0, 2.0, 2.0, 8.0]),
        "import torch, sktime": iter([9.0, 1.2, 1.2, 1.2]),
    }
    monkeypatch.setattr(benchmark, "seconds", lambda statement: next(taken[statement]))
    ratios = benchmark.main(["--repeats", "3"])
    assert ratios == pytest.approx(
        {"torch, sktime.forecasting.base": 1.2, "torch, sktime": 2.0}
    )
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "required: at most 1.2; reached: 1.20"


@pytest.mark.slow
def test_single_choices_are_compared_on_the_stamps_that_follow(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = load("choosing")
    options = ["--series", "1", "--epochs", "1", "--settings", "default", "euler"]
    rows = benchmark.main(options)
    assert list(rows) == ["default", "euler"]
    y, variance = benchmark.two_sines(0)
    forecaster = LatentODELSTMForecaster(
        level="series", method="euler", max_epochs=1, random_state=0
    )
    forecast = forecaster.fit(y[:300]).predict(y.index[300:])
    error = float(((forecast - y[300:]) ** 2).mean() / variance)
    assert rows["euler"].errors == [pytest.approx(error, rel=1e-4)]
    assert rows["default"].errors != rows["euler"].errors
    assert all(row.seconds[0] > 0 for row in rows.values())
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[:2] == ["euler", f"{error:.3f}"]
