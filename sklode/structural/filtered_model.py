"""A structural model with the states of series after their rows.

Tested in tests/structural/test_exactness.py and test_concurrent.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations
from sklode.structural.coupling.contemporaneous import Told
from sklode.structural.effects.effect import places
from sklode.structural.filtering import GroupedChannel
from sklode.structural.model import StructuralModel
from sklode.structural.predictive.limits import BOUNDS, Limits
from sklode.structural.predictive.mixture import Adjustment, Mixture
from sklode.structural.rows import ChannelRows

N_PATHS = 40
"""Of columns that are not known yet, which tell how wide answers are."""


@dataclass(frozen=True)
class FilteredModel:
    """A structural model with the states of series after their rows."""

    model: StructuralModel
    observations: Observations
    channels: list[GroupedChannel]

    @classmethod
    def of(cls, model: StructuralModel, observations: Observations) -> FilteredModel:
        """Filter the rows of series, those that the model was found on or others."""
        tables = model.design.tables(observations)
        channels = [
            GroupedChannel.of(column.candidates, table, column.span)
            for column, table in zip(model.columns, tables, strict=True)
        ]
        return cls(model, observations, channels)

    def updated(self, observations: Observations) -> FilteredModel:
        """Return the same after more rows, filtering only those if it can."""
        fresh = _rows_after(self.observations, observations)
        # more rows change what is known of a series' scale, and whom it is like
        may_change = any(
            one.scale_spread or one.group != column.candidates[0].group
            for column in self.model.columns
            for one in column.candidates
        )
        # and where a column acts late, between its rows, what was between old ones
        if fresh is None or may_change or self.model.design.is_delayed:
            return FilteredModel.of(self.model, observations)
        tables = self.model.design.tables(observations, fresh)
        pairs = zip(self.channels, tables, strict=True)
        channels = [channel.continued(table) for channel, table in pairs]
        return FilteredModel(self.model, observations, channels)

    def answered(
        self,
        channel: int,
        asked: ChannelRows,
        adjustment: Adjustment | None = None,
        limits: Limits | None = None,
        is_widened: bool = False,
    ) -> Mixture:
        """Return the distribution of a channel, as wide as errors were if asked.

        What a move begins at stays within ``limits``, if they are given.
        Rows are of one group's series here and below, see `GroupedChannel.split`.
        """
        own = self.channels[channel].of_rows(asked)
        mixture = own.answered(asked, self._told(channel, asked))
        if is_widened:
            mixture = mixture.widened(self._factor(channel, asked, adjustment))
        mixture = own.blurred(mixture, asked)
        if adjustment is None:
            return mixture
        if limits is not None:
            # a logarithm may have run away, to where no move leads back from
            mixture = mixture.within(*limits.ends(BOUNDS))
        return mixture.adjusted(adjustment)

    def inputs(
        self,
        series: Numbers,
        ticks: Numbers,
        known: Observations,
        place: Numbers,
        n: int = 0,
        seed: int | None = None,
    ) -> tuple[Array, Array | None]:
        """Return `Design.inputs` at stamps of series.

        X is that of ``known`` rows at ``place``. Columns of y that act late are those
        of the rows that were filtered, or where these end earlier, forecasts. How ``n``
        paths of them change all columns but the first is second, (path, row, column),
        or None; without a ``seed`` each path is a quantile everywhere.
        """
        design, rows, changes = self.model.design, self.observations, None
        inputs = design.inputs_of(ticks, known, place, seen=rows, series=series)
        for effect, columns in places(design.effects).items():
            if not effect.delay:
                continue
            channel = effect.column - known.controls.shape[1]
            before = ticks - round(effect.delay * design.unit)
            times, own = design.times(rows, series, before), np.array(columns)
            is_late = times > self.channels[channel].table.ends[series]
            # by series, then by time, as tables of rows are
            late = np.flatnonzero(is_late)
            late = late[np.lexsort((times[late], series[late]))]
            if not len(late):
                continue
            # what acts late on that column stays as it was
            held = known.at_or_before(known.series[place[late]], before[late])
            read = design.inputs_of(
                before[late], known, held, seen=rows, series=series[late]
            )
            asked = ChannelRows.of(
                series=series[late],
                times=times[late],
                values=np.nan,
                inputs=read,
                n_series=len(rows.keys),
            )
            values = self._ahead(channel, asked, n, seed)
            made = effect.at(design.standard(values.ravel(), effect.column))
            made = made.reshape(*values.shape, -1)
            # the first column of inputs is the clock; the first path is the forecast
            inputs[np.ix_(late, 1 + own)] = made[0]
            if n:
                if changes is None:
                    changes = np.zeros((n, len(ticks), inputs.shape[1] - 1))
                changes[np.ix_(np.arange(n), late, own)] = made[1:] - made[0]
        return inputs, changes

    def _ahead(
        self, channel: int, asked: ChannelRows, n: int, seed: int | None
    ) -> Array:
        """Return forecasts of a channel, and paths or else quantiles, (1 + n, row)."""
        values = np.empty((1 + n, len(asked.times)))
        for _, place in self.channels[channel].split(asked):
            own = asked.where(place)
            found = self.answered(channel, own)
            values[0, place] = found.points()
            if n and seed is not None:
                values[1:, place] = self.drawn(
                    channel,
                    own,
                    n=n,
                    seed=seed + channel,
                    noise=False,
                    adjustment=None,
                )
            elif n:
                # in the middle of n parts of equal chance
                levels = (np.arange(n) + 0.5) / n
                values[1:, place] = found.quantiles(levels).T
        return values

    def limits(
        self, channel: int, asked: ChannelRows, adjustment: Adjustment | None
    ) -> Limits:
        """Return what a channel's answers stay within.

        A network knows other series: where it moves answers, theirs moves count too.
        """
        one, model = self.channels[channel].of_rows(asked), self.model.columns[channel]
        shared = None if adjustment is None else adjustment.weight > 0
        found = Limits.of(
            one.table,
            asked,
            model.moves,
            heaviest=one.heaviest,
            step=model.quantum,
            shared=shared,
        )
        if np.isfinite(model.bounds).all():
            # two bounds suffice: no move is too far
            return found._replace(reach=np.full_like(found.reach, np.inf))
        return found

    def drawn(
        self,
        channel: int,
        asked: ChannelRows,
        n: int,
        seed: int,
        noise: bool,
        adjustment: Adjustment | None,
    ) -> Array:
        """Return draws of a channel, see `FilteredChannel.drawn`."""
        mixture = self.answered(channel, asked)
        group = self.channels[channel].of_rows(asked)
        draws = group.drawn(
            asked,
            n=n,
            seed=seed,
            noise=noise,
            told=self._told(channel, asked),
            factor=self._factor(channel, asked, adjustment),
            centre=mixture.medians(),
        )
        if adjustment is None:
            return draws
        adjustment, middle = mixture.limited(adjustment)
        adjusted: Array = adjustment.of(draws, middle)
        return adjusted

    def _factor(
        self, channel: int, asked: ChannelRows, adjustment: Adjustment | None
    ) -> Array:
        """Return how many times as wide answers are as a channel expects."""
        factor = self.channels[channel].of_rows(asked).widened(asked)
        if adjustment is None:
            return factor
        # a network's are as wide as its own errors were
        return np.where(adjustment.weight > 0, 1.0, factor)

    def _told(self, channel: int, asked: ChannelRows) -> Told | None:
        """Return what other channels add, in gaps and at ends or else later."""
        told = self.model.concurrent.told(self.channels, channel, asked)
        if told is not None or not self.model.cross.weights[:, :, channel].any():
            return told
        # next rows come after the last row of any channel
        ends = np.max([one.table.ends for one in self.channels], axis=0)
        ends = np.maximum(ends, 0.0)
        sums = np.stack([one.sums_at(ends) for one in self.channels], axis=1)
        ahead = asked.times - ends[asked.series]
        shift = self.model.cross.shift(channel, sums[asked.series], ahead)
        nothing, as_wide = np.zeros_like(shift), np.ones_like(shift)
        return Told(shift=shift, middle=nothing, narrower=as_wide)


def _rows_after(seen: Observations, now: Observations) -> Flags | None:
    """Return the rows after those seen; None if those have changed."""
    if seen.keys != now.keys:
        return None
    last = seen.ticks[seen.bounds[1:] - 1]
    fresh = now.ticks > last[now.series]
    before = now.where(~fresh)
    same = all(
        np.array_equal(getattr(before, name), getattr(seen, name), equal_nan=True)
        for name in ("ticks", "values", "controls")
    )
    return fresh if same else None
