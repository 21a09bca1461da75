"""What a broken sensor wrote: left out, or rescaled, with a warning of each kind.

Each rule would rather let a fault pass than touch a true value.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations

__all__ = ["cleaned"]

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

_FACTOR = 1e4
"""How many times farther from the median than any other value an outlier is."""

_RUN = 8
"""So many equal values one after the other are a run."""

_UNITS = [(f**s, 0.0) for f in (10, 60, 1e2, 1e3, 3600, 1e4, 1e6, 1e9) for s in (1, -1)]
_UNITS += [(1.8, 32.0), (1 / 1.8, -32 / 1.8)]
"""From one unit to another: factor and shift; last Celsius to Fahrenheit and back."""

_FOUND = (
    f"more than {_FACTOR:g} times farther from the median than all others of their "
    "series, next to which these could not be told apart",
    "that repeat one number far beyond all others, as a mark of missing values does",
    f"that repeat the one before in runs of {_RUN} or more, as of a sensor that is "
    "stuck, in series that else hardly ever do",
    "from which on the unit seems to be another: level and spread change by a factor "
    "of {:.4g}",
)
_RESCALED = len(_FOUND)
"""Number of the last rule, which leaves nothing out."""


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def cleaned(
    given: Observations,
    channels: list[Hashable],
    judged: Sequence[int],
    left_out: Mask,
    n_seen: int,
) -> tuple[Array, Array] | None:
    """Return values in the unit at the end of each series, and what is left of them.

    Both (row, channel); None where nothing was found. Only the series ``judged`` are
    searched; of others the values that were ``left_out`` before stay so, and there is
    no second warning of these. The first ``n_seen`` series must keep their unit.
    """
    values, kind = given.values.copy(), np.zeros(given.values.shape, dtype=np.int8)
    factors: dict[
        tuple[int, int], float
    ] = {}  # by the first row and the channel of another unit
    is_out = left_out.copy()
    for k in judged:
        is_out[given.bounds[k] : given.bounds[k + 1]] = False
    for k, channel in product(judged, range(len(channels))):
        part = values[given.bounds[k] : given.bounds[k + 1], channel]
        known = np.flatnonzero(~np.isnan(part))
        observed, known = part[known], known + given.bounds[k]
        for rule, find in enumerate((_lone, _sentinels, _stuck), 1):
            found = find(observed)
            if found.any():
                kind[known[found], channel] = rule
                known, observed = known[~found], observed[~found]
        start, factor, shift = _unit(observed)
        if start:
            kind[known[start], channel] = _RESCALED
            values[known[:start], channel] = factor * observed[:start] + shift
            factors[known[start], channel] = factor
    for rule, what in enumerate(_FOUND, 1):
        where = np.argwhere((kind == rule) & ~left_out)
        if not len(where):
            continue
        row, channel = where[0]
        series = given.series[row]
        text = (
            f"y has {len(where)} value(s) {what.format(factors.get((row, channel)))}; "
            f"the first is {given.values[row, channel]:g} in column "
            f"{channels[channel]!r} at "
            f"{given.named(given.ticks[row], given.keys[series])}."
        )
        if rule == _RESCALED and series < n_seen:
            raise ValueError(
                f"an update must be in the unit of the rows before; {text} Convert "
                "what follows, or fit anew on all rows."
            )
        done = (
            "Taken for missing"
            if rule < _RESCALED
            else "Rows before are rescaled to it"
        )
        remedy = "If such values are true, clean=False keeps them all."
        warnings.warn(f"{text} {done}. {remedy}", UserWarning, stacklevel=2)
    is_out |= (kind > 0) & (kind < _RESCALED)
    if not (is_out.any() or factors):
        return None
    return values, np.where(is_out, np.nan, values)


def _lone(values: Array) -> Mask:
    """Return which values of one channel of one series are outliers, (row,).

    A single 1e8 among values of order one makes their scale 1e7: to the network, which
    computes in single precision, the others are one and the same number.
    """
    n = len(values)
    if n < 8:  # too few to tell which of them are out of line
        return np.zeros(n, dtype=bool)
    half = values / 2  # the distance of two large numbers is then one
    median = np.sort(half)[n // 2]
    distance = np.abs(half - median)
    farthest = np.sort(distance)[n - 1 - max(n // 100, 1) :]
    usual, beyond = farthest[:-1], farthest[1:]
    # deviations of less than a billionth are no spread
    is_gap = (beyond / _FACTOR > usual) & (usual > 1e-9 * np.abs(median))
    # all that is farther than the first gap
    return distance >= (beyond[np.argmax(is_gap)] if is_gap.any() else np.inf)


def _sentinels(values: Array) -> Mask:
    """Return which values are numbers that stand for missing ones, such as -999.

    Each comes three times or more, all together at separate places and for a third of
    the rows at most. It is outside all others by more than ten times their range, or a
    hundred times if positive, as rare loads are; by a tenth of that if all its digits
    are nines. It is not between zero and the others, as what is switched off.
    """
    half, none, n = np.sort(values) / 2, np.zeros_like(values, bool), len(values)
    if n < 8 or (half[0] < half[2] and half[-3] < half[-1]):
        return none
    starts, counts = _runs(half)
    distinct = half[starts]
    if len(distinct) < 9:
        return none
    low, high = (1 + (c[1] > 2) if c[0] > 2 else 0 for c in (counts, counts[::-1]))
    for below, above in product(range(low, -1, -1), range(high, -1, -1)):
        usual = distinct[below : len(distinct) - above]
        marks = np.append(distinct[:below], distinct[len(distinct) - above :])
        if len(usual) < 8:
            continue
        nines = [
            {*repr(2 * abs(float(x))).removesuffix(".0")} <= {*"9."} for x in marks
        ]
        least = np.where(marks > 0, 100, 10) / np.where(nines, 10, 1)
        far = np.maximum(usual[0] - marks, marks - usual[-1]) / (usual[-1] - usual[0])
        is_outward = np.where(marks < usual[0], marks < 0, marks > 0)
        if (is_outward & (far > least)).all():
            found = np.isin(values / 2, marks)
            n_places = np.count_nonzero(np.diff(found, prepend=False) & found)
            if n_places > 1 and 3 * found.sum() <= n:
                return found
    return none


def _stuck(values: Array) -> Mask:
    """Return which values repeat the one before in a run, where else hardly any do.

    Runs are states, and stay, where they are of the least or the greatest value, of
    zero, or of a value that has several; and the first, before which nothing changed.
    """
    found = np.zeros(len(values), dtype=bool)
    starts, lengths = _runs(values)
    is_run = lengths >= _RUN
    usual = lengths[~is_run]
    if not is_run.any() or len(usual) <= 0.98 * usual.sum():
        return found
    at = values[starts]
    states, n_runs = np.unique(at[is_run], return_counts=True)
    is_run &= ~np.isin(at, states[n_runs > 1]) & (at != 0) & (starts > 0)
    is_run &= (at > at[lengths < _RUN].min()) & (at < at[lengths < _RUN].max())
    if is_run.any() and lengths[is_run].min() >= 4 * usual.max():
        found = np.repeat(is_run, lengths)
        found[starts] = False
    return found if 3 * found.sum() <= len(values) else np.zeros_like(found)


def _runs(values: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where runs of equal values begin, and how long they are."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return starts, np.diff(starts, append=len(values))


def _unit(values: Array) -> tuple[int, float, float]:
    """Return the row from which on the unit is another, with factor and shift to it.

    Row 0: from none. Level and spread have to tell of it, at one jump that no other
    comes near; conversions of less than 100 need 30 rows after it, all others 5.
    """
    logarithm = np.log(np.abs(values))
    ways = (logarithm, 2, 20, _UNITS[:-2]), (values, 4, 50, _UNITS[-2:])
    for level, far, n_near, units in ways:
        jumps = np.abs(level[1:] - level[:-1])
        k = int(jumps.argmax()) + 1 if len(jumps) > 33 else 0
        n_after = len(values) - k
        if k < 30 or n_after < 5:
            continue
        jump, jumps[k - 1] = jumps[k - 1], 0
        if not jump > far * jumps.max():
            continue
        n = min(n_after, n_near, k)
        before, after = np.median(values[k - n : k]), np.median(values[k : k + n])
        spreads = [np.abs(np.diff(part)).mean() for part in (values[:k], values[k:])]
        for factor, shift in units:
            is_large = abs(np.log(factor)) > 4.5
            miss = abs(factor * before + shift - after)
            miss /= abs(after - before) if shift else abs(after)
            spread = abs(np.log(spreads[1] / spreads[0] / factor))
            near = (0.1, 0.25) if shift else (0.5 if is_large else 0.2, 1.1)
            if miss < near[0] and spread < near[1] and (is_large or n_after >= 30):
                return k, factor, shift
    return 0, 1.0, 0.0
