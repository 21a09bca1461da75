"""What a structural model answers of known series, in y's own units.

Tested in tests/structural/test_exactness.py and test_bounds.py.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from sklode.data.arrays import Array, Numbers
from sklode.data.checks import finite
from sklode.data.history import History, QueryRows
from sklode.data.links import Link
from sklode.data.observations import Observations
from sklode.data.ticks import day_and_week, length_of_time
from sklode.structural.candidates import Candidate
from sklode.structural.components.space import PLACE
from sklode.structural.effects.basis import Constant, Levels, OfColumn
from sklode.structural.effects.effect import Effect, places
from sklode.structural.effects.lags import Age, Delay
from sklode.structural.effects.modulation import ALWAYS, NamedDays
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.predictive.steps import Adjustment, Prediction
from sklode.structural.rows import ChannelRows
from sklode.structural.unknown_x import Unknown, queries_of

# last observations, of which a description tells the shares
_DESCRIBED = 2000
_VALUES = {-1: "any", 0: "not below zero", 1: "counts"}
# quantiles 0.05, 0.5 and 0.95 of a standard normal distribution
_NINETY = np.array([-1.6449, 0.0, 1.6449])


class Curve(NamedTuple):
    """What a column adds to y, or its logit; of a logarithm, its factor."""

    part: str
    column: Hashable
    values: Array  # (place,), of the column
    effect: Array  # (place,)
    bounds: Array  # (place, 2), of a 90 % interval
    memory: str  # how long it builds up, to this; "": it acts at once
    levels: tuple[str, ...] = ()  # of a category, at every second place
    delay: str = ""  # after which a column of y acts


Adjust: TypeAlias = Callable[
    [History, ChannelRows, Observations], list[Adjustment | None]
]
"""What says where a network moves queries, a move each channel."""


class StructuralAnswers:
    """A structural model with its history: rows in, tables out; ``adjust`` moves them.

    ``unknown`` says what X may be where it is not known.
    """

    def __init__(
        self,
        states: FilteredModel,
        history: History,
        seed: int,
        adjust: Adjust | None = None,
        unknown: Unknown | None = None,
    ) -> None:
        self.states, self.model = states, states.model
        self._history = history
        self._seed = seed
        self._adjust, self._unknown = adjust, unknown

    @property
    def leaves_weeks_open(self) -> bool:
        """Whether nothing tells where the weeks begin that holidays are named for."""
        design, rows = self.model.design, self._history.rows
        if design.calendar is None or not design.calendar.period.weeks:
            return False
        if isinstance(rows.like, pd.PeriodIndex):
            return False
        is_found = any(isinstance(e.modulation, NamedDays) for e in design.effects)
        return not is_found or design.calendar.leaves_weeks_open(rows.ticks, rows.like)

    @property
    def drift(self) -> float:
        """By how many deviations the last rows lie to one side, at the most."""
        columns = self.states.columns
        return float(np.abs([each.drift for each in columns]).max(initial=0.0))

    def means(self, asked: QueryRows) -> Array:
        """Return forecasts, (row, channel), see `Mixture.points`."""
        effects = self.model.design.effects
        is_curved = any(effect.basis.is_curved for effect in effects)
        # of a line in X the mean over paths is that at the mean of X: none are needed
        n = None if is_curved else 0
        return self._each(asked, Prediction.points, n)

    def variances(self, asked: QueryRows, n: int) -> Array:
        """Return exact variances of observations, (row, channel)."""
        return self._each(asked, lambda found: found.distribution().variance(), None)

    def quantiles(self, asked: QueryRows, n: int, alpha: list[float]) -> Array:
        """Return exact quantiles of observations, (row, channel, alpha)."""
        levels = np.array(alpha)

        def quantiles(found: Prediction) -> Array:
            return found.distribution().quantiles(levels)

        return self._each(asked, quantiles, None, shape=(len(levels),))

    def paths(self, asked: QueryRows, n: int, noise: bool) -> Array:
        """Return ``n`` joint sample paths, (sample, row, channel)."""
        rows, order, predictions = self._predictions(asked, n)
        paths = np.empty((n, len(order), len(self._history.channels)))
        for k, prediction in enumerate(predictions):
            drawn = self.states.columns[k].drawn(
                rows, n=n, seed=self._seed + k, has_noise=noise
            )
            paths[:, order, k] = prediction.paths(drawn)
        return finite(paths)

    def parts(self, asked: QueryRows) -> pd.DataFrame:
        """Return the most probable form's parts, and their sum, at rows."""
        rows, order, _ = self._queries(asked, 0)
        found: dict[tuple[Hashable, str], Array] = {}
        for column, name in self._named():
            for candidate, place, parts in column.parts(rows):
                units = candidate.scaling.at(rows.where(place).series).units
                parts = parts * units.scale[:, None]
                # the location is the trend's, and so the sum's
                parts[:, [0, -1]] += units.location[:, None]
                names = self._part_names(candidate)
                for part, values in zip(names, parts.T, strict=True):
                    # what other series have not is nothing there; effects of one
                    # name, as of a dose that is absorbed before it acts, add up
                    table = found.setdefault((name, part), np.zeros(len(order)))
                    table[order[place]] += values
        frame = pd.DataFrame(found).sort_index().set_axis(asked.index)
        return frame.rename_axis(columns=["channel", "part"])

    @functools.cached_property
    def description(self) -> pd.DataFrame:
        """Return what was found, as `StructuralForecaster.components_` has it."""
        records: list[dict[str, object]] = []
        for place, (column, name) in enumerate(self._named()):
            records += self._described(column, place, name)
        return pd.DataFrame(records).set_index(["channel", "part"])

    def _described(
        self, column: FilteredColumn, place: int, name: Hashable
    ) -> list[dict[str, object]]:
        """Return a record of each part of a channel, by its number and name."""
        candidate, parts = column.described(_DESCRIBED)
        model = candidate.model
        # a form's probability is that of all its hyperparameters
        likely = [
            one.weight
            for one in column.candidates
            if (one.model.form, one.group) == (model.form, candidate.group)
        ]
        # the last part is the sum of the others; in its place the noise
        variances = np.append(parts[:, :-1].var(0), model.noise)
        names = [*self._part_names(candidate)[:-1], "noise"]
        effects, theta = self._effects(candidate), model.theta
        memories = [
            *np.exp(theta[[PLACE["velocity memory"], PLACE["OU memory"]]]),
            *np.exp(theta[model.form.memories]),
            *(effect.lag.time for effect in effects),
            0.0,  # of the noise
        ]
        scale = float(np.median(candidate.scaling.units.scale))
        link = candidate.scaling.link
        is_moved = self.model.coupling.moves(place) or any(
            effect.is_delayed for effect in effects
        )
        several = column.usual
        n_drawn = sum(one.is_drawn for one in several)
        wideness = self.states.dispersion(place, column.table)
        # a group whose series draw none is one kind
        whole = {one.group for one in several if not one.is_drawn}
        n_kinds = n_drawn + len(whole)
        return [
            {
                "channel": name,
                "part": part,
                "share": variance / variances.sum(),
                "size": scale * variance**0.5,
                "memory": self._length(memory),
                "logarithm": link.is_logarithm,
                "link": link.name,
                "probability": sum(likely),
                "values": self._kind(place),
                "cross": bool(is_moved),
                "kinds": n_kinds,
                "dispersion": wideness.max(initial=1.0) / wideness.min(initial=1.0),
                **column.naive_weights,
            }
            for part, variance, memory in zip(names, variances, memories, strict=True)
        ]

    def _kind(self, place: int) -> str:
        """Return in words which values a channel has."""
        bounds = self.model.columns[place].bounds
        if np.isfinite(bounds).any():
            return "from {:g} to {:g}".format(*bounds)
        return _VALUES[int(np.nan_to_num(self.states.quanta[place], nan=-1))]

    def _named(self) -> Iterator[tuple[FilteredColumn, Hashable]]:
        """Yield channels with their names."""
        return zip(self.states.columns, self._history.channels, strict=True)

    def _effects(self, candidate: Candidate) -> list[Effect]:
        """Return the effects of X in a form."""
        by_columns = {
            c: effect for effect, c in places(self.model.design.effects).items()
        }
        return [by_columns[columns] for columns in candidate.model.form.effects]

    def _part_names(self, candidate: Candidate) -> list[str]:
        """Return the names of `StateSpace.parts`; of a season its period."""
        periods, names = candidate.model.form.periods, self._names
        return [
            *("trend", "deviation"),
            *(f"season of {self._length(period)}" for period in periods),
            *(effect.name(names, self._cycle) for effect in self._effects(candidate)),
            "signal",
        ]

    @property
    def _names(self) -> list[Hashable]:
        """Names of the columns that effects may read, see `Design.read`."""
        return [*self._history.columns.numbers, *self._history.channels]

    @property
    def _cycle(self) -> tuple[str, list[str]]:
        """Names of a day and of the days of the week, or what stands for them."""
        like, cycle = self._history.rows.like, self.model.design.cycle
        if cycle is None or cycle == day_and_week(like):
            week = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
            return "day", [*week, "holidays"]
        n_days = round(cycle[1] / cycle[0])
        return length_of_time(cycle[0], like), [str(k + 1) for k in range(n_days)]

    def _length(self, time: float) -> str:
        """Return a length of time, in units of the model, in words."""
        return length_of_time(time * self.model.design.unit, self._history.rows.like)

    def link(self, channel: int, series: int) -> Link:
        """Return what the most probable form's parts add up to, of y."""
        column = self.states.columns[channel]
        candidate = column.candidates[column.heaviest[series]]
        return candidate.scaling.link

    def curves(self, channel: int, series: int) -> list[Curve]:
        """Return the effect of each column in the most probable form."""
        column = self.states.columns[channel]
        k = column.heaviest[series]
        candidate, states = column.candidates[k], column.states[k]
        mean, covariance = states.means[series], states.covariances[series]
        found, effects = [], self._effects(candidate)
        # coefficients are the last states, in the order of the effects
        end = len(mean) - sum(effect.n_columns for effect in effects)
        for effect in effects:
            own, end = slice(end, end + effect.n_columns), end + effect.n_columns
            basis = effect.basis
            if isinstance(basis, Constant) or effect.modulation != ALWAYS:
                continue  # no one curve
            values, columns = self._grid(effect, basis)
            # of x' b with b from N(m, C): mean x' m, variance x' C x
            variances = ((columns @ covariance[own, own]) * columns).sum(1)
            spread = np.sqrt(variances)[:, None]
            drawn = (columns @ mean[own])[:, None] + _NINETY * spread
            drawn = candidate.scaling.alone(series).scale * drawn
            if candidate.scaling.link.is_logarithm:
                drawn = np.exp(drawn)
            found.append(self._curve(effect, basis, values, drawn))
        return found

    def _grid(self, effect: Effect, basis: OfColumn) -> tuple[Array, Array]:
        """Return values of a column over all that was seen, and an effect's of them."""
        rows = self._history.rows
        if isinstance(effect.lag, Age) and basis.first < 0:
            read = self.model.design.read(rows)
            oldest = read.ages(rows.series, read.times).max()
            ages = np.linspace(0, oldest, 200)
            return ages, effect.at(effect.lag.standard(ages))
        own = slice(basis.first, basis.first + basis.n_read)
        seen = np.hstack([rows.controls, rows.values])[:, own]
        values, columns = basis.grid(seen)
        return values, effect.at(self.model.design.standard(columns, own))

    def _curve(
        self, effect: Effect, basis: OfColumn, values: Array, drawn: Array
    ) -> Curve:
        """Return a curve by its values and its lower bound, middle and upper bound."""
        names, lag = self._names, effect.lag
        levels: tuple[str, ...] = ()
        column = names[basis.first]
        if basis.first < 0:
            column = f"age in steps of {self._length(1.0)}"
        if isinstance(basis, Levels):
            own = names[basis.first : basis.first + basis.n_read]
            # columns of a category are named "category = level"
            levels = tuple(str(one).partition(" = ")[2] for one in own)
            column, _ = basis.name(names)
        return Curve(
            part=effect.name(names, self._cycle),
            column=column,
            values=values,
            effect=drawn[:, 1],
            bounds=drawn[:, [0, 2]],
            memory=self._length(lag.time) if lag.remembers else "",
            levels=levels,
            delay=self._length(lag.time) if isinstance(lag, Delay) else "",
        )

    def _queries(
        self, asked: QueryRows, n: int | None
    ) -> tuple[ChannelRows, Numbers, Observations]:
        """Return what `queries_of` does, and warn of X that is not as it was."""
        rows, order, known = queries_of(
            self.states, asked, self._unknown, n=n, seed=self._seed
        )
        self._warn_of_new_controls(known)
        self._warn_of_new_to_series(known)
        if self.model.design.effects:
            self._warn_of_far_controls(known)
        return rows, order, known

    def _each(
        self,
        asked: QueryRows,
        of: Callable[[Prediction], Array],
        n: int | None,
        shape: tuple[int, ...] = (),
    ) -> Array:
        """Return numbers, of a ``shape``, of each row's prediction in each channel."""
        _, order, predictions = self._predictions(asked, n)
        table = np.empty((len(order), len(self._history.channels), *shape))
        for k, prediction in enumerate(predictions):
            table[order, k] = of(prediction)
        return finite(table)

    def _predictions(
        self, asked: QueryRows, n: int | None
    ) -> tuple[ChannelRows, Numbers, Iterator[Prediction]]:
        """Return rows, sorted, their places, and what is predicted of each channel."""
        rows, order, known = self._queries(asked, n)
        adjustments: list[Adjustment | None] = [None] * len(self.states.columns)
        if self._adjust is not None:
            adjustments = self._adjust(self._history, rows, known)
        each = enumerate(adjustments) if len(order) else ()
        found = (self.states.prediction(k, rows, own) for k, own in each)
        return rows, order, found

    def _warn_of_new_controls(self, known: Observations) -> None:
        """Warn of the first column that takes another value than its only one."""
        seen, effects = self._history.rows.controls, self.model.design.effects
        names = self._history.columns.numbers
        is_constant = (seen == seen[0]).all(0)
        is_new = (known.controls != seen[0]) & is_constant
        # what acts was not constant: a column, or all levels of a category
        for effect in (e for e in effects if e.is_of_X):
            first = effect.basis.first
            is_new[:, first : first + effect.basis.n_read] = False
        for k in np.flatnonzero(is_new.any(0))[:1]:
            row = int(np.argmax(is_new[:, k]))
            warnings.warn(
                "effects of X are learned where it varies; got "
                f"{known.controls[row, k]:g} in column {names[k]!r} "
                f"at {known.named(row)}, where all that was seen is {seen[0, k]:g}. "
                "Its effect is unknown. Fit on rows that hold both.",
                UserWarning,
                stacklevel=2,
            )

    def _warn_of_new_to_series(self, known: Observations) -> None:
        """Warn of columns that act on each series alone, and are new to some."""
        rows, names = self._history.rows, self._history.columns.numbers
        alone: dict[int, OfColumn] = {}
        for column in self.states.columns if len(rows.keys) > 1 else ():
            alone |= self._not_shared(column.best)
        for first, basis in sorted(alone.items()):
            read = slice(first, first + basis.n_read)
            least = np.fmin.reduceat(rows.controls[:, read], rows.bounds[:-1])
            most = np.fmax.reduceat(rows.controls[:, read], rows.bounds[:-1])
            is_other = known.controls[:, read] != least[known.series]
            is_new = (is_other & (least == most)[known.series]).any(axis=1)
            if not is_new.any():
                continue
            row, n_series = int(np.argmax(is_new)), len({*known.series[is_new]})
            warnings.warn(
                "effects of X that series do not share are learned where it varies "
                f"within each; column {names[first]!r} is new to {n_series} series in "
                f"{int(is_new.sum())} rows, the first at {known.named(row)}. Its "
                "effect there is unknown. Fit on rows of these series that hold both.",
                UserWarning,
                stacklevel=2,
            )

    def _not_shared(self, candidate: Candidate) -> dict[int, OfColumn]:
        """Return columns of X that act on each series as they did on it alone."""
        found: dict[int, OfColumn] = {}
        shared, coefficients = set(), candidate.coefficients
        for effect, own in places(self._effects(candidate)).items():
            if isinstance(effect.basis, Constant) or not effect.is_of_X:
                continue
            first = effect.basis.first
            found[first] = effect.basis
            if coefficients is not None and coefficients.is_shared(own):
                shared.add(first)
        return {first: basis for first, basis in found.items() if first not in shared}

    def _warn_of_far_controls(self, known: Observations) -> None:
        """Warn of columns that act and are far from all that was seen."""
        seen, names = self._history.rows.controls, self._history.columns.numbers
        low, high = seen.min(0), seen.max(0)
        # three half-ranges from the middle, all over four: no difference of floats that
        # are near their largest overflows
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        is_far = np.abs(known.controls / 4 - middle / 4) > 0.75 * half
        used = sorted({e.basis.first for e in self.model.design.effects if e.is_of_X})
        for k in (k for k in used if is_far[:, k].any()):
            row = int(np.argmax(is_far[:, k]))
            warnings.warn(
                f"X should be as it was in fit; got {known.controls[row, k]:g} in "
                f"column {names[k]!r} at {known.named(row)}, where "
                f"{low[k]:g} to {high[k]:g} were seen. Its effect goes on as a line "
                "there, and may be far off. Look for other units, or a broken sensor.",
                UserWarning,
                stacklevel=2,
            )
