"""From irregular stamps to those of a grid.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

import contextlib
from numbers import Integral, Real
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from sklode.data.arrays import Frame
from sklode.data.checks import check_constraints
from sklode.data.history import with_columns
from sklode.data.steps import default_step
from sklode.forecasters.structural import StructuralForecaster
from sklode.transformers.prototype import (
    PrototypeTransformer,
    at,
    check_prototype,
    named_as,
)


class StructuralResampler(PrototypeTransformer):
    """Turn a series at irregular stamps into one on a grid.

    Values are what a structural model in continuous time expects at each stamp of the
    grid, given all rows before and after; so that any forecaster of sktime runs on
    irregular data: ``StructuralResampler("h") * AutoARIMA()``.

    Parameters
    ----------
    freq : str, offset or int, optional
        Of the grid; of integers their number. None: a step of the index, by its
        frequency (also of the calendar, such as months) or else the median gap. The
        grid begins with the first of its stamps that is not before the first row, and
        ends with the last that is not after the last one. Rows that are later than
        those of `fit` go on with the grid where it ended.
    std : bool, default=False
        Whether columns named ``*_std`` follow: the standard deviation of an observation
        at the stamp, with its noise.
    forecaster : StructuralForecaster, optional
        Whose settings are used. None: the defaults.

    Attributes
    ----------
    forecaster_ : StructuralForecaster
        What was found; ``components_`` after a fit of it.

    Notes
    -----
    What a broken sensor wrote does not count, and rows before a change of unit are
    rescaled, each with a warning. With ``forecaster=StructuralForecaster(clean=False)``
    all values count. Regressors, which a pipeline passes as a second argument, are not
    read.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklode import StructuralResampler
    >>> days = ["2026-01-01 00:00", "2026-01-02 07:00", "2026-01-05 00:00"]
    >>> y = pd.Series([1.0, 2.0, 4.0], pd.to_datetime(days))
    >>> len(StructuralResampler("D").fit_transform(y))
    5
    """

    _tags: ClassVar[dict[str, object]] = {
        "X_inner_mtype": "pd.DataFrame",
        "transform-returns-same-time-index": False,
    }

    def __init__(
        self,
        freq: str | pd.DateOffset | int | None = None,
        std: bool = False,
        forecaster: StructuralForecaster | None = None,
    ) -> None:
        self.freq = freq
        self.std = std
        self.forecaster = forecaster
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: Frame | None = None) -> Self:
        check_prototype(self)
        is_dates = isinstance(X.index, pd.DatetimeIndex)
        # of other indexes freq is no frequency of dates, as `_grid` says
        checked = self if is_dates else self.clone().set_params(freq=None)
        check_constraints({"std": ["boolean"]}, checked)
        # what makes no grid is refused before anything is learned
        _grid(X.index, self.freq)
        self._learn(X)
        self._rows = X
        return self

    def _update(self, X: pd.DataFrame, y: Frame | None = None) -> Self:
        # where both have a row, the later word counts
        self._rows = self._like_fit(X).combine_first(self._rows)
        return self

    def _transform(self, X: pd.DataFrame, y: Frame | None = None) -> pd.DataFrame:
        before = self._rows[self._rows.index < X.index[0]]
        grid = _grid(X.index, self.freq)
        # a grid goes on where that of the rows before ended: its phase is theirs, and
        # stamps between them and the first row of X belong to it
        if len(before):
            whole = _grid(before.index.append(X.index), self.freq)
            grid = whole[whole > before.index[-1]]
        forecaster = self._fitted(pd.concat([before, self._like_fit(X)]))
        found = named_as(X, pd.DataFrame(forecaster.predict_at(grid)))
        # nothing may be asked for no stamps
        if self.std and len(grid):
            variances = named_as(X, forecaster.predict_var(fh=at(grid)))
            names = [f"{column}_std" for column in X.columns]
            found[names] = np.sqrt(variances.to_numpy())
        return found

    def _like_fit(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return X with the columns of fit, in their order."""
        return with_columns(X, list(self._rows.columns))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, logarithm=False, random_state=0)
        return [{"forecaster": forecaster}, {"std": True, "forecaster": forecaster}]


def _grid(index: pd.Index, freq: str | pd.DateOffset | int | None) -> pd.Index:
    """Return the stamps of a grid between the first and the last one of an index."""
    first, last = index[0], index[-1]
    if isinstance(index, pd.PeriodIndex):
        step = None
        with contextlib.suppress(TypeError, ValueError):
            step = pd.period_range(first, periods=1, freq=freq).freq
        if step != index.freq:
            raise ValueError(
                f"freq must be that of an index of periods, {index.freqstr!r}, or "
                f"None; got {freq!r}. Turn them into dates for another grid: y.index = "
                "y.index.to_timestamp()."
            )
        return pd.period_range(first, last, name=index.name)
    is_whole = pd.api.types.is_integer_dtype(index.dtype)
    if is_whole and isinstance(freq, Real | None):
        spacing = 1 if freq is None else freq
        # a bool is one of Python's integers
        is_count = isinstance(spacing, Integral) and not isinstance(spacing, bool)
        if not is_count or spacing < 1:
            raise ValueError(
                "freq must be 1 or more for an index of integers, a whole number; got "
                f"{freq!r}. Pass the number from one row of the grid to the next, such "
                "as freq=2."
            )
        return pd.RangeIndex(first, last + 1, spacing, name=index.name)
    if not isinstance(index, pd.DatetimeIndex):
        raise TypeError(
            "a grid needs an index of dates, or of integers and a number of them; got "
            f"{type(index).__name__} and freq={freq!r}. Convert the index."
        )
    step = default_step(index, None) if freq is None else freq
    try:
        # the first stamp that is a multiple of the step
        first = first.ceil(step)
    except (TypeError, ValueError):
        # of the calendar, such as months, quarters, opening hours: those that begin on
        # the first day, also before the first row
        first = first.normalize()
    grid = pd.date_range(first, last, freq=step)
    return grid[grid >= index[0]].rename(index.name)
