"""Columns of X: numbers as they are, categories as indicators of their levels."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Levels

_MOST = 100  # levels: each is a column that is searched


def is_category(column: pd.Series) -> bool:
    """Return whether a column holds categories: texts, or what pandas calls so."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return True
    if not pd.api.types.is_object_dtype(column.dtype):
        return bool(pd.api.types.is_string_dtype(column.dtype))
    kinds = {type(x) for x in column[column.notna()]}
    return kinds <= {str, bool, np.bool_}


class Columns(NamedTuple):
    """Columns of X, and the levels of those that hold categories."""

    names: list[Hashable]
    levels: dict[Hashable, Levels]  # in order; of two the second is told

    @classmethod
    def of(cls, X: pd.DataFrame) -> Columns:
        """Find the levels that were seen."""
        found: dict[Hashable, Levels] = {}
        for name in X.columns:
            if not is_category(X[name]):
                continue
            own = pd.Categorical(X[name]).remove_unused_categories().categories
            if len(own) > _MOST:
                raise ValueError(
                    f"a category in X must have at most {_MOST} levels; got {len(own)} "
                    f"in column {name!r}, such as {own[0]!r}. Put rare ones together; "
                    f"if it holds numbers, convert it: X[{name!r}].astype(float)."
                )
            found[name] = tuple(own.tolist())
        return cls(names=[*X.columns], levels=found)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First number and count of each column's numbers, see `read`."""
        sizes = [len(self._told(name)) for name in self.names]
        ends = np.cumsum([0, *sizes]).tolist()
        return [*zip(ends[:-1], sizes, strict=True)]

    @property
    def numbers(self) -> list[Hashable]:
        """Names of what `read` makes of them, such as ``weather = rain``."""
        return [
            f"{name} = {level}" if name in self.levels else name
            for name in self.names
            for level in self._told(name)
        ]

    def _told(self, name: Hashable) -> Levels:
        # of two levels one indicator tells all; the other would be its complement
        own = self.levels.get(name, (name,))
        return own[1:] if len(own) == 2 else own

    def read(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return numbers; NaN where a category is missing or was never seen."""
        parts: list[Array] = [np.empty((len(X), 0))]
        for name in self.names:
            if name not in self.levels:
                if is_category(X[name]) and X[name].notna().any():
                    raise TypeError(
                        f"column {name!r} of X must hold numbers, as it did in fit; "
                        f"got {X[name].dropna().iloc[0]!r}. Convert it."
                    )
                parts.append(X[name].to_numpy(np.float64, na_value=np.nan)[:, None])
                continue
            own = self.levels[name]
            code = pd.Index(own, dtype=object).get_indexer(X[name].astype(object))
            _warn_of_new(X[name][(code < 0) & X[name].notna()], own)
            found = (code[:, None] == np.arange(len(own))).astype(np.float64)
            found[code < 0] = np.nan
            parts.append(found[:, len(own) - len(self._told(name)) :])
        return pd.DataFrame(np.hstack(parts), index=X.index, columns=self.numbers)


def _warn_of_new(values: pd.Series, levels: Levels) -> None:
    if len(values):
        warnings.warn(
            f"levels of a category in X should be of those seen in fit, "
            f"{list(levels[:5])}...; got {values.iloc[0]!r} in column {values.name!r} "
            f"at {values.index[0]}. It counts as average. Fit on rows that hold it.",
            UserWarning,
            stacklevel=2,
        )
