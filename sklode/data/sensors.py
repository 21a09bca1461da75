"""What a broken sensor wrote: left out, or rescaled, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations

# All bounds are wide: what may be true must stay,
# and what is left out is said.
_FACTOR = 1e4  # times that a lone value is farther from the median
_LARGE = 0.99  # quantile of the steps between values: a large one
_FEWEST = 8  # values to be judged; equal ones in a row that are a run

# distances from the median,
# in those of the farthest other value, of which marks are
_MARK, _POSITIVE_MARK = 20, 200
_OF_NINES = 10  # times that marks such as 999 may be nearer
_FEWEST_MARKS = 3  # of each number

# share of values that differ from the one before, where some stick
_DIFFERENT = 0.98
# times that a stuck run is longer than the longest usual one
_LONGER = 4

_STEPS = 5.0  # large ones, from zero to all others
_CHANCE = 0.05  # that a run of zeros is as long by chance

# factors from one unit to another: prefixes, per cent, minutes and hours
_UNITS = [f**s for f in (10, 60, 1e2, 1e3, 3600, 1e4, 1e6, 1e9) for s in (1, -1)]
# or its inverse: a process hardly does that, so less must agree
_LARGE_FACTOR = 90
# of the factor, that levels may change by else
_NEAR, _NEAR_LARGE = 0.2, 0.5
# logarithm of times that the spread may change by else: threefold
_SPREAD = 1.1
# the fewest values of either unit
_BEFORE, _AFTER, _AFTER_LARGE = 30, 30, 5
_LEVEL = 20  # values at most on either side that tell the level

# the rules; the last leaves nothing out
_BEYOND, _STUCK, _ZERO, _RESCALED = 1, 2, 3, 4
_FOUND = {
    _BEYOND: "far beyond all others of their series, "
    "such as a lone absurd value or a mark of missing ones",
    _STUCK: f"that repeat the one before in runs of {_FEWEST} or more, "
    "as of a sensor that is stuck, in series that else hardly ever do",
    _ZERO: "of zero that stand alone, "
    "with nothing between them and all others, as marks of missing ones do",
    _RESCALED: "from which on the unit seems to be another: "
    "level and spread change by a factor of {:.4g}",
}


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def cleaned(
    given: Observations,
    channels: list[Hashable],
    judged: Sequence[int],
    left_out: Flags,
    n_seen: int,
) -> tuple[Observations, Flags]:
    """Return rows in the unit at the end of series, and what to leave out.

    Only series ``judged`` are searched; what was ``left_out``,
    (row, channel), is not warned of again.
    The first ``n_seen`` series must keep their unit.
    """
    rules = left_out.astype(np.int8)
    factors = np.ones(left_out.shape)
    for k, channel in product(judged, range(len(channels))):
        _judge(
            given,
            series=k,
            channel=channel,
            rules=rules,
            factors=factors,
        )
    for rule in _FOUND:
        found = (rules == rule) & ~left_out
        if found.any():
            _tell(
                rule,
                found=found,
                factors=factors,
                given=given,
                channels=channels,
                n_seen=n_seen,
            )
    rescaled = replace(given, values=given.values * factors)
    # zero is no finding; a change of unit leaves nothing out
    is_out = (rules > 0) & (rules < _RESCALED)
    return rescaled, is_out


def _judge(
    given: Observations,
    series: int,
    channel: int,
    rules: NDArray[np.int8],
    factors: Array,
) -> None:
    """Write what is found in a channel of a series into rules and factors."""
    low, high = given.bounds[series], given.bounds[series + 1]
    values = given.values[:, channel]
    # what was found before, of fewer rows, is judged again
    rules[low:high, channel] = 0
    # values whose errors are known are as far off as these say
    is_judged = ~np.isnan(values[low:high])
    is_judged &= ~(given.errors[low:high, channel] > 0)
    rows = low + np.flatnonzero(is_judged)
    if len(rows) < _FEWEST:
        return
    # each rule judges what the ones before it have left
    for rule in (_BEYOND, _STUCK, _ZERO):
        found = _found_by(rule, values[rows], given.controls[rows])
        rules[rows[found], channel] = rule
        rows = rows[~found]
    change = _change_of_unit(values[rows])
    if change is not None:
        start = rows[change.start]
        rules[start, channel] = _RESCALED
        factors[low:start, channel] = change.factor


def _found_by(rule: int, values: Array, controls: Array) -> Flags:
    """Return which values of a channel of a series a rule leaves out."""
    if rule == _BEYOND:
        return _beyond(values)
    if rule == _STUCK:
        return _stuck(values)
    return _lone_zeros(values, controls)


def _tell(
    rule: int,
    found: Flags,
    factors: Array,
    given: Observations,
    channels: list[Hashable],
    n_seen: int,
) -> None:
    """Warn of what a rule has found; refuse another unit after a fit."""
    n_found = int(found.sum())
    row, channel = np.argwhere(found)[0]
    # the row itself is in the new unit,
    # the one before it is rescaled to that
    what = _FOUND[rule].format(factors[row - 1, channel])
    text = (
        f"y has {n_found} value(s) {what}; "
        f"the first is {given.values[row, channel]:g} "
        f"in column {channels[channel]!r} at {given.named(row)}."
    )
    is_unit = rule == _RESCALED
    if is_unit and given.series[row] < n_seen:
        raise ValueError(
            "an update must be in the unit of the rows before; "
            f"{text} Convert what follows, or fit anew on all rows."
        )
    done = "Rows before are rescaled to it" if is_unit else "Taken for missing"
    remedy = "If such values are true, clean=False keeps them all."
    warnings.warn(f"{text} {done}. {remedy}", UserWarning, stacklevel=3)


def _beyond(values: Array) -> Flags:
    """Return which values of a channel of a series lie far beyond all others.

    Groups beyond the widest gap from the median: a hundredth of the
    values at most, 1e4 times as far as others; or marks such as -999,
    not all in one place, 20 times as far (200 if positive,
    as rare loads are; a tenth of that if all digits are nines),
    and not between zero and the others, as in standby.
    """
    left = np.arange(len(values))
    while True:
        # halves: the distance of two floats,
        # of up to 1.8e308 each, may overflow
        half = values[left] / 2
        median = np.median(half)
        distance = np.abs(half - median)
        order = np.argsort(distance)
        ranked = distance[order]
        # deviations of less than a billionth are rounding, no spread:
        # beyond them no gap is wide, as a ratio to infinity is zero
        is_spread = ranked > 1e-9 * np.abs(median)
        usual = np.where(is_spread, ranked, np.inf)
        # gaps are sought beyond the nearer two thirds, which are no group
        first = len(left) - len(left) // 3
        # of each distance to the one before it in rank
        ratio = ranked[first:] / usual[first - 1 : -1]
        start = first + int(ratio.argmax())
        group = order[start:]
        is_small = len(group) <= max(len(left) // 100, 1)
        is_lone = is_small and ratio.max() > _FACTOR
        if not is_lone and not _are_marks(
            values[left], order=order, start=start, median=median
        ):
            break
        left = np.delete(left, group)
    return ~np.isin(np.arange(len(values)), left)


def _are_marks(
    values: Array,
    order: Numbers,
    start: int,
    median: float,
) -> bool:
    """Return whether the values from ``start`` on stand for missing ones.

    ``order`` is by distance from the ``median``,
    which is that of half the values.
    """
    group, usual = order[start:], values[order[:start]]
    # halves, as in `_beyond`
    nearest = np.abs(values[group[0]] / 2 - median)
    farthest = np.abs(usual[-1] / 2 - median)
    if not nearest > 2 * farthest:
        return False
    marks, counts = np.unique(values[group], return_counts=True)
    n_usual = len(np.unique(usual / 2))
    # n places in a row span n - 1
    are_in_one_place = np.ptp(group) < len(group)
    if counts.min() < _FEWEST_MARKS or are_in_one_place or n_usual < _FEWEST:
        return False
    are_nines = [_is_of_nines(float(mark)) for mark in marks]
    least = np.where(marks > 0, _POSITIVE_MARK, _MARK)
    least = least / np.where(are_nines, _OF_NINES, 1)
    beyond = marks / 2 - median
    are_far = np.abs(beyond) > least * farthest
    # marks lie beyond zero or beyond all others, never between the two:
    # on one side of both, so that the signs agree
    are_outward = beyond * marks > 0
    return bool((are_far & are_outward).all())


def _is_of_nines(mark: float) -> bool:
    """Return whether all digits are nines, as of -999 and 99.9."""
    digits = repr(abs(mark)).removesuffix(".0")
    return {*digits} <= {*"9."}


def _stuck(values: Array) -> Flags:
    """Return which values repeat the one before, where else hardly any do."""
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    lengths = np.diff(starts, append=len(values))
    at = values[starts]
    is_run = lengths >= _FEWEST
    usual = lengths[~is_run]
    found = np.zeros(len(values), dtype=bool)
    # n lengths that sum to m values:
    # n of these m differ from the one before
    do_differ = len(usual) > _DIFFERENT * usual.sum()
    are_enough = len(usual) >= _FEWEST
    if not do_differ or not are_enough or not is_run.any():
        return found
    # true: runs of zero, the first, the least, the greatest,
    # a repeated value
    states, n_runs = np.unique(at[is_run], return_counts=True)
    is_repeated = np.isin(at, states[n_runs > 1])
    is_run &= ~is_repeated & (at != 0) & (starts > 0)
    others = at[lengths < _FEWEST]
    low, high = others.min(), others.max()
    # a limit is approached: from beyond it the others are a step away
    far = np.quantile(np.abs(np.diff(others)), _LARGE)
    is_within = (at > low) & (at < high)
    is_beyond = (at < low - far) | (at > high + far)
    is_run &= is_within | is_beyond
    if is_run.any() and lengths[is_run].min() >= _LONGER * usual.max():
        found = np.repeat(is_run, lengths)
        # the value that it stuck at is true,
        # unless it lies beyond all others
        found[starts[~is_beyond]] = False
    # what most values do is no fault
    is_rare = 3 * found.sum() <= len(values)
    return found & is_rare


def _lone_zeros(values: Array, controls: Array) -> Flags:
    """Return which zeros are no values: scattered, many steps away from all others.

    Closures are longer than chance makes of zeros that come one by one,
    or at equal distances, or given by a column of X.
    """
    is_zero = values == 0
    others = values[~is_zero]
    found = np.zeros(len(values), dtype=bool)
    # of many zeros most may be true
    if not is_zero.any() or 3 * is_zero.sum() > len(values):
        return found
    far = _STEPS * np.quantile(np.abs(np.diff(others)), _LARGE)
    has_gap = others.min() > far or others.max() < -far
    if not has_gap or len(np.unique(others)) < _FEWEST:
        return found
    # a run starts and ends at a zero where the flag beside it is another
    starts = np.flatnonzero(np.diff(is_zero, prepend=False) & is_zero)
    ends = np.flatnonzero(np.diff(is_zero, append=False) & is_zero)
    lengths = ends - starts + 1
    # Zeros that come one by one begin a run after any other value by chance
    # p, and follow each other by it: n rows hold n p^k runs of k or more.
    chance = len(starts) / len(others)
    is_alone = len(values) * chance**lengths > _CHANCE
    _, repeats = np.unique(np.diff(starts[is_alone]), return_counts=True)
    # most runs are alone,
    # and no distance between them is that of half of all
    has_rhythm = 2 * repeats.max(initial=1) >= repeats.sum()
    are_scattered = not has_rhythm and is_alone.mean() > 0.5
    # a column tells if it is the same at all zeros, and seldom so elsewhere
    is_as_at_first = controls == controls[is_zero][0]
    is_common = is_as_at_first[is_zero].all(0)
    is_rare = is_as_at_first.sum(0) < 2 * is_zero.sum()
    if not are_scattered or (is_common & is_rare).any():
        return found
    found[is_zero] = np.repeat(is_alone, lengths)
    return found


class _Change(NamedTuple):
    """A change of unit."""

    start: int  # first value of the new unit
    factor: float  # by which values before it have to be multiplied


def _change_of_unit(values: Array) -> _Change | None:
    """Return where a channel of a series changes its unit, if it does."""
    if len(values) < _BEFORE + _AFTER_LARGE:
        return None
    # a factor is a distance of logarithms, whichever way it goes
    jumps = np.abs(np.diff(np.log(np.abs(values))))
    start = int(jumps.argmax()) + 1
    n_after = len(values) - start
    if start < _BEFORE or n_after < _AFTER_LARGE:
        return None
    others = np.delete(jumps, start - 1)
    # beside zeros jumps are infinite or NaN, and never larger than others
    if not jumps[start - 1] > 2 * others.max():
        return None
    n = min(n_after, _LEVEL)
    before, after = values[start - n : start], values[start : start + n]
    ratio = np.median(before) / np.median(after)
    # times the right factor, the level before is that after
    factor = min(_UNITS, key=lambda unit: abs(unit * ratio - 1))
    is_large = abs(np.log(factor)) > np.log(_LARGE_FACTOR)
    if n_after < _AFTER and not is_large:
        return None
    # a process that reaches another level
    # keeps its spread; a unit changes both
    spread_before = np.abs(np.diff(values[:start])).mean()
    spread_after = np.abs(np.diff(values[start:])).mean()
    far_in_spread = abs(np.log(spread_after / spread_before / factor))
    far_in_level = abs(factor * ratio - 1)
    near_in_level = _NEAR_LARGE if is_large else _NEAR
    if far_in_level < near_in_level and far_in_spread < _SPREAD:
        return _Change(start=start, factor=factor)
    return None
