"""Any series under any settings: a right answer, or an error that says what to do."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from tests.series import FORECASTERS, tiny

MANY = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    max_examples=100,
)
DOCUMENTED = r"observed value in every (series|column)"
OPTIONS: dict[str, Any] = {
    "window_length": st.one_of(st.none(), st.integers(1, 30)),
    "horizon": st.one_of(st.none(), st.integers(0, 15)),
    "method": st.sampled_from(["rk4", "midpoint", "euler"]),
    "batch_size": st.sampled_from([1, 7]),
    "lr": st.sampled_from([0.005, 0.5]),
    "early_stopping": st.booleans(),
}


@st.composite
def stamps(draw: st.DrawFn, n: int) -> pd.Index:
    """Return ``n`` increasing stamps of any kind, gaps of many orders of magnitude."""
    orders = draw(st.sampled_from([0, 1, 3, 6, 12]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gaps = np.round(10 ** rng.uniform(0, orders, n)).astype(np.int64)
    ticks = np.cumsum(gaps)
    kind = draw(st.sampled_from(["integers", "periods", "dates", "deltas", "regular"]))
    if kind == "integers":
        return pd.Index(ticks + draw(st.integers(-(10**12), 10**12)))
    if kind == "periods":
        freq = draw(st.sampled_from(["Y", "M", "W", "h"]))
        ordinals = np.cumsum(np.minimum(gaps, 50))
        return pd.PeriodIndex.from_ordinals(ordinals, freq=freq)
    if kind == "deltas":
        return pd.TimedeltaIndex(ticks.view("m8[ns]"))
    zone = draw(st.sampled_from(["UTC", "Europe/Berlin"]))
    if kind == "regular":
        freq = draw(st.sampled_from(["h", "D", "B", "W", "MS", "YE"]))
        return pd.date_range("1970-03-01", periods=n, freq=freq, tz=zone)
    # nanoseconds since 1970: from September 2001 on
    index = pd.DatetimeIndex((ticks + 10**18).view("M8[ns]"))
    local = index.tz_localize("UTC").tz_convert(zone)
    return draw(st.sampled_from([index, local]))


@st.composite
def columns(draw: st.DrawFn, n: int) -> Any:
    """Return values of one channel, of any size, some of them missing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    walk, steps = np.cumsum(rng.standard_normal(n)), rng.integers(0, 3, n) * 1.0
    values = draw(st.sampled_from([walk, np.full(n, 3.0), steps]))
    values = values * 10.0 ** draw(st.sampled_from([0, 0, -30, 30, 5]))
    values = values + draw(st.sampled_from([0, 0, 0, 1e9, -7.0]))
    share = draw(st.sampled_from([0, 0, 0, 0.1, 0.5, 0.9]))
    values[rng.random(n) < share] = np.nan
    return values


@st.composite
def tables(draw: st.DrawFn) -> Any:
    """Return a Series, a frame, or a panel of up to four series."""
    n = draw(st.one_of(st.integers(1, 12), st.integers(1, 200)))
    index, n_channels = draw(stamps(n)), draw(st.sampled_from([1, 1, 2, 3]))
    y = pd.DataFrame({f"c{k}": draw(columns(n)) for k in range(n_channels)}, index)
    n_series = draw(st.integers(0, 4))
    if not n_series:
        return y["c0"]
    if n_series == 1:
        return y
    # each series has its own rows: all of them, every second, every third
    return pd.concat({k: y.iloc[:: k + 1] for k in range(n_series)})


@pytest.mark.slow
@MANY
@given(
    y=tables(),
    options=st.fixed_dictionaries({}, optional=OPTIONS),
    steps=st.sets(st.integers(-5, 25), min_size=1, max_size=6),
    kind=st.sampled_from(FORECASTERS),
)
def test_many_series_get_a_finite_forecast_or_a_documented_error(
    y: Any, options: dict[str, Any], steps: set[int], kind: type
) -> None:
    options = {"window_length": None, "horizon": None, **options}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            forecaster = tiny(kind, **options).fit(y)
        except ValueError as error:
            if not re.search(DOCUMENTED, str(error)):
                raise
            return
    for warning in seen:
        is_outlier = "Taken for missing" in str(warning.message)
        assert is_outlier or issubclass(warning.category, ConvergenceWarning), warning
    fh = sorted(steps)
    known, forecast = forecaster.predict_at(y.index), forecaster.predict(fh)
    intervals = forecaster.predict_interval(fh, coverage=[0.5, 0.9])
    assert known.index.equals(y.index)
    n_series = 1 if y.index.nlevels == 1 else len(y.index.unique(0))
    assert len(forecast) == n_series * len(steps)
    for answer in (known, forecast, intervals):
        assert np.isfinite(answer.to_numpy(dtype=float)).all()
    # (row, channel, coverage, end)
    bounds = intervals.to_numpy(dtype=float).reshape(len(forecast), -1, 2, 2)
    low, high = bounds[..., 0], bounds[..., 1]
    assert (low <= high).all()
    assert (high[:, :, 0] <= high[:, :, 1]).all()
