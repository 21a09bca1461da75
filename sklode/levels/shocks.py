"""Rows at which something happened that a level does not expect.

Scores of an error of a row, a step of the trend and a turn of its slope, at every row,
from one pass of the smoother: de Jong and Penzer, "Diagnosing Shocks in Time Series",
Journal of the American Statistical Association 1998.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from sklode.levels.components import Component, kalman
from sklode.levels.forms import PLACE
from sklode.levels.table import Table

SPIKE, STEP, SLOPE = range(3)
_FALSE_ALARMS = 0.05  # of a series without shocks
_ROUNDS, _AT_ONCE = 10, 4
"""Times that hyperparameters are sought anew, as shocks had inflated them, and shocks
that are taken out before."""
_TURN = 0.5  # logarithms of rows that a turn costs: its place, size and time
_FEWEST = 2  # rows from a shock of the trend to an end of the series


class Shock(NamedTuple):
    """What happened at a row, in units of the states."""

    row: int
    kind: int
    size: float  # of a slope: by unit of time
    score: float  # in standard deviations


def find_shocks(
    table: Table, fit: Callable[[Table], tuple[Component, float]]
) -> tuple[list[Shock], Component]:
    """Return shocks of a lone series, and what it is else.

    ``fit`` finds a component of rows, and their span. Shocks are taken out one by one,
    each by its most probable size.
    """
    left, found = table, list[Shock]()
    component, span = fit(left)
    for _ in range(_ROUNDS):
        plain = component._replace(threshold=math.inf, steps=False)
        new: list[Shock] = []
        while len(new) < _AT_ONCE:
            shock = _largest(plain, span, left)
            if shock.score < _least(left):
                break
            new.append(shock)
            left = _without(plain, left, shock)
        if new:
            found += new
            component, span = fit(left)
            continue
        # a trend that wanders explains turns too: is one that turns more probable?
        turn = _largest(_still(plain), span, left, SLOPE)
        if turn.score < _least(left):
            break
        without = _without(plain, left, turn)
        other, _ = fit(without)
        gain = _loss(component, span, left) - _loss(other, span, without)
        if gain < _TURN * math.log(len(table.times)):
            break
        score = math.sqrt(2 * gain)
        found.append(turn._replace(score=score))
        component, left = other, without
    return found, component


def _least(table: Table) -> float:
    """Return the score that chance hardly exceeds."""
    return float(norm.isf(_FALSE_ALARMS / (2 * 3 * max(len(table.times), 1))))


def _still(component: Component) -> Component:
    """Return a component whose trend does not wander, so that its turns show."""
    logs = component.logs.copy()
    noise = logs[PLACE["noise"]]
    logs[[PLACE["random walk"], PLACE["velocity"]]] = math.log(1e-3)
    apart = np.logaddexp(2 * noise, 2 * logs[PLACE["OU"]]) / 2
    logs[PLACE["noise"]], logs[PLACE["OU"]] = apart, math.log(1e-3)
    return component._replace(logs=logs)


def _loss(component: Component, span: float, table: Table) -> float:
    """Return minus the log-likelihood of rows, in units of y."""
    plain = component._replace(threshold=math.inf, steps=False)
    rows = plain.in_units(table)
    loss = plain.filtered(plain.space(span), rows).loss
    known = ~np.isnan(table.values)
    loss += known.sum() * float(np.log(plain.at(0).scale))
    if plain.form.linked:
        loss -= float(plain.link.log_slope(table.values[known]).sum())
    return loss


def _largest(
    component: Component, span: float, table: Table, kind: Any = slice(None)
) -> Shock:
    """Return the shock of the highest score, of one kind or all."""
    space, rows = component.space(span), component.in_units(table)
    passed = component.filtered(space, rows, space.whole)
    shocks = np.zeros((len(rows.times), 3, 2))
    given = component.given(space, rows)
    past = passed.v_F[:, None], passed.inverse_F, passed.gains
    kalman().smooth_rows(*given, *past, shocks)
    score, variance = np.moveaxis(shocks, 2, 0)
    score[~(passed.inverse_F > 0)] = 0.0
    score[:_FEWEST, STEP:] = score[len(score) - _FEWEST + 1 :, STEP:] = 0.0
    chosen = np.zeros_like(score)
    chosen[:, kind] = np.abs(score[:, kind])
    chosen /= np.sqrt(np.maximum(variance, 1e-300))
    row, k = np.unravel_index(int(chosen.argmax()), chosen.shape)
    size = float(score[row, k] / max(variance[row, k], 1e-300))
    return Shock(int(row), int(k), size, float(chosen[row, k]))


def _without(component: Component, table: Table, shock: Shock) -> Table:
    """Return rows without what a shock did to them."""
    rows, row = component.in_units(table), shock.row
    values = rows.values.copy()
    since = rows.times - rows.times[row]
    if shock.kind == SPIKE:
        values[row] = np.nan
    elif shock.kind == STEP:
        values[since >= 0] -= shock.size
    else:
        values -= shock.size * np.maximum(since, 0.0)
    original = component.at(rows.series).original(values)
    return table._replace(values=original)


def size_of(component: Component, table: Table, shock: Shock) -> float:
    """Return a shock's size in units of y, at its row."""
    one, rows = component.at(0), component.in_units(table)
    here = rows.values[shock.row]
    return float(one.original(here) - one.original(here - shock.size))


def told_of(channel: Any) -> tuple[Component, float]:
    """Return the heaviest component of a filtered group, and its span."""
    return channel.heaviest[0], channel.span
