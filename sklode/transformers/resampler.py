"""From irregular stamps to those of a grid.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import pandas as pd
from sktime.transformations.base import BaseTransformer

from sklode.data.arrays import Frame
from sklode.data.steps import default_step
from sklode.forecasters.structural import StructuralForecaster
from sklode.transformers.prototype import TAGS, at, fitted


class StructuralResampler(BaseTransformer):
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
        **TAGS,
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
        self.forecaster_ = fitted(self.forecaster, X)
        self._rows = X
        return self

    def _update(self, X: pd.DataFrame, y: Frame | None = None) -> Self:
        # where both have a row, the later word counts
        self._rows = X.combine_first(self._rows)
        return self

    def _transform(self, X: pd.DataFrame, y: Frame | None = None) -> pd.DataFrame:
        before = self._rows[self._rows.index < X.index[0]]
        grid = _grid(X.index, self.freq)
        # a grid goes on where that of the rows before ended: its phase is theirs, and
        # stamps between them and the first row of X belong to it
        if len(before):
            whole = _grid(before.index.append(X.index), self.freq)
            grid = whole[whole > before.index[-1]]
        forecaster = self.forecaster_.clone().fit(pd.concat([before, X]))
        found = pd.DataFrame(forecaster.predict_at(grid))
        found = found.set_axis(X.columns, axis=1)
        # nothing may be asked for no stamps
        if self.std and len(grid):
            variances = forecaster.predict_var(fh=at(grid)).to_numpy()
            names = [f"{column}_std" for column in X.columns]
            found[names] = np.sqrt(variances)
        return found

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, object]]:
        """Return small settings that sktime's checks run with."""
        forecaster = StructuralForecaster(seasons=None, logarithm=False, random_state=0)
        return [{"forecaster": forecaster}, {"std": True, "forecaster": forecaster}]


def _grid(index: pd.Index, freq: str | pd.DateOffset | int | None) -> pd.Index:
    """Return the stamps of a grid between the first and the last one of an index."""
    first, last = index[0], index[-1]
    if isinstance(index, pd.PeriodIndex):
        freq = index.freq if freq is None else freq
        return pd.period_range(first, last, freq=freq, name=index.name)
    is_whole = pd.api.types.is_integer_dtype(index.dtype)
    if is_whole and isinstance(freq, int | None):
        spacing = 1 if freq is None else freq
        if spacing < 1:
            raise ValueError(
                f"freq must be 1 or more for an index of integers; got {freq}. Pass "
                "the number from one row of the grid to the next."
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
