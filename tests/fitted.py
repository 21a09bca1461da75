"""Fitted forecasters of every kind, and all that they answer."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from sklode import LatentODEForecaster, LatentODERNNForecaster
from tests.series import channels, panel, tiny, uneven_stamps, uneven_ticks, waves


@dataclass
class Fitted:
    """A fitted forecaster, what may be asked of it, and rows to update it with."""

    seen: pd.DataFrame
    """Rows of y that it was shown."""
    forecaster: Any
    fh: Any
    more: Any
    X: Any = None
    """At all rows of y, of the horizon and of ``more``."""


def _split(
    y: Any, forecaster: Any = None, fh: Any = (1, 2, 5), X: Any = None
) -> Fitted:
    """Fit on all rows but the last three of each series."""
    levels = list(range(y.index.nlevels - 1))
    place = y.groupby(level=levels).cumcount(ascending=False) if levels else None
    late = np.arange(len(y)) >= len(y) - 3 if place is None else (place < 3).to_numpy()
    forecaster = tiny() if forecaster is None else forecaster
    forecaster.fit(y[~late], X=None if X is None else X.loc[y.index[~late]])
    fh = fh if isinstance(fh, pd.Index) else list(fh)
    return Fitted(pd.DataFrame(y[~late]), forecaster, fh, y[late], X)


def _with_controls(y: Any, seed: int = 0) -> Any:
    """Return two controls at y's rows; the last three rows are the horizon's."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((len(y), 2))
    return pd.DataFrame({"u": values[:, 0], 7: np.round(values[:, 1])}, y.index)


def days(n: int = 30, tz: str | None = None) -> pd.DatetimeIndex:
    return pd.date_range("2021-03-10", periods=n, freq="D", tz=tz, name="day")


def series() -> Fitted:
    y = waves(uneven_stamps(), name="level")
    forecaster = tiny()
    forecaster.fit(y[:-3], fh=[1, 4])
    return Fitted(y[:-3].to_frame(), forecaster, None, y[-3:])


def hierarchy(keys: list[Any], names: list[Any]) -> Fitted:
    """Return a panel under three keys of these levels."""
    parts = [part.droplevel(0) for _, part in panel().groupby(level=0)]
    return _split(pd.concat(parts, keys=keys, names=[*names, "when"]))


def panel_with_controls() -> Fitted:
    parts = {key: waves(days(), seed).to_frame() for seed, key in enumerate("ab")}
    y = pd.concat(parts, names=["series", "day"])
    y.iloc[3] = np.nan
    return _split(y, fh=days()[-4:], X=_with_controls(y))


def array() -> Fitted:
    values = channels().to_numpy()
    return Fitted(pd.DataFrame(values), tiny().fit(values), [1, 2], None)


def updated() -> Fitted:
    """Rows in another container, of another frequency than the horizon's."""
    y = waves(days())
    forecaster = tiny().fit(y[:20], fh=y.index[20:24])
    forecaster.update(y[20:27:2].to_frame("later"))
    seen = pd.concat([y[:20], y[20:27:2]]).to_frame()
    return Fitted(seen, forecaster, None, y[27:])


MIDDAY = pd.Timestamp("2020-01-01 12:00", tz="UTC")
MONTHS = pd.period_range("2015-01", periods=30, freq="M", name="month")
MID_MONTHS = (MONTHS.to_timestamp() + pd.Timedelta("14D")).delete([4, 9, 10])
DATES = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
OBJECTS: dict[str, Any] = {
    "random_state": 3,
    "device": torch.device("cpu"),
    "freq": pd.offsets.Week(weekday=2),
    "lr": np.float64(0.01),
    "hidden_size": np.int64(3),
    "early_stopping": np.bool_(True),
}

KINDS: dict[str, Callable[[], Fitted]] = {
    "series": series,
    "periods": lambda: _split(waves(MONTHS)),
    "days_in_berlin": lambda: _split(
        waves(days(tz="Europe/Berlin")), fh=days(tz="Europe/Berlin")[-4:]
    ),
    "durations": lambda: _split(
        waves(pd.to_timedelta(uneven_ticks(), unit="h").as_unit("s")),
        tiny(freq=pd.Timedelta("90min")),
    ),
    "months_with_holes": lambda: _split(waves(MID_MONTHS)),
    "array": array,
    "columns_of_many_kinds": lambda: _split(
        channels(days()).set_axis([("a", 1), MIDDAY], axis=1)
    ),
    "keys_of_many_kinds": lambda: hierarchy(
        [(MIDDAY, 1, True), (MIDDAY, 2, False), (MIDDAY + pd.DateOffset(1), 2, False)],
        ["opened", "n", None],
    ),
    "objects_as_keys": lambda: hierarchy(
        list(zip(DATES, MONTHS[:3], strict=True)), ["date", "month"]
    ),
    "panel_with_controls": panel_with_controls,
    "settings_that_are_objects": lambda: _split(waves(days()), tiny(**OBJECTS)),
    "updated": updated,
    "pretrained_and_fitted": lambda: _split(
        waves(uneven_stamps()), tiny().pretrain(panel())
    ),
    "adaptive_solver": lambda: _split(
        waves(), tiny(LatentODERNNForecaster, method="dopri5")
    ),
    "without_flow": lambda: _split(waves(), tiny(LatentODEForecaster, field_depth=2)),
}


def answers(forecaster: Any, asked: Fitted) -> dict[str, Any]:
    """Return what a forecaster says of itself and of the future and the past."""
    fh, X = asked.fh, asked.X
    rows = asked.seen.index
    found = {
        "predict": forecaster.predict(fh, X=X),
        "interval": forecaster.predict_interval(fh, X=X, coverage=[0.5, 0.9]),
        "var": forecaster.predict_var(fh, X=X),
        "sample": forecaster.sample(fh, X=X),
        "past": forecaster.predict_at(rows[::3], X=X),
        "residuals": forecaster.predict_residuals(),
        "history": forecaster.history_,
        "interval_scale": forecaster.interval_scale_,
        "cutoff": forecaster.cutoff,
    }
    return found


def assert_same(one: Any, other: Any, name: str = "") -> None:
    """Check that two things are the same, types and the last bits included."""
    assert isinstance(one, pd.Index) or type(one) is type(other), name
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True, check_freq=True)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True, check_freq=True)
    elif isinstance(one, pd.Index):
        pd.testing.assert_index_equal(one, other, exact="equiv")
        assert getattr(one, "freq", None) == getattr(other, "freq", None), name
    elif isinstance(one, list | tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b, name)
    elif is_dataclass(one):
        assert_same(vars(one), vars(other), name)
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key in one:
            assert_same(one[key], other[key], f"{name} {key}")
    else:
        np.testing.assert_array_equal(one, other, err_msg=name)


def assert_same_forecaster(one: Any, other: Any, asked: Fitted) -> None:
    """Check that two forecasters answer alike, now and after the same update."""
    assert type(one) is type(other)
    assert other.network_ is other._model.network
    assert one.get_params().keys() == other.get_params().keys()
    for name, value in one.get_params().items():
        assert value == other.get_params()[name], name
    assert one.network_.training is other.network_.training is False
    assert type(one._fh) is type(other._fh)
    if one._fh is not None:
        assert one.fh.is_relative == other.fh.is_relative
        assert_same(one.fh.to_pandas(), other.fh.to_pandas())
    assert one.time_unit_ == other.time_unit_
    assert one.window_length_ == other.window_length_
    assert one.horizon_ == other.horizon_
    assert one.best_epoch_ == other.best_epoch_
    assert_same(answers(one, asked), answers(other, asked))
    if asked.more is None:
        return
    X = None if asked.X is None else asked.X.loc[asked.more.index]
    for forecaster in (one, other):
        forecaster.update(asked.more, X=X)
    found = [forecaster.predict(asked.fh, X=asked.X) for forecaster in (one, other)]
    assert_same(*found)
