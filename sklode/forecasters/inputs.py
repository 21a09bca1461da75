"""What the forecasters check of their input, beside what sktime does."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping

import numpy as np
import pandas as pd

from sklode.data import checks
from sklode.data.tables import check_rows, read_table
from sklode.data.ticks import series_of, shown
from sklode.forecasters.protocols import Container

_MOSTLY = 0.5  # share of zeros in a column of doses, at rows of y


def read_tables(
    y: Container, X: Container, *, has_errors: bool
) -> tuple[Container, Container, bool]:
    """Return y and X as tables of numbers, and whether X's rows were compared with y's.

    They are checked before sktime does, whose messages name no row and no remedy.
    """
    tables = pd.Series | pd.DataFrame
    y, X = read_table(y, "y"), read_table(X, "X")
    for data, name in ((y, "y"), (X, "X")):
        if isinstance(data, tables):
            checks.check_index(data.index, name, has_errors)
    check_rows(y, X)
    # an array's rows are those that sktime gives it
    controls, table = (
        pd.DataFrame(x) if isinstance(x, np.ndarray) and x.ndim < 3 else x
        for x in (X, y)
    )
    is_compared = isinstance(controls, tables) and isinstance(table, tables)
    if is_compared:
        checks.check_controls(controls, table.index)
        if isinstance(controls, pd.DataFrame):
            _tell_rows_left_out(controls, table.index)
    return y, X, is_compared


def _tell_rows_left_out(X: pd.DataFrame, index: pd.Index) -> None:
    """Warn of doses and other rare values of X between rows of y: none is read."""
    if len(X) == len(index):  # each row of y has one
        return
    is_read = X.index.isin(index)
    numbers = X.select_dtypes("number")
    numbers = numbers.loc[:, (numbers[is_read] == 0).mean() > _MOSTLY]
    between = numbers[~is_read]
    between = between[(between.fillna(0) != 0).any(axis=1)]
    if between.empty or index.empty:
        return
    series, keys = series_of(index)
    ends = pd.Series(index.get_level_values(-1)).groupby(series).agg(["min", "max"])
    numbers = {key: k for k, key in enumerate(keys)}
    series, keys = series_of(between.index)
    # of a series that y lacks both ends are missing, and nothing lies between
    ends = ends.reindex([numbers.get(keys[k], -1) for k in series])
    asked = between.index.get_level_values(-1)
    is_inside = (asked > pd.Index(ends["min"])) & (asked < pd.Index(ends["max"]))
    if is_inside.any():
        row = between[is_inside].iloc[0]
        warnings.warn(
            f"X has {int(is_inside.sum())} row(s) between those of y, the first "
            f"{shown(row.name)}, in which column {row.ne(0).idxmax()!r} is not zero: "
            "what it does there is not seen. Give y these rows, as NaN: "
            "y = y.reindex(y.index.union(X.index)).",
            UserWarning,
            stacklevel=4,
        )


def tell_unknown(
    unknown: Mapping[Hashable, tuple[int, object]], n_rows: int, *, may_be: bool
) -> None:
    """Say which columns of X are not known, and where; unless it ``may_be``, refuse.

    ``unknown`` has of each column the number of rows and the first one.
    """
    columns = ", ".join(
        f"column {name!r} at {n} of {n_rows} rows, the first {shown(first)}"
        for name, (n, first) in unknown.items()
    )
    if columns and not may_be:
        raise ValueError(
            'with model="paper" X must be known at every stamp of y and of the '
            f'horizon; got none or NaN in {columns}. Fill it, or use model="hybrid".'
        )
    if columns:
        warnings.warn(
            f"X is not known in {columns}: it is forecast itself there, which makes "
            "intervals wider if it has an effect. Pass what you know of it.",
            UserWarning,
            stacklevel=4,
        )


def check_continues(before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Check that a fit which goes on from an earlier model has what that had."""
    for name, value in before.items():
        if now[name] != value:
            raise ValueError(
                f"a fit that continues from earlier weights needs the same {name}, "
                f"{value!r}; got {now[name]!r}. Fit a fresh clone instead, after "
                "reset() if it was pretrained."
            )


def warn_of_steps_between_rows() -> None:
    """Warn that steps of equal length are no rows, where they may be taken for some.

    One horizon that is passed both to fit and to predict is how sktime's `evaluate`
    asks; it compares forecasts with the test fold's rows.
    """
    warnings.warn(
        "fh counts steps of equal length, and y's rows are not so spaced: forecasts "
        "come at other times than rows. To compare them with rows, ask at their "
        "stamps, by predict_at; in sktime's evaluation wrap the splitter: "
        "AbsoluteHorizon(cv).",
        stacklevel=3,
    )
