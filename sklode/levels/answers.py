"""What the level of series that it knows answers, in y's own units."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sklode.data.history import GivenControls, History
from sklode.data.ticks import DAY, clock_ahead, rows_before
from sklode.levels.components import Component, heaviest
from sklode.levels.effects import Effect, places
from sklode.levels.floors import Floored, steps_of
from sklode.levels.mixture import Move
from sklode.levels.structural import FilteredLevel, StructuralLevel
from sklode.levels.tables import Queries

__all__ = ["LevelAnswers"]

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


class LooksAhead(Protocol):
    """Says where forecasts after the last rows of series move to."""

    def moves(
        self, history: History, queries: Queries, given: GivenControls | None
    ) -> Sequence[Move | None]:
        """Return the move of each channel's queries; None: none."""


class LevelAnswers:
    """A level with its history: rows of an index in, finite tables out.

    ``seed`` is that of all draws. A network that looks ahead may move the answers after
    the last rows.
    """

    def __init__(
        self,
        level: FilteredLevel,
        history: History,
        seed: int,
        ahead: LooksAhead | None = None,
    ) -> None:
        self._level = level
        self._history = history
        self._seed = seed
        self._ahead = ahead
        seen = steps_of(history.observations.values)
        self._steps = np.minimum(level.level.steps, seen)  # NaN where either is

    @property
    def level(self) -> StructuralLevel:
        """The hyperparameters that it answers by."""
        return self._level.level

    @property
    def states(self) -> FilteredLevel:
        """What it knows of the series."""
        return self._level

    def updated(self, history: History) -> LevelAnswers:
        """Return the answers once more rows were seen."""
        level = self._level.updated(history.rows)
        return LevelAnswers(level, history, self._seed, self._ahead)

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
        queries, order = self.queries(index, X)
        paths = np.empty((n, len(index), len(self._history.channels)))
        for k, move in enumerate(self._moves(index, X, queries)):
            drawn = self._level.drawn(k, queries, n, self._seed + k, noise, move)
            if not np.isnan(self._steps[k]):
                one = self._answered(k, queries, move)
                drawn = one.put(drawn) if noise else np.maximum(drawn, 0.0)
            paths[:, order, k] = drawn
        return _finite(paths)

    def components(self, index: pd.Index, X: pd.DataFrame | None) -> pd.DataFrame:
        """Return the parts of the most probable form at the rows of an index.

        Columns are (channel, part); the last part of each is their sum. Of a logarithm
        the parts are in its units, and their sum is that of the logarithm.
        """
        queries, order = self.queries(index, X)
        found = {}
        for channel, name in zip(
            self._level.channels, self._history.channels, strict=True
        ):
            component, parts = channel.parts(queries)
            parts = parts * np.reshape(component.scale, (-1, 1))
            parts[:, [0, -1]] += np.reshape(component.location, (-1, 1))
            for k, part in enumerate(self._part_names(component)):
                column = np.empty(len(index))
                column[order] = parts[:, k]
                found[name, part] = column
        frame = pd.DataFrame(found, index)
        return frame.rename_axis(columns=["channel", "part"])

    def description(self) -> pd.DataFrame:
        """Return what was found in each channel, a row each part.

        Its share of the variance of all parts over the last rows; its size, a standard
        deviation in units of y or of its logarithm; and how long it is remembered.
        """
        rows, told = [], self.level.cross.weights
        pairs = zip(self._level.channels, self._history.channels, strict=True)
        for place, (channel, name) in enumerate(pairs):
            kind = int(np.nan_to_num(self._steps[place], nan=-1))
            component, parts = channel.described(_DESCRIBED)
            chosen = sum(
                c.weight for c in channel.components if c.form == component.form
            )
            variances = parts[:, :-1].var(0)
            total = variances.sum() + component.noise
            names, logs = self._part_names(component), np.exp(component.logs)
            late = [effect.memory for effect in self._effects(component)]
            memories = [logs[3], logs[5], *logs[9::2], *late]
            sizes = np.append(variances, component.noise)
            for part, size, memory in zip(
                [*names[:-1], "noise"], sizes, [*memories, 0.0], strict=True
            ):
                rows.append(
                    {
                        "channel": name,
                        "part": part,
                        "share": size / total,
                        "size": float(np.median(component.scale)) * size**0.5,
                        "memory": self._length(memory),
                        "logarithm": component.form.logarithm,
                        "probability": chosen,
                        "values": _VALUES[kind],
                        "cross": bool(told[:, :, place].any()),
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
        one, level = self._level.channels[channel], self.level
        component = heaviest(one.components)
        pairs = zip(one.components, one.states, strict=True)
        known = next(states for each, states in pairs if each is component)
        rows, found, effects = self._history.rows, [], self._effects(component)
        end = known.means.shape[1] - sum(effect.n_columns for effect in effects)
        for effect in effects:
            own, end = slice(end, end + effect.n_columns), end + effect.n_columns
            seen = rows.controls[:, effect.column]  # type: ignore[index]
            values = np.linspace(seen.min(), seen.max(), _PLACES)
            standard = values - level.control_location[effect.column]
            columns = effect.at(standard / level.control_scale[effect.column])
            covariance = known.covariances[series][own, own]
            middle = columns @ known.means[series][own]
            spread = np.sqrt(((columns @ covariance) * columns).sum(1))
            scale = component.at(series).scale
            drawn = scale * (middle[:, None] + _NINETY * spread[:, None])
            if component.form.logarithm:
                drawn = np.exp(drawn)
            names = self._history.controls
            named = effect.name(names), names[effect.column]
            found.append(Curve(*named, values, drawn[:, 1], drawn[:, [0, 2]]))
        return found

    def queries(
        self, index: pd.Index, X: pd.DataFrame | None
    ) -> tuple[Queries, Numbers]:
        """Return the rows of an index, sorted; and the place that each had."""
        series, ticks = self._history.located(index)
        times = self._level.times(series, ticks)
        order = np.lexsort((times, series))
        inputs = self._inputs(index, X, series, ticks)
        return Queries(series[order], times[order], inputs[order]), order

    def _each(
        self,
        index: pd.Index,
        X: pd.DataFrame | None,
        of: Callable[[Any], Array],
        n_levels: int = 0,
    ) -> Array:
        """Return a number, or several, of each row's distribution in each channel."""
        queries, order = self.queries(index, X)
        shape = len(index), len(self._history.channels)
        table = np.empty((*shape, n_levels) if n_levels else shape)
        if len(index):
            for k, move in enumerate(self._moves(index, X, queries)):
                table[order, k] = of(self._answered(k, queries, move))
        return _finite(table)

    def _answered(self, channel: int, queries: Queries, move: Move | None) -> Any:
        """Return a channel's distribution: not below zero where no value of y is."""
        mixture = self._level.answered(channel, queries, move)
        step = self._steps[channel]
        return mixture if np.isnan(step) else Floored(mixture, step)

    def _moves(
        self, index: pd.Index, X: pd.DataFrame | None, queries: Queries
    ) -> Sequence[Move | None]:
        """Return where the network moves each channel's queries to."""
        if self._ahead is None:
            return [None] * len(self._level.channels)
        given = self._history.controls_for(index, X)
        return self._ahead.moves(self._history, queries, given)

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
