"""Tables of y and X as users pass them: containers, columns and their numbers.

What cannot be used is refused: the rule, the first offender, and a remedy.
Tested in tests/data/test_checks.py and tests/forecasters/test_inputs.py.
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sktime.forecasting.base import ForecastingHorizon

from sklode.data.categories import is_category
from sklode.data.remedies import TIMES, index_line, numbers_line
from sklode.data.ticks import shown


def read_table(data: Any, name: str = "y") -> Any:
    """Return a table with columns of numbers, in X also categories.

    Numbers of dtype object, such as ``Decimal`` or None where one is missing, become
    floats. Containers that sktime alone knows are left to it.

    Raises
    ------
    TypeError
        If the container or a column is of another kind.
    ValueError
        If two columns have one name.
    """
    if isinstance(data, pd.Series):
        frame = pd.DataFrame(data)
        read = _read_columns(frame, name, is_series=True)
        return data if read is frame else read.iloc[:, 0].rename(data.name)
    if isinstance(data, pd.DataFrame):
        return _read_columns(data, name)
    if isinstance(data, list) and data and isinstance(data[0], pd.DataFrame):
        return [_read_columns(part, f"{name}[{k}]") for k, part in enumerate(data)]
    if isinstance(data, np.ndarray):
        _check_array(data, name)
    elif data is not None:
        _check_container(data, name)
    return data


def check_rows(y: Any, X: object = None) -> None:
    """Check that y has rows and columns, is a DataFrame if a panel, and not X."""
    several = getattr(y, "ndim", 1) == 2 and y.shape[1] > 1
    if several and getattr(X, "ndim", 2) == 1:
        raise TypeError(
            "y comes first, then X; "
            f"got {y.shape[1]} columns, then one, "
            "as in scikit-learn's fit(X, y). "
            "Swap them; or, if it is X, pass a DataFrame."
        )
    if isinstance(X, np.ndarray) and isinstance(y, pd.Series | pd.DataFrame):
        raise TypeError(
            "X must have the stamps of y; got an array. Pass pd.DataFrame(X, y.index)."
        )
    if isinstance(y, pd.Series) and y.index.nlevels > 1:
        raise TypeError(
            "a panel must be a DataFrame; "
            f"got a Series with the index levels {list(y.index.names)}. "
            "Pass y.to_frame()."
        )
    if isinstance(y, pd.DataFrame) and not y.shape[1]:
        raise ValueError(
            "y must have at least one column; got an index alone. Pass the values too."
        )
    if hasattr(y, "__len__") and not len(y):
        raise ValueError("y must hold at least one row; got none. Pass a series.")


def _check_array(data: np.ndarray, name: str) -> None:
    if data.dtype.kind not in "biuf" or not 1 <= data.ndim <= 3:
        raise TypeError(
            f"{name} as an array must hold numbers in the shape (time,), "
            "(time, channel) or (series, channel, time); "
            f"got {data.dtype} in the shape {data.shape}. "
            "Convert it, for example by array.astype(float)."
        )


def _check_container(data: object, name: str) -> None:
    """Refuse what is no table; others, such as dask's, are left to sktime."""
    module = type(data).__module__.partition(".")[0]
    is_of_arrow = module in ("polars", "pyarrow")
    if not is_of_arrow and module not in ("builtins", "pandas", "sktime", "torch"):
        return
    raise TypeError(
        f"{name} must be of type Series or DataFrame of pandas, whose index holds the "
        "times, an array, or a list of a DataFrame for each series; got "
        f"{type(data).__name__}{f' of {module}' if is_of_arrow else ''}. "
        f"{_conversion(data, name, is_of_arrow)}."
    )


def _conversion(data: object, name: str, is_of_arrow: bool) -> str:
    """Return what makes a table of pandas of another object."""
    # asked of the class: of a query that was not run yet the columns cost time
    if is_of_arrow and hasattr(type(data), "columns"):
        run = ".collect()" if hasattr(type(data), "collect") else ""
        return (
            "Set its column of times, such as 'time', as the index, of a panel "
            "['series', 'time']: "
            f"{name} = {name}{run}.to_pandas().set_index('time')"
        )
    if is_of_arrow:
        return f"Add the times: {name} = pd.Series({name}.to_numpy(), index=stamps)"
    if isinstance(data, dict):
        return (
            f"Make columns of it: {name} = pd.DataFrame({name}, index=stamps); or, of "
            f"tables by the key of a series, a panel: {name} = pd.concat({name})"
        )
    if isinstance(data, list) and data and isinstance(data[0], pd.Series):
        return f"Make columns of them: {name} = [part.to_frame() for part in {name}]"
    last = f"a tensor as {name}.numpy()"
    horizons = int | list | range | pd.Index | ForecastingHorizon
    if name == "X" and isinstance(data, bool | float):
        last = "a setting by its name, such as coverage=0.9 or update_params=False"
    elif name == "X" and isinstance(data, horizons):
        last = "a horizon by its name, fit(y, fh=[1, 2, 3])"
    return f"Pass numbers as pd.Series({name}, index=stamps), {last}"


def _read_columns(
    data: pd.DataFrame, name: str, is_series: bool = False
) -> pd.DataFrame:
    _check_names(data, name)
    converted = {}
    for column, dtype in data.dtypes.items():
        own = data[column]
        is_category_of_X = name.startswith("X") and is_category(own)
        if _is_number(dtype) or is_category_of_X or not len(own):
            continue
        items, is_known = [*own], own.notna().to_numpy()
        kinds = Real | Decimal | np.bool_
        is_odd = is_known & [not isinstance(item, kinds) for item in items]
        # the first that is no number, or the first of all where the dtype is at fault
        where = int(np.argmax(is_odd))
        if pd.api.types.is_object_dtype(dtype) or _is_decimal(dtype):
            if not is_odd.any():
                converted[column] = own.astype(object).where(is_known, np.nan)
                continue
            # a series in each cell, which sktime knows
            if isinstance(items[where], pd.Series | np.ndarray):
                continue
        raise TypeError(
            f"{name} must be numeric, {'not' if name[0] == 'y' else 'or'} categorical; "
            f"got column {column!r} of dtype {dtype}, such as {items[where]!r} at "
            f"{shown(data.index[where])}. {_remedy(data, name, own, is_series)}."
        )
    if converted:
        data = data.copy(deep=False)
        for column, values in converted.items():
            data[column] = values.to_numpy(dtype=np.float64)
    return data


def _check_names(data: pd.DataFrame, name: str) -> None:
    """Check that columns have names of their own, and are none of a long table's."""
    names = {*data.columns}
    # Prophet's names of columns, and Nixtla's
    if {"ds", "y"} <= names or "unique_id" in names:
        keys = ["unique_id", "ds"] if "unique_id" in names else ["ds"]
        before = "" if "ds" in names else "df = df.reset_index(names='ds'); "
        raise TypeError(
            f"series and times of {name} are its index; "
            f"got columns, {list(data.columns)}. "
            f"These two lines make it: {before}"
            "df['ds'] = pd.to_datetime(df['ds']); "
            f"y = df.set_index({keys})[['y']]"
        )
    twice = data.columns[data.columns.duplicated()]
    if len(twice):
        raise ValueError(
            f"columns of {name} must have different names; "
            f"got {twice[0]!r} more than once. "
            "Rename or drop one of them."
        )


def _is_decimal(dtype: object) -> bool:
    """Return whether a dtype is Arrow's of decimal numbers, which sktime refuses."""
    return isinstance(dtype, pd.ArrowDtype) and dtype.type is Decimal


def _is_number(dtype: object) -> bool:
    is_complex = pd.api.types.is_complex_dtype(dtype)
    is_numeric = bool(pd.api.types.is_numeric_dtype(dtype))
    return is_numeric and not is_complex and not _is_decimal(dtype)


def _remedy(data: pd.DataFrame, name: str, column: pd.Series, is_series: bool) -> str:
    """Return what makes numbers of a column, or a part of the index."""
    whole = None if is_series else index_line(data, name)
    if whole is not None:
        return f"Times, and keys of series, are the index: {whole}"
    own = name if is_series else f"{name}[{column.name!r}]"
    if pd.api.types.is_complex_dtype(column.dtype):
        return f"Pass two columns, {own}.to_numpy().real and .imag"
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return f"Convert it: {own} = {own} / pd.Timedelta('1h')"
    line = numbers_line(column, own)
    if line is not None:
        return line
    if is_series:
        return f"Pass numbers: pd.Series(values, index={name}.index)"
    leave_out = f"Leave it out: {name} = {name}.drop(columns={column.name!r})"
    if name == "y" and is_category(column) and isinstance(data.index, TIMES):
        return (
            f"{leave_out}; categories are for X, and keys of series are the index: "
            f"y = y.set_index({column.name!r}, append=True).swaplevel().sort_index()"
        )
    return leave_out
