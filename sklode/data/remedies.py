"""Lines that repair an index or a table, for the messages that refuse it.

Tested in tests/forecasters/test_inputs.py, which runs them.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Hashable
from datetime import date

import pandas as pd

from sklode.data.arrays import Frame
from sklode.data.ticks import date_or_time

TIMES = pd.DatetimeIndex | pd.PeriodIndex | pd.TimedeltaIndex
"""Kinds of an index that tell time."""

_MARKS = re.compile(r"[\W_]+")
_FEW = 3  # stamps that are listed; more are a range
_SEEN = 100  # of texts, which tell the format of all
_THOUSANDS, _DECIMAL = "part thousands", "are decimal points"
_COMMAS = {
    _THOUSANDS: r"[+-]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?",
    _DECIMAL: r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?",
}
"""Numbers as texts, by what commas do in them."""
_DAY_AND_MONTH = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-]\d{4}")


def date_call(texts: Frame | pd.Index, named: str) -> str | None:
    """Return the call that makes dates of what is ``named``; None: it holds none."""
    seen = [*texts.dropna()[:_SEEN]]
    if seen and all(isinstance(item, date) for item in seen):
        zones = {getattr(item, "tzinfo", None) for item in seen}
        return f"pd.to_datetime({named}{', utc=True' if len(zones) > 1 else ''})"
    # a number or a name may be read as a date too; a date has a year
    if not seen or not all(re.search(r"\d{4}", str(item)) for item in seen):
        return None
    found = [_DAY_AND_MONTH.match(str(item)) for item in seen]
    if all(found):
        is_day_second = any(int(each[2]) > 12 for each in found if each)
        return f"pd.to_datetime({named}, dayfirst={not is_day_second})"
    if not all(isinstance(item, str) for item in seen):
        return None
    try:
        pd.to_datetime(pd.Index(seen), format="mixed", utc=True)
    except ValueError:
        return None
    return f"pd.to_datetime({named}{_options(pd.Index(texts.dropna()))})"


def _options(texts: pd.Index) -> str:
    """Return the options by which all texts become dates; none where none do."""
    zones, formats = ("", ", utc=True"), ("", ", format='mixed'")
    for zone, form in ((zone, form) for form in formats for zone in zones):
        options = {"utc": bool(zone)} | ({"format": "mixed"} if form else {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandas 2 where offsets differ
            with contextlib.suppress(ValueError, TypeError):
                if isinstance(pd.to_datetime(texts, **options), pd.DatetimeIndex):
                    return zone + form
    return ""


def spelt(name: object, between: str = "") -> str:
    """Return a name without regard to capitals, ``between`` for spaces and marks."""
    return _MARKS.sub(between, str(name)).strip().casefold()


def conversion(times: pd.Index, named: str) -> str | None:
    """Return the call that makes times of an index of another kind; None: none does."""
    if pd.api.types.is_float_dtype(times.dtype):
        # which keeps fractions apart
        return f"pd.to_timedelta({named}, unit='s')"
    if pd.api.types.is_datetime64_any_dtype(times.dtype):
        return f"pd.DatetimeIndex({named})"
    # eight digits are a date
    if times.astype(str).str.fullmatch(r"-?\d{1,7}|-?\d{9,18}").all():
        return f"{named}.astype(int)"
    return date_call(times, named)


def stamps_call(stamps: pd.Index) -> str | None:
    """Return the call that makes stamps; None where it would be long."""
    n = len(stamps)
    if not isinstance(stamps, TIMES):
        steps = range(int(stamps[0]), int(stamps[0]) + n)
        return repr(steps) if [*stamps] == [*steps] else None
    kind = type(stamps).__name__
    zone = getattr(stamps, "tz", None)
    local = stamps if zone is None else stamps.tz_localize(None)
    texts = [*map(date_or_time, local)]
    options: dict[str, object] = {} if zone is None else {"tz": str(zone)}
    if isinstance(stamps, pd.PeriodIndex):
        options["freq"] = stamps.freqstr
    first, name = repr(texts), kind
    if n > _FEW:
        freq = options.get("freq") or pd.infer_freq(local)
        options |= {"freq": freq, "periods": n}
        # date_range, period_range or timedelta_range
        name = f"{kind.removesuffix('Index').removesuffix('time').lower()}_range"
        first, make = repr(texts[0]), getattr(pd, name)
        if freq is None or not make(local[0], **options).equals(stamps):
            return None
    arguments = ", ".join([first, *(f"{k}={v!r}" for k, v in options.items())])
    return f"pd.{name}({arguments})"


def numbers_line(texts: pd.Series, name: str) -> str | None:
    """Return the line that makes numbers of texts; None if not one of them is.

    Where a comma may part thousands or be the decimal point, there are two lines.
    """
    known = texts.dropna()
    seen = pd.Series(
        [item.strip() for item in known if isinstance(item, str)], dtype=object
    )
    fits = pd.DataFrame(
        {said: seen.str.fullmatch(pattern) for said, pattern in _COMMAS.items()}
    )
    # what fits neither is no number
    is_number = fits.any(axis=1)
    if not seen[is_number].str.contains(",", regex=False).any():
        call = _numbers_call(known, name, {})
        return None if call is None else f"Convert it: {name} = {call}"
    possible = [said for said in fits if fits.loc[is_number, said].all()]
    has_points = seen[is_number].str.contains(".", regex=False).any()
    decimal = {",": "."}
    # of numbers among the texts the point is one of decimals
    if has_points and possible == [_DECIMAL] and len(seen) == len(known):
        decimal = {".": "", ",": "."}
    marks = {_THOUSANDS: {",": ""}, _DECIMAL: decimal}
    calls = {
        said: _numbers_call(known, name, marks[said]) for said in possible or [_DECIMAL]
    }
    if None in calls.values():
        return None
    if len(calls) == 1:
        return f"Convert it: {name} = {next(iter(calls.values()))}"
    lines = [f"where commas {said}: {name} = {call}" for said, call in calls.items()]
    return f"Convert it, {'; '.join(lines)}"


def _numbers_call(known: pd.Series, named: str, marks: dict[str, str]) -> str | None:
    """Return the call that makes numbers of texts whose marks are replaced."""
    seen, coerced = known.astype(str), ""
    if marks and not all(isinstance(item, str) for item in known):
        named, coerced = f"{named}.astype(str)", ", errors='coerce'"
    for mark, other in marks.items():
        seen = seen.str.replace(mark, other, regex=False)
        named = f"{named}.str.replace({mark!r}, {other!r})"
    is_number = pd.to_numeric(seen, errors="coerce").notna()
    if not is_number.any():
        return None
    # what is no number becomes NaN, which is missing
    if not is_number.all():
        coerced = ", errors='coerce'"
    return f"pd.to_numeric({named}{coerced})"


def index_line(table: pd.DataFrame, name: str) -> str | None:
    """Return the line that makes an index of a table's columns of times and keys.

    None: there are no times, or the index holds them.
    """
    if isinstance(table.index.get_level_values(-1), TIMES):
        return None
    calls = {column: _times_call(table, column, name) for column in table}
    times = [column for column, call in calls.items() if call is not None]
    if not times:
        return None
    time = times[0]
    # those of y are keys; of X they may be categories
    texts = [column for column in table if _is_text(table[column].dtype)]
    keys = [] if name.startswith("X") else [key for key in texts if key != time]
    if not keys and table[time].duplicated().any():
        # of a panel: the first column that tells rows apart
        others = [*texts, *(column for column in table if column not in texts)]
        apart = (k for k in others if not table.duplicated([k, time]).any())
        keys = [*apart][:1]
    before = f"{name}[{time!r}] = {calls[time]}; " if calls[time] else ""
    named = repr([*keys, time] if keys else time)
    return f"{before}{name} = {name}.set_index({named}).sort_index()"


def _times_call(table: pd.DataFrame, column: Hashable, name: str) -> str | None:
    """Return what makes times of a column, "" if it holds some; None: it is of none."""
    dtype = table[column].dtype
    if isinstance(dtype, pd.PeriodDtype) or pd.api.types.is_datetime64_any_dtype(dtype):
        return ""
    if not _is_text(dtype):
        return None
    return date_call(table[column], f"{name}[{column!r}]")


def _is_text(dtype: object) -> bool:
    """Return whether a column of this dtype holds texts, objects or categories."""
    is_time = pd.api.types.is_datetime64_any_dtype(dtype)
    is_number = pd.api.types.is_numeric_dtype(dtype)
    return not (is_time or is_number or isinstance(dtype, pd.PeriodDtype))
