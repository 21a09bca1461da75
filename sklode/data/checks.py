"""Refuse what cannot be used: the rule, the first offender, and a remedy.

A TypeError where it is of another kind than it must be,
else a ValueError.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import reprlib
import warnings
from collections.abc import Hashable, Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    validate_parameter_constraints,
)

from sklode.data.arrays import Array, Frame
from sklode.data.remedies import TIMES, conversion, date_call, stamps_call
from sklode.data.ticks import (
    clock_of,
    nanoseconds,
    series_of,
    shown,
    ticks_of,
)

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster


def finite_values(data: pd.DataFrame, name: str = "y") -> NDArray[np.float64]:
    """Return the values of y or X, finite or NaN."""
    values = data.to_numpy(dtype=np.float64, na_value=np.nan)
    for row, column in np.argwhere(np.isinf(values)):
        raise ValueError(
            f"values of {name} must be finite, or NaN (missing); "
            f"got {values[row, column]} "
            f"in column {data.columns[column]!r} at {shown(data.index[row])}. "
            "Replace it by NaN to treat it as missing."
        )
    return values


def check_controls(X: Frame, index: pd.Index) -> None:
    """Check that X is indexed as y is, and has the rows of ``index``."""
    check_kinds(X, index)
    is_missing = ~index.isin(X.index)
    for row in np.flatnonzero(is_missing):
        raise ValueError(
            "X must have a row at every stamp of y; "
            f"got none at {shown(index[row])}. "
            "Extend X to cover it: NaN where it is not known."
        )


def check_kinds(X: Frame, index: pd.Index, asked: pd.Index | None = None) -> None:
    """Check that X is indexed as y is; ``asked`` are the rows of X that are needed."""
    if X.index.nlevels != index.nlevels:
        raise ValueError(
            f"X must have the index levels of y, {list(index.names)}; got "
            f"{list(X.index.names)}. Give every series its own rows, for example "
            "pd.concat({key: X for key in keys})."
        )
    times, known = X.index.get_level_values(-1), index.get_level_values(-1)
    check_same_kind(times, known, name="X", asked=asked)


def check_index(
    index: pd.Index,
    name: str = "y",
    may_repeat: bool = False,
) -> None:
    """Check that stamps are times, finite and increasing within each series.

    A stamp ``may_repeat`` where errors of measurement are known.
    """
    check_times(index, name)
    times = index.get_level_values(-1)
    if len(times):
        check_last(index, name)
        _check_kind(index, name)
    ticks = ticks_of(times)
    series, _ = series_of(index)
    # a stable order keeps each series' rows as they come,
    # also of a mixed panel
    order = np.argsort(series, kind="stable")
    same, ordered = np.diff(series[order]) == 0, ticks[order]
    # compared, not subtracted: three centuries of nanoseconds overflow
    wrong = ordered[1:] < ordered[:-1]
    if not may_repeat:
        wrong |= ordered[1:] == ordered[:-1]
    for place in np.flatnonzero(same & wrong):
        before, row = order[place], order[place + 1]
        remedy = f"Sort {name} by its index first: {name}.sort_index()."
        if index.has_duplicates and not may_repeat:
            remedy = (
                f"Keep one row per stamp: {name}[~{name}.index.duplicated()]; "
                "or name the column of X "
                "with the errors of measurement by error=..."
            )
            if index.nlevels == 1:
                remedy += (
                    " Rows of several series need their keys before the times: "
                    f"{name}.set_index('key', append=True).swaplevel().sort_index()."
                )
        owner = f" of series {shown(index[row][:-1])}" if index.nlevels > 1 else ""
        raise ValueError(
            f"times of {name} must be strictly increasing; "
            f"got {times[row]} after {times[before]} at row {row}{owner}. "
            f"{remedy}"
        )


def check_times(index: pd.Index, name: str) -> None:
    """Check that every row has a time, and in a panel the key of its series."""
    for level in range(index.nlevels - 1):
        for row in np.flatnonzero(index.get_level_values(level).isna()):
            raise ValueError(
                f"the series of {name} must have keys; "
                f"got none at row {row}. "
                "Drop that row or name its series."
            )
    times = index.get_level_values(-1)
    missing = np.asarray(times.isna())
    if pd.api.types.is_float_dtype(times.dtype):
        missing = ~np.isfinite(np.asarray(times, dtype=float))
    for row in np.flatnonzero(missing):
        raise ValueError(
            f"the time index of {name} must hold finite times; "
            f"got {times[row]} at row {row}. "
            "Drop that row or give it a time."
        )


def check_last(index: pd.Index, name: str) -> None:
    """Check that a panel's times are in its last level, and keys before them."""
    # an index of one level is its own last one
    *earlier, last = getattr(index, "levels", [index])
    if isinstance(last, TIMES) or date_call(last, "times") is not None:
        return
    # integers and fractions may be times, texts are none
    is_whole = pd.api.types.is_integer_dtype
    of_time = [k for k, level in enumerate(earlier) if isinstance(level, TIMES)]
    if not of_time and not pd.api.types.is_numeric_dtype(last.dtype):
        of_time = [
            k
            for k, level in enumerate(earlier)
            if is_whole(level.dtype) or date_call(level, "times") is not None
        ]
    if not of_time:
        return
    level = of_time[-1]
    order = [*(k for k in range(index.nlevels) if k != level), level]
    of = name if name in ("y", "X") else "index"
    turn = "swaplevel()" if index.nlevels == 2 else f"reorder_levels({order})"
    line = f"{of} = {of}.{turn}{'' if of == 'index' else '.sort_index()'}"
    keys = ""
    if is_whole(last.dtype):
        keys = "; if its stamps are keys, convert them to strings"
    raise ValueError(
        f"time must be the last index level of {name}; "
        f"got {shown(index[0])}: {_word(earlier[level])} "
        f"in level {level}, {_word(last)} in the last. "
        f"Put it there: {line}{keys}."
    )


def _word(level: pd.Index) -> str:
    """Return what a level of an index holds."""
    if isinstance(level, TIMES):
        return type(level).__name__
    if pd.api.types.is_integer_dtype(level.dtype):
        return "integers"
    return "texts" if date_call(level, "times") is None else "dates"


def _check_kind(index: pd.Index, name: str) -> None:
    """Check that stamps are of a kind that tells time."""
    times = index.get_level_values(-1)
    if isinstance(times, TIMES):
        return
    own = f"{name}.index"
    if pd.api.types.is_integer_dtype(times.dtype):
        # unsigned ones may be
        if times.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"integers of the time index of {name} must lie below 2**63; "
                f"got {times.max()}. "
                "Subtract the first one from all."
            )
        if _are_days(times):
            raise ValueError(
                f"integers of the time index of {name} must count equal steps; "
                f"got {times[0]} to {times[-1]}, which are dates without separators. "
                f"Convert them: {own} = pd.to_datetime({own}, format='%Y%m%d')."
            )
        return
    # the first stamp, and the first of another kind or zone if there
    # is one: of no differences argmax is zero, the first stamp again
    kinds = [f"{type(time)}{getattr(time, 'tzinfo', None)}" for time in times]
    differs = [kind != kinds[0] for kind in kinds]
    other = times[int(np.argmax(differs))]
    shown = " and ".join(dict.fromkeys([str(times[0]), str(other)]))
    call = conversion(times, own if index.nlevels == 1 else f"{own}.levels[-1]")
    remedy = f"Convert it: {own} = {call}"
    if call is None:
        remedy = f"Make a column of times its index: {name} = {name}.set_index(column)"
    elif index.nlevels > 1:
        remedy = f"Convert it: {own} = {own}.set_levels({call}, level=-1)"
    raise TypeError(
        f"the time index of {name} must hold integers, periods, "
        "timedeltas, or datetimes of one time zone or none; "
        f"got {times.dtype}, such as {shown}. {remedy}."
    )


def _are_days(times: pd.Index) -> bool:
    """Return whether integers are dates without separators, such as 20240131."""
    if len(times) < 2 or not 1900_01_01 <= times.min() <= times.max() <= 2100_12_31:
        return False
    days = pd.to_datetime(times.astype(str), format="%Y%m%d", errors="coerce")
    return bool(days.notna().all())


def check_same_kind(
    times: pd.Index,
    known: pd.Index,
    name: str = "fh",
    asked: pd.Index | None = None,
) -> None:
    """Check that stamps are of the kind seen in fit; any zone is as good.

    Those ``asked`` are what rows without times may stand for.
    """
    got, wanted = _kind(times), _kind(known)
    if got != wanted:
        raise TypeError(
            f"{name} must be of the kind of y's index, {wanted}; "
            f"got {got}. "
            f"{_likening(times, known, asked)}."
        )


def _likening(times: pd.Index, known: pd.Index, asked: pd.Index | None) -> str:
    """Return what makes stamps of the kind of those known."""
    zone, own_zone = (getattr(each, "tz", None) for each in (known, times))
    local = f".tz_localize({str(zone)!r})" if zone is not None else ""
    call = None
    if isinstance(known, pd.PeriodIndex):
        if isinstance(times, pd.DatetimeIndex):
            call = f"index.to_period({known.freqstr!r})"
        elif isinstance(times, pd.PeriodIndex):
            call = f"index.asfreq({known.freqstr!r})"
    elif isinstance(known, pd.DatetimeIndex):
        if isinstance(times, pd.PeriodIndex):
            call = f"index.to_timestamp(){local}"
        elif isinstance(times, pd.DatetimeIndex):
            call = f"index{local}"
            if own_zone is not None:
                call = (
                    "index.tz_localize(None), after tz_convert(zone) where y's clock "
                )
                call += "shows another zone"
        else:
            dates = date_call(times, "index")
            call = None if dates is None else f"{dates}{local}"
    if call is not None:
        return f"Convert it: index = {call}"
    if asked is not None and len(asked):
        return _giving(times, asked)
    return (
        "Give it the times of its rows: index = y.index where they are those of y, "
        "or set_index(column)"
    )


def _giving(times: pd.Index, asked: pd.Index) -> str:
    """Return what gives rows of X the stamps that are asked for."""
    said = f"Give it the stamps that are asked for, {shown(asked[0])}"
    if len(asked) > 1:
        said += f" to {shown(asked[-1])}, a row each"
    code = None
    if asked.nlevels == 1 and len(asked) == len(times):
        code = stamps_call(asked)
    return f"{said}: X = X.set_axis({code or 'index'})"


def _kind(index: pd.Index) -> str:
    if isinstance(index, pd.DatetimeIndex):
        has_zone = "without" if index.tz is None else "with"
        return f"datetimes {has_zone} a time zone"
    if isinstance(index, pd.TimedeltaIndex):
        return "timedeltas"
    return clock_of(index)


SIZE = Interval(Integral, 1, None, closed="left")  # at least one
_SHARED: dict[str, list[object]] = {
    "n_samples": [SIZE],
    "freq": [str, pd.DateOffset, pd.Timedelta, None],
    "clean": ["boolean"],
    "bounds": [tuple, list, dict, None],
    "error": [Hashable, dict, None],
    "holidays": [str, list, tuple, dict, pd.Series, pd.DataFrame, None],
    "random_state": ["random_state"],
}
# where the default does not tell what to write
_EXAMPLES = {
    "freq": "'1h'",
    "bounds": "(0, 100), or (0, None) without an upper end",
    "holidays": "'DE', or pd.Series('closed', index=dates)",
    "seasons": "['1D', '7D'], or [12] in steps of the index",
    "error": "'deviation', a column of X",
    "random_state": "0",
    "logarithm": "True, False or 'auto'",
    "guard": "True, False or 'auto'",
}
# as scikit-learn says kinds
_BOOLEAN = re.compile("an instance of 'bool' or an instance of 'numpy.bool_?'")
_KIND = re.compile(r"an instance of '(?:\w+\.)*(\w+)'")


def check_constraints(
    constraints: dict[str, list[object]], forecaster: BaseForecaster
) -> None:
    """Check parameters of a constructor: shared ones, and others."""
    try:
        validate_parameter_constraints(
            {**_SHARED, **constraints},
            params=forecaster.get_params(deep=False),
            caller_name=type(forecaster).__name__,
        )
    except InvalidParameterError as error:
        # the rule names the parameter first, in quotes
        name = str(error).split("'")[1]
        defaults = forecaster.get_param_defaults()
        example = _EXAMPLES.get(name, repr(defaults[name]))
        rule = _KIND.sub(r"a \1", _BOOLEAN.sub("a bool", str(error)))
        raise InvalidParameterError(
            f"{rule} Use for example {name}={example}."
        ) from None
    if forecaster.freq is not None and not _goes_forward(forecaster.freq):
        raise ValueError(
            "freq must be a frequency that pandas knows "
            "and that goes forward; "
            f"got {forecaster.freq!r}. {_frequency_meant(forecaster.freq)}."
        )


def _goes_forward(freq: object) -> bool:
    """Return whether pandas knows a frequency, and it is above zero."""
    try:
        return nanoseconds(pd.tseries.frequencies.to_offset(freq)) > 0
    except ValueError:
        return False


def _frequency_meant(freq: object) -> str:
    """Return what to pass in place of no frequency."""
    with warnings.catch_warnings(), contextlib.suppress(TypeError, ValueError):
        warnings.simplefilter("ignore")  # of units' earlier names
        # a length of time that is no frequency, such as "90 minutes"
        length = pd.Timedelta(freq)
        n_days, rest = divmod(length, pd.Timedelta("1D"))
        step = pd.offsets.Day(n_days)
        if rest:
            step = pd.tseries.frequencies.to_offset(length)
        if _goes_forward(step):
            return f"Use freq={step.freqstr!r}"
    return (
        "Use for example freq='1h', 'D', 'MS' for starts of months, or 'ME' for "
        "their ends"
    )


def check_names(owner: str, given: Iterable[str], known: list[str]) -> None:
    """Check that there are parameters of these names."""
    for name in given:
        if name not in known:
            remedy = f"It has {known}."
            near = difflib.get_close_matches(name, known, n=1)
            if near:
                remedy = f"Did you mean {near[0]!r}?"
            raise TypeError(f"{owner} has no parameter {name!r}. {remedy}")


def check_probabilities(name: str, given: object) -> None:
    """Check probabilities of quantiles or intervals: numbers between 0 and 1."""
    several = list | tuple | set | np.ndarray | pd.Series | pd.Index
    values = list(given) if isinstance(given, several) else [given]
    wrong = [x for x in values if not (isinstance(x, Real) and 0 < float(x) < 1)]
    # sought among numbers only: of arrays == has no single truth
    wrong = wrong or [value for value in values if values.count(value) > 1]
    if wrong or not values:
        raise ValueError(
            f"{name} must be a number between 0 and 1, "
            "both left out, or a list of different ones; "
            f"got {repr(wrong[0]) if wrong else 'none'}. "
            f"Use for example {name}=0.9 or {name}=[0.5, 0.9]."
        )


def check_count(name: str, value: object, least: int = 1) -> None:
    """Check that an argument is a whole number, at ``least`` so large."""
    # a bool is one of Python's integers
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}; got "
            f"{reprlib.repr(value)}."
        )


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Check that an argument is one of its choices."""
    choices = list(choices)
    # lists have no hash, arrays no single truth: only texts are compared
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {choices}; got {value!r}.")


def finite(table: Array) -> Array:
    """Return an answer that floats can hold."""
    if not np.isfinite(table).all():
        raise ValueError(
            "an answer must be a finite number; "
            "got forecasts, or squares of them, that no float holds. "
            "Fit on y in larger units, or ask for less far ahead; "
            "for spreads, predict_interval takes no squares."
        )
    return table
