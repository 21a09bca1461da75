"""Refuse what is no table of numbers, before anything else looks at y or X."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data import remedies

__all__ = [
    "check_columns",
    "check_dtypes",
    "check_probabilities",
    "check_rows",
    "check_table",
]

_STAMPED = "Pass a Series or DataFrame over its time stamps, or a numpy array."


def check_table(data: Any, name: str = "y") -> None:
    """Check that y or X is a container of real numbers.

    Containers that only sktime knows are left to it.

    Parameters
    ----------
    data : object
        What the user passed.
    name : str, default="y"
        What the message calls it.

    Raises
    ------
    TypeError
        If it is another container, or holds something else.
    ValueError
        If two columns share a name.
    """
    if isinstance(data, pd.DataFrame):
        check_columns(data, name)
        if name != "X":  # of X, `check_controls` knows what to do about categories
            check_dtypes(data, name)
    elif isinstance(data, pd.Series):
        if name != "X":
            check_dtypes(data.to_frame(), name)
    elif isinstance(data, np.ndarray):
        _check_array(data, name)
    elif isinstance(data, list) and data:
        _check_list(data, name)
    elif type(data).__module__ in ("builtins", "torch"):
        raise TypeError(
            f"{name} must be of type Series, DataFrame or array; got "
            f"{type(data).__name__}. {remedies.of_container(data, name)}"
        )


def check_rows(y: Any) -> None:
    """Check that y has rows and columns, and that a panel is a DataFrame.

    Raises
    ------
    ValueError
        If there are none.
    TypeError
        If a Series has series' keys.
    """
    if isinstance(y, pd.Series) and y.index.nlevels > 1:
        raise TypeError(
            "a panel must be a DataFrame; got a Series with the index levels "
            f"{list(y.index.names)}. Pass y.to_frame()."
        )
    if isinstance(y, pd.DataFrame) and not y.shape[1]:
        raise ValueError(
            "y must have at least one column; got an index alone. Pass the values too."
        )
    if hasattr(y, "__len__") and not len(y):
        raise ValueError("y must hold at least one row; got none. Pass a series.")


def check_columns(data: pd.DataFrame, name: str) -> None:
    """Check that columns can be told apart.

    Raises
    ------
    ValueError
        Naming the first name that comes twice.
    """
    twice = data.columns.duplicated()
    if twice.any():
        column = data.columns[int(np.argmax(twice))]
        raise ValueError(
            f"columns of {name} must have different names; got {column!r} more than "
            "once. Rename or drop one of them."
        )


def check_dtypes(data: pd.DataFrame, name: str) -> None:
    """Check that every column holds real numbers, or booleans.

    Raises
    ------
    TypeError
        Naming the first column that does not, and its first value.
    """
    for place, dtype in enumerate(data.dtypes):
        if _is_real(dtype):
            continue
        column = data.iloc[:, place]
        if len(column) and isinstance(column.iloc[0], pd.Series | np.ndarray):
            continue  # a series in each cell, which sktime knows
        such = f", such as {column.iloc[0]!r}" if len(column) else ""
        raise TypeError(
            f"{name} must be numeric, not categorical; got column {column.name!r} of "
            f"dtype {dtype}{such}. {_as_numbers(column, name)}"
        )


def _is_real(dtype: Any) -> bool:
    numeric = pd.api.types.is_numeric_dtype(dtype)  # booleans among them
    return bool(numeric and not pd.api.types.is_complex_dtype(dtype))


def _as_numbers(column: pd.Series, name: str) -> str:
    dtype = column.dtype
    as_index = remedies.of_column(column, name)
    if as_index is not None:
        return f"Time stamps belong into the index: {as_index}."
    if pd.api.types.is_complex_dtype(dtype):
        return "Pass its real and its imaginary part as two columns."
    if pd.api.types.is_timedelta64_dtype(dtype):
        return "Count in a unit, for example column.dt.total_seconds()."
    return f"Convert it, for example by {name}.astype(float)."


def _check_array(data: np.ndarray, name: str) -> None:
    if data.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must be numeric; got an array of dtype {data.dtype}. "
            "Convert it, for example by array.astype(float)."
        )
    if not 1 <= data.ndim <= 3:
        raise TypeError(
            f"{name} as an array must have the shape (time,), (time, channel) or "
            f"(series, channel, time); got {data.shape}. {_STAMPED}"
        )


def _check_list(data: list[Any], name: str) -> None:
    for place, part in enumerate(data):
        if not isinstance(part, pd.DataFrame):
            raise TypeError(
                f"{name} of type list must hold a DataFrame for each series of a "
                f"panel; got {type(part).__name__} at place {place}. "
                f"{remedies.of_container(data, name)}"
            )
        check_table(part, f"{name}[{place}]")


def check_probabilities(name: str, given: Any) -> None:
    """Check probabilities of quantiles or intervals.

    Raises
    ------
    TypeError
        If one is no number.
    ValueError
        If there are none, one is outside (0, 1), or one comes twice.
    """
    several = isinstance(given, list | tuple | set | np.ndarray | pd.Series | pd.Index)
    values = list(given) if several else [given]
    remedy = f"Use for example {name}=0.9 or {name}=[0.5, 0.9]."
    if not values:
        raise ValueError(f"{name} must hold at least one number; got none. {remedy}")
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(
                f"{name} must be a number between 0 and 1, or a list of them; got "
                f"{value!r}. {remedy}"
            )
        if not 0 < float(value) < 1:
            raise ValueError(
                f"{name} must lie between 0 and 1, both left out; got {value!r}. "
                f"{remedy}"
            )
        if values.count(value) > 1:
            raise ValueError(
                f"{name} must not hold a number twice; got {value!r} "
                f"{values.count(value)} times. Leave the others out."
            )
