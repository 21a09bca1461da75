"""What the level of series that it knows answers, in y's own units."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.history import GivenControls, History
from sklode.data.ticks import DAY, clock_ahead, rows_before
from sklode.levels.components import Component, heaviest
from sklode.levels.effects import Effect, places
from sklode.levels.floors import Floored, steps_of
from sklode.levels.level import Filtered, Level
from sklode.levels.mixture import Move
from sklode.levels.table import Table

__all__ = ["LevelPredictor"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_UNITS = {"d": DAY, "h": DAY / 24, "min": DAY / 1440, "s": DAY / 86400}

_DESCRIBED = 2000
"""The last rows that a description tells the shares of."""


_VALUES = {-1: "any", 0: "not below zero", 1: "counts"}

_PLACES = 200  # of a drawn curve
_NINETY = np.array([-1.6449, 0.0, 1.6449])


class Curve(NamedTuple):
    """What a column of X adds to y; of a logarithm, what it multiplies y by."""

    part: str
    column: Hashable
    values: Array  # (place,), of the column
    effect: Array  # (place,)
    bounds: Array  # (place, 2), of a 90 % interval


class LevelPredictor:
    """A level with its history: rows of an index in, finite tables out.

    ``seed`` is that of all draws. The ``moves`` of ``ahead``, see `AheadModel`, say
    where a network moves forecasts to.
    """

    def __init__(
        self, states: Filtered, history: History, seed: int, ahead: Any = None
    ) -> None:
        self.states = states  # what it knows of the series
        self._history = history
        self._seed = seed
        self._ahead = ahead
        seen = steps_of(history.observations.values)
        self._steps = np.minimum(self.level.steps, seen)  # NaN where either is

    @property
    def level(self) -> Level:
        """The hyperparameters that it answers by."""
        return self.states.level

    def updated(self, history: History) -> LevelPredictor:
        """Return the same once more rows were seen."""
        states = self.states.updated(history.rows)
        return LevelPredictor(states, history, self._seed, self._ahead)

    def means(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return forecasts at the rows of an index, see `Mixture.points`."""
        table = self._each(index, X, lambda mixture: mixture.points())
        return pd.DataFrame(table, index, self._history.channels)

    def variances(self, index: pd.Index, X: pd.DataFrame | None, n: int) -> Array:
        """Return variances of observations, (row, channel); exact, for any ``n``."""
        return self._each(index, X, lambda mixture: mixture.variance())

    def quantiles(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, alpha: list[float]
    ) -> Array:
        """Return quantiles of observations, (row, channel, alpha); exact."""
        levels = np.array(alpha)
        return self._each(index, X, lambda m: m.quantiles(levels), len(levels))

    def paths(
        self, index: pd.Index, X: pd.DataFrame | None, n: int, noise: bool
    ) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        asked, order = self.asked(index, X)
        paths = np.empty((n, len(index), len(self._history.channels)))
        for k, move in enumerate(self._moves(index, X, asked)):
            drawn = self.states.drawn(k, asked, n, self._seed + k, noise, move)
            if not np.isnan(self._steps[k]):
                one = self._answered(k, asked, move)
                drawn = one.put(drawn) if noise else np.maximum(drawn, 0.0)
            paths[:, order, k] = drawn
        return _finite(paths)

    def components(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return the parts of the most probable form at the rows of an index.

        Columns are (channel, part); the last part of each is their sum. Of a logarithm
        the parts are in its units, and their sum is that of the logarithm.
        """
        asked, order = self.asked(index, X)
        found = {}
        pairs = zip(self.states.channels, self._history.channels, strict=True)
        for channel, name in pairs:
            component, parts = channel.parts(asked)
            parts = parts * np.reshape(component.scale, (-1, 1))
            parts[:, [0, -1]] += np.reshape(component.location, (-1, 1))
            for part, values in zip(self._part_names(component), parts.T, strict=True):
                found[name, part] = pd.Series(values, order)
        frame = pd.DataFrame(found).sort_index().set_axis(index)
        return frame.rename_axis(columns=["channel", "part"])

    def description(self) -> pd.DataFrame:
        """Return what was found in each channel, a row each part.

        Its share of the variance of all parts over the last rows; its size, a standard
        deviation in units of y or of its logarithm; and how long it is remembered.
        """
        rows, found = [], zip(self.states.channels, self._history.channels, strict=True)
        for place, (channel, name) in enumerate(found):
            component, parts = channel.described(_DESCRIBED)
            likely = [c.weight for c in channel.components if c.form == component.form]
            sizes = np.append(parts[:, :-1].var(0), component.noise)
            logs = np.exp(component.logs)
            late = [effect.memory for effect in self._effects(component)]
            memories = [*logs[[3, 5, *range(9, len(logs), 2)]], *late, 0.0]
            names = [*self._part_names(component)[:-1], "noise"]
            kind = int(np.nan_to_num(self._steps[place], nan=-1))
            for part, size, memory in zip(names, sizes, memories, strict=True):
                rows.append(
                    {
                        "channel": name,
                        "part": part,
                        "share": size / sizes.sum(),
                        "size": float(np.median(component.scale)) * size**0.5,
                        "memory": self._length(memory),
                        "logarithm": component.form.logarithm,
                        "probability": sum(likely),
                        "values": _VALUES[kind],
                        "cross": bool(self.level.cross.weights[:, :, place].any()),
                    }
                )
        return pd.DataFrame(rows).set_index(["channel", "part"])

    def _effects(self, component: Component) -> list[Effect]:
        """Return the effects of X in a form."""
        by_first = {columns[0]: e for e, columns in places(self.level.effects).items()}
        return [by_first[columns[0]] for columns in component.form.effects]

    def _part_names(self, component: Component) -> list[str]:
        """Return the names of `StateSpace.parts`; a season is named by its period."""
        periods, names = component.form.periods, self._history.controls
        return [
            *("trend", "deviation"),
            *(f"season of {self._length(period)}" for period in periods),
            *(effect.name(names) for effect in self._effects(component)),
            "signal",
        ]

    def _length(self, time: float) -> str:
        """Return a length of time, in units of the level, as a reader would say it."""
        return length_of(time * self.level.unit, self._history.rows.like)

    def curves(self, channel: int, series: int) -> list[Curve]:
        """Return the effect of each column of X in the most probable form."""
        one, level, names = (
            self.states.channels[channel],
            self.level,
            self._history.controls,
        )
        component = heaviest(one.components)
        place = next(k for k, c in enumerate(one.components) if c is component)
        mean, covariance, _ = (each[series] for each in one.states[place])
        scale, rows = component.at(series).scale, self._history.rows
        found, effects = [], self._effects(component)
        end = len(mean) - sum(effect.n_columns for effect in effects)
        for effect in effects:
            own, end = slice(end, end + effect.n_columns), end + effect.n_columns
            k = effect.column
            seen = rows.controls[:, k]  # type: ignore[index]
            values = np.linspace(seen.min(), seen.max(), _PLACES)
            standard = (values - level.control_location[k]) / level.control_scale[k]
            columns = effect.at(standard)
            spread = np.sqrt(((columns @ covariance[own, own]) * columns).sum(1))
            drawn = (columns @ mean[own])[:, None] + _NINETY * spread[:, None]
            drawn *= scale
            if component.form.logarithm:
                drawn = np.exp(drawn)
            shape = values, drawn[:, 1], drawn[:, [0, 2]]
            found.append(Curve(effect.name(names), names[k], *shape))
        return found

    def asked(self, index: pd.Index, X: pd.DataFrame | None) -> tuple[Table, Numbers]:
        """Return the rows of an index, sorted; and the place that each had."""
        series, ticks = self._history.located(index)
        rows = self._history.rows
        times = self.level.times(rows, series, ticks)
        order = np.lexsort((times, series))
        inputs = self._inputs(index, X, series, ticks)[order]
        given = series[order], times[order], np.nan, inputs
        return Table.of(*given, len(rows.keys)), order

    def _each(
        self,
        index: pd.Index,
        X: pd.DataFrame | None,
        of: Callable[[Any], Array],
        n_levels: int = 0,
    ) -> Array:
        """Return a number, or several, of each row's distribution in each channel."""
        asked, order = self.asked(index, X)
        shape = len(index), len(self._history.channels)
        table = np.empty((*shape, n_levels) if n_levels else shape)
        if len(index):
            for k, move in enumerate(self._moves(index, X, asked)):
                table[order, k] = of(self._answered(k, asked, move))
        return _finite(table)

    def _answered(self, channel: int, asked: Table, move: Move | None) -> Any:
        """Return a channel's distribution: not below zero where no value of y is."""
        mixture = self.states.answered(channel, asked, move)
        step = self._steps[channel]
        return mixture if np.isnan(step) else Floored(mixture, step)

    def _moves(self, index: pd.Index, X: pd.DataFrame | None, asked: Table) -> Any:
        """Return where the network moves each channel's forecasts to."""
        if self._ahead is None:
            return [None] * len(self.states.channels)
        given = self._history.controls_for(index, X)
        return self._ahead.moves(self._history, asked, given)

    def _inputs(
        self, index: pd.Index, X: pd.DataFrame | None, series: Numbers, ticks: Numbers
    ) -> Array:
        """Return what the level reads at stamps: of two rows of X the given one."""
        given, rows = self._history.controls_for(index, X), self._history.rows
        inputs: Array = clock_ahead(ticks, rows.like)[:, None] / self.level.unit
        if given is None or rows.controls is None:
            return inputs
        self._warn_of_far_controls(given)
        of = np.concatenate([rows.series, given.series])
        at = np.concatenate([rows.ticks, given.ticks])
        values = np.concatenate([rows.controls, given.values])
        usable = np.isfinite(values).all(axis=1)
        of, at, values = of[usable], at[usable], values[usable]
        order = np.lexsort((at, of))  # stable: what is given comes last
        again = (np.diff(of[order]) == 0) & (np.diff(at[order]) == 0)
        order = order[np.append(~again, True)]
        bounds = np.searchsorted(of[order], np.arange(len(rows.keys) + 1))
        known = replace(rows, ticks=at[order], controls=values[order], bounds=bounds)
        before = rows_before(bounds, known.ticks, series, ticks)
        place = np.maximum(before, bounds[series])
        return np.hstack([inputs, self.level.inputs(known)[place, 1:]])

    def _warn_of_far_controls(self, given: GivenControls) -> None:
        """Warn where X, as far as it is used, is far from all that was seen."""
        rows = self._history.rows
        low, high = rows.controls.min(0), rows.controls.max(0)  # type: ignore[union-attr]
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        is_far = np.abs(given.values / 4 - middle / 4) > 0.75 * half  # floats end
        used = sorted({effect.column for effect in self.level.effects})
        for k in (k for k in used if is_far[:, k].any()):
            row = int(np.argmax(is_far[:, k]))
            at = rows.named(given.ticks[row], rows.keys[given.series[row]])
            warnings.warn(
                f"X should be as it was in fit; got {given.values[row, k]:g} in column "
                f"{self._history.controls[k]!r} at {at}, where {low[k]:g} to "
                f"{high[k]:g} were seen. Its effect goes on as a straight line there, "
                "which may be far off. Look for other units, or a broken sensor.",
                UserWarning,
                stacklevel=2,
            )


def _finite(table: Array) -> Array:
    """Return an answer that floats can hold."""
    if not np.isfinite(table).all():
        raise ValueError(
            "an answer must be a finite number; got forecasts, or squares of them, "
            "that no float holds. Fit on y in larger units, or ask for less far ahead; "
            "for spreads, predict_interval takes no squares."
        )
    return table


def length_of(ticks: float, like: pd.Index) -> str:
    """Return a length of time as a reader would say it."""
    if isinstance(like, pd.PeriodIndex):
        return f"{ticks:.4g} periods"
    if not isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex):
        return f"{ticks:.4g}"
    fitting = (name for name, length in _UNITS.items() if ticks >= 0.995 * length)
    name = next(fitting, "s")
    return f"{ticks / _UNITS[name]:.4g} {name}"
