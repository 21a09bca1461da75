"""Any series under any settings: a right answer, or an error that says what to do.

Series of every index, length, type and pattern of missing values, with gaps over
twelve orders of magnitude; settings of every kind. The default run takes 100 examples,
the slow one 2000.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from sklode.data.errors import SolverError
from tests.series import FORECASTERS, tiny

ENGINES = ["unrolled", "eager"]
if importlib.util.find_spec("numba") is not None:
    ENGINES = ["fused", *ENGINES]

CHECKED = settings(
    deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
FEW = settings(CHECKED, max_examples=80, derandomize=True)
MANY = settings(CHECKED, max_examples=1700, derandomize=True)
FEW_PAIRS = settings(CHECKED, max_examples=20, derandomize=True)
MANY_PAIRS = settings(CHECKED, max_examples=300, derandomize=True)

DOCUMENTED = (
    r"observed value in every (series|column)",
    r"engine='fused' serves",
    r"guard=True tries",
    r"Every forecast of this window",
)
"""What fit may refuse of these series and settings, by its message."""


@dataclass
class Case:
    """A series or panel, settings, and what is asked."""

    y: Any
    settings: dict[str, Any]
    steps: list[int]
    kind: type


@st.composite
def stamps(draw: st.DrawFn, n: int) -> pd.Index:
    """Return ``n`` increasing stamps of any supported kind."""
    seed = draw(st.integers(0, 2**32 - 1))
    orders = draw(st.sampled_from([0, 1, 3, 6, 12]))
    rng = np.random.default_rng(seed)
    gaps = np.round(10 ** rng.uniform(0, orders, n)).astype(np.int64)
    ticks = np.cumsum(gaps)
    kind = draw(
        st.sampled_from(["range", "integers", "periods", "datetimes", "deltas"])
    )
    if kind == "range":
        start, step = draw(st.integers(-(10**6), 10**6)), draw(st.integers(1, 10**6))
        return pd.RangeIndex(start, start + n * step, step)
    if kind == "integers":
        return pd.Index(ticks + draw(st.integers(-(10**12), 10**12)))
    if kind == "periods":
        period = draw(st.sampled_from(["Y", "Q", "M", "W", "D", "h", "s"]))
        few = np.cumsum(np.minimum(gaps, 50))
        return pd.PeriodIndex.from_ordinals(few, freq=period)
    if kind == "deltas":
        return pd.TimedeltaIndex(ticks.view("m8[ns]"))
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    freq = draw(st.sampled_from([None, "h", "D", "B", "W", "MS", "YE"]))
    if freq is not None:
        return pd.date_range("1970-03-01", periods=n, freq=freq, tz=zone)
    index = pd.DatetimeIndex((ticks + 10**18).view("M8[ns]"))
    return index if zone is None else index.tz_localize("UTC").tz_convert(zone)


@st.composite
def columns(draw: st.DrawFn, n: int, dtype: str) -> Any:
    """Return values of one channel, some of them missing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from(["wave", "walk", "noise", "constant", "steps"]))
    values = {
        "wave": np.sin(np.arange(n) / 2) + 0.1 * rng.standard_normal(n),
        "walk": np.cumsum(rng.standard_normal(n)),
        "noise": rng.standard_normal(n),
        "constant": np.full(n, 3.0),
        "steps": rng.integers(0, 3, n).astype(float),
    }[shape]
    missing = rng.random(n) < draw(st.sampled_from([0, 0, 0, 0.1, 0.5, 0.9]))
    if dtype == "bool":
        return values > 0
    if dtype == "Int64":
        whole = pd.array(np.round(10 * values).astype(int), dtype="Int64")
        whole[missing] = pd.NA
        return whole
    if dtype in ("float64", "Float64"):
        values = values * 10.0 ** draw(st.sampled_from([0, 0, -30, 30, 5]))
        values = values + draw(st.sampled_from([0, 0, 0, 1e9, -7.0]))
    values[missing] = np.nan
    return pd.array(values, dtype=dtype) if dtype == "Float64" else values.astype(dtype)


@st.composite
def frames(draw: st.DrawFn, n_channels: int | None = None) -> pd.DataFrame:
    """Return one series of 1 to 200 rows."""
    n = draw(st.one_of(st.integers(1, 12), st.integers(1, 200)))
    n_channels = n_channels or draw(st.sampled_from([1, 1, 2, 3]))
    kinds = st.sampled_from(
        ["float64", "float32", "float16", "Float64", "Int64", "bool"]
    )
    index = draw(stamps(n))
    return pd.DataFrame(
        {f"c{k}": draw(columns(n, draw(kinds))) for k in range(n_channels)}, index
    )


@st.composite
def panels(draw: st.DrawFn) -> pd.DataFrame:
    """Return up to four series, their stamps of one kind."""
    first = draw(frames(n_channels=draw(st.sampled_from([1, 2]))))
    parts = {"s0": first}
    for k in range(1, draw(st.integers(1, 4))):
        rng = np.random.default_rng(k)
        rows = np.sort(rng.permutation(len(first))[: max(len(first) // (k + 1), 1)])
        parts[f"s{k}"] = first.iloc[rows]
    return pd.concat(parts)


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Return settings of every kind; one epoch, so that a fit takes a moment."""
    size = st.integers(1, 5)
    share = st.sampled_from([0.0, 0.3, 0.9])
    options: dict[str, Any] = {
        "hidden_size": size,
        "latent_size": size,
        "field_width": size,
        "field_depth": st.integers(1, 3),
        "emission_width": size,
        "activation": st.sampled_from(["tanh", "elu", "softplus"]),
        "window_length": st.one_of(st.none(), st.integers(1, 30)),
        "horizon": st.one_of(st.none(), st.integers(0, 15)),
        "thinning": share,
        "normalize": st.sampled_from(
            ["auto", "series", "window", "last", "blend", "linear"]
        ),
        "method": st.sampled_from(["rk4", "midpoint", "euler"]),
        "step_size": st.sampled_from([0.5, 1.0, 3.0]),
        "clip_norm": st.sampled_from([1.0, None, "auto", 1e-3]),
        "kl_weight": st.sampled_from([1.0, 0.0]),
        "observation_noise": st.sampled_from([None, 0.1]),
        "batch_size": st.sampled_from([1, 7, 64]),
        "lr": st.sampled_from([0.005, 0.5]),
        "weight_decay": st.sampled_from([0.0, 0.1]),
        "guard": st.sampled_from([False, False, True]),
        "early_stopping": st.booleans(),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(options)), max_size=6))
    found = {name: draw(options[name]) for name in sorted(chosen)}
    found["engine"] = draw(st.sampled_from(ENGINES))
    if found["engine"] == "fused":
        found["field_depth"] = min(found.get("field_depth", 1), 2)
    return {"window_length": None, "horizon": None, **found}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    y: Any = draw(st.one_of(frames(), frames(), panels()))
    if y.shape[1] == 1 and y.index.nlevels == 1 and draw(st.booleans()):
        y = y["c0"]
    steps = draw(st.sets(st.integers(-5, 25), min_size=1, max_size=6))
    kind = draw(st.sampled_from(FORECASTERS))
    return Case(y, draw(parameters()), sorted(steps), kind)


def fitted(kind: type, y: Any, chosen: dict[str, Any]) -> Any:
    """Fit, with documented warnings only; None where it is refused as documented."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            forecaster = tiny(kind, **chosen).fit(y)
        except (ValueError, SolverError) as error:
            if not any(re.search(message, str(error)) for message in DOCUMENTED):
                raise
            return None
    for warning in seen:
        ours = issubclass(warning.category, ConvergenceWarning)
        ours |= "Taken for missing" in str(warning.message)
        assert ours, warning
    return forecaster


def check_answers(case: Case) -> None:
    forecaster = fitted(case.kind, case.y, case.settings)
    if forecaster is None:
        return
    y = case.y
    rows = y.index
    try:
        known = forecaster.predict_at(rows)
        forecast = forecaster.predict(fh=case.steps)
        intervals = forecaster.predict_interval(fh=case.steps, coverage=[0.5, 0.9])
    except SolverError as error:
        bounded = case.settings.get("activation", "tanh") == "tanh"
        if bounded or "Ask for stamps nearer" not in str(error):
            raise
        return  # other fields may overflow on the way
    assert known.index.equals(rows)
    assert list(known.columns) == list(pd.DataFrame(y).columns)
    assert type(forecast) is type(y)
    n_series = 1 if rows.nlevels == 1 else len(rows.unique(0))
    assert len(forecast) == n_series * len(case.steps)
    assert forecast.index.nlevels == rows.nlevels
    for answer in (known, forecast, intervals):
        assert np.isfinite(answer.to_numpy(dtype=float)).all()
    assert intervals.index.equals(forecast.index)
    table = intervals.to_numpy(dtype=float).reshape(len(forecast), -1, 2, 2)
    assert (table[..., 0] <= table[..., 1]).all()
    assert (table[:, :, 0, 1] <= table[:, :, 1, 1]).all()
    for values, constant in constants(y).items():
        answers = pd.DataFrame(forecast).to_numpy(dtype=float)[:, values]
        np.testing.assert_allclose(answers, constant, rtol=1e-15)


def constants(y: Any) -> dict[int, float]:
    """Return the numbers of constant channels, and their constants."""
    table = pd.DataFrame(y).to_numpy(dtype=float, na_value=np.nan)
    found = {}
    for channel, values in enumerate(table.T):
        seen = values[~np.isnan(values)]
        if len(seen) and (seen == seen[0]).all():
            found[channel] = float(seen[0])
    return found


def check_affine(case: Case, factor: float, offset: float) -> None:
    y = pd.DataFrame(case.y).astype(float)
    spread = factor * (y.max() - y.min())
    # next to a large offset small values would become a constant
    assume(not ((spread > 0) & (spread < 1e-6 * np.abs(offset))).any())
    forecaster = fitted(case.kind, y, case.settings)
    if forecaster is None:
        return
    other = fitted(case.kind, factor * y + offset, case.settings)
    expected = factor * forecaster.predict(fh=case.steps) + offset
    found = other.predict(fh=case.steps)
    assert found.index.equals(expected.index)
    size = 1e-4 * factor * forecaster.scale_ + 1e-9 * np.abs(offset)
    assert (np.abs(found - expected) <= size + 1e-9 * np.abs(expected)).all(axis=None)


AFFINE = st.sampled_from([(2.0, 0.0), (0.3, 7.0), (1e9, -1e3), (1e-9, 0.0)])


@FEW
@given(case=cases())
def test_every_series_gets_a_finite_forecast_or_a_documented_error(case: Case) -> None:
    check_answers(case)


@pytest.mark.slow
@MANY
@given(case=cases())
def test_very_many_series_get_a_finite_forecast_or_a_documented_error(
    case: Case,
) -> None:
    check_answers(case)


@FEW_PAIRS
@given(case=cases(), change=AFFINE)
def test_an_affine_change_of_y_changes_the_forecast_by_the_same(
    case: Case, change: tuple[float, float]
) -> None:
    check_affine(case, *change)


@pytest.mark.slow
@MANY_PAIRS
@given(case=cases(), change=AFFINE)
def test_very_many_affine_changes_of_y_change_the_forecast_by_the_same(
    case: Case, change: tuple[float, float]
) -> None:
    check_affine(case, *change)
