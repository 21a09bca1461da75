"""Columns of X: numbers as they are, categories as indicators of their levels."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Levels
from sklode.data.remedies import numbers_line

_MOST = 100  # levels: each is a column that is searched


def is_category(column: pd.Series) -> bool:
    """Return whether a column holds categories: texts, or what pandas calls so."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    if not pd.api.types.is_object_dtype(column.dtype):
        return bool(pd.api.types.is_string_dtype(column.dtype))
    # mixed with numbers texts are no category, but a mistake
    kinds = {type(x) for x in column[column.notna()]}
    return kinds <= {str, bool, np.bool_}


class ControlColumns(NamedTuple):
    """Columns of X, and the levels of those that hold categories."""

    names: list[Hashable]
    levels: dict[Hashable, Levels]

    @classmethod
    def of(cls, X: pd.DataFrame) -> ControlColumns:
        """Find the levels that were seen."""
        found: dict[Hashable, Levels] = {}
        for name in X.columns:
            if not is_category(X[name]):
                continue
            # pandas keeps levels that no row has,
            # in the order of the categories
            seen = pd.Categorical(X[name]).remove_unused_categories()
            own = seen.categories
            if len(own) > _MOST:
                raise ValueError(
                    f"a category in X must have at most {_MOST} levels; "
                    f"got {len(own)} in column {name!r}, such as {own[0]!r}. "
                    "Put rare ones together; if it holds numbers, "
                    f"convert it: X[{name!r}].astype(float)."
                )
            found[name] = tuple(own.tolist())
            _warn_of_numbers(X[name], own)
        return cls(names=[*X.columns], levels=found)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First number and count of each column's numbers, see `read`."""
        counts = [len(self._shown(name)) for name in self.names]
        ends = np.cumsum([0, *counts]).tolist()
        return [*zip(ends[:-1], counts, strict=True)]

    @property
    def numbers(self) -> list[Hashable]:
        """Names of what `read` makes of them, such as ``weather = rain``."""
        return [
            f"{name} = {level}" if name in self.levels else name
            for name in self.names
            for level in self._shown(name)
        ]

    def _shown(self, name: Hashable) -> Levels:
        """Return levels with an indicator; of a column of numbers its name."""
        own = self.levels.get(name, (name,))
        # of two levels one indicator tells all;
        # the other would be its complement
        return own[1:] if len(own) == 2 else own

    def read(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return numbers; NaN where a category is missing or was never seen."""
        parts: list[Array] = [np.empty((len(X), 0))]
        for name in self.names:
            column = X[name]
            if name in self.levels:
                parts.append(self._indicators(column))
                continue
            own = f"X[{name!r}]"
            if is_category(column) and column.notna().any():
                raise TypeError(
                    f"column {name!r} of X must hold numbers, "
                    "as it did in fit; "
                    f"got {column.dropna().iloc[0]!r}. "
                    f"{numbers_line(column, own) or f'Convert it: {own} = numbers'}."
                )
            numbers = column.to_numpy(np.float64, na_value=np.nan)
            parts.append(numbers[:, None])
        table = np.hstack(parts)
        return pd.DataFrame(table, index=X.index, columns=self.numbers)

    def _indicators(self, column: pd.Series) -> Array:
        """Return the indicators of a category's levels, (row, level shown)."""
        own = self.levels[column.name]
        code = pd.Index(own, dtype=object).get_indexer(column.astype(object))
        is_other = code < 0  # missing, or a level that was never seen
        _warn_of_new(column[is_other & column.notna()], own)
        is_level = code[:, None] == np.arange(len(own))
        found = is_level.astype(np.float64)
        found[is_other] = np.nan
        # levels that are not shown come first, see `_shown`
        n_shown = len(self._shown(column.name))
        return found[:, len(own) - n_shown :]


def _warn_of_numbers(column: pd.Series, levels: pd.Index) -> None:
    """Warn where texts are all numbers, which may be meant as such."""
    # of two levels numbers say the same
    if isinstance(column.dtype, pd.CategoricalDtype) or len(levels) < 3:
        return
    if pd.to_numeric(pd.Series(levels), errors="coerce").notna().all():
        own = f"X[{column.name!r}]"
        warnings.warn(
            "texts in X are a category, of which no level is more than another; those "
            f"of column {column.name!r} are all numbers, such as {levels[0]!r}. If it "
            f"counts or measures, convert it: {own} = pd.to_numeric({own}); if it is a "
            f"category, say so: {own} = {own}.astype('category').",
            UserWarning,
            stacklevel=3,
        )


def _warn_of_new(values: pd.Series, levels: Levels) -> None:
    remedy = "Fit on rows that hold it."
    if len(values) and str(values.iloc[0]) in levels:
        own = f"X[{values.name!r}]"
        remedy = f"They were texts: {own} = {own}.astype(str)."
    if len(values):
        warnings.warn(
            "levels of a category in X should be of "
            f"those seen in fit, {list(levels[:5])}...; "
            f"got {values.tolist()[0]!r} in column "
            f"{values.name!r} at {values.index[0]}. "
            f"It counts as average. {remedy}",
            UserWarning,
            stacklevel=3,
        )
