"""What a new user is likely to get wrong is answered by code that puts it right."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.errors import TimesInValuesWarning
from tests.series import channels, panel, tiny, uneven_stamps, uneven_ticks, waves

N = 24
VALUES = waves().to_numpy()
SECONDS = uneven_ticks() / 4
STAMPS = uneven_stamps()
EPOCH = pd.Timestamp("1970-01-01")


def corrected(message: str, y: Any) -> Any:
    """Return y after the line of code that a message shows has run."""
    line = re.search(r"\by(?:\.index)? = .*?(?=\.(?: |$)|, with their unit)", message)
    assert line, message
    names = {"y": y.copy(), "pd": pd}
    exec(line[0], names)  # our own message
    return names["y"]


def dated(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"when": values, "level": VALUES})


def keyed(times: Any) -> pd.DataFrame:
    """Return a panel whose times are others, the same for each series."""
    y = panel((10, 10))
    keys = y.index.get_level_values(0)
    return y.set_axis(pd.MultiIndex.from_arrays([keys, np.tile(times, 2)]))


REFUSED: dict[str, tuple[Any, pd.Index]] = {
    "floats": (pd.Series(VALUES, SECONDS), pd.to_timedelta(SECONDS, unit="s")),
    "whole floats": (pd.Series(VALUES, np.arange(N) * 2.0), pd.Index(range(0, 48, 2))),
    "seconds since 1970": (
        pd.Series(VALUES, (STAMPS - EPOCH) / pd.Timedelta("1s")),
        STAMPS,
    ),
    "milliseconds since 1970": (
        pd.Series(VALUES, (STAMPS - EPOCH) / pd.Timedelta("1ms")),
        STAMPS,
    ),
    "strings": (pd.Series(VALUES, STAMPS.astype(str)), STAMPS),
    "strings as objects": (
        pd.Series(VALUES, pd.Index(STAMPS.strftime("%d %b %Y %H:%M"), dtype=object)),
        STAMPS,
    ),
    "dates": (
        pd.Series(VALUES, pd.Index(pd.date_range("2020", periods=N).date)),
        pd.date_range("2020", periods=N),
    ),
    "a column of stamps": (dated(STAMPS), STAMPS),
    "a column of strings": (dated(STAMPS.astype(str)), STAMPS),
    "floats in a panel": (keyed(np.arange(10) / 4), None),
    "strings in a panel": (keyed(STAMPS[:10].astype(str)), None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_times_is_refused_with_a_line_that_makes_them(case: str) -> None:
    y, index = REFUSED[case]
    with pytest.raises(TypeError, match=r"; got .*\.") as caught:
        tiny().fit(y)
    right = corrected(str(caught.value), y)
    forecaster = tiny().fit(right)
    assert np.isfinite(forecaster.predict([1, 2])).all(axis=None)
    if index is not None:
        np.testing.assert_array_equal(right.index, index)
    assert right.shape[0] == y.shape[0]
    assert "when" not in getattr(right, "columns", ())


def test_words_are_not_taken_for_dates() -> None:
    y = pd.Series(VALUES, [f"patient {k}" for k in range(N)])
    with pytest.raises(TypeError, match=r"got .* patient 0\. Take times for the index"):
        tiny().fit(y)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_numbers_is_refused_with_what_to_pass(kind: type) -> None:
    y = kind(VALUES.tolist())
    with pytest.raises(TypeError, match=f"{kind.__name__}.*Pass ") as caught:
        tiny().fit(y)
    for code in re.findall(r"pd\.Series\([^)]*\)", str(caught.value)):
        right = eval(code, {"pd": pd, "y": y, "stamps": STAMPS})
        assert tiny().fit(right).predict([1]).index[0] > right.index[-1]


def test_a_tensor_is_refused_with_what_to_pass() -> None:
    import torch

    with pytest.raises(TypeError, match=r"got Tensor\. Pass y\.numpy\(\)\."):
        tiny().fit(torch.zeros(9))


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda f: f.predict(),
    "intervals": lambda f: f.predict_interval(),
    "quantiles": lambda f: f.predict_quantiles(),
    "variance": lambda f: f.predict_var(),
    "paths": lambda f: f.sample(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_forecast_without_a_horizon_says_how_to_ask(question: str) -> None:
    forecaster = tiny().fit(waves(STAMPS))
    message = r"fh must say .* got none, here or in fit\. Pass it"
    with pytest.raises(ValueError, match=message) as caught:
        QUESTIONS[question](forecaster)
    shown = re.findall(r"predict\w*\(.*?\)(?:\))?", str(caught.value))
    assert shown == ["predict(fh=range(1, 13))", "predict_at(index)"]
    index = STAMPS[-1:] + pd.Timedelta("1h")
    answers = [
        eval(f"forecaster.{code}", {"forecaster": forecaster, "index": index})
        for code in shown
    ]
    assert [len(answer) for answer in answers] == [12, 1]


def test_a_horizon_given_to_fit_is_enough() -> None:
    assert len(tiny().fit(waves(), fh=[1, 3]).predict()) == 2


def test_predict_with_a_series_points_at_predict_at() -> None:
    y = waves(STAMPS)
    with pytest.raises(TypeError, match=r"got a Series\. .* predict_at\(y\.index\)"):
        tiny().fit(y).predict(y)


TIMED: dict[str, Any] = {
    "an array": np.c_[SECONDS, VALUES],
    "an array of days": np.c_[uneven_ticks(), VALUES],
    "an array of seconds since 1970": np.c_[
        (STAMPS - EPOCH) / pd.Timedelta("1s"), VALUES, VALUES
    ],
    "a frame": dated(SECONDS),
}


@pytest.mark.parametrize("case", TIMED)
def test_times_in_the_first_column_are_warned_of_with_a_line_that_moves_them(
    case: str,
) -> None:
    y = TIMED[case]
    with pytest.warns(TimesInValuesWarning, match="increases strictly") as caught:
        forecaster = tiny().fit(y)
    assert caught[0].filename == __file__
    assert forecaster.predict([1]).shape == (1, y.shape[1])  # as it was passed
    right = corrected(str(caught[0].message), y)
    assert right.shape == (N, y.shape[1] - 1)
    table = np.asarray(y)
    gaps = np.diff(right.index) / np.diff(right.index)[0]
    given = np.diff(table[:, 0]) / np.diff(table[:, 0])[0]
    np.testing.assert_allclose(gaps, given, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(tiny().fit(right).predict([1])).all(axis=None)


NOT_TIMED: dict[str, Any] = {
    "one channel": np.cumsum(VALUES**2),
    "one channel as a column": np.cumsum(VALUES**2)[:, None],
    "channels": channels().to_numpy(),
    "equal steps": np.c_[np.arange(N), VALUES],
    "a value that repeats": np.c_[np.maximum(SECONDS, SECONDS[2]), VALUES],
    "few rows": np.c_[SECONDS, VALUES][:7],
    "missing values": np.c_[np.where(np.arange(N) == 5, np.nan, SECONDS), VALUES],
    "a frame over times": dated(SECONDS).set_axis(STAMPS),
    "a frame over whole numbers": dated(SECONDS).set_axis(uneven_ticks()),
    "a frame of one column": dated(SECONDS)[["when"]],
}


@pytest.mark.parametrize("case", NOT_TIMED)
def test_other_columns_are_taken_without_a_warning(case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny().fit(NOT_TIMED[case])


def test_the_warning_can_be_silenced_and_comes_at_fit_only() -> None:
    y = np.c_[SECONDS, VALUES]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TimesInValuesWarning)
        forecaster = tiny().fit(y[:12])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.update(y[12:])
        forecaster.score(y[12:])
