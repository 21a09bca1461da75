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
from sklode.structural.candidates import Candidate, backward
from sklode.structural.components.space import LEVEL, PLACE, SLOPE
from sklode.structural.filter.system import Rule
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.rows import ChannelRows

OUTLIER, LEVEL_SHIFT, SLOPE_SHIFT = KINDS = range(3)
_FALSE_ALARMS = 0.05  # of a series without shocks, by convention
# times that hyperparameters are sought anew, as shocks
# had inflated them, and shocks that are taken out before
_ROUNDS, _AT_ONCE = 10, 4
# logarithms of rows that a turn costs: its
# place, size and time; set on 40 made-up series
_TURN = 1.5
_NOTHING = math.log(1e-3)  # of what does not wander, in units of spread
# rows from a shock of the trend to either end
_FEWEST = {LEVEL_SHIFT: 2, SLOPE_SHIFT: 8}


class Shock(NamedTuple):
    """What happened at a row, in units of y or what it is linked to."""

    row: int
    kind: int
    size: float  # of a slope: by unit of time
    score: float  # in standard deviations


def find_shocks(
    table: ChannelRows, fit: Callable[[ChannelRows], FilteredColumn]
) -> tuple[list[Shock], Candidate]:
    """Return shocks of a lone series, and what it is else.

    ``fit`` returns a filtered group of rows. Shocks are taken out one by one, each by
    its most probable size.
    """
    found: list[Shock] = []
    fitted = _Fitted.of(fit(table))
    for _ in range(_ROUNDS):
        new, left = _taken_out(fitted)
        if new:
            found += new
            # shocks had inflated the hyperparameters
            fitted = _Fitted.of(fit(left))
            continue
        turn = _proved_turn(fitted, fit)
        if turn is None:
            break
        shock, fitted = turn
        found.append(shock)
    found = [_scored_again(shock, fitted) for shock in found]
    return found, fitted.candidate


class _Fitted(NamedTuple):
    """What was found of rows, some of whose shocks are taken out."""

    candidate: Candidate
    span: float
    table: ChannelRows

    @classmethod
    def of(cls, group: FilteredColumn) -> _Fitted:
        """Return the heaviest candidate, its span, and rows with what it reads."""
        return cls(group.best, group.span, group.table)

    @property
    def plain(self) -> Candidate:
        """The candidate as a linear model: no row counts less, no trend steps.

        Scores are sums of what innovations tell, which holds of linear ones only.
        """
        linear = Rule(threshold=math.inf, step=math.inf)
        model = self.candidate.model._replace(rule=linear)
        return self.candidate._replace(model=model)

    @property
    def loss(self) -> float:
        """Minus the log-likelihood of rows, in units of y."""
        model, scaling = self.plain.model, self.candidate.scaling
        passed = model.filtered(model.space(self.span), scaling.rows(self.table))
        return passed.loss + scaling.log_jacobian(self.table)


def _taken_out(fitted: _Fitted) -> tuple[list[Shock], ChannelRows]:
    """Return the largest shocks, one by one, and the rows without them."""
    plain, left = fitted.plain, fitted.table
    new: list[Shock] = []
    while len(new) < _AT_ONCE:
        shock = _largest(plain, fitted.span, left, KINDS)
        if shock.score < _least(left):
            break
        new.append(shock)
        left = _without(plain, left, shock)
    return new, left


def _proved_turn(
    fitted: _Fitted, fit: Callable[[ChannelRows], FilteredColumn]
) -> tuple[Shock, _Fitted] | None:
    """Return a turn of the slope, and the rest, if that is more probable.

    A trend that wanders explains turns too, so that their scores are small.
    """
    plain, table = fitted.plain, fitted.table
    turn = _largest(_still(plain), fitted.span, table, kinds=[SLOPE_SHIFT])
    if turn.score < _least(table):
        return None
    rest = _Fitted.of(fit(_without(plain, table, turn)))
    # both are judged over the same span, in which priors of sizes count
    rest = rest._replace(span=fitted.span)
    gain = fitted.loss - rest.loss
    if gain < _TURN * math.log(len(table.times)):
        return None
    # of a normal one, half its square is the gain of log likelihood
    return turn._replace(score=math.sqrt(2 * gain)), rest


def _scored_again(shock: Shock, fitted: _Fitted) -> Shock:
    """Return a shock's size and score, by what is known at the end."""
    plain = fitted.plain
    # taking out the opposite puts it back
    opposite = shock._replace(size=-shock.size)
    alone = _without(plain, fitted.table, opposite)
    sizes, scores = _scores(plain, fitted.span, alone)
    score = float(scores[shock.row, shock.kind])
    if shock.kind == SLOPE_SHIFT:
        score = max(score, shock.score)
    return shock._replace(size=float(sizes[shock.row, shock.kind]), score=score)


def _least(table: ChannelRows) -> float:
    """Return the score that chance hardly exceeds.

    Bonferroni: of three kinds at each row, either way, none is as large by chance.
    """
    n_scores = 2 * len(KINDS) * max(len(table.times), 1)
    return float(norm.isf(_FALSE_ALARMS / n_scores))


def _still(candidate: Candidate) -> Candidate:
    """Return a candidate whose trend does not wander, so that its turns show."""
    theta = candidate.model.theta.copy()
    noise = theta[PLACE["noise"]]
    theta[[PLACE["random walk"], PLACE["velocity"]]] = _NOTHING
    # the variances of noise and deviations
    # add up to that of a wider noise
    theta[PLACE["noise"]] = np.logaddexp(2 * noise, 2 * theta[PLACE["OU"]]) / 2
    theta[PLACE["OU"]] = _NOTHING
    return candidate._replace(model=candidate.model._replace(theta=theta))


def _largest(
    candidate: Candidate, span: float, table: ChannelRows, kinds: Sequence[int]
) -> Shock:
    """Return the shock of the highest score, of some kinds."""
    sizes, scores = _scores(candidate, span, table)
    n = len(scores)
    may_be = np.zeros(scores.shape, dtype=bool)
    may_be[:, kinds] = True
    for kind, fewest in _FEWEST.items():
        may_be[:fewest, kind] = False
        may_be[max(n - fewest + 1, 0) :, kind] = False
    scores = np.where(may_be, scores, 0.0)
    row, kind = divmod(int(scores.argmax()), scores.shape[1])
    return Shock(
        row=row,
        kind=kind,
        size=float(sizes[row, kind]),
        score=float(scores[row, kind]),
    )


def _scores(
    candidate: Candidate, span: float, table: ChannelRows
) -> tuple[Array, Array]:
    """Return shocks' most probable sizes and their scores, (row, kind)."""
    model, rows = candidate.model, candidate.scaling.rows(table)
    space = model.space(span)
    passed = model.filtered(space, rows, space.whole)
    shocks = np.zeros((len(rows.times), 3, 2))
    backward().smooth_rows(
        space.system(model.schedule(rows)),
        v_F=passed.v_F[:, None],
        inverse_F=passed.inverse_F,
        gains=passed.gains,
        shocks=shocks,
        shocked=np.array([LEVEL, SLOPE]),
    )
    # a score over its variance is the
    # estimate, by generalised least squares
    score, variance = np.moveaxis(shocks, 2, 0)
    score[~(passed.inverse_F > 0)] = 0.0
    variance = np.maximum(variance, 1e-300)
    sizes = candidate.scaling.alone(0).scale * score / variance
    return sizes, np.abs(score) / np.sqrt(variance)


def _without(candidate: Candidate, table: ChannelRows, shock: Shock) -> ChannelRows:
    """Return rows without what a shock did to them."""
    rows = candidate.scaling.rows(table)
    values, size = rows.values.copy(), shock.size / candidate.scaling.alone(0).scale
    since = rows.times - rows.times[shock.row]
    if shock.kind == OUTLIER:
        values[shock.row] -= size
    elif shock.kind == LEVEL_SHIFT:
        values[since >= 0] -= size
    else:
        values -= size * np.maximum(since, 0.0)
    original = candidate.scaling.at(rows.series).original(values)
    return table._replace(values=original)


def size_of(candidate: Candidate, table: ChannelRows, shock: Shock) -> float:
    """Return a shock's size in units of y, at its row."""
    one, rows = candidate.scaling.alone(0), candidate.scaling.rows(table)
    here = rows.values[[shock.row]]
    # of a logarithm the same size is more of y where that is large
    without = one.original(here - shock.size / one.scale)
    return float(table.values[shock.row] - without[0])
