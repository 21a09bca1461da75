"""What is settled before a training: how long it takes, and what is held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sklode.hybrid.training import HybridTraining
from sklode.latent_ode.training import LatentODETraining
from sklode.training.preparation import Training, drawn_network, held_out_rows
from tests.networks import latent_ode
from tests.series import panel, tiny, uneven_stamps, waves
from tests.training.trainees import planned


def test_the_default_is_so_many_epochs_as_make_1500_steps() -> None:
    y = waves(uneven_stamps(40))  # 33 windows
    # three batches; no more than 32 of them; as given
    for batch_size, max_epochs, expected in ((16, None, 500), (1, None, 46), (9, 7, 7)):
        run = planned(tiny(max_epochs=max_epochs, batch_size=batch_size), y)
        assert run.schedule.n_epochs == expected


@pytest.mark.parametrize("kind", [HybridTraining, LatentODETraining])
def test_making_a_training_finds_no_model_yet(kind: type[Training[Any]]) -> None:
    forecaster, rng = tiny(), np.random.RandomState(0)
    history = forecaster.fit(waves(uneven_stamps()))._history
    made = kind(history, forecaster, rng, None, "fit", None)
    assert not hasattr(made, "model")
    made.begin()
    assert made.model.sizes == (1, 0)


@pytest.mark.parametrize(
    ("given", "n_epochs", "rate"),
    [
        ({"max_epochs": 2}, 12, 0.3),  # 17 windows are 9 batches: a hundred steps
        ({"max_epochs": 300}, 60, 0.3),
        ({"finetune_epochs": 5}, 5, 1.0),
    ],
    ids=str,
)
def test_fine_tuning_takes_a_fifth_but_a_hundred_steps_at_less_than_lr(
    given: dict[str, int], n_epochs: int, rate: float
) -> None:
    forecaster = tiny(lr=0.01, batch_size=2).pretrain(panel((8, 8)))
    run = planned(forecaster.set_params(**given), waves(uneven_stamps(24)))
    assert run.schedule == (n_epochs, rate)


BOUNDS = np.array([0, 10, 13, 15])


@pytest.mark.parametrize(("share", "cuts"), [(0.3, [7, 12, 14]), (0.01, [9, 12, 14])])
def test_of_each_series_a_share_of_rows_is_held_out_but_one_at_least(
    share: float, cuts: list[int]
) -> None:
    rng = np.random.RandomState(0)
    found = held_out_rows(BOUNDS, share=share, of_series=False, rng=rng)
    assert found.tolist() == cuts


def test_of_many_series_a_share_is_held_out_whole() -> None:
    rng = np.random.RandomState(0)
    found = held_out_rows(BOUNDS, share=0.34, of_series=True, rng=rng)
    is_whole = found == BOUNDS[:-1]
    assert is_whole.sum() == 1
    assert (found == BOUNDS[1:])[~is_whole].all()


def test_drawing_a_network_leaves_torch_as_it_was() -> None:
    state = torch.get_rng_state()
    weights = [
        drawn_network(latent_ode, seed=seed, shortest=4.0, longest=9.0).state_dict()
        for seed in (3, 3, 4)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name])
    assert not torch.equal(
        *[w["decoder.vector_field.output.weight"] for w in weights[1:]]
    )
