"""What a broken sensor wrote: it is left out, or rescaled, with a warning of each kind.

- Lone values so far from all others that nothing of these would be left: a single 1e8
  among values of order one makes their scale 1e7, and to the network, which computes in
  single precision, the others are one and the same number.
- A number such as -999 that stands for missing values.
- Runs of a sensor that is stuck.
- Another unit before some row: watts after kilowatts, Fahrenheit after Celsius.

Each rule would rather let a fault pass than touch a true value.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Hashable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Key, Observations

__all__ = ["cleaned"]

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

_FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""

_RUN = 8
"""Equal values in a row that are a run."""

_UNITS = np.log([10.0, 60.0, 100.0, 1e3, 3600.0, 1e4, 1e5, 1e6, 1e9])
"""Logarithms of the factors between two units of one quantity."""

_FOUND = (
    f"more than {_FACTOR:g} times farther from the median than all others of their "
    "series, next to which these could not be told apart",
    "that repeat one number far beyond all others of their series, as a mark of "
    "missing values does",
    f"that repeat the one before, in runs of {_RUN} or more in series that else hardly "
    "ever do, as of a sensor that is stuck",
    "before a row from which on level and spread are {}, as of another unit",
)


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def cleaned(
    given: Observations,
    channels: list[Hashable],
    seen: Container[Key] = (),
    warned: Mask | bool = False,
) -> tuple[Array, Array]:
    """Return values in the unit at the end of each series; and what is left of them.

    Both (row, channel). Series that were ``seen`` before must not change their unit
    now. There is no warning of values that were ``warned`` of before.
    """
    values, kind = given.values.copy(), np.zeros(given.values.shape, dtype=np.int8)
    change = None  # the first row in another unit, its channel, and how that differs
    for k, channel in product(range(len(given.keys)), range(len(channels))):
        rows = slice(given.bounds[k], given.bounds[k + 1])
        known = rows.start + np.flatnonzero(~np.isnan(values[rows, channel]))
        for rule, found in enumerate((_lone, _sentinels), 1):
            is_found = found(values[known, channel])
            if is_found is not None:
                kind[known[is_found], channel] = rule
                known = known[~is_found]
        unit = _unit(values[known, channel])
        if unit is not None:
            at, scale, shift, how = unit
            change = change or (known[at], channel, how)
            if given.keys[k] in seen:
                raise ValueError(
                    "rows of an update must be in the unit of those before; got "
                    f"values that are {how}, from "
                    f"{given.named(given.ticks[known[at]], given.keys[k])} on in "
                    f"column {channels[channel]!r}. Convert them, or fit anew on all "
                    "rows."
                )
            kind[known[:at], channel] = 4
            values[known[:at], channel] *= scale
            values[known[:at], channel] += shift
        is_stuck = _stuck(values[known, channel])
        if is_stuck is not None:
            kind[known[is_stuck], channel] = 3
    is_left_out = (kind > 0) & (kind < 4)
    for rule, what in enumerate(_FOUND, 1):
        where = np.argwhere((kind == rule) & ~np.asarray(warned))
        if not len(where):
            continue
        row, channel = where[0]
        done, how = "Taken for missing", ""
        if rule == 4 and change is not None:
            row, channel, how = change
            done = "Rescaled to the unit at the end"
        key = given.keys[given.series[row]]
        warnings.warn(
            f"y has {len(where)} value(s) {what.format(how)}; the first is "
            f"{given.values[row, channel]:g} in column {channels[channel]!r} at "
            f"{given.named(given.ticks[row], key)}. {done}. If such values are true, "
            "clean=False keeps them all.",
            UserWarning,
            stacklevel=3,
        )
    return values, np.where(is_left_out, np.nan, values)


def _lone(values: Array) -> Mask | None:
    """Return which values of one channel of one series are outliers, (row,)."""
    n = len(values)
    if n < 8:  # too few to tell which of them are out of line
        return None
    half = values / 2  # the distance of two large numbers is then one
    median = np.sort(half)[n // 2]
    distance = np.abs(half - median)
    n_most = max(n // 100, 1)
    farthest = np.sort(distance)[n - 1 - n_most :]
    usual, beyond = farthest[:-1], farthest[1:]
    # deviations of less than a billionth are no spread
    is_gap = (beyond / _FACTOR > usual) & (usual > 1e-9 * np.abs(median))
    if not is_gap.any():
        return None
    return distance >= beyond[np.argmax(is_gap)]  # all farther than the first gap


def _sentinels(values: Array) -> Mask | None:
    """Return which values are one of up to four numbers that stand for missing ones.

    Such a number comes three times or more, at separate places, and together they are
    at most a third of all. It lies farther outside all others than ten times their
    whole range, or a hundred times if it is positive, as a rare load may be; or a tenth
    of that if all its digits are nines. It is not between zero and the others, as
    what is switched off.
    """
    half = np.sort(values) / 2
    n = len(half)
    if n < 8 or (half[0] < half[2] and half[-3] < half[-1]):
        return None
    distinct, counts = np.unique(half, return_counts=True)
    for n_low, n_high in sorted(product(range(3), repeat=2), key=sum, reverse=True):
        usual = distinct[n_low : len(distinct) - n_high]
        is_rare = np.ones(len(distinct), dtype=bool)
        is_rare[n_low : len(distinct) - n_high] = False
        marks = distinct[is_rare]
        if len(usual) < 8 or not len(marks) or counts[is_rare].min() < 3:
            continue
        beyond = np.maximum(usual[0] - marks, marks - usual[-1])
        nines = [
            set(repr(abs(2 * float(m))).removesuffix(".0")) <= {*"9."} for m in marks
        ]
        width = usual[-1] - usual[0]
        is_far = beyond > np.where(marks > 0, 100, 10) / np.where(nines, 10, 1) * width
        is_outward = np.where(marks < usual[0], marks < 0, marks > 0)
        is_mark = np.isin(values / 2, marks)
        n_places = np.count_nonzero(np.diff(is_mark, prepend=False) & is_mark)
        if (is_far & is_outward).all() and 3 * is_mark.sum() <= n and n_places > 1:
            return is_mark
    return None


def _stuck(values: Array) -> Mask | None:
    """Return which values repeat the one before, in a run where else hardly any do.

    No run of the least or the greatest value, of zero, or of a value that has another
    one: these are states. Nor the first, before which nothing was measured.
    """
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    lengths = np.diff(starts, append=len(values))
    is_run = lengths >= _RUN
    usual = lengths[~is_run]
    if not is_run.any() or not len(usual) or len(usual) < 0.98 * usual.sum():
        return None
    at = values[starts]
    is_run &= (at != 0) & (at > at[~is_run].min()) & (at < at[~is_run].max())
    runs, counts = np.unique(at[lengths >= _RUN], return_counts=True)
    is_run &= ~np.isin(at, runs[counts > 1]) & (starts > 0)
    is_stuck = np.repeat(is_run, lengths)
    is_stuck[starts] = False
    far_longer = lengths[is_run].min(initial=len(values)) >= 4 * usual.max()
    return is_stuck if far_longer and 0 < 3 * is_stuck.sum() <= len(values) else None


def _unit(values: Array) -> tuple[int, float, float, str] | None:
    """Return the row from which on the unit is another, with the way to it.

    That is a factor and a shift of the values before, and how it is called. Level and
    spread both have to tell of it, at one jump that no other comes near.
    """
    n = len(values)
    if n < 30:
        return None
    size = np.abs(values)
    if size.min() > 0 and np.ptp(np.sign(values)) == 0:
        k = _only_jump(np.log(size), 2.0)
        level, spread = _changes(size, k)
        unit = np.copysign(_UNITS[np.argmin(np.abs(_UNITS - abs(level)))], level)
        n_enough = 5 if abs(unit) > 4.5 else 30  # less than 100 times happens
        is_near = abs(level - unit) < 0.25 and abs(spread - unit) < 1.1
        if is_near and k >= 30 and n - k >= n_enough:
            factor = round(float(np.exp(abs(unit))))
            if unit > 0:
                return k, float(factor), 0.0, f"{factor} times as large"
            return k, 1 / factor, 0.0, f"a {factor}th as large"
    k = _only_jump(values, 4.0)
    if min(k, n - k) < 30:
        return None
    before, after = np.median(values[max(k - 50, 0) : k]), np.median(values[k : k + 50])
    _, spread = _changes(values, k)
    tolerance = 0.1 * abs(after - before)
    if abs(1.8 * before + 32 - after) < tolerance and abs(spread - np.log(1.8)) < 0.25:
        return k, 1.8, 32.0, "those of Celsius in Fahrenheit"
    if abs(1.8 * after + 32 - before) < tolerance and abs(spread + np.log(1.8)) < 0.25:
        return k, 1 / 1.8, -32 / 1.8, "those of Fahrenheit in Celsius"
    return None


def _only_jump(values: Array, factor: float) -> int:
    """Return the row after the largest jump, if so much larger than all others; else 0.

    Five rows on each side are needed.
    """
    jumps = np.abs(np.diff(values))
    k = int(np.argmax(jumps)) + 1
    is_only = jumps[k - 1] > factor * np.delete(jumps, k - 1).max()
    return k if is_only and 5 <= k <= len(values) - 5 else 0


def _changes(values: Array, k: int) -> tuple[float, float]:
    """Return the logarithms of the factors of level and spread at row ``k``; or NaN."""
    n = min(k, len(values) - k, 50)
    if n < 5:
        return np.nan, np.nan
    levels = np.median(values[k - n : k]), np.median(values[k : k + n])
    spreads = [np.abs(np.diff(part)).mean() for part in (values[:k], values[k:])]
    level, spread = (np.log(b) - np.log(a) for a, b in (levels, spreads))
    return float(level), float(spread)
