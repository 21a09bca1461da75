"""Any series under any settings: a right answer, or an error that says what to do.

Series of every index, length, type and pattern of missing values, with gaps over
twelve orders of magnitude, and the settings that meet them.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from tests.series import FORECASTERS, tiny

CHECKED = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
MANY = settings(CHECKED, max_examples=150)

DOCUMENTED = (
    r"observed value in every (series|column)",
    r"Every forecast of this window",
)
"""What fit may refuse of these series and settings, by its message."""


class Case(NamedTuple):
    """A series or panel, settings, and what is asked."""

    y: Any
    settings: dict[str, Any]
    steps: list[int]
    kind: type


@st.composite
def stamps(draw: st.DrawFn, n: int) -> pd.Index:
    """Return ``n`` increasing stamps of any supported kind."""
    orders = draw(st.sampled_from([0, 1, 3, 6, 12]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gaps = np.round(10 ** rng.uniform(0, orders, n)).astype(np.int64)
    ticks = np.cumsum(gaps)
    kind = draw(st.sampled_from(["range", "integers", "periods", "dates", "deltas"]))
    if kind == "range":
        start, step = draw(st.integers(-(10**6), 10**6)), draw(st.integers(1, 10**6))
        return pd.RangeIndex(start, start + n * step, step)
    if kind == "integers":
        return pd.Index(ticks + draw(st.integers(-(10**12), 10**12)))
    if kind == "periods":
        freq = draw(st.sampled_from(["Y", "Q", "M", "W", "D", "h", "s"]))
        return pd.PeriodIndex.from_ordinals(np.cumsum(np.minimum(gaps, 50)), freq=freq)
    if kind == "deltas":
        return pd.TimedeltaIndex(ticks.view("m8[ns]"))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    regular = draw(st.sampled_from([None, "h", "D", "B", "W", "MS", "YE"]))
    if regular is not None:
        return pd.date_range("1970-03-01", periods=n, freq=regular, tz=zone)
    index = pd.DatetimeIndex((ticks + 10**18).view("M8[ns]"))
    return index if zone is None else index.tz_localize("UTC").tz_convert(zone)


@st.composite
def columns(draw: st.DrawFn, n: int) -> Any:
    """Return values of one channel, of any dtype and size, some of them missing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = {
        "wave": np.sin(np.arange(n) / 2) + 0.1 * rng.standard_normal(n),
        "walk": np.cumsum(rng.standard_normal(n)),
        "constant": np.full(n, 3.0),
        "steps": rng.integers(0, 3, n).astype(float),
    }[draw(st.sampled_from(["wave", "walk", "constant", "steps"]))]
    missing = rng.random(n) < draw(st.sampled_from([0, 0, 0, 0.1, 0.5, 0.9]))
    dtype = draw(st.sampled_from(["float64", "float16", "Float64", "Int64", "bool"]))
    if dtype == "bool":
        return values > 0
    if dtype == "Int64":
        values = np.round(10 * values)
    if dtype == "float64":
        values = values * 10.0 ** draw(st.sampled_from([0, 0, -30, 30, 5]))
        values = values + draw(st.sampled_from([0, 0, 0, 1e9, -7.0]))
    return pd.Series(values).mask(missing).astype(dtype).array


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Return a Series, a frame, or a panel of up to four series."""
    n = draw(st.one_of(st.integers(1, 12), st.integers(1, 200)))
    n_channels = draw(st.sampled_from([1, 1, 2, 3]))
    index = draw(stamps(n))
    y = pd.DataFrame({f"c{k}": draw(columns(n)) for k in range(n_channels)}, index)
    kind = draw(st.sampled_from(["series", "frame", "panel"]))
    if kind != "panel":
        return y["c0"] if kind == "series" else y
    parts = {"s0": y}
    for k in range(1, draw(st.integers(1, 4))):
        rng = np.random.default_rng(k)
        parts[f"s{k}"] = y.iloc[np.sort(rng.permutation(n)[: max(n // (k + 1), 1)])]
    return pd.concat(parts)


OPTIONS: dict[str, Any] = {
    "window_length": st.one_of(st.none(), st.integers(1, 30)),
    "horizon": st.one_of(st.none(), st.integers(0, 15)),
    "method": st.sampled_from(["rk4", "midpoint", "euler"]),
    "step_size": st.sampled_from([0.5, 3.0]),
    "batch_size": st.sampled_from([1, 7]),
    "lr": st.sampled_from([0.005, 0.5]),
    "early_stopping": st.just(True),
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = draw(st.sets(st.sampled_from(sorted(OPTIONS)), max_size=5))
    chosen = {name: draw(OPTIONS[name]) for name in sorted(names)}
    steps = draw(st.sets(st.integers(-5, 25), min_size=1, max_size=6))
    sizes = {"window_length": None, "horizon": None, **chosen}
    kind = draw(st.sampled_from(FORECASTERS))
    return Case(draw(tables()), sizes, sorted(steps), kind)


def fitted(case: Case, y: Any) -> Any:
    """Fit, with documented warnings only; None where it is refused as documented."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            forecaster = tiny(case.kind, **case.settings).fit(y)
        except ValueError as error:
            if not any(re.search(message, str(error)) for message in DOCUMENTED):
                raise
            return None
    for warning in seen:
        is_outlier = "Taken for missing" in str(warning.message)
        assert is_outlier or issubclass(warning.category, ConvergenceWarning), warning
    return forecaster


def check_answers(case: Case) -> None:
    y, forecaster = case.y, fitted(case, case.y)
    if forecaster is None:
        return
    table = pd.DataFrame(y).to_numpy(dtype=float, na_value=np.nan)
    known = forecaster.predict_at(y.index)
    forecast = forecaster.predict(fh=case.steps)
    intervals = forecaster.predict_interval(fh=case.steps, coverage=[0.5, 0.9])
    assert known.index.equals(y.index)
    assert list(known.columns) == list(pd.DataFrame(y).columns)
    assert type(forecast) is type(y)
    n_series = 1 if y.index.nlevels == 1 else len(y.index.unique(0))
    assert len(forecast) == n_series * len(case.steps)
    assert intervals.index.equals(forecast.index)
    for answer in (known, forecast, intervals):
        assert np.isfinite(answer.to_numpy(dtype=float)).all()
    bounds = intervals.to_numpy(dtype=float).reshape(len(forecast), -1, 2, 2)
    assert (bounds[..., 0] <= bounds[..., 1]).all()
    assert (bounds[:, :, 0, 1] <= bounds[:, :, 1, 1]).all()
    answers = pd.DataFrame(forecast).to_numpy(dtype=float)
    for channel, values in enumerate(table.T):
        seen = values[~np.isnan(values)]
        if (seen == seen[0]).all():
            np.testing.assert_allclose(answers[:, channel], seen[0], rtol=1e-15)


@pytest.mark.slow
@MANY
@given(case=cases())
def test_many_series_get_a_finite_forecast_or_a_documented_error(case: Case) -> None:
    check_answers(case)
