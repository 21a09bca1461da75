"""Seasons that a series may have: the calendar's, and a periodogram's.

Which of them a model takes is found in `search`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.fft import next_fast_len
from scipy.optimize import minimize_scalar

from sklode.data.arrays import Array
from sklode.data.observations import Observations
from sklode.data.ticks import DAY, WEEK, YEAR, tick_length
from sklode.structural.rows import ChannelRows, power_of_two

_CALENDAR = DAY, WEEK, YEAR
# a season has so many stamps a period, and periods in the longest series
_STAMPS, _CYCLES = 3.5, 1.1
_PEAKS = 6
# that a periodogram reads: the last ones
_FEWEST_ROWS, _LAST_ROWS, _MOST_ROWS = 24, 1000, 20_000
_SPARSEST = 16.0  # times the span that rows would fill at the usual gap
_STAMPS_A_WAVE = 16  # of the grid that rows are put on
_PEAK_CYCLES = 2.5
_OVERSAMPLING = 4
# frequencies whose median is the usual power: 15 waves to each side
_BESIDE = 121
_LEAST_CYCLES = 0.75  # in the span, by which two peaks differ
# A period is none of a calendar's season if it differs by so many cycles
# in the span from each of its waves: a quarter from the first, twice as
# many from the second, up to six times. The first 84 waves are asked,
# of a week those down to two hours; of fewer than eight cycles of the season, the
# first twelve: without that, windows of Beijing's air lost 7 %
_FROM_CALENDAR, _FARTHEST, _WAVES = 0.25, 6, 84
_MANY_CYCLES, _FEW_WAVES = 8, 12
# series of a panel that may show periods, the longest first
_MOST_SHOWN = 8
_MOST_DAYS = 10  # of what stands for a week
_SHORT = 12.0  # usual gaps: seasons up to that length are no surprise
# a wave of more than this share of the
# squares is one, whatever is beside it
_MOST_LEFT = 0.5
# share of all squares, which last digits of periods may leave
_TRACE = 1e-4
# squares that are left, where a period is not another; see `_is_other`
_FAR_LESS = 0.1
# a period that near to a whole number of index steps is one
_ROUND = 0.002


class Seasons(NamedTuple):
    """Periods that a column may have, in units of time."""

    named: tuple[float, ...]  # by the user: it has these
    calendar: dict[float, float]  # day, week and year, with log odds against them
    others: dict[float, float]  # those that stand out, likewise

    @property
    def log_odds(self) -> dict[float, float]:
        """What each one takes off the log probability of a form."""
        return dict.fromkeys(self.named, 0.0) | self.calendar | self.others


def calendar_periods(
    observations: Observations, unit: float, span: float
) -> list[float]:
    """Return day, week and year as far as gaps and spans show them, in ticks."""
    tick = tick_length(observations.like)
    if tick is None:
        return []
    periods = [rounded(period / tick) for period in _CALENDAR]
    return [p for p in periods if _STAMPS * unit <= p and _CYCLES * p <= span]


def rounded(period: float) -> float:
    """Return a whole number of index steps where a period is all but one."""
    whole = round(period)
    is_near = abs(period - whole) < _ROUND * period < 0.5
    return float(whole) if is_near else period


class _Sample(NamedTuple):
    """Rows that a periodogram reads."""

    times: Array
    values: Array
    weights: Array  # how much rows count, one on average

    @classmethod
    def last(cls, times: Array, values: Array, errors: Array, most: int) -> _Sample:
        """Return the last rows, which count by their errors of measurement."""
        times, values = times[-most:], values[-most:]
        errors = errors[-most:]
        # their noise is unknown, and taken for the usual
        # error: weights are inverse variances of both
        usual = np.median(errors) or 1.0
        weights = 1 / (1 + (errors / usual) ** 2)
        return cls(times, values, weights / weights.mean())

    def rest(self, periods: list[float], harmonics: int = 3) -> Array:
        """Return what a line and waves of known periods leave."""
        times, values = self.times, self.values
        columns = [np.column_stack([np.ones(len(times)), times - times[0]])]
        for period in periods:
            once = 2 * math.pi * times[:, None] / period
            angles = once * np.arange(1, harmonics + 1)
            columns += [np.cos(angles), np.sin(angles)]
        design = np.hstack(columns)
        # weighted least squares: rows times the roots of their weights
        root = np.sqrt(self.weights)
        coefficients, *_ = np.linalg.lstsq(
            design * root[:, None], values * root, rcond=None
        )
        rest: Array = values - design @ coefficients
        return rest

    @property
    def squares(self) -> float:
        """The sum of squares, as rows count."""
        return float((self.weights * self.values**2).sum())

    def left(self, periods: list[float], harmonics: int = 3) -> float:
        """Return the squares that waves of known periods leave."""
        rest = self.rest(periods, harmonics)
        return self._replace(values=rest).squares


def peaks(times: Array, values: Array, errors: Array, unit: float) -> list[float]:
    """Return periods whose waves stand out of the frequencies beside them.

    Rows count by their ``errors`` of measurement, and by what they have in common.
    Noise alone would have one as high in a thousand series. Lomb and Scargle; Press et
    al., "Numerical Recipes" (2007), section 13.8. All rows tell near periods apart; the
    last ones alone tell those that drift.
    """
    for most in (_MOST_ROWS, _LAST_ROWS):
        found = _peaks(_Sample.last(times, values, errors, most), unit)
        if found or len(times) <= _LAST_ROWS:
            return found
    return []


def _peaks(sample: _Sample, unit: float) -> list[float]:
    """Return periods of waves that stand out, the strongest first."""
    times, values = sample.times, sample.values
    span = float(times[-1] - times[0]) if len(times) >= _FEWEST_ROWS else 0.0
    # rows fill a longer span too sparsely
    if not 0 < span <= _SPARSEST * unit * len(times):
        return []
    # waves that differ by a cycle in the span are
    # told apart (Rayleigh); up to the frequency of
    # two stamps a wave (Nyquist), but for some room
    step = 1 / (_OVERSAMPLING * span)
    frequencies = np.arange(_PEAK_CYCLES / span, 1 / (2.2 * unit), step)
    if len(frequencies) < 8 * _OVERSAMPLING:
        return []
    # over a power of two no digit is lost,
    # and squares stay in a float's range
    values = values / power_of_two(values)
    values = values - np.median(values)
    width = 8 * np.median(np.abs(values)) or np.inf
    sample = sample._replace(values=np.clip(values, -width, width))
    found: list[float] = []
    total = sample.left([])
    while len(found) < _PEAKS:
        rest = sample._replace(values=sample.rest(found))
        if rest.squares < _TRACE * total:  # what periods' last digits leave
            break
        new = _standing_out(rest, frequencies)
        if new is None:
            break
        distances = [abs(new - 1 / period) for period in found]
        if min(distances, default=np.inf) <= _LEAST_CYCLES / span:
            break
        found.append(1 / new)
        _sharpen(sample, found, reach=step)
    return found


def _standing_out(sample: _Sample, frequencies: Array) -> float | None:
    """Return the frequency whose wave stands out most; None: none does."""
    # power of noise is exponential, of median log 2: out
    # of n frequencies one exceeds (log n + 7) / log 2
    # medians by a chance of exp(-7), one in a thousand
    needed = (math.log(len(frequencies)) + 7) / math.log(2)
    power = _powers(sample, frequencies)
    ratio = power / np.maximum(_medians(power), 1e-300)
    # one that takes most of what is left is a wave,
    # whatever is beside it: clean waves have each other's
    # power there. Half of a wave's squares are its power
    place = int(power.argmax())
    if power[place] < 0.5 * _MOST_LEFT * sample.squares:
        place = int(ratio.argmax())
        # what a random walk leaves at low frequencies is no wave
        while ratio[place] > needed:
            if ratio[place] > needed * _slant(power, frequencies, place):
                break
            ratio[place] = 0.0
            place = int(ratio.argmax())
    return float(frequencies[place]) if ratio[place] > needed else None


def cycle_of(
    seasons: tuple[float, ...], calendar: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return day and week, where the day is among seasons, or what stands for them.

    That is a season of which another one has a few whole ones.
    """
    if calendar is not None and calendar[0] in seasons:
        return calendar
    pairs = [
        (short, long)
        for short in seasons
        for long in seasons
        if short.is_integer() and 2 <= long / short <= _MOST_DAYS and not long % short
    ]
    return min(pairs, default=None)


def seasons_of(table: ChannelRows, periods: list[float], gap: float) -> Seasons:
    """Return seasons that a column may have: the calendar's ``periods``, and others.

    All are in units of time; ``gap`` is the usual one.
    """
    # long ones, of many harmonics, must be more probable than short ones
    short = _SHORT * gap
    calendar = {period: math.log(max(period / short, 1.0)) for period in periods}
    others = _other_periods(table, periods, gap)
    return Seasons(named=(), calendar=calendar, others=others)


def _other_periods(
    table: ChannelRows, calendar: list[float], gap: float
) -> dict[float, float]:
    """Return periods that a long series shows beside the calendar's, with log odds."""
    found: list[float] = []
    longest_first = np.argsort(-table.lengths, kind="stable")[:_MOST_SHOWN]
    # of a series that lacks the column nothing is shown
    for series in longest_first[table.lengths[longest_first] > 0].tolist():
        rows = table.alone(series)
        # on the clock on the wall
        stamps = rows.clock
        found = peaks(stamps, rows.values, rows.errors, gap)
        if found:
            break
    span = max(float(np.ptp(rows.times)), 1.0)
    # out of as many frequencies as pairs of rows
    log_odds = math.log(max(len(rows.times), 2) / 2)
    cycles, distances = _waves_of(calendar, span)
    sample = _Sample.last(stamps, rows.values, rows.errors, most=_MOST_ROWS)
    others = {}
    for number, period in enumerate(found):
        is_near = np.abs(span / period - cycles) < distances
        near = (span / cycles[is_near]).tolist()
        if _is_other(sample, found, number, near):
            others[period] = log_odds
    return others


def _waves_of(calendar: list[float], span: float) -> tuple[Array, Array]:
    """Return cycles in the span of waves of the calendar's seasons, and distances.

    Periods that are less cycles from one may be that wave.
    """
    # a season that changes has power beside its waves: the higher these,
    # the farther; in a few cycles its many waves leave no room for others
    least: dict[float, float] = {}
    for period in sorted(calendar):
        many = span / period / _MANY_CYCLES
        n_waves = _WAVES if many >= 1 else _FEW_WAVES
        for k in range(1, n_waves + 1):
            distance = _FROM_CALENDAR * max(min(k, _FARTHEST, many), 1.0)
            # a wave that seasons share is that
            # of the shortest of them, its lowest
            least.setdefault(round(k * span / period, 6), distance)
    return np.array([*least]), np.array([*least.values()])


def _is_other(
    sample: _Sample, found: list[float], number: int, periods: list[float]
) -> bool:
    """Return whether one of the found periods is none of these.

    The waves of all found ones then leave far smaller squares than with another in its
    place: those of a season that changes leave about the same.
    """
    if not periods:
        return True
    before, after = found[:number], found[number + 1 :]
    least = min(sample.left([*before, period, *after]) for period in periods)
    return sample.left(found) < _FAR_LESS * least


def _medians(power: Array) -> Array:
    """Return the median power of frequencies beside each one, fewer at the ends."""
    beside = pd.Series(power).rolling(_BESIDE, center=True, min_periods=1)
    return np.asarray(beside.median())


def _slant(power: Array, frequencies: Array, place: int) -> float:
    """Return by how much usual power at a place exceeds the median beside it.

    As in a random walk, it may fall with a power of the frequency, up to the second:
    a line through logarithms, but those of a wave at the place itself.
    """
    first = max(place - _BESIDE // 2, 0)
    end = min(place + _BESIDE // 2 + 1, len(power))
    beside = np.arange(first, end)
    beside = beside[np.abs(beside - place) > 2 * _OVERSAMPLING]
    logs = np.log(frequencies[beside])
    logs -= math.log(frequencies[place])
    log_power = np.log(np.maximum(power[beside], 1e-300))
    fall = np.polyfit(logs, log_power, 1)[0]
    # logarithms of an exponential power have the deviation
    # pi / sqrt(6) = 1.28, and a slope that over the root of the number of
    # frequencies that share nothing; the fall counts as far as it is no
    # chance
    n_own = max(len(beside) / _OVERSAMPLING, 1.0)
    fall += 1.28 / (math.sqrt(n_own) * logs.std())
    fall = np.clip(fall, -2.0, 0.0)
    # on a line that falls, the median power is that of the median frequency
    return float(np.exp(fall * -np.median(logs)))


def _sharpen(sample: _Sample, found: list[float], reach: float) -> None:
    """Move periods, given the others, to the most power so near in frequency."""
    # overtones of a lone wave tell of it too;
    # those of several may be other waves
    overtones = 3 if len(found) == 1 else 1
    # the newest first; several in two turns, as each moves the others
    turns = 1 if len(found) == 1 else 2
    for k in [*reversed(range(len(found)))] * turns:
        rest = sample.rest(found[:k] + found[k + 1 :])
        left_by_others = sample._replace(values=rest)

        def left(frequency: float, rows: _Sample = left_by_others) -> float:
            return rows.left([1 / frequency], harmonics=overtones)

        frequency = 1 / found[k]
        best = minimize_scalar(
            left,
            bounds=(frequency - reach, frequency + reach),
            method="bounded",
            options={"xatol": 1e-3 * reach},
        )
        found[k] = 1 / float(best.x)


def _powers(sample: _Sample, frequencies: Array) -> Array:
    """Return Lomb and Scargle's power at frequencies of one step.

    From two fast Fourier transforms, after Press and Rybicki, "Fast Algorithm for
    Spectral Analysis of Unevenly Sampled Data" (1989); but rows count at the nearest
    stamp of a grid, so fine that no wave turns by much from one to the next.
    """
    passed = sample.times - sample.times[0]
    lowest, step = frequencies[0], frequencies[1] - frequencies[0]
    waves = math.ceil(_STAMPS_A_WAVE * frequencies[-1] / step)
    n_stamps = next_fast_len(waves)

    def sums(weights: Array, times_f: int) -> Array:
        """Return sums of weights times exp(-i angle), at multiples of frequencies."""
        stamp = np.round(passed * step * times_f * n_stamps)
        place = stamp.astype(np.int64) % n_stamps
        # the transform begins at the lowest frequency
        turned = weights * np.exp(-2j * math.pi * times_f * lowest * passed)
        grid = np.bincount(place, turned.real, n_stamps).astype(complex)
        grid.imag = np.bincount(place, turned.imag, n_stamps)
        return np.asarray(np.fft.fft(grid)[: len(frequencies)])

    double = sums(sample.weights, times_f=2)
    # turned by half of that angle, cosine and sine have nothing in
    # common: their squares add up to (n + |double|) / 2 and to
    # (n - |double|) / 2, and power is half of each one's share
    turned = sums(sample.weights * sample.values, times_f=1)
    turned = turned * np.exp(-0.5j * np.angle(double))
    n, both = len(passed), np.abs(double)
    power: Array = turned.real**2 / (n + both)
    power += turned.imag**2 / np.maximum(n - both, 1e-6 * n)
    return power
