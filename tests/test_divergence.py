"""Training that diverges recovers or says so; no answer is ever NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from sklode.data.errors import SolverError
from sklode.nn import Decoder, solvers
from sklode.training.loop import Trainer
from tests.networks import field
from tests.series import FORECASTERS, panel, tiny, uneven_stamps, waves
from tests.trainees import Trainee, batch, train

ANSWERS: dict[str, Callable[[Any, Any], Any]] = {
    "predict": lambda f, fh: f.predict(fh),
    "interval": lambda f, fh: f.predict_interval(fh),
    "quantiles": lambda f, fh: f.predict_quantiles(fh, alpha=[0.1, 0.9]),
    "variance": lambda f, fh: f.predict_var(fh),
    "sample": lambda f, fh: f.sample(fh),
    "smooth sample": lambda f, fh: f.sample(fh, noise=False),
}


def exploding(y: Any = None, **settings: Any) -> Any:
    """Return a fitted forecaster whose latent state doubles with every time unit."""
    forecaster = tiny(**{"activation": "elu", **settings})
    forecaster.fit(waves(uneven_stamps()) if y is None else y)
    network = forecaster.network_
    with torch.no_grad():
        for layer in network.decoder.vector_field.layers:
            layer.weight.fill_(1.0)
            layer.bias.fill_(1.0)
        network.decoder.vector_field.output.weight.fill_(0.2)
        network.decoder.vector_field.output.bias.fill_(0.1)
    return forecaster


@pytest.mark.parametrize("engine", ["eager", "unrolled"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_that_overflows_is_an_error_that_names_stamp_and_remedy(
    answer: str, engine: str
) -> None:
    forecaster = exploding(engine=engine)
    assert np.isfinite(np.asarray(ANSWERS[answer](forecaster, [1, 2]), float)).all()
    told = (
        r"must be finite; got 1 of 2 rows that are not, the first at 2021-\d.*"
        r"method='rk4', step_size=1, activation='elu'\).*Ask for.*lower lr"
    )
    with pytest.raises(SolverError, match=told):
        ANSWERS[answer](forecaster, [1, 900])


def test_error_of_a_panel_names_the_series() -> None:
    forecaster = exploding(panel(), engine="eager")
    with pytest.raises(SolverError, match=r"first at s0, 2021-"):
        forecaster.predict([900])


def test_stamps_of_the_past_that_overflow_are_an_error() -> None:
    forecaster = exploding(engine="eager")
    with torch.no_grad():  # backward in time what grows is what decays forward
        output = forecaster.network_.decoder.vector_field.output
        output.weight.mul_(-1.0)
        output.bias.mul_(-1.0)
    with pytest.raises(SolverError, match="2020-"):
        forecaster.predict(pd.DatetimeIndex(["2020-12-01"]))


def test_new_series_that_overflow_are_an_error() -> None:
    forecaster = exploding(engine="eager")
    stamps = pd.date_range("2021-01-01", periods=3, freq="10D")
    with pytest.raises(SolverError, match=r"2 of 3 rows.* first at 2021-01-11"):
        forecaster.sample_prior(stamps, n_samples=3)


def test_adaptive_solve_that_fails_names_the_stamps_asked() -> None:
    forecaster = exploding(method="dopri5", adjoint=False)
    told = (
        r"method='dopri5' could not reach its tolerance \(rtol=0\.001, atol=0\.0001\): "
        r".* of .* time units .*rk4.*Asked were stamps from 2021-\d.* to 2021-\d"
    )
    with pytest.raises(SolverError, match=told) as caught:
        forecaster.predict([1, 2000])
    assert "underflow" not in str(caught.value)


class Stiff(nn.Module):
    """A field of one weight that pulls any state to a wave, ever so fast."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(rate))
        self.n_evaluations = 0

    def forward(self, z: Tensor, u: Tensor | None = None) -> Tensor:
        self.n_evaluations += 1
        return self.rate * (torch.stack([z[..., 1], -z[..., 0]], -1) - z)


@pytest.mark.parametrize("adjoint", [False, True])
def test_adaptive_solve_that_would_not_end_is_given_up(adjoint: bool) -> None:
    stiff = Stiff(1e5)
    solver = Solver("dopri5", adjoint=adjoint)
    with pytest.raises(SolverError, match=r"too many steps.* stiff, 0\.\d+ of 50 time"):
        solver.trajectory(stiff, torch.ones(1, 2), torch.ones(1, 50))
    assert 500 < stiff.n_evaluations < 2000


@pytest.mark.parametrize("rtol", [1e-3, 1e-6])
def test_adaptive_solve_of_an_ordinary_field_is_far_from_being_given_up(
    rtol: float,
) -> None:
    moderate = Stiff(5.0).double()
    solver = Solver("dopri5", rtol, rtol / 10)
    start = torch.ones(1, 2, dtype=torch.float64)
    solver.trajectory(moderate, start, torch.ones(1, 10, dtype=torch.float64))
    assert moderate.n_evaluations < 0.25 * 100 * 2 * 20 * (1e-3 / rtol) ** 0.2


def test_evaluations_of_an_adjoint_solve_are_not_charged_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # hardly more than one solve takes, forward or backward
    monkeypatch.setattr(solvers, "_EVALUATIONS", 40)
    z0 = torch.ones(1, 3, requires_grad=True)
    decoder = Decoder(field(3), Solver("dopri5", adjoint=True))
    loss: Tensor = decoder(z0, torch.zeros(1), torch.arange(21.0)[None]).sum()
    for _ in range(5):
        loss.backward(retain_graph=True)
    assert z0.grad is not None


def test_unrolled_engine_overflows_without_warnings_of_numpy() -> None:
    y = waves()
    forecaster = tiny(engine="unrolled", activation="elu", max_epochs=4, lr=1e6)
    forecaster.set_params(clip_norm=None, optimizer="sgd", batch_size=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forecaster.fit(y)
    assert {w.category for w in caught} == {ConvergenceWarning}
    assert forecaster.history_["skipped_steps"].sum() > 0


def test_training_that_made_the_model_worse_says_so_and_what_to_change() -> None:
    told = (
        r"made the model worse: .* is [\d.e+]+, and was 0\.5 when epoch 1 began; "
        r".*Lower lr \(lr=5\), or set clip_norm.*activation=.tanh.*guard=True"
    )
    settings: dict[str, Any] = {"lr": 5.0, "clip_norm": None, "optimizer": "sgd"}
    with pytest.warns(ConvergenceWarning, match=told):
        trainer = train(
            Trainee(lambda w, number: -0.5 * w**2),
            [batch()] * 10,
            max_epochs=2,
            **settings,
        )
    assert trainer.best_epoch == 0
    assert float(trainer.network.w.detach()) == 1.0


def test_training_that_goes_wrong_late_goes_back_to_its_best_epoch() -> None:
    network, seen = Trainee(lambda w, number: -0.5 * w**2, weight=3.0), []

    def keep(row: dict[str, float]) -> bool:
        seen.append(float(network.w.detach()))
        if row["epoch"] == 4:
            with torch.no_grad():
                network.w.fill_(50.0)
        return False

    with pytest.warns(ConvergenceWarning, match=r"when epoch 4 began; .* of epoch 3"):
        trainer = train(
            network, [batch()] * 4, (), keep, max_epochs=5, lr=0.1, clip_norm=None
        )
    assert trainer.best_epoch == 3
    assert float(network.w.detach()) == seen[2]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_training_that_ends_above_its_start_by_chance_is_no_divergence(
    weight: float,
) -> None:
    # at most 0.5 * 1.3 ** 2 from its optimum: less than a constant's loss
    train(
        Trainee(lambda w, number: -0.5 * w**2, weight=weight),
        [batch()] * 3,
        lr=0.3,
        clip_norm=None,
    )


def test_weights_of_an_epoch_without_a_step_are_not_the_best() -> None:
    # the first step leaves the domain of the logarithm, where no validation looks
    network = Trainee(
        lambda w, number: torch.log(w), weight=1.0, held_out=[3.0, 1.0, 0.5]
    )
    with torch.no_grad():
        network.w.neg_()
    with pytest.warns(ConvergenceWarning, match="those before training are kept"):
        trainer = train(network, [batch()] * 2, [batch()], max_epochs=3, lr=1e-3)
    assert trainer.best_epoch == 0


def test_weights_that_are_good_for_short_windows_only_are_not_kept() -> None:
    # the epochs whose number is 1 push w out of the domain of those whose number is 2
    def part(w: Tensor, number: Tensor) -> Tensor:
        return -w if number == 1 else torch.log(w)

    network, batches = Trainee(part, weight=0.5), {1: [batch(1.0)] * 3}
    trainer = Trainer(network, max_epochs=2, lr=1.0, clip_norm=None, optimizer="sgd")
    with pytest.warns(ConvergenceWarning, match="those before training are kept"):
        trainer.fit(
            lambda epoch, _: batches.get(epoch, [batch(2.0)] * 3),
            3,
            torch.Generator(),
        )
    assert float(network.w.detach()) == 0.5
    assert trainer.best_epoch == 0


HARD: list[dict[str, Any]] = [
    {"activation": "elu"},
    {"activation": "softplus", "field_depth": 3, "normalize": "last"},
    {"activation": "elu", "method": "euler", "normalize": None},
    {"activation": "elu", "adjoint": True, "averaging": 0.9},
    {"activation": "tanh", "method": "dopri5", "max_epochs": 3},
    {"activation": "elu", "method": "dopri5", "adjoint": True, "max_epochs": 3},
    {"activation": "elu", "early_stopping": True, "normalize": "linear"},
    {"activation": "elu", "field_depth": 6, "method": "midpoint", "guard": True},
]


def is_finite_or_told(answer: Callable[[Any, Any], Any], *asked: Any) -> bool:
    """Return whether an answer is finite, or is an error that names the method."""
    try:
        found = np.asarray(answer(*asked), dtype=float)
    except SolverError as error:
        return "method=" in str(error)
    return bool(np.isfinite(found).all())


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize(("optimizer", "lr"), [("adam", 5.0), ("sgd", 1e6)])
@pytest.mark.parametrize("k", range(len(HARD)))
def test_hopeless_training_ends_in_finite_answers_or_readable_errors(
    k: int, optimizer: str, lr: float, kind: Any
) -> None:
    settings = {"max_epochs": 8, "batch_size": 8, "horizon": 3, **HARD[k]}
    forecaster = tiny(kind, lr=lr, optimizer=optimizer, clip_norm=None, **settings)
    y = panel((30, 25)) if k % 2 else waves(uneven_stamps(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        forecaster.fit(y)
        for answer in ANSWERS.values():
            for fh in ([1, 3], [30], [300]):
                assert is_finite_or_told(answer, forecaster, fh)
