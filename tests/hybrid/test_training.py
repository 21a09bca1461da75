"""Training beside the level: when, on what, and what is left where nothing counts."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklode import LatentODELSTMForecaster, StructuralForecaster
from sklode.hybrid import training as ahead
from sklode.plotting import plot_history
from sklode.structural.fit import fit_model
from sklode.structural.model import StructuralModel
from sklode.training.trainer import HISTORY_COLUMNS
from tests.cases import slow
from tests.epochs import interrupt
from tests.hybrid.test_model import fitted, series, weights
from tests.series import MOSTLY_ONE, channels, panel, tiny, uneven_stamps, waves
from tests.training.trainees import planned

STEPS = [1, 2, 5]


@pytest.fixture
def proving(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let few rows prove that the network counts whole."""
    monkeypatch.setattr(ahead, "_PROVING_ROWS", 0)
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: True)
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: weights(1.0))
    return monkeypatch


def auto(kind: Any = LatentODELSTMForecaster, **settings: Any) -> Any:
    return tiny(kind, **{"model": "hybrid", "max_epochs": 3, **settings})


@pytest.mark.parametrize("kind", MOSTLY_ONE)
@pytest.mark.parametrize(
    ("settings", "fh"),
    [({"horizon": 9}, [1, 40]), slow({"horizon": 0}, None), slow({}, [1, 40])],
)
@pytest.mark.usefixtures("proving")
def test_no_forecast_depends_on_horizon_or_on_the_fh_of_fit(
    settings: dict[str, Any], fh: Any, kind: Any
) -> None:
    y = series()
    expected = auto(kind).fit(y).predict_interval(STEPS)
    found = auto(kind, **settings).fit(y, fh=fh).predict_interval(STEPS)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_where_nothing_can_be_proved_nothing_is_trained() -> None:
    y = series()
    forecaster = auto(verbose=2).fit(y)
    assert forecaster.network_ is None
    assert forecaster.network_share_ == 0.0
    assert forecaster.n_epochs_ == forecaster.best_epoch_ == 0
    assert list(forecaster.history_) == [*HISTORY_COLUMNS[1:], "phase"]
    assert forecaster.history_.empty
    assert forecaster.network_weights_.to_numpy().tolist() == [[0.0]]
    assert forecaster.interval_scale_.to_numpy().tolist() == [[1.0]]
    with pytest.raises(ValueError, match="epoch"):
        plot_history(forecaster)


@pytest.mark.parametrize(
    ("n", "settings"), [(1, {}), (3, {"window_length": 1}), (20, {})]
)
def test_a_few_rows_are_the_levels(n: int, settings: dict[str, Any]) -> None:
    y = series()[:n]
    expected = StructuralForecaster().fit(y).predict(STEPS)
    found = auto(**settings).fit(y).predict(STEPS)
    pd.testing.assert_series_equal(found, expected)


@pytest.mark.parametrize("diverges", [slow(False), True])
def test_where_training_on_diverges_the_network_stays_as_it_was_proved(
    diverges: bool, proving: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = ahead.HybridTraining.learn
    weights: list[Any] = []

    def learned(self: Any, material: Any, **how: Any) -> Any:
        trainer = learn(self, material, **how)
        trainer.n_restored = int(diverges and bool(weights))
        weights.append(self.network.own_lines.detach().clone())
        return trainer

    proving.setattr(ahead.HybridTraining, "learn", learned)
    forecaster = auto(verbose=2).fit(series())
    left = forecaster.network_.own_lines.detach()
    assert len(weights) == 3  # of two folds, and all rows
    assert not (weights[0] == weights[2]).all()
    assert (left == weights[0 if diverges else 2]).all()
    assert ("Training on diverged" in capsys.readouterr().out) == diverges
    # every phase is told, one after another
    history = forecaster.history_
    assert history["phase"].unique().tolist() == [1, 2, 3]
    assert history.index.tolist() == [*range(1, len(history) + 1)]
    assert forecaster.best_epoch_ == (3 if diverges else len(history))


def test_a_network_without_prospects_is_given_up_after_a_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "_PROVING_ROWS", 0)
    monkeypatch.setattr(ahead, "has_prospects", lambda *_: False)
    forecaster = auto(max_epochs=9).fit(series())
    assert forecaster.n_epochs_ == 3
    assert forecaster.network_ is None


@pytest.mark.parametrize(
    ("n_series", "n_rows", "is_tried"),
    [(1, 299, False), (1, 300, True), (9, 20, False), (10, 5, False), (10, 6, True)],
)
def test_a_network_is_tried_of_many_rows_or_of_several_series(
    n_series: int, n_rows: int, is_tried: bool
) -> None:
    y = panel((n_rows,) * n_series) if n_series > 1 else waves(uneven_stamps(n_rows))
    forecaster = auto(max_epochs=3).fit(y)
    assert bool(forecaster.n_epochs_) is is_tried


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each batch is drawn from."""
    found: list[int] = []
    batch = ahead.HybridTraining._batch

    def recorded(run: Any, origins: Any, **queries: Any) -> Any:
        found.append(len(origins.times))
        return batch(run, origins, **queries)

    monkeypatch.setattr(ahead.HybridTraining, "_batch", recorded)
    return found


@pytest.mark.usefixtures("proving")
def test_what_is_held_out_is_trained_on_only_once_it_has_proved_the_network(
    monkeypatch: pytest.MonkeyPatch, seen: list[int]
) -> None:
    levels: list[int] = []

    def fit(rows: Any, known: Any) -> StructuralModel:
        levels.append(len(rows.ticks))
        return fit_model(rows, known=known)

    monkeypatch.setattr(ahead, "fit_model", fit)
    forecaster = auto().fit(series())
    assert levels == [60, 42, 51]  # of the forecasts, and of each fold's proof
    assert list(dict.fromkeys(seen)) == [42, 51, 60]
    assert seen == sorted(seen)
    assert forecaster.location_[0] == np.median(series()[:42])


@pytest.mark.slow
@pytest.mark.usefixtures("proving")
def test_a_series_is_forecast_by_the_network_of_its_family() -> None:
    y = panel((40, 35, 45))
    forecaster = auto(finetune_epochs=0).pretrain(y)
    weights = forecaster.pretrained_.network.state_dict()
    short = waves(uneven_stamps(9, seed=5), seed=7)
    forecaster.fit(short)
    assert forecaster.network_share_ == 1.0
    for name, weight in forecaster.network_.state_dict().items():
        assert (weight == weights[name]).all(), name
    tuned = auto(finetune_epochs=2).pretrain(y).fit(short)
    assert tuned.n_epochs_ == 2
    assert (tuned.predict(STEPS) - forecaster.predict(STEPS)).abs().max() > 1e-6


@pytest.mark.usefixtures("proving")
def test_what_pretraining_has_not_proved_is_not_trained_by_a_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "network_weights_of", lambda *_, **__: None)
    forecaster = auto().pretrain(panel())
    assert forecaster.pretrained_.network is None
    forecaster.fit(waves(uneven_stamps(9)))
    assert (forecaster.network_, forecaster.n_epochs_) == (None, 0)


def test_an_update_keeps_the_level_that_a_guard_has_kept(
    proving: pytest.MonkeyPatch,
) -> None:
    proving.setattr(ahead, "network_weights_of", lambda *_, **__: None)
    y = series()
    forecaster = auto().fit(y[:50])
    proving.setattr(ahead, "network_weights_of", lambda *_, **__: weights(1.0))
    forecaster.update(y[50:])
    assert (forecaster.network_, forecaster.network_share_) == (None, 0.0)


@pytest.mark.parametrize("n_channels", [2, slow(10)])
def test_missing_values_and_a_channel_beside_many(
    n_channels: int, proving: pytest.MonkeyPatch
) -> None:
    proving.setattr(
        ahead, "network_weights_of", lambda *_, **__: weights(1.0, n_channels)
    )
    rng = np.random.default_rng(0)
    index = uneven_stamps(60)
    y = pd.DataFrame({f"c{k}": waves(index, k) for k in range(n_channels)})
    y = y.mask(rng.random(y.shape) < 0.5)
    y.iloc[0] = 1.0
    y["c0"] = 3.0  # which never varies
    forecaster = auto().fit(y)
    found = forecaster.predict_interval(STEPS)
    assert np.isfinite(found.to_numpy()).all()
    gone = y.assign(c1=np.nan)
    with pytest.raises(ValueError, match="got none in column 'c1'"):
        auto().fit(gone)


def answers(forecaster: Any) -> list[pd.DataFrame]:
    return [
        pd.DataFrame(forecaster.predict(STEPS)),
        forecaster.predict_interval(STEPS),
        forecaster.sample(STEPS, n_samples=4),
        forecaster.network_weights_,
        forecaster.history_.drop(columns="seconds"),
    ]


@pytest.mark.slow
def test_a_file_and_a_pickle_answer_as_the_forecaster(tmp_path: Any) -> None:
    forecaster = fitted(0.4, channels(uneven_stamps(60))["a"])
    forecaster.save_weights(tmp_path / "file")
    for again in (
        LatentODELSTMForecaster.load_weights(tmp_path / "file"),
        pickle.loads(pickle.dumps(forecaster)),
    ):
        for left, right in zip(answers(forecaster), answers(again), strict=True):
            pd.testing.assert_frame_equal(left, right, check_exact=True)


@pytest.mark.parametrize("lengths", [slow((1,) * 310), (2,) * 160, (320, 1, 2, 3)])
@pytest.mark.parametrize("guard", [False, slow("auto")])
def test_series_too_short_to_prove_anything_are_the_levels_or_are_learned(
    lengths: tuple[int, ...], guard: Any
) -> None:
    parts = {k: waves(uneven_stamps(n, k), k).to_frame() for k, n in enumerate(lengths)}
    y = pd.concat(parts, names=["series", "when"])
    forecaster = auto(guard=guard).fit(y)
    # without a row that has some before it, and one after, nothing is learned
    assert (forecaster.n_epochs_ > 0) is (320 in lengths)
    assert np.isfinite(forecaster.predict([1])).to_numpy().all()


def test_a_channel_that_was_not_seen_before_the_held_out_rows_proves_nothing() -> None:
    y = channels(uneven_stamps(320))
    y.iloc[:300, 1] = np.nan
    forecaster = auto().fit(y)
    assert forecaster.network_ is None
    pd.testing.assert_frame_equal(
        forecaster.predict(STEPS), StructuralForecaster().fit(y).predict(STEPS)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("proving", "interruptible")
def test_an_interrupted_training_keeps_what_it_has_and_is_not_gone_on_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    y = series()
    forecaster = auto(max_epochs=4, verbose=2)
    warned = pytest.warns(ConvergenceWarning, match="interrupted after 2 of 4")
    with interrupt(KeyboardInterrupt(), 2), warned:
        forecaster.fit(y)
    assert forecaster.n_epochs_ == 2
    assert "on all rows" not in capsys.readouterr().out
    assert np.isfinite(forecaster.predict(STEPS)).all()
    forecaster.fit(y)
    assert "on all rows" in capsys.readouterr().out


@pytest.mark.usefixtures("proving")
@pytest.mark.slow
@pytest.mark.parametrize("power", [200, -200])
def test_numbers_of_any_size_are_learned_alike(power: int) -> None:
    y = series()
    usual, found = (auto().fit(y * 10.0**k).history_["loss"] for k in (0, power))
    np.testing.assert_allclose(found, usual, rtol=1e-4)


@pytest.mark.usefixtures("proving")
@pytest.mark.parametrize("thinning", [slow(0.0), 0.9])
def test_windows_show_what_came_and_ask_for_what_followed(thinning: float) -> None:
    y = channels(uneven_stamps(60))
    X = pd.DataFrame({"u": np.arange(60.0)}, y.index)
    run: Any = planned(auto(thinning=thinning, batch_size=16), y, X=X)
    units = run.model.units
    plain = (y.to_numpy() - units.location) / units.scale
    stamps = y.index.to_series().diff().dt.total_seconds() / 60
    times = stamps.cumsum().fillna(0).to_numpy() / (units.time / 60e9)
    batches = list(run.material(run.learned).draw(1))
    assert len(batches) == math.ceil(42 / 16)
    hidden = [~batch.mask[..., 0] for batch in batches]
    n_hidden = sum(int(x.sum()) for x in hidden)
    for batch in batches:
        assert batch.mask[:, 0].all()  # the last row, which stays
        for k in range(16):
            last = np.flatnonzero(np.isclose(plain[:, 0], batch.values[k, 0, 0]))[0]
            assert last < 42
            shown = min(last + 1, 6)
            expected = plain[last - np.arange(shown)]
            np.testing.assert_allclose(batch.values[k, :shown], expected, atol=1e-5)
            mine = batch.window == k
            row = np.searchsorted(times, times[last] + batch.lead[mine].numpy() - 1e-3)
            assert ((row > last) & (row < 42)).all()
            expected = plain[row, batch.channel[mine].numpy()]
            np.testing.assert_allclose(batch.target[mine], expected, atol=1e-5)
            queries = batch.lead[mine].expand(16, -1)
            u = batch.path.at(queries).numpy()[k, :, 0]
            u = u * units.control_scale + units.control_location
            np.testing.assert_allclose(u, row, atol=1e-3)
    padded = sum(int((batch.times.diff(dim=1) == 0).sum()) for batch in batches)
    assert (n_hidden > padded) is (thinning > 0)


@pytest.mark.usefixtures("proving")
@pytest.mark.parametrize(("n_columns", "is_dropped"), [slow(8, False), (9, True)])
def test_steps_on_many_channels_leave_neurons_out_and_validation_none(
    n_columns: int, is_dropped: bool
) -> None:
    stamps = uneven_stamps(60)
    y = pd.DataFrame({f"c{k}": waves(stamps, k) for k in range(n_columns)})
    run: Any = planned(auto(early_stopping=True, batch_size=16), y)
    material = run.material(run.learned)
    seeds = [batch.dropout for batch in (*material.draw(1), *material.draw(2))]
    # each step draws its own
    assert len(set(seeds)) == (len(seeds) if is_dropped else 1)
    assert all((seed is not None) is is_dropped for seed in seeds)
    assert material.validation.dropout is None


@pytest.mark.usefixtures("proving")
def test_early_stopping_validates_on_rows_no_batch_asks_for(seen: list[int]) -> None:
    auto(early_stopping=True, max_epochs=2).fit(series())
    # each time a validation batch, and those of an epoch
    assert list(dict.fromkeys(seen)) == [42, 38, 51, 46, 60, 54]
    assert [seen.count(n) for n in (42, 51, 60)] == [1, 1, 1]


@pytest.mark.usefixtures("proving")
def test_rare_channels_count_more_and_those_that_never_vary_nothing() -> None:
    y = pd.DataFrame({f"c{k}": waves(uneven_stamps(400), k) for k in range(3)})
    y.iloc[np.arange(400) % 4 > 0, 1] = np.nan
    y["c2"] = 5.0
    weights = planned(auto(), y).model.network.weights.numpy()
    assert weights[1] > weights[0] > weights[2] == 0
    counts = y[:280].notna().sum().to_numpy()
    assert weights @ counts == pytest.approx(counts[:2].sum(), rel=1e-5)


@pytest.mark.usefixtures("proving")
def test_the_kl_term_counts_less_the_more_rows_there_are() -> None:
    scales = []
    for n in (60, 800):
        run: Any = planned(auto(), waves(uneven_stamps(n)))
        run.material(run.learned)
        scales.append(run.model.network.kl_scale)
    assert scales[0] == 1 > scales[1] > 0


@pytest.mark.usefixtures("proving")
def test_rows_are_scaled_once_to_draw_a_network_and_to_train_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, lengths = ahead.Origins, list[int]()

    def counted(rows: Any, units: Any, **known: Any) -> Any:
        lengths.append(len(rows.ticks))
        return given(rows, units, **known)

    monkeypatch.setattr(ahead, "Origins", counted)
    auto().fit(series())
    # of what is learned until it is proved, of a fold more, of all
    assert lengths == [42, 51, 60]
