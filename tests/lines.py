"""Straight lines in true elapsed time, which a structural model continues exactly.

An index is given together with the stamps that its relative steps stand for, from
pandas or written out, never from sklode: a step, an hour of a change of clocks, or a
day of a month too many or too few is a wrong value.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from tests.cases import mostly_slow

START, SLOPE = 100.0, 3.0
"""The line's value at its origin, and its change over one step."""

TOLERANCE = SLOPE / 100
"""A hundredth of a step: an hour in a daily series is four of them."""

_BEFORE, _AFTER, _SEEN = 3, 6, 24

BERLIN = "Europe/Berlin"


class Kind(NamedTuple):
    """An index, and the stamps around it."""

    index: pd.Index  # of y
    step: Any  # the line's unit of time: the median gap
    before: pd.Index  # stamps before the first
    near: pd.Index  # the stamps that the steps -4 to 6 stand for

    def steps(self, *steps: int) -> pd.Index:
        """Return the stamps of relative steps."""
        return self.near[[k + 4 for k in steps]]


def line(stamps: pd.Index, step: Any) -> np.ndarray:
    """Return the line's values: true elapsed time, in steps, since its origin."""
    if isinstance(stamps, pd.PeriodIndex):
        origin = pd.Period("2021-01-01", stamps.freq)
        return START + SLOPE * np.array([(stamp - origin).n for stamp in stamps])
    if isinstance(stamps, pd.DatetimeIndex):
        origin = pd.Timestamp("2021-01-01", tz=None if stamps.tz is None else "UTC")
        return START + SLOPE * ((stamps - origin) / step).to_numpy()
    return START + SLOPE * (stamps / step).to_numpy()


def on_line(stamps: pd.Index, step: Any, name: str = "y") -> pd.Series:
    """Return the line at ``stamps``."""
    return pd.Series(line(stamps, step), stamps, name=name)


def assert_on_line(answer: Any, stamps: pd.Index, step: Any) -> None:
    """Assert that an answer has these stamps, and the line's values there."""
    pd.testing.assert_index_equal(answer.index, stamps, exact="equiv")
    values = np.asarray(answer, dtype=float).reshape(len(stamps), -1)
    expected = np.repeat(line(stamps, step)[:, None], values.shape[1], axis=1)
    np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)


def straight(**settings: Any) -> Any:
    """Return a forecaster that learns a line from a few of its points."""
    return StructuralForecaster(
        seasons=None, logarithm=False, clean=False, random_state=0, **settings
    )


def fitted_on(name: str) -> Any:
    """Return one that has seen the line on all of a kind of index."""
    return copy.deepcopy(_fitted_once(name))


@functools.cache
def _fitted_once(name: str) -> Any:
    kind = KINDS[name]
    return straight().fit(on_line(kind.index, kind.step))


def _median_gap(index: pd.Index) -> Any:
    if isinstance(index, pd.PeriodIndex):
        return 1
    return pd.Series(index).diff().median()


def _grid(whole: pd.Index, *holes: int) -> Kind:
    """Cut y's index, with holes, out of stamps that follow each other in steps."""
    end = _BEFORE + _SEEN
    index = whole[_BEFORE:end]
    index = index.delete(list(holes)) if holes else index
    near = whole[end - 5 : end + _AFTER]
    return Kind(index, _median_gap(index), whole[:_BEFORE], near)


def _gapped(first: Any, gap: Any, step: Any) -> Kind:
    """Return stamps with gaps of one to three times ``gap``, most of them two."""
    places = np.cumsum([0, 2, 1, 2, 3, 2, 1, 2, 3, 2, 2, 1, 2, 3, 1, 2, 3, 2, 2, 2, 3])
    index = pd.Index([first + int(k) * gap for k in places])
    before = pd.Index([first - 5 * gap, first - gap])
    near = pd.Index([index[-1] + k * step for k in range(-4, _AFTER + 1)])
    return Kind(index, _median_gap(index), before, near)


def _dates(start: str, freq: Any, **options: Any) -> pd.DatetimeIndex:
    return pd.date_range(start, periods=_BEFORE + _SEEN + _AFTER, freq=freq, **options)


def _in_unit(kind: Kind, unit: str) -> Kind:
    index, near = kind.index.as_unit(unit), kind.near.as_unit(unit)
    return kind._replace(index=index, near=near)


_SECOND = pd.Timedelta("1s")
_UNEVEN = _gapped(pd.Timestamp("2021-03-01 00:00:07"), 17 * _SECOND, 34 * _SECOND)
_THREES = pd.RangeIndex(5, 77, 3)

# in Berlin clocks change on 2021-03-28 and 2021-10-31
KINDS = {
    "range in threes": Kind(
        _THREES, 3, pd.Index([-4, 2]), pd.Index(_THREES[-1] + np.arange(-4, 7))
    ),
    "uneven integers": _gapped(-60, 3, 1),
    "months with gaps": _grid(
        pd.period_range("2020-10-01", periods=33, freq="M"), 3, 9, 10
    ),
    "month ends, one missing": _grid(_dates("2020-01-31", "ME"), 7),
    "15th of months, one missing": _grid(
        _dates("2020-01-15", pd.DateOffset(months=1)), 7
    ),
    "quarters, one missing": _grid(_dates("2016-01-01", "QS"), 7),
    "working days, a holiday missing": _grid(_dates("2021-03-01", "B"), 7),
    "hours without freq": _grid(pd.DatetimeIndex(_dates("2021-03-01", "h").to_numpy())),
    "hours as timedeltas": _grid(pd.to_timedelta(np.arange(-3, 30), unit="h")),
    "uneven timedeltas": _gapped(3600 * _SECOND, 17 * _SECOND, 34 * _SECOND),
    "hours into winter time": _grid(_dates("2021-10-30 03:00", "h", tz=BERLIN)),
    "days into summer time, some missing": _grid(
        _dates("2021-03-10 12:00", "D", tz=BERLIN), 3, 15, 18
    ),
    "days up to winter time": _grid(_dates("2021-10-04 12:00", "D", tz=BERLIN)),
    "uneven, unit us": _in_unit(_UNEVEN, "us"),
    "uneven, unit s": _in_unit(_UNEVEN, "s"),
}
"""Every kind of index by its name."""

_FAST = (
    "uneven integers",
    "months with gaps",
    "days into summer time, some missing",
)
of_kinds = pytest.mark.parametrize("name", mostly_slow(KINDS, *_FAST))
