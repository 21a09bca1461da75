"""Labels, stamps, steps and indexes as plain data, which JSON can hold, and back.

None, bool, int, str, finite floats and lists are themselves; anything else is an object
with one key, which says what it is. What cannot come back the same is refused.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable
from enum import Enum
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.errors import WeightsFileError

__all__ = ["plain", "restored"]


def plain(value: Any, where: str) -> Any:
    """Return a value as plain data.

    Parameters
    ----------
    value : object
        A scalar of Python, numpy or pandas, an index, or a list, tuple or dict of them.
    where : str
        What it is, for the message.

    Raises
    ------
    WeightsFileError
        If it is of a kind that is not stored, or would come back as another one.
    """
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral) and not isinstance(value, Enum):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Enum):
        number = float(value)
        if number == value or math.isnan(number):
            return number if math.isfinite(number) else {"float": str(number)}
    if type(value) is list:
        return [plain(item, where) for item in value]
    if type(value) is tuple:
        return {"tuple": [plain(item, where) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: plain(item, where) for key, item in value.items()}}
    tagged = _tagged(value)
    if tagged is None or not _comes_back(tagged, value):
        raise WeightsFileError(
            "a weights file holds numbers, texts, dates, stamps, steps and tuples of "
            f"them; got {value!r} of type {type(value).__name__} as {where}. Replace "
            "it by one of those, or use pickle."
        )
    return tagged


def _tagged(value: Any) -> dict[str, Any] | None:
    """Return a stamp, step or index as plain data; None if it is of no known kind."""
    if value is pd.NaT:
        return None
    if isinstance(value, pd.Index):
        return {"index": _plain_index(value)}
    if isinstance(value, pd.Timestamp):
        ticks = int(value.asm8.astype(np.int64))
        return {"timestamp": [ticks, value.unit, _zone(value.tz)]}
    if isinstance(value, pd.Timedelta):
        return {"timedelta": [int(value.asm8.astype(np.int64)), value.unit]}
    if isinstance(value, pd.Period):
        return {"period": [value.ordinal, value.freqstr]}
    if type(value) is pd.DateOffset:
        kwds = dict(value.kwds)
        if all(type(amount) is int for amount in kwds.values()):
            return {"date_offset": [value.n, value.normalize, kwds]}
        return None
    if isinstance(value, pd.tseries.offsets.BaseOffset):
        return {"frequency": value.freqstr}
    if type(value) in (datetime.datetime, datetime.date, datetime.time):
        return {type(value).__name__: value.isoformat()}
    return {"uuid": str(value)} if type(value) is uuid.UUID else None


def _comes_back(tagged: dict[str, Any], value: Any) -> bool:
    """Return whether plain data give the same value again."""
    try:
        found = restored(tagged)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False
    if isinstance(value, pd.Index):
        return bool(found.equals(value)) and found.nlevels == value.nlevels
    return type(found) is type(value) and bool(found == value)


def _zone(tz: Any) -> str | None:
    return None if tz is None else str(tz)


def _plain_index(index: pd.Index) -> dict[str, Any]:
    if isinstance(index, pd.MultiIndex):
        levels = [index.get_level_values(k) for k in range(index.nlevels)]
        return {"levels": [_plain_index(level) for level in levels]}
    name = plain(index.name, "the name of an index")
    if isinstance(index, pd.RangeIndex):
        return {"name": name, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.CategoricalIndex):
        index = index.astype(index.categories.dtype)
    if isinstance(index, pd.PeriodIndex):
        return {"name": name, "periods": index.asi8.tolist(), "freq": index.freqstr}
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
        kind = "stamps" if isinstance(index, pd.DatetimeIndex) else "durations"
        freq = None if index.freq is None else plain(index.freq, "a frequency")
        found = {"name": name, kind: index.asi8.tolist(), "unit": index.unit}
        return {**found, "freq": freq, "zone": _zone(getattr(index, "tz", None))}
    labels = [plain(label, "a label of an index") for label in index]
    dtype = str(index.dtype) if index.dtype.kind in "iufO" else None
    return {"name": name, "labels": labels, "dtype": dtype}


def restored(data: Any) -> Any:
    """Return the value that plain data stand for.

    Raises
    ------
    ArithmeticError, LookupError, TypeError, ValueError
        If they stand for none.
    """
    if isinstance(data, list):
        return [restored(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    return _KINDS[kind](content)


def _tuple(items: list[Any]) -> tuple[Any, ...]:
    return tuple(restored(item) for item in items)


def _dict(items: dict[str, Any]) -> dict[str, Any]:
    return {key: restored(item) for key, item in items.items()}


def _timestamp(content: list[Any]) -> pd.Timestamp:
    ticks, unit, zone = content
    stamp = pd.Timestamp(np.datetime64(ticks, unit))
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(_known(zone))


def _timedelta(content: list[Any]) -> pd.Timedelta:
    return pd.Timedelta(np.timedelta64(*content))


def _period(content: list[Any]) -> pd.Period:
    ordinal, freq = content
    return pd.Period(ordinal=ordinal, freq=freq)


def _date_offset(content: list[Any]) -> pd.DateOffset:
    n, normalize, kwds = content
    return pd.DateOffset(n, normalize, **kwds)


def _known(zone: str) -> str:
    """Return the name of a time zone; dateutil's own are paths of files."""
    if zone.startswith(("dateutil", "tz")):
        raise ValueError(f"no time zone of the database: {zone}")
    return zone


def _index(content: dict[str, Any]) -> pd.Index:
    if "levels" in content:
        return pd.MultiIndex.from_arrays([_index(part) for part in content["levels"]])
    name = restored(content["name"])
    if "range" in content:
        return pd.RangeIndex(*content["range"], name=name)
    if "periods" in content:
        ordinals = np.array(content["periods"], np.int64)
        freq = content["freq"]
        return pd.PeriodIndex.from_ordinals(ordinals, freq=freq, name=name)
    if "labels" in content:
        labels = [restored(label) for label in content["labels"]]
        dtype = content["dtype"]
        return pd.Index(labels, dtype=dtype, name=name, tupleize_cols=False)
    kind = "stamps" if "stamps" in content else "durations"
    ticks, unit, zone = np.array(content[kind], np.int64), content["unit"], None
    freq = restored(content["freq"])
    if kind == "durations":
        return pd.TimedeltaIndex(ticks.view(f"m8[{unit}]"), freq=freq, name=name)
    index, zone = pd.DatetimeIndex(ticks.view(f"M8[{unit}]")), content["zone"]
    if zone is not None:
        index = index.tz_localize("UTC").tz_convert(_known(zone))
    return pd.DatetimeIndex(index, freq=freq, name=name)


_KINDS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "tuple": _tuple,
    "dict": _dict,
    "index": _index,
    "timestamp": _timestamp,
    "timedelta": _timedelta,
    "period": _period,
    "date_offset": _date_offset,
    "frequency": pd.tseries.frequencies.to_offset,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "uuid": uuid.UUID,
}
