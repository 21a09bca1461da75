"""Seasons that a series may have: the clock's, and a periodogram's."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.fft import next_fast_len
from scipy.optimize import minimize_scalar

from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.ticks import DAY
from sklode.structural.channel_rows import ChannelRows, power_of_two

_CLOCK = (DAY, 7 * DAY, 365.2425 * DAY)
# A season has so many stamps a period, and periods in the longest series
_STAMPS, _CYCLES = 3.5, 1.1
_PEAKS = 6
# that a periodogram reads: the last ones
_FEWEST_ROWS, _LAST_ROWS, _MOST_ROWS = 24, 1000, 20_000
_SPARSEST = 16.0  # times the span that rows would fill at the usual gap
_STAMPS_A_WAVE = 16  # of the grid that rows are put on
_PEAK_CYCLES = 2.5
_OVERSAMPLING = 4
_BESIDE = 121  # frequencies whose median is the usual power: 15 waves to each side
_LEAST_CYCLES = 0.75  # in the span, by which two peaks differ
# cycles in the span that tell a period from a wave of a clock's season: a quarter, and
# up to six times that of higher waves. Of fewer than eight cycles of the season the
# first waves alone are asked: without that, windows of Beijing's air lost 7 %
_FROM_CLOCK, _FARTHEST, _WAVES = 0.25, 6, 84
_MANY_CYCLES, _FEW_WAVES = 8, 12
_MOST_SHOWN = 8  # series of a panel that may show periods, the longest first
_MOST_DAYS = 10  # of what stands for a week
_SHORT = 12.0  # usual gaps: seasons up to that length are no surprise
# a wave of more than this share of the squares is one, whatever is beside it; half of
# a wave's squares are its power
_MOST_LEFT = 0.5
_TRACE = 1e-4  # share of all squares, which last digits of periods may leave
_FAR_LESS = (
    0.1  # squares that are left, where a period is not another; see `are_others`
)
_ROUND = 0.002  # a period that near to a whole number of index steps is one


class Seasons(NamedTuple):
    """Periods that a channel may have, in units of time."""

    told: tuple[float, ...]  # which it has
    clock: dict[float, float]  # the clock's, with log odds against them
    others: dict[float, float]  # those that stand out, likewise

    @property
    def log_odds(self) -> dict[float, float]:
        """What each one takes off the log probability of a form."""
        return dict.fromkeys(self.told, 0.0) | self.clock | self.others


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
    """Return a whole number of index steps where a period is all but one."""
    whole = round(period)
    return float(whole) if abs(period - whole) < _ROUND * period < 0.5 else period


def peaks(times: Array, values: Array, errors: Array, unit: float) -> list[float]:
    """Return periods whose waves stand out of the frequencies beside them.

    Rows count by their ``errors`` of measurement, and by what they have in common.
    Noise alone would have one as high in a thousand series. Lomb and Scargle; Press et
    al., "Numerical Recipes" (2007), section 13.8. All rows tell near periods apart; the
    last ones alone tell those that drift.
    """
    for rows in (_MOST_ROWS, _LAST_ROWS):
        last = slice(-rows, None)
        found = _peaks(times[last], values[last], _weights(errors[last]), unit)
        if found or len(times) <= _LAST_ROWS:
            return found
    return []


def _weights(errors: Array) -> Array:
    """Return how much rows count, one on average; their noise is unknown."""
    usual = np.median(errors) or 1.0
    weights: Array = 1 / (1 + (errors / usual) ** 2)
    return weights / weights.mean()


def _peaks(times: Array, values: Array, weights: Array, unit: float) -> list[float]:
    """Return periods of waves that stand out, the strongest first."""
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
    # power of noise is exponential, of median log 2: out of n frequencies one exceeds
    # (log n + 7) / log 2 medians by a chance of exp(-7), one in a thousand
    needed = (math.log(n) + 7) / math.log(2)
    found: list[float] = []
    total = 0.0
    while len(found) < _PEAKS:
        rest = _rest(times, values, weights, found)
        power = _powers(times, rest, weights, frequencies)
        ratio = power / np.maximum(_medians(power), 1e-300)
        # one that takes most of what is left is a wave, whatever is beside it: clean
        # waves have each other's power there
        place, whole = int(power.argmax()), float((weights * rest**2).sum())
        total = total or whole
        if whole < _TRACE * total:  # what periods' last digits leave
            break
        if power[place] < 0.5 * _MOST_LEFT * whole:
            place = int(ratio.argmax())
            # what a random walk leaves at low frequencies is no wave
            while needed < ratio[place] <= needed * _slant(power, frequencies, place):
                ratio[place] = 0.0
                place = int(ratio.argmax())
        is_new = all(
            abs(frequencies[place] - 1 / p) > _LEAST_CYCLES / span for p in found
        )
        if not is_new or not ratio[place] > needed:
            break
        found.append(1 / float(frequencies[place]))
        _sharpen(times, values, weights, found, reach=step)
    return found


def cycle_of(
    seasons: tuple[float, ...], calendar: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the day and the week among seasons, or what may stand for them.

    That is a season of which another one has a few whole ones.
    """
    if calendar is not None and {*calendar} <= {*seasons}:
        return calendar
    pairs = [
        (short, long)
        for short in seasons
        for long in seasons
        if short.is_integer() and 2 <= long / short <= _MOST_DAYS and not long % short
    ]
    return min(pairs, default=None)


def seasons_of(table: ChannelRows, periods: list[float], gap: float) -> Seasons:
    """Return the seasons that a channel may have: the clock's ``periods``, and others.

    All are in units of time; ``gap`` is the usual one.
    """
    # long ones, of many harmonics, must be more probable than short ones
    clock = {p: math.log(max(p / (_SHORT * gap), 1.0)) for p in periods}
    return Seasons(told=(), clock=clock, others=_other_periods(table, periods, gap))


def _other_periods(
    table: ChannelRows, clock: list[float], gap: float
) -> dict[float, float]:
    """Return periods of no clock that a long series shows, with log odds."""
    found: list[float] = []
    for series in np.argsort(-table.lengths, kind="stable")[:_MOST_SHOWN].tolist():
        longest = table.alone(series)
        stamps = longest.times + longest.inputs[:, 0]  # on the clock on the wall
        found = peaks(stamps, longest.values, longest.errors, gap)
        if found:
            break
    span = max(float(np.ptp(longest.times)), 1.0)
    # out of as many frequencies as pairs of rows
    log_odds = math.log(max(len(longest.times), 2) / 2)

    # a season that changes has power beside its waves: the higher these, the farther;
    # in a few cycles its many waves leave no room for others
    least: dict[float, float] = {}  # cycles from each wave of a clock's season
    for own in sorted(clock):
        many = span / own / _MANY_CYCLES
        for k in range(1, (_WAVES if many >= 1 else _FEW_WAVES) + 1):
            distance = _FROM_CLOCK * max(min(k, _FARTHEST, many), 1.0)
            least.setdefault(round(k * span / own, 6), distance)
    cycles, distances = np.array([*least]), np.array([*least.values()])
    return {
        period: log_odds
        for number, period in enumerate(found)
        if are_others(
            stamps,
            longest.values,
            longest.errors,
            found=found,
            number=number,
            periods=span / cycles[np.abs(span / period - cycles) < distances],
        )
    }


def are_others(
    times: Array,
    values: Array,
    errors: Array,
    found: list[float],
    number: int,
    periods: Array,
) -> bool:
    """Return whether one of the found periods is none of these.

    The waves of all found ones then leave far smaller squares than with another in its
    place: those of a season that changes leave about the same.
    """
    last = slice(-_MOST_ROWS, None)  # as of `peaks`
    times, values, weights = times[last], values[last], _weights(errors[last])

    def left(known: list[float]) -> float:
        return float((weights * _rest(times, values, weights, known) ** 2).sum())

    before, after = found[:number], found[number + 1 :]
    others = periods.tolist()
    return not others or left(found) < _FAR_LESS * min(
        left([*before, period, *after]) for period in others
    )


def _medians(power: Array) -> Array:
    """Return the median power of frequencies beside each one, fewer at the ends."""
    from scipy.ndimage import median_filter  # imports need not wait

    found: Array = median_filter(power, _BESIDE)
    n, half = len(power), _BESIDE // 2
    for k in {*range(min(half, n)), *range(max(n - half, 0), n)}:
        found[k] = np.median(power[max(k - half, 0) : k + half + 1])
    return found


def _slant(power: Array, frequencies: Array, place: int) -> float:
    """Return by how much usual power at a place exceeds the median beside it.

    As in a random walk, it may fall with a power of the frequency, up to the second:
    a line through logarithms, but those of a wave at the place itself.
    """
    beside = np.arange(max(place - _BESIDE // 2, 0), place + _BESIDE // 2 + 1)
    beside = beside[beside < len(power)]
    beside = beside[np.abs(beside - place) > 2 * _OVERSAMPLING]
    logs = np.log(frequencies[beside]) - math.log(frequencies[place])
    fall = np.polyfit(logs, np.log(np.maximum(power[beside], 1e-300)), 1)[0]
    # logarithms of an exponential power have the deviation pi / sqrt(6) = 1.28, and a
    # slope that over the root of the number of frequencies that share nothing; the fall
    # counts as far as it is no chance
    n_own = max(len(beside) / _OVERSAMPLING, 1.0)
    fall += 1.28 / (math.sqrt(n_own) * logs.std())
    return float(np.exp(np.clip(fall, -2.0, 0.0) * -np.median(logs)))


def _sharpen(
    times: Array, values: Array, weights: Array, found: list[float], reach: float
) -> None:
    """Move periods, given the others, to the most power so near in frequency."""
    # those of a lone wave tell of it too; of several they may be taken for others
    overtones = 3 if len(found) == 1 else 1
    for k in [*range(len(found))][::-1] * (1 + (len(found) > 1)):
        rest = _rest(times, values, weights, found[:k] + found[k + 1 :])

        def left(f: float, rest: Array = rest) -> float:
            left = _rest(times, rest, weights, [1 / f], harmonics=overtones)
            return float((weights * left**2).sum())

        near = 1 / found[k] - reach, 1 / found[k] + reach
        best = minimize_scalar(
            left, bounds=near, method="bounded", options={"xatol": 1e-3 * reach}
        )
        found[k] = 1 / float(best.x)


def _rest(
    times: Array,
    values: Array,
    weights: Array,
    known: list[float],
    harmonics: int = 3,
) -> Array:
    """Return what a line and waves of known periods leave."""
    waves = [np.column_stack([np.ones(len(times)), times - times[0]])]
    for period in known:
        angles = 2 * math.pi * times[:, None] / period * np.arange(1, harmonics + 1)
        waves += [np.cos(angles), np.sin(angles)]
    design = np.hstack(waves)
    root = np.sqrt(weights)
    told = np.linalg.lstsq(design * root[:, None], values * root, rcond=None)
    rest: Array = values - design @ told[0]
    return rest


def _powers(times: Array, values: Array, weights: Array, frequencies: Array) -> Array:
    """Return Lomb and Scargle's power at frequencies of one step.

    From two fast Fourier transforms, after Press and Rybicki, "Fast Algorithm for
    Spectral Analysis of Unevenly Sampled Data" (1989); but rows count at the nearest
    stamp of a grid, so fine that no wave turns by much from one to the next.
    """
    passed = times - times[0]
    start, step = frequencies[0], frequencies[1] - frequencies[0]

    def sums(weights: Array, times_f: int) -> Array:
        n_stamps = next_fast_len(math.ceil(_STAMPS_A_WAVE * frequencies[-1] / step))
        place = np.round(passed * step * times_f * n_stamps).astype(np.int64) % n_stamps
        # the transform begins at the lowest frequency
        turned = weights * np.exp(-2j * math.pi * times_f * start * passed)
        grid = np.bincount(place, turned.real, n_stamps).astype(complex)
        grid.imag = np.bincount(place, turned.imag, n_stamps)
        return np.asarray(np.fft.fft(grid)[: len(frequencies)])

    double = sums(weights, 2)
    # where cosine and sine have nothing in common
    turned = sums(weights * values, 1) * np.exp(-0.5j * np.angle(double))
    n, both = len(times), np.abs(double)
    power: Array = turned.real**2 / (n + both)
    power += turned.imag**2 / np.maximum(n - both, 1e-6 * n)
    return power
