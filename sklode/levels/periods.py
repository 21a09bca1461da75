"""Seasons that a series may have: the clock's, and a periodogram's."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.fft import next_fast_len
from scipy.optimize import minimize_scalar

from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.ticks import DAY
from sklode.levels.table import power_of_two

_CLOCK = (DAY, 7 * DAY, 365.2425 * DAY)
# A season has so many stamps a period, and periods in the longest series
_STAMPS, _CYCLES = 3.5, 1.1
_PEAKS = 6
# that a periodogram reads: the last ones
_FEWEST_ROWS, _LAST_ROWS, _MOST_ROWS = 24, 1000, 20_000
_SPARSEST = 16.0  # times the span that rows would fill at the usual gap
_STAMPS_A_WAVE = 12  # of the grid that rows are put on
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
    al., "Numerical Recipes" (2007), section 13.8. All rows tell near periods apart; the
    last ones alone tell those that drift.
    """
    for rows in (_MOST_ROWS, _LAST_ROWS):
        found = _peaks(times[-rows:], values[-rows:], unit)
        if found or len(times) <= _LAST_ROWS:
            return found
    return []


def _peaks(times: Array, values: Array, unit: float) -> list[float]:
    span = float(times[-1] - times[0]) if len(times) >= _FEWEST_ROWS else 0.0
    # rows fill a longer span too sparsely
    if not 0 < span <= _SPARSEST * unit * len(times):
        return []
    step = 1 / (_OVERSAMPLING * span)
    frequencies = np.arange(_PEAK_CYCLES / span, 1 / (2.2 * unit), step)
    n = len(frequencies)
    if n < 8 * _OVERSAMPLING:
        return []
    values = values / power_of_two(values)
    values = values - np.median(values)
    width = 8 * np.median(np.abs(values)) or np.inf
    values = np.clip(values, -width, width)
    from scipy.ndimage import median_filter  # imports need not wait

    found: list[float] = []
    while len(found) < _PEAKS:
        power = _powers(times, _rest(times, values, found), frequencies)
        # out of what is usual beside it, were that flat or a random walk's
        ratio = np.full(n, np.inf)
        for shaped in (power, power * frequencies**2):
            usual = median_filter(shaped, _BESIDE, mode="reflect")
            ratio = np.minimum(ratio, shaped / np.maximum(usual, 1e-300))
        place = int(ratio.argmax())
        needed = (math.log(n) + 7) / math.log(2)
        is_new = all(abs(frequencies[place] - 1 / p) > _APART / span for p in found)
        if not is_new or not ratio[place] > needed:
            break
        found.append(1 / float(frequencies[place]))
        _sharpen(times, values, found, reach=step)
    return found


def _sharpen(times: Array, values: Array, found: list[float], reach: float) -> None:
    """Move periods, given the others, to the most power so near in frequency."""
    for k in [*range(len(found))][::-1] * (1 + (len(found) > 1)):
        rest = _rest(times, values, found[:k] + found[k + 1 :])

        def left(f: float, rest: Array = rest) -> float:
            return float((_rest(times, rest, [1 / f], harmonics=1) ** 2).sum())

        near = 1 / found[k] - reach, 1 / found[k] + reach
        best = minimize_scalar(
            left, bounds=near, method="bounded", options={"xatol": 1e-3 * reach}
        )
        found[k] = 1 / float(best.x)


def _rest(times: Array, values: Array, known: list[float], harmonics: int = 3) -> Array:
    """Return what a line and waves of known periods leave."""
    waves = [np.column_stack([np.ones(len(times)), times - times[0]])]
    for period in known:
        angles = 2 * math.pi * times[:, None] / period * np.arange(1, harmonics + 1)
        waves += [np.cos(angles), np.sin(angles)]
    design = np.hstack(waves)
    rest: Array = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return rest


def _powers(times: Array, values: Array, frequencies: Array) -> Array:
    """Return the power at frequencies of one step, from a fast Fourier transform.

    Rows count at the nearest of a grid's stamps, so fine that no wave of interest
    turns by more than a twelfth from one to the next.
    """
    start, step = frequencies[0], frequencies[1] - frequencies[0]
    n_stamps = next_fast_len(math.ceil(_STAMPS_A_WAVE * frequencies[-1] / step))
    place = np.round((times - times[0]) * step * n_stamps).astype(np.int64)
    # the grid begins at the lowest frequency
    turned = values * np.exp(-2j * math.pi * start * (times - times[0]))
    sums = np.bincount(place, turned.real, n_stamps).astype(complex)
    sums.imag = np.bincount(place, turned.imag, n_stamps)
    power: Array = np.abs(np.fft.fft(sums)[: len(frequencies)]) ** 2
    return power
