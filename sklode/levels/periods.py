"""Seasons that a series may have: the clock's, and a periodogram's."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.ticks import DAY
from sklode.levels.table import power_of_two

_CLOCK = (DAY, 7 * DAY, 365.2425 * DAY)
# A season has so many stamps a period, and periods in the longest series
_STAMPS, _CYCLES = 3.5, 1.1
_PEAKS = 2
_FEWEST_ROWS, _MOST_ROWS = 24, 1000  # that a periodogram reads: the last ones
_MOST_FREQUENCIES = 30_000  # rows fill a span too sparsely beyond
_PEAK_CYCLES = 2.5
_OVERSAMPLING = 4
_ROUND = 0.002  # a period that near to a whole number of index steps is one


def clock_periods(observations: Observations, unit: float, span: float) -> list[float]:
    """Return day, week and year as far as gaps and spans show them, in ticks."""
    like = observations.like
    tick = 1.0
    if isinstance(like, pd.PeriodIndex):
        ends = pd.PeriodIndex.from_ordinals([0, 100], freq=like.freq).to_timestamp()
        tick = (ends[1] - ends[0]).total_seconds() * 1e9 / 100
    elif not isinstance(like, pd.DatetimeIndex):
        return []
    periods = [_rounded(period / tick) for period in _CLOCK]
    return [p for p in periods if _STAMPS * unit <= p and _CYCLES * p <= span]


def _rounded(period: float) -> float:
    whole = round(period)
    return float(whole) if abs(period - whole) < _ROUND * period < 0.5 else period


def peaks(times: Array, values: Array, unit: float) -> list[float]:
    """Return periods whose waves stand out of the frequencies beside them.

    Noise alone would have one as high in a thousand series. Lomb and Scargle; Press et
    al., "Numerical Recipes" (2007), section 13.8.
    """
    if len(times) < _FEWEST_ROWS:
        return []
    times, values = times[-_MOST_ROWS:], values[-_MOST_ROWS:]
    span = times[-1] - times[0]
    if span == 0:
        return []
    lowest, highest = _PEAK_CYCLES / span, 1 / (2.2 * unit)
    n = int((highest - lowest) * span * _OVERSAMPLING)
    if not 8 * _OVERSAMPLING <= n <= _MOST_FREQUENCIES:
        return []
    from scipy.signal import lombscargle  # imports need not wait

    frequencies = np.linspace(lowest, highest, n)
    values = values / power_of_two(values)
    values = values - np.median(values)
    width = 8 * np.median(np.abs(values)) or np.inf
    values = np.clip(values, -width, width)
    found: list[float] = []
    line = np.column_stack([np.ones(len(times)), times - times[0]])
    for _ in range(_PEAKS):
        waves = [line]
        for period in found:
            angles = 2 * math.pi * times[:, None] / period * np.arange(1, 4)
            waves += [np.cos(angles), np.sin(angles)]
        design = np.hstack(waves)
        rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        power = lombscargle(times, rest, 2 * math.pi * frequencies)
        place = int(power.argmax())
        beside = slice(max(place - 60, 0), place + 61)
        needed = (math.log(n) + 7) / math.log(2)
        if not power[place] > needed * np.median(power[beside]):
            break
        near = frequencies[max(place - 1, 0)], frequencies[min(place + 1, n - 1)]

        def depth(f: float, rest: Array = rest) -> float:
            return -lombscargle(times, rest, np.array([2 * math.pi * f])).item()

        given = {"bounds": near, "options": {"xatol": 1e-6 * near[0]}}
        best = minimize_scalar(depth, method="bounded", **given)
        found.append(1 / float(best.x))
    return found
