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
_PEAKS = 6
_FEWEST_ROWS, _MOST_ROWS = 24, 1000  # that a periodogram reads: the last ones
_MOST_SHARPENED = 16_000  # that sharpen what it finds
_MOST_FREQUENCIES = 30_000  # rows fill a span too sparsely beyond
_PEAK_CYCLES = 2.5
_OVERSAMPLING = 4
_BESIDE = 121  # frequencies whose median is the usual power: 15 waves to each side
_APART = 0.75  # cycles in the span, of two peaks
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
    values = values / power_of_two(values)
    values = values - np.median(values[-_MOST_ROWS:])
    width = 8 * np.median(np.abs(values[-_MOST_ROWS:])) or np.inf
    every = times, np.clip(values, -width, width)
    times, values = (column[-_MOST_ROWS:] for column in every)
    span = times[-1] - times[0]
    if span == 0:
        return []
    lowest, highest = _PEAK_CYCLES / span, 1 / (2.2 * unit)
    n = int((highest - lowest) * span * _OVERSAMPLING)
    if not 8 * _OVERSAMPLING <= n <= _MOST_FREQUENCIES:
        return []
    from scipy.ndimage import median_filter  # imports need not wait

    frequencies = np.linspace(lowest, highest, n)
    found: list[float] = []
    for _ in range(_PEAKS):
        power = _powers(times, _rest(times, values, found), frequencies)
        # out of what is usual beside it, were that flat or that of a random walk
        ratio = np.minimum(
            *(
                shaped / median_filter(shaped, _BESIDE, mode="nearest")
                for shaped in (power, power * frequencies**2)
            )
        )
        place = int(ratio.argmax())
        needed = (math.log(n) + 7) / math.log(2)
        is_new = all(abs(frequencies[place] - 1 / p) > _APART / span for p in found)
        if not is_new or not ratio[place] > needed:
            break
        found.append(1 / frequencies[place])
        _sharpen(times, values, found, 1 / (_OVERSAMPLING * span))
    # more rows tell nearer periods apart
    rows = _MOST_ROWS
    while found and rows < min(len(every[0]), _MOST_SHARPENED):
        reach, rows = 0.5 / (every[0][-1] - every[0][-rows]), 4 * rows
        _sharpen(*(column[-rows:] for column in every), found, reach)
    return found


def _sharpen(times: Array, values: Array, found: list[float], reach: float) -> None:
    """Move periods, given the others, to the most power so near in frequency."""
    for k in [*range(len(found))][::-1] * (1 + (len(found) > 1)):
        rest = _rest(times, values, found[:k] + found[k + 1 :])
        near = 1 / found[k] + reach * np.linspace(-1, 1, 17)
        place = int(_powers(times, rest, near).argmax())
        pair = near[max(place - 1, 0)], near[min(place + 1, 16)]

        def depth(f: float, rest: Array = rest) -> float:
            return -_powers(times, rest, np.array([f])).item()

        given = {"bounds": pair, "options": {"xatol": 1e-6 * pair[0]}}
        found[k] = 1 / float(minimize_scalar(depth, method="bounded", **given).x)


def _rest(times: Array, values: Array, known: list[float]) -> Array:
    """Return what a line and waves of known periods leave."""
    waves = [np.column_stack([np.ones(len(times)), times - times[0]])]
    for period in known:
        angles = 2 * math.pi * times[:, None] / period * np.arange(1, 4)
        waves += [np.cos(angles), np.sin(angles)]
    design = np.hstack(waves)
    rest: Array = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return rest


def _powers(times: Array, values: Array, frequencies: Array) -> Array:
    from scipy.signal import lombscargle  # imports need not wait

    power: Array = lombscargle(times, values, 2 * math.pi * frequencies)
    return power
