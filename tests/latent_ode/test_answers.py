"""Answers depend on the model, the history and the stamp queries; on nothing else."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sktime.forecasting.base import ForecastingHorizon

from sklode.latent_ode import answers as prediction
from tests.series import FORECASTERS, channels, panel, tiny, uneven_stamps, waves

TRAINED = {"max_epochs": 20, "lr": 0.05, "n_samples": 400}


def at(stamps: Any) -> ForecastingHorizon:
    return ForecastingHorizon(pd.Index(stamps), is_relative=False)


def with_controls(y: pd.Series, n_ahead: int = 40) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return controls at the stamps of ``y`` and at every integer after it."""
    end = y.index[-1]
    later = pd.Index(np.arange(end + 1, end + n_ahead + 1))
    X = pd.DataFrame({"u": np.sin(y.index / 7), "v": np.cos(y.index / 5)}, y.index)
    future = pd.DataFrame({"u": np.sin(later / 2), "v": np.cos(later / 3)}, later)
    return X, future


@pytest.mark.parametrize("kind", FORECASTERS)
@pytest.mark.parametrize("method", ["rk4", "euler"])
def test_an_extra_stamp_changes_no_other_answer(kind: type, method: str) -> None:
    y = waves()
    forecaster = tiny(kind, method=method).fit(y)
    end = y.index[-1]
    queries = [y.index[1], y.index[-2] + 1, end + 15]
    extra = [-200, y.index[3] + 1, end, end + 14, end + 16, end + 400]
    alone = forecaster.predict(at(queries))
    together = forecaster.predict(at(sorted(queries + extra)))
    np.testing.assert_allclose(together[queries], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("predict_var", {}),
        ("predict_quantiles", {"alpha": [0.05, 0.5]}),
        ("predict_interval", {"coverage": 0.9}),
    ],
)
def test_an_extra_queried_stamp_changes_no_other_spread(
    answer: str, options: dict[str, Any]
) -> None:
    forecaster = tiny(n_samples=50).fit(waves())
    full = getattr(forecaster, answer)(range(-600, 20), **options)
    far = getattr(forecaster, answer)([1, 19], **options)
    np.testing.assert_allclose(far, full.loc[far.index], rtol=0, atol=1e-5)


def test_controls_between_the_stamps_asked_count() -> None:
    y = waves()
    X, future = with_controls(y)
    forecaster = tiny(**TRAINED).fit(y, X)
    full = forecaster.predict(range(1, 41), X=future)
    far = forecaster.predict([40], X=future)
    np.testing.assert_allclose(far, full.iloc[-1:], rtol=0, atol=1e-5)


def test_each_series_of_a_panel_reads_its_own_controls() -> None:
    y = panel((12, 12))
    X = pd.DataFrame({"u": np.arange(24.0)}, y.index)
    forecaster = tiny(max_epochs=10).fit(y, X)
    ends = y.groupby(level=0).tail(1).index
    rows = [(key, end + pd.Timedelta("9min")) for key, end in ends]
    queries = pd.MultiIndex.from_tuples(rows, names=y.index.names)
    future = pd.DataFrame({"u": [1.0, 2.0]}, queries)
    forecast = forecaster.predict_at(queries, X=future)
    future.loc["s1"] = 7.0
    changed = forecaster.predict_at(queries, X=future)
    assert np.array_equal(changed.loc["s0"], forecast.loc["s0"])
    assert np.abs(changed.loc["s1"] - forecast.loc["s1"]).to_numpy().item() > 1e-6


def pretrained(**settings: Any) -> Any:
    """Return a forecaster whose fit changes the history only, not the weights."""
    settings = {"finetune_epochs": 0, "max_epochs": 10, "lr": 0.05, **settings}
    return tiny(**settings).pretrain(panel())


def test_stamps_past_the_last_are_answered_by_the_last_window() -> None:
    y = waves(uneven_stamps())
    earlier, inside = y.copy(), y.copy()
    earlier.iloc[-7] += 1  # window_length is 6
    inside.iloc[-6] += 1
    queries = [*y.index[-3:], y.index[-1] + pd.Timedelta("20min")]
    answers = [
        pretrained().fit(data).predict(at(queries)) for data in (y, earlier, inside)
    ]
    np.testing.assert_array_equal(answers[1], answers[0])
    assert np.abs(answers[2] - answers[0]).min() > 1e-6


def seen_by(forecaster: Any, y: pd.Series, queries: pd.Index) -> np.ndarray:
    """Return which rows change which answers, (row, answer)."""
    expected = copy.deepcopy(forecaster).fit(y).predict(at(queries))
    seen = []
    for row in range(len(y)):
        changed = y.copy()
        changed.iloc[row] += 1
        answer = copy.deepcopy(forecaster).fit(changed).predict(at(queries))
        seen.append((answer != expected).to_numpy())
    return np.array(seen)


def with_gap(n: int, row: int) -> pd.Series:
    """Return a wave with half an hour between two rows, some minutes between others."""
    stamps = uneven_stamps(n).to_series()
    stamps.iloc[row:] += pd.Timedelta("30min")
    return waves(pd.DatetimeIndex(stamps))


@pytest.mark.slow
def test_a_stamp_is_answered_by_a_window_around_it() -> None:
    n, length = 30, 8
    y = with_gap(n, 15)
    minute = pd.Timedelta("1min")
    queries = y.index.union(y.index[:-1] + minute / 2)
    seen = seen_by(pretrained(window_length=length), y, queries)
    for stamp, rows in zip(queries, seen.T, strict=True):
        first, last = np.flatnonzero(rows)[[0, -1]]
        assert rows.sum() == last - first + 1 == length
        n_before = int((y.index[first : last + 1] <= stamp).sum())
        assert first == 0 or n_before >= 3
        assert last == n - 1 or length - n_before >= 3


def test_an_update_leaves_the_answers_well_inside_as_they_are() -> None:
    y = waves(uneven_stamps(29))
    queries = at(y.index[:19])
    forecaster = pretrained().fit(y[:24])
    before = forecaster.predict(queries)
    after = forecaster.update(y[24:], update_params=False).predict(queries)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)


def test_windows_of_a_panel_stay_within_their_series() -> None:
    y = panel()
    fitted = pretrained().fit(y)
    for key in ("s0", "s1", "s2"):
        alone = pretrained().fit(y.loc[key])
        stamps = y.loc[key].index
        queries = stamps.union(stamps + pd.Timedelta("30s"))
        queries = queries.insert(0, queries[0] - pd.Timedelta("9min"))
        rows = pd.MultiIndex.from_product([[key], queries], names=y.index.names)
        np.testing.assert_allclose(
            fitted.predict_at(rows), alone.predict_at(queries), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 40])
def test_a_long_series_is_answered_by_few_windows(length: int) -> None:
    y = waves(pd.RangeIndex(200))
    forecaster = tiny(window_length=length, horizon=1).fit(y)
    encoded: list[Any] = []
    forecaster.network_.encoder.register_forward_pre_hook(
        lambda _, given: encoded.append(given[0].shape)
    )
    forecaster.predict(at(y.index))
    assert sum(n_windows for n_windows, _ in encoded) <= 4 * len(y) / length
    assert {n_rows for _, n_rows in encoded} == {length}


def test_a_stamp_before_the_first_is_answered_by_the_first_window() -> None:
    y = waves(uneven_stamps(20))
    queries = at([y.index[0] - pd.Timedelta("5min")])
    expected = pretrained().fit(y).predict(queries)
    alone = pretrained().fit(y[:6]).predict(queries)
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-6)


def test_a_small_batch_of_windows_at_once_gives_the_same_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forecaster = tiny().fit(panel())
    answers = [forecaster.predict(range(-40, 5)), forecaster.predict_var([-30, 1])]
    monkeypatch.setattr(prediction, "_WINDOWS_AT_ONCE", 2)
    for name in ("_STATES_AT_ONCE", "_FEWEST_ROWS"):
        monkeypatch.setattr(prediction, name, 1)
    again = [forecaster.predict(range(-40, 5)), forecaster.predict_var([-30, 1])]
    for answer, repeated in zip(answers, again, strict=True):
        np.testing.assert_allclose(repeated, answer, rtol=0, atol=1e-6)


def test_sample_paths_have_a_row_per_sample_and_stamp() -> None:
    y = channels(uneven_stamps())
    y.index.name = "when"
    forecaster = tiny().fit(y)
    paths = forecaster.sample([1, 2], n_samples=3)
    stamps = forecaster.predict([1, 2]).index
    expected = pd.MultiIndex.from_product([range(3), stamps], names=["sample", "when"])
    pd.testing.assert_index_equal(paths.index, expected)
    assert list(paths.columns) == ["a", "b"]
    assert len(forecaster.sample([1])) == 7  # n_samples


def test_a_series_that_fit_has_not_seen_is_refused_by_name() -> None:
    y = panel()
    forecaster = tiny().fit(y)
    stamp = y.index[-1][-1]
    other = pd.MultiIndex.from_tuples([("s9", stamp)], names=y.index.names)
    with pytest.raises(ValueError, match=r"seen; got \('s9',\), seen were"):
        forecaster.predict_at(other)
    with pytest.raises(ValueError, match=r"in fit, 2; got 1.*from_product\(\[\['"):
        forecaster.predict_at(pd.DatetimeIndex([stamp]))


# How far training looked

EVEN = waves(pd.date_range("2026-01-01", periods=40, freq="h"))  # horizon is 2
BEYOND = "look {} ahead of .*, and {} back from .*; {} of {} rows asked lie beyond"


@pytest.mark.parametrize(
    ("settings", "steps", "found"),
    [
        ({}, range(1, 6), ("2 h", "2 h", 3, 5)),
        ({}, [-50, -42, -41], ("2 h", "2 h", 2, 3)),
        ({"thinning": 0.0}, [-41, -40], ("2 h", "0 s", 2, 2)),
        ({"window_length": 40}, [1], ("0 s", "2 h", 1, 1)),
    ],
)
def test_rows_mostly_beyond_what_training_reached_are_told(
    settings: dict[str, Any], steps: Any, found: tuple[Any, ...]
) -> None:
    forecaster = tiny(**settings).fit(EVEN)
    asks = (
        forecaster.predict,
        forecaster.predict_var,
        forecaster.sample,
        forecaster.predict_interval,
    )
    for ask in asks:
        with pytest.warns(RuntimeWarning, match=BEYOND.format(*found)) as told:
            ask(steps)
        assert len(told) == 1


@pytest.mark.parametrize("steps", [[1, 2], range(1, 5), [-40, -41], range(-44, 5)])
def test_rows_that_are_mostly_within_it_are_not(steps: Any) -> None:
    forecaster = tiny().fit(EVEN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(forecaster.predict(steps)).all()


@pytest.mark.parametrize(("finetune_epochs", "hours"), [(0, 2), (1, 6)])
def test_what_was_learned_of_other_series_is_reached_too(
    finetune_epochs: int, hours: int
) -> None:
    # every hour, then each third one, by which two rows take six hours
    forecaster = tiny(finetune_epochs=finetune_epochs).pretrain(
        pd.concat({0: EVEN.to_frame()})
    )
    forecaster.fit(EVEN[::3])
    told = f"{hours} h ahead of a series' last row"
    assert told in forecaster.summary(0)["network"]
    shorter = forecaster.fit(EVEN[:5])  # no row comes after those seen
    assert "2 h ahead of a series' last row" in shorter.summary(0)["network"]
