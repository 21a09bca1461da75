"""What a broken sensor wrote is left out or rescaled, and said to be; nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.data.history import History
from tests.series import tiny, uneven_stamps, waves

WAVE = np.sin(np.arange(50.0))


def read(y: Any, **settings: Any) -> tuple[np.ndarray, list[str]]:
    """Return what is left of values, and the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        history = History.of(pd.DataFrame({"y": y}), None, **settings)
    return history.rows.values[:, 0], [str(warning.message) for warning in found]


@pytest.mark.parametrize(("row", "value"), [(0, 1e8), (11, -1e30), (-1, 1e8)])
def test_an_outlier_changes_no_forecast_more_than_a_missing_value(
    row: int, value: float
) -> None:
    y = waves(uneven_stamps())
    y.iloc[row] = np.nan
    missing = tiny().fit(y)
    y.iloc[row] = value
    match = r"1 value\(s\) far beyond all .*first is -?1e.*Taken for missing"
    with pytest.warns(UserWarning, match=match):
        forecaster = tiny().fit(y)
    asked = pd.DatetimeIndex(["2021-03-05", "2021-03-01 00:30"])
    expected = missing.predict_at(asked)
    pd.testing.assert_series_equal(forecaster.predict_at(asked), expected)


N = 240
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=N)
DAY = 20 + 3 * np.sin(2 * np.pi * np.arange(N) / 24) + 0.4 * NOISE
RARE = np.arange(N) % 9 == 4


def with_run(start: int, length: int, values: Any = DAY) -> np.ndarray:
    y = np.array(values)
    y[start : start + length] = y[start]
    return y


T = np.arange(N)
SENTINELS: dict[str, tuple[Any, Any]] = {
    "-999": (np.where(RARE, -999, DAY), RARE),
    "a third": (np.where(T % 3, DAY, -99.9), T % 3 == 0),
    "two": (np.where(RARE, np.where(T < 99, -999, -9999), DAY), RARE),
    "on both sides": (np.where(RARE, np.where(T < 99, -1e6, 1e6), DAY), RARE),
}


@pytest.mark.parametrize("name", SENTINELS)
def test_a_number_that_stands_for_missing_values_is_left_out(name: str) -> None:
    y, is_mark = SENTINELS[name]
    values, messages = read(y)
    np.testing.assert_array_equal(values, np.where(is_mark, np.nan, y))
    row = int(np.argmax(is_mark))
    (message,) = messages
    assert message.startswith(f"y has {is_mark.sum()} value(s) far beyond all others")
    assert f"first is {y[row]:g} in column 'y' at {row}. Taken for miss" in message
    assert "clean=False keeps them" in message


@pytest.mark.parametrize(("start", "length"), [(80, 8), (80, 60), (N - 60, 60)])
def test_of_a_stuck_run_the_first_value_is_kept(start: int, length: int) -> None:
    y = with_run(start, length)
    values, messages = read(y)
    expected = y.copy()
    expected[start + 1 : start + length] = np.nan
    np.testing.assert_array_equal(values, expected)
    (message,) = messages
    assert message.startswith(f"y has {length - 1} value(s) that repeat the one before")
    assert f"in column 'y' at {start + 1}. Taken for missing" in message


@pytest.mark.parametrize("n_after", [5, 24, 100])
@pytest.mark.parametrize("factor", [1000, 1e-3, 100, 1e6])
def test_rows_before_a_change_of_unit_are_rescaled(n_after: int, factor: float) -> None:
    y = DAY.copy()
    y[-n_after:] *= factor
    values, messages = read(y)
    np.testing.assert_allclose(values, DAY * factor)
    (message,) = messages
    assert message.startswith("y has 1 value(s) from which on the unit seems to be ano")
    assert f"a factor of {factor:.4g}; the first is {y[-n_after]:g} in " in message
    assert f"in column 'y' at {N - n_after}. Rows before are rescaled" in message


@pytest.mark.parametrize("value", [8, 32, -999])
@pytest.mark.parametrize("start", [100, N - 20])
def test_a_run_far_beyond_all_other_values_is_left_out(
    start: int, value: float
) -> None:
    is_run = (T >= start) & (T < start + 20)
    values, messages = read(np.where(is_run, value, DAY))
    np.testing.assert_array_equal(values, np.where(is_run, np.nan, DAY))
    (message,) = messages
    assert message.startswith("y has 20 value(s) that repeat the one before")


NEAR_400 = 400 + DAY
SCATTERED = np.random.default_rng(1).random(N) < 0.1
CLOSED = (T > 60) & (T < 85)
# zeros that border on the closure would be part of its run
SCATTERED &= ~np.isin(T, np.arange(60, 86))


@pytest.mark.parametrize("offset", [400, 60, -460])
@pytest.mark.parametrize("share", [0.03, 0.1, 0.25])
def test_zeros_that_stand_alone_are_left_out(share: float, offset: float) -> None:
    is_mark = np.random.default_rng(2).random(N) < share
    y = np.where(is_mark, 0.0, DAY + offset)
    values, messages = read(y)
    np.testing.assert_array_equal(values, np.where(is_mark, np.nan, y))
    (message,) = messages
    assert message.startswith(f"y has {is_mark.sum()} value(s) of zero that stand alo")
    first = f"the first is 0 in column 'y' at {np.argmax(is_mark)}. Taken for missing"
    assert first in message


def test_a_run_of_zeros_stays_where_others_are_left_out() -> None:
    y = np.where(SCATTERED | CLOSED, 0.0, NEAR_400)
    values, messages = read(y)
    assert len(messages) == 1
    np.testing.assert_array_equal(values[CLOSED], 0.0)
    np.testing.assert_array_equal(np.isnan(values), SCATTERED)


def test_zeros_that_a_column_of_x_tells_stay() -> None:
    y = pd.DataFrame({"y": np.where(SCATTERED, 0.0, NEAR_400)})
    closed = pd.DataFrame({"closed": SCATTERED.astype(float)})
    assert not np.isnan(History.of(y, closed).rows.values).any()
    other = pd.DataFrame({"other": NOISE > 0})
    with pytest.warns(UserWarning, match="zero that stand alone"):
        History.of(y, other)


LATE = T >= N // 2
TRUE: dict[str, Any] = {
    "a value 1000 times as far": [*WAVE, 1e3],
    "a spike among zeros": [*np.zeros(50), 1e8],
    "a large offset": [*(1e9 + WAVE), 1e9 + 100],
    "many of the large": [*WAVE, *[1e8] * 3],
    "the largest floats": [*WAVE * 1e308, -1.7e308],
    "closed on Sundays": np.where(T % 7 == 6, 0, 1000 + 50 * NOISE),
    "closed on two days of a week": np.where(np.isin(T % 7, [2, 6]), 0, NEAR_400),
    "closed on Sundays and holidays": np.where(
        (T % 7 == 6) | np.isin(T, [31, 85, 86, 170]), 0, NEAR_400
    ),
    "closed for days": np.where(T % 60 < 1 + T // 20, 0, NEAR_400),
    "closed now and then": np.where(SCATTERED, 0, 1000 + 50 * NOISE),
    "on and off": np.where(SCATTERED, 0, 400.0),
    "mostly zero": np.where(RNG.random(N) < 0.5, 0, NEAR_400),
    "on both sides of zero": np.where(SCATTERED, 0, NEAR_400 * np.sign(NOISE)),
    "one that varies, then repeats": [1.0, *np.full(12, 2.0)],
    "a limit that is approached": np.where(T > N - 20, DAY.min(), DAY),
    "more than a third": np.where(T % 5 < 2, -999, DAY),
    "two of -999": np.where(np.isin(T, [70, 150]), -999, DAY),
    "a rare large order": np.where(RARE, 1000, RNG.poisson(8, N)),
    "a price in nines": np.where(RARE, 99.99, np.round(60 + NOISE, 2)),
    "-1 next to small values": np.where(RARE, -1, DAY),
    "rain": np.where(T % 10 < 7, 0, np.exp(2 * NOISE)),
    "counts": RNG.poisson(0.5, N),
    "steps with noise": np.repeat(50 * NOISE[:12], 20) + NOISE,
    "saturation": np.clip(DAY, 18, 22),
    "night": np.maximum(0, np.sin(2 * np.pi * T / 24)) * (5 + NOISE),
    "a run of 7": with_run(80, 7),
    "the same run twice": np.where((T > 80) & (T < 95) | (T > 180), 20.0, DAY),
    "at rest before it starts": with_run(0, 50),
    "rounded": np.round(DAY),
    "growth by ten a row": 10.0**T,
    "volatility": np.where(LATE, 30, 1) * NOISE,
    "a step": np.where(LATE, 20_000, 20) + NOISE,
    "a factor of 3.6": np.where(LATE, 3.6, 1) * DAY,
    "1000 times as much for a while": np.where(T // 80 == 1, 1000, 1) * DAY,
    "four rows of another unit": np.where(T >= N - 4, 1000, 1) * DAY,
    "ten rows of ten times": np.where(T >= N - 10, 10, 1) * DAY,
}


@pytest.mark.parametrize("name", TRUE)
def test_values_that_may_be_true_are_kept(name: str) -> None:
    values, messages = read(TRUE[name])
    assert messages == []
    np.testing.assert_array_equal(values, TRUE[name])


BROKEN = {
    "lone": np.where(T == 50, 1e9, DAY),
    "sentinel": SENTINELS["-999"][0],
    "stuck": with_run(150, 50),
    "unit": np.where(LATE, 1000, 1) * DAY,
}


def test_nothing_is_left_out_where_values_are_to_be_kept() -> None:
    for y in BROKEN.values():
        values, messages = read(y, clean=False)
        assert messages == []
        np.testing.assert_array_equal(values, y)


def test_each_series_and_channel_is_judged_alone_with_one_warning_a_kind() -> None:
    frame = pd.DataFrame({"a": DAY, **BROKEN})
    y = pd.concat({"s": frame, "t": frame, "u": frame * 0 + DAY[:, None]})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        history = History.of(y, None)
        later = y.loc[["u"]].rename(index=lambda row: row + N, level=1)
        rows = history.extended(later, None, None).rows  # of one series alone
    expected = pd.DataFrame({k: read(v)[0] for k, v in frame.items()})
    np.testing.assert_allclose(rows.values[:N], expected)
    np.testing.assert_allclose(rows.values[N : 2 * N], expected)
    np.testing.assert_array_equal(rows.values[2 * N : 3 * N], y.loc["u"])
    messages = [str(warning.message) for warning in found]
    # of two series: 1 lone value and 27 marks, 49 of a run of 50, 1 new unit
    counts = {"sentinel": 56, "stuck": 98, "unit": 2}
    assert len(messages) == 3
    for message, (name, n) in zip(messages, counts.items(), strict=True):
        assert f"y has {n} value(s)" in message
        assert f"in column {name!r} at" in message
        assert "of series ('s',)" in message


def test_findings_do_not_hide_each_other() -> None:
    y = with_run(60, 30)
    y[N // 2 :] /= 1000
    y[[5, 77, 99, 130, 200]], y[33] = -9999, 1e12
    values, messages = read(y)
    # rows before the new unit are rescaled to it, and as broken as they were
    expected = with_run(60, 30) / 1000
    expected[[5, 77, 99, 130, 200, 33, *range(61, 90)]] = np.nan
    np.testing.assert_allclose(values, expected)
    assert len(messages) == 3


@pytest.mark.parametrize("cut", [100, 165])
@pytest.mark.parametrize("name", ["lone", "sentinel", "stuck"])
def test_an_update_ends_in_the_history_of_a_fit_on_all(name: str, cut: int) -> None:
    y = pd.DataFrame({"y": BROKEN[name]})
    whole = read(y["y"])[0]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        history = History.of(y[:cut], None)
        n_before = len(found)
        for part in (y[cut : cut + 20], y[cut + 20 :]):
            history = history.extended(part, None, None)
    np.testing.assert_array_equal(history.rows.values[:, 0], whole)
    told = [str(warning.message) for warning in found]
    new = [message for message in told[n_before:] if "Taken for missing" in message]
    n_told = sum(int(message.split()[2]) for message in told)
    assert n_told == np.isnan(whole).sum()  # each value once
    assert bool(new) == np.isnan(whole[cut:]).any()


def test_an_update_in_another_unit_is_refused_and_changes_nothing() -> None:
    y = pd.Series(BROKEN["unit"], pd.date_range("2021", periods=N, freq="h"))
    forecaster = StructuralForecaster().fit(y[: N // 2])
    before = forecaster.predict([1, 2])
    with pytest.raises(
        ValueError, match=r"factor of 1000; .* at 2021-01-06 00:00:00\."
    ):
        forecaster.update(y[N // 2 :])
    pd.testing.assert_series_equal(forecaster.predict([1, 2]), before)
    with pytest.warns(UserWarning, match="the unit seems to be another"):
        forecaster.fit(y[:-50])
    forecaster.update(y[-50:])  # in the unit at the end
    assert 15_000 < forecaster.predict([1]).iloc[0] < 25_000


def test_a_file_keeps_what_was_left_out(tmp_path: Path) -> None:
    y = pd.Series(BROKEN["sentinel"], pd.date_range("2021", periods=N, freq="h"))
    with pytest.warns(UserWarning, match=r"27 value\(s\) far beyond all others"):
        forecaster = StructuralForecaster().fit(y)
    forecaster.save_weights(tmp_path / "file")
    loaded = StructuralForecaster.load_weights(tmp_path / "file")
    pd.testing.assert_series_equal(loaded.predict([1, 2]), forecaster.predict([1, 2]))
    new = pd.Series([-999.0, y.iloc[0]], y.index[-1] + pd.to_timedelta([1, 2], "h"))
    with pytest.warns(UserWarning, match=r"1 value\(s\) far beyond all others"):
        loaded.update(new, update_params=False)  # alone it would be no sentinel
    forecaster.update(new[1:], update_params=False)
    # an outlier that is kept moves them by some 1e-8
    found, expected = loaded.predict([1, 2]), forecaster.predict([1, 2])
    pd.testing.assert_series_equal(found, expected, rtol=1e-12)


def test_residuals_where_values_were_left_out_are_those_of_what_was_passed() -> None:
    y = pd.Series(BROKEN["sentinel"])
    with pytest.warns(UserWarning, match="Taken for missing"):
        forecaster = StructuralForecaster().fit(y)
    assert (forecaster.predict_residuals(y)[RARE] < -1000).all()
