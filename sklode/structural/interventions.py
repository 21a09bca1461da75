"""Rows at which something happened that a structural model does not expect.

Scores of an error of a row, a step of the trend and a turn of its slope, at every row,
from one pass of the smoother: de Jong and Penzer, "Diagnosing Shocks in Time Series",
Journal of the American Statistical Association 1998.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from sklode.data.arrays import Array
from sklode.structural.candidates import Candidate, kalman_back
from sklode.structural.channel_rows import ChannelRows
from sklode.structural.filtering import FilteredChannel
from sklode.structural.state_space import PLACE

SPIKE, STEP, SLOPE = KINDS = range(3)
_FALSE_ALARMS = 0.05  # of a series without shocks, by convention
# times that hyperparameters are sought anew, as shocks had inflated them, and shocks
# that are taken out before
_ROUNDS, _AT_ONCE = 10, 4
# logarithms of rows that a turn costs: its place, size and time; set on 40 made-up
# series
_TURN = 1.5
_NOTHING = math.log(1e-3)  # of what does not wander, in units of spread
_FEWEST = {STEP: 2, SLOPE: 8}  # rows from a shock of the trend to either end


class Shock(NamedTuple):
    """What happened at a row, in units of y or what it is linked to."""

    row: int
    kind: int
    size: float  # of a slope: by unit of time
    score: float  # in standard deviations


def find_shocks(
    table: ChannelRows, fit: Callable[[ChannelRows], FilteredChannel]
) -> tuple[list[Shock], Candidate]:
    """Return shocks of a lone series, and what it is else.

    ``fit`` returns a filtered group of rows. Shocks are taken out one by one, each by
    its most probable size.
    """
    found = list[Shock]()
    candidate, span, left = _told(fit(table))
    for _ in range(_ROUNDS):
        plain = candidate._replace(threshold=math.inf, steps=False)
        new: list[Shock] = []
        while len(new) < _AT_ONCE:
            shock = _largest(plain, span, left)
            if shock.score < _least(left):
                break
            new.append(shock)
            left = _without(plain, left, shock)
        if new:
            found += new
            candidate, span, left = _told(fit(left))
            continue
        # a trend that wanders explains turns too: is one that turns more probable?
        turn = _largest(_still(plain), span, left, kinds=[SLOPE])
        if turn.score < _least(left):
            break
        without = _without(plain, left, turn)
        other, _, without = _told(fit(without))
        gain = _loss(candidate, span, left) - _loss(other, span, without)
        if gain < _TURN * math.log(len(table.times)):
            break
        # of a normal one, half its square is the gain of log likelihood
        score = math.sqrt(2 * gain)
        found.append(turn._replace(score=score))
        candidate, left = other, without
    # sizes and scores by what is known at the end, beside all others
    plain = candidate._replace(threshold=math.inf, steps=False)
    for k, shock in enumerate(found):
        alone = _without(plain, left, shock._replace(size=-shock.size))
        again = _scores(plain, span, alone)
        size, score = (float(x[shock.row, shock.kind]) for x in again)
        score = max(score, shock.score) if shock.kind == SLOPE else score
        found[k] = shock._replace(size=size, score=score)
    return found, candidate


def _least(table: ChannelRows) -> float:
    """Return the score that chance hardly exceeds.

    Bonferroni: of three kinds at each row, either way, none is as large by chance.
    """
    return float(norm.isf(_FALSE_ALARMS / (2 * 3 * max(len(table.times), 1))))


def _still(candidate: Candidate) -> Candidate:
    """Return a candidate whose trend does not wander, so that its turns show."""
    logs = candidate.logs.copy()
    noise = logs[PLACE["noise"]]
    logs[[PLACE["random walk"], PLACE["velocity"]]] = _NOTHING
    # the variances of noise and deviations add up to that of a wider noise
    logs[PLACE["noise"]] = np.logaddexp(2 * noise, 2 * logs[PLACE["OU"]]) / 2
    logs[PLACE["OU"]] = _NOTHING
    return candidate._replace(logs=logs)


def _loss(candidate: Candidate, span: float, table: ChannelRows) -> float:
    """Return minus the log-likelihood of rows, in units of y."""
    plain = candidate._replace(threshold=math.inf, steps=False)
    loss = plain.filtered(plain.space(span), plain.in_units(table)).loss
    return loss + plain.log_units(table)


def _largest(
    candidate: Candidate, span: float, table: ChannelRows, kinds: Sequence[int] = KINDS
) -> Shock:
    """Return the shock of the highest score, of some kinds."""
    sizes, scores = _scores(candidate, span, table)
    chosen = np.zeros_like(scores)
    for kind in kinds:
        chosen[:, kind] = scores[:, kind]
    for of, n in _FEWEST.items():
        chosen[:n, of] = chosen[max(len(chosen) - n + 1, 0) :, of] = 0.0
    row, k = np.unravel_index(int(chosen.argmax()), chosen.shape)
    size, score = float(sizes[row, k]), float(chosen[row, k])
    return Shock(row=int(row), kind=int(k), size=size, score=score)


def _scores(
    candidate: Candidate, span: float, table: ChannelRows
) -> tuple[Array, Array]:
    """Return shocks' most probable sizes and their scores, (row, kind)."""
    space, rows = candidate.space(span), candidate.in_units(table)
    passed = candidate.filtered(space, rows, space.whole)
    shocks = np.zeros((len(rows.times), 3, 2))
    kalman_back().smooth_rows(
        candidate.system(space, rows),
        v_F=passed.v_F[:, None],
        inverse_F=passed.inverse_F,
        gains=passed.gains,
        shocks=shocks,
    )
    # a score over its variance is the estimate, by generalised least squares
    score, variance = np.moveaxis(shocks, 2, 0)
    score[~(passed.inverse_F > 0)] = 0.0
    variance = np.maximum(variance, 1e-300)
    sizes = candidate.alone(0).scale * score / variance
    return sizes, np.abs(score) / np.sqrt(variance)


def _without(candidate: Candidate, table: ChannelRows, shock: Shock) -> ChannelRows:
    """Return rows without what a shock did to them."""
    rows, row = candidate.in_units(table), shock.row
    values, size = rows.values.copy(), shock.size / candidate.alone(0).scale
    since = rows.times - rows.times[row]
    if shock.kind == SPIKE:
        values[row] -= size
    elif shock.kind == STEP:
        values[since >= 0] -= size
    else:
        values -= size * np.maximum(since, 0.0)
    original = candidate.at(rows.series).original(values)
    return table._replace(values=original)


def size_of(candidate: Candidate, table: ChannelRows, shock: Shock) -> float:
    """Return a shock's size in units of y, at its row."""
    one, rows = candidate.alone(0), candidate.in_units(table)
    here = rows.values[[shock.row]]
    without = one.original(here - shock.size / one.scale)
    return float(table.values[shock.row] - without[0])


def _told(group: FilteredChannel) -> tuple[Candidate, float, ChannelRows]:
    """Return the heaviest candidate, its span, and rows with what it reads there."""
    return group.heaviest[0], group.span, group.table
