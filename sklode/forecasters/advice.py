"""What may help where a simple method was better than a forecaster.

Settings are told only where they were tried, and forecast the same rows better.

Tested in tests/forecasters/test_summary.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.calendars import country_of
from sklode.data.history import History
from sklode.data.ticks import DAY, length_of_time, tick_length

_MOST_TRIED = 2  # each takes about as long as a fit
_WHOLE = 1e-6  # of a season, that floats leave of a whole number of them
_AT_END, _FEWEST_AT_END = 0.02, 10
"""Share and number of values that are the largest or least, which show a bound."""


def errors_of(results: pd.DataFrame) -> pd.Series:
    """Return the forecaster's mean absolute error at each origin."""
    own: pd.Series = results["MAE"].xs("forecaster", level="method")
    return own


def is_better(other: pd.Series, own: pd.Series) -> bool:
    """Return whether errors are smaller, by more than their gain's standard error.

    Of one origin alone, whether they are smaller.
    """
    gain = own.to_numpy() - other.to_numpy()
    error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else 0.0
    return bool(gain.mean() > error)


def remedy_of(
    best: str,
    seasons: dict[str, float],
    judged: Any,
    own: pd.Series,
    history: History,
    parts: pd.DataFrame,
    errors_by: Callable[[Any], pd.Series],
) -> str:
    """Return what helps a forecaster beside the ``best`` of the simple methods.

    ``own`` are the errors of the one that is ``judged``, by origin, as ``errors_by``
    gives them of others; ``parts`` are its ``components_``.
    """
    tried, settings = [], judged.get_params(deep=False)
    changes = _changes(best, seasons, settings, history=history, parts=parts)
    for name, value in changes[:_MOST_TRIED]:
        changed = judged.clone().set_params(**{name: value})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors = errors_by(changed)
        if is_better(errors, own):
            call = f"{type(judged).__name__}({name}={value!r})"
            return f"{call} had an MAE of {errors.mean():.3g}"
        tried.append(f"{name}={value!r}")
    text = ""
    if tried:
        text = f"{' or '.join(tried)} did not help; "
    country = None
    if getattr(judged, "holidays", None) is None:
        seen = history.observations
        first = slice(*seen.bounds[:2])
        country = country_of(seen.ticks[first], seen.values[first, 0], seen.like)
    if country is not None:
        return (
            f"{text}days of holidays stand out, as those of {country!r} do: "
            f"holidays={country!r} of StructuralForecaster names them"
        )
    return f"{text}more history, or X for what drives y, may help"


def _changes(
    best: str,
    seasons: dict[str, float],
    settings: dict[str, object],
    history: History,
    parts: pd.DataFrame,
) -> list[tuple[str, object]]:
    """Return names and values of settings that may help, the likeliest first.

    A forecaster that has no such parameters in its ``settings`` has none of them.
    """
    if "seasons" not in settings:
        return []
    like = history.observations.like
    found = _found_seasons(seasons, parts, like)
    names = set(parts.index.get_level_values("part"))
    changes: list[tuple[str, object]] = []
    repeated = _repeated(best, seasons)
    if not {*repeated} <= {*found}:
        every = sorted({*found, *repeated})
        changes.append(("seasons", [_as_given(period, like) for period in every]))
    if settings["logarithm"] == "auto" and (parts["link"] != "identity").any():
        changes.append(("logarithm", False))
    if settings["bounds"] is None and (bounds := _bounds_shown(history)) is not None:
        changes.append(("bounds", bounds))
    is_seasonal = any(name.startswith(("season", "day")) for name in names)
    if not repeated and is_seasonal and settings["seasons"] is not None:
        changes.append(("seasons", None))
    return changes


def _repeated(best: str, seasons: dict[str, float]) -> list[float]:
    """Return the seasons of a method, and those of others that divide them."""
    if best not in seasons:
        return []
    # whatever divides a period repeats after it too, as days do after a week
    period = seasons[best]
    return [p for p in seasons.values() if abs(period / p % 1) < _WHOLE]


def _found_seasons(
    seasons: dict[str, float], parts: pd.DataFrame, like: pd.Index
) -> list[float]:
    """Return which of the methods' seasons a model has found."""
    names = set(parts.index.get_level_values("part"))
    # seasons that parts of other names hold: the shape of a day, and kinds of days
    kinds = {name for name in names if name.startswith("day of ")}
    day = DAY / (tick_length(like) or np.inf)
    shapes = {day: bool(kinds) or "day" in names, 7 * day: bool(kinds)}
    return [
        period
        for period in {*seasons.values()}
        if f"season of {length_of_time(period, like)}" in names or shapes.get(period)
    ]


def _bounds_shown(history: History) -> tuple[float | None, float | None] | None:
    """Return an end at which many values of a lone column lie; None: there is none."""
    values = history.observations.values
    if values.shape[1] > 1:
        return None
    ends, n_values = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(ends) < 3:
        return None
    fewest = max(_AT_END * n_values.sum(), _FEWEST_AT_END)
    # of rounded values an end is not as frequent beside the next one
    is_low, is_high = (
        n_values[end] >= max(fewest, 2 * n_values[beside])
        for end, beside in ((0, 1), (-1, -2))
    )
    least = ends[0]
    # zero is a bound by itself, and stays one beside another
    low = float(least) if least == 0 or is_low else None
    high = float(ends[-1]) if is_high else None
    return None if high is None and not low else (low, high)


def _as_given(period: float, like: pd.Index) -> str | float:
    """Return a season as the parameter ``seasons`` takes it."""
    if isinstance(like, pd.PeriodIndex):
        return float(f"{period / like.freq.n:.7g}")
    if not isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex):
        return float(f"{period:.7g}")
    unit, name = (DAY, "D") if period >= DAY else (10**9, "s")
    return f"{period / unit:.7g}{name}"
