"""Errors of measurement that are known, and stamps that were measured twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers


def error_columns(
    named: Hashable | dict[Hashable, Hashable], channels: Sequence[Hashable]
) -> dict[Hashable, Hashable]:
    """Return the column of X with the errors of each channel that has any."""
    if named is None:
        return {}
    if not isinstance(named, dict):
        return dict.fromkeys(channels, named)
    for channel in named:
        if channel not in channels:
            raise ValueError(
                f"error must name columns of y, {list(channels)}, "
                "and of each the column of X that holds its errors; "
                f"got {channel!r}. "
                "Use one column of X for all, or a dict."
            )
    return dict(named)


def measured(
    y: pd.DataFrame, X: pd.DataFrame | None, columns: dict[Hashable, Hashable]
) -> tuple[pd.DataFrame, pd.DataFrame | None, Array | float]:
    """Return y and X, a row each stamp, and y's errors, (row, channel).

    ``columns`` of X hold these, and are no controls.
    A value whose error is infinite or missing is none.
    Of one stamp's values the mean counts, by their precision.
    """
    if not columns:
        return y, X, 0.0
    given = [] if X is None else X.columns
    missing = [name for name in columns.values() if name not in given]
    if X is None or missing:
        got = "no X" if X is None else f"columns {list(X.columns)}"
        raise ValueError(
            "error must name a column of X; "
            f"got {missing[0]!r} and {got}. "
            "Pass X with a column of standard deviations, in the unit of y."
        )
    errors = np.zeros(y.shape)
    for place, channel in enumerate(y.columns):
        if channel in columns:
            own = X[columns[channel]]
            errors[:, place] = own.to_numpy(np.float64, na_value=np.nan)
    for row, place in np.argwhere(errors < 0):
        name = columns[y.columns[place]]
        raise ValueError(
            "an error of measurement must be zero or more; "
            f"got {errors[row, place]:g} in column "
            f"{name!r} of X at {y.index[row]}. "
            "Pass standard deviations; NaN where a value is none."
        )
    for channel, name in columns.items():
        own = errors[:, y.columns.get_loc(channel)]
        if y[channel].notna().any() and not np.isfinite(own).any():
            raise ValueError(
                "a value whose error of measurement is infinite or missing is none; "
                f"got no finite one in column {name!r} of X. Pass standard deviations, "
                "in the unit of y."
            )
    y = y.where(np.isfinite(errors))
    # channels may share a column, which is dropped once
    of_errors = [*{*columns.values()}]
    X = X.drop(columns=of_errors)
    if y.index.has_duplicates:
        y, X, errors = _a_row_each_stamp(y, X, errors)
    return y, X if X.shape[1] else None, errors


def _a_row_each_stamp(
    y: pd.DataFrame, X: pd.DataFrame, errors: Array
) -> tuple[pd.DataFrame, pd.DataFrame, Array]:
    """Return what rows of a stamp say of y together, its first X, and errors."""
    codes, index = pd.factorize(y.index)
    _, first = np.unique(codes, return_index=True)
    values = np.empty((len(index), y.shape[1]))
    found = np.empty_like(values)
    measurements = y.to_numpy(np.float64, na_value=np.nan)
    for k, column in enumerate(measurements.T):
        values[:, k], found[:, k] = combined(column, errors[:, k], codes)
    frame = pd.DataFrame(values, index=y.index[first], columns=y.columns)
    return frame, X.iloc[first], found


def combined(
    values: Array,
    errors: Array,
    codes: Numbers,
) -> tuple[Array, Array]:
    """Return means of values (row,) of one code, by precision, and their errors.

    Beside an exact value, whose error is zero, others do not count.
    """
    known = ~np.isnan(values)
    # Precisions, 1 / error^2, in units of a usual one:
    # squares of tiny errors would be zero, and one over them infinite.
    usual = 1.0
    if (errors > 0).any():
        usual = float(np.median(errors[known & (errors > 0)]))
    is_exact = known & (errors == 0)
    has_exact = np.bincount(codes, weights=is_exact) > 0
    with np.errstate(divide="ignore"):
        weights = np.where(is_exact, 1.0, (usual / errors) ** 2)
    is_counted = known & (is_exact | ~has_exact[codes])
    weights = np.where(is_counted, weights, 0.0)
    # the sum of precisions is that of the mean
    total = np.bincount(codes, weights=weights)
    weighted = weights * np.where(known, values, 0.0)
    # without any value 0 / 0: NaN, which is what is known of it
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(codes, weights=weighted) / total
        error = np.where(has_exact, 0.0, usual / np.sqrt(total))
    return mean, error
