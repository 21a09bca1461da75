"""A structural model and a network that looks ahead: one distribution a forecast."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from sklode.data.arrays import Array, Numbers
from sklode.data.errors import SolverError
from sklode.data.history import History, QueryRows
from sklode.data.links import LEAST
from sklode.data.observations import Observations
from sklode.data.ticks import rows_before, shown, ticks_between
from sklode.engine.threads import own_modes
from sklode.hybrid.controls import ControlForms
from sklode.hybrid.network import HybridODE
from sklode.hybrid.origins import Origins
from sklode.hybrid.restarts import ahead, restarted
from sklode.hybrid.windows import Queries, batch_of, control_path
from sklode.structural.answers import StructuralAnswers
from sklode.structural.model import StructuralModel
from sklode.structural.predictive.scale_by_lead import interpolated
from sklode.structural.predictive.steps import Adjustment
from sklode.structural.results import answers_of
from sklode.structural.rows import ChannelRows
from sklode.training.model import TrainedModel, by_lead

_ANSWERS_AT_ONCE = 2**12  # of a network: memory
_MOST_TOLD = 8  # columns, whose shares are told each
_STATES_AT_ONCE = 2**17  # windows, times components of their states squared


@dataclass(frozen=True)
class NetworkWeights:
    """How much of a network's forecast counts, and how wide it is.

    Linear between leads; beyond ``reach`` nothing counts.
    """

    leads: Array  # (knot,), in units of time, increasing
    weights: Array  # (knot, channel), from 0 to 1
    factors: Array  # (knot, channel): of the standard deviation, see `Adjustment`
    usual: Array  # (knot, channel): the structural model's, in units that all share
    most: Array  # (channel,): such deviations that a forecast was moved at most
    reach: float  # the longest lead that was proved

    @classmethod
    def even(cls, weight: float, n_channels: int, reach: float) -> NetworkWeights:
        """Return one of a weight at all leads, that leaves deviations as they are."""
        one = np.ones((1, n_channels))
        return cls(
            leads=np.zeros(1),
            weights=weight * one,
            factors=one,
            usual=np.nan * one,
            most=np.full(n_channels, np.inf),
            reach=reach,
        )

    def followed_by(self, other: NetworkWeights, reach: float) -> NetworkWeights:
        """Return them with those of longer leads, of channels that count before."""
        counts = (self.weights > 0).any(axis=0)

        def joined(name: str) -> Array:
            both: Array = np.concatenate([getattr(self, name), getattr(other, name)])
            return both

        return NetworkWeights(
            leads=joined("leads"),
            weights=np.concatenate([self.weights, other.weights * counts]),
            factors=joined("factors"),
            usual=joined("usual"),
            most=np.maximum(self.most, other.most),
            reach=reach,
        )

    def at(self, leads: Array) -> tuple[Array, Array, Array]:
        """Return weights, factors and usual deviations at leads, (query, channel).

        Where nothing counts the first are 0 and the second 1.
        """
        # a lead of 0 is a row that was seen, or lies before one
        within = (leads > 0) & (leads <= self.reach)
        weights, factors, usual = (
            interpolated(leads, self.leads, table)
            for table in (self.weights, self.factors, self.usual)
        )
        counts = within[:, None] & (weights > 0)
        return np.where(counts, weights, 0.0), np.where(counts, factors, 1.0), usual


@dataclass(frozen=True, repr=False, kw_only=True)
class HybridModel(TrainedModel):
    """A structural model, and a network where one adds to it; else None."""

    network: HybridODE | None
    others: tuple[HybridODE, ...] = ()  # of which and it the mean is taken
    structural: StructuralModel
    forms: ControlForms
    weights: NetworkWeights | None = None  # None: nothing counts
    gap_weights: NetworkWeights | None = None  # likewise, by the nearest row's distance
    backward: HybridODE | None = None  # of reversed time; later trainings keep it
    backward_weights: NetworkWeights | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return len(self.units.location), self.forms.n_columns

    @property
    def networks(self) -> tuple[HybridODE, ...]:
        """All networks."""
        return () if self.network is None else (self.network, *self.others)

    @property
    def reversed(self) -> HybridModel | None:
        """The model of reversed time, where one is proved."""
        if self.backward is None:
            return None
        return replace(
            self,
            network=self.backward,
            others=(),
            weights=self.backward_weights,
            forms=self.forms.reversed(),
            gap_weights=None,
            backward=None,
            backward_weights=None,
        )

    @property
    def weighed(self) -> NetworkWeights:
        """What counts at each lead: nothing where none is proved."""
        return self.weights or NetworkWeights.even(0.0, self.sizes[0], reach=0.0)

    def answers(self, history: History, seed: int, before: object) -> StructuralAnswers:
        """Return what it answers of series."""
        adjust = None if self.network is None else self.adjustments
        return answers_of(
            self.structural, history=history, seed=seed, before=before, adjust=adjust
        )

    def attributes(self, channels: list[Hashable]) -> dict[str, object]:
        """Return the fitted attributes of a forecaster."""
        found = self.weighed
        return super().attributes(channels) | {
            "networks_": self.networks,
            "network_share_": self.share,
            "interval_scale_": by_lead(found.leads, found.factors, channels),
            "network_weights_": by_lead(found.leads, found.weights, channels),
        }

    @property
    def reach(self) -> float:
        """The longest lead that its network learns; 0 without one."""
        return 0.0 if self.network is None else self.network.reach

    @property
    def share(self) -> float:
        """How much of the network counts, on average."""
        return float(self.weighed.weights.mean())

    def contribution(self, like: pd.Index) -> str:
        """How much of a forecast is the network's, in words, of stamps like these."""
        if not self.share:
            return "does not count: the structural model alone forecasts"
        return (
            "moves the structural model's forecast, by a weight of "
            f"{self.share:.2g} on average{self._shares_in_words()},\n"
            f"{self._reach_in_words(like)}"
            f"{self._gaps_in_words(like)}; elsewhere that alone answers"
        )

    def _shares_in_words(self) -> str:
        """Return how much it counts by column; of many, where least and most."""
        shares = self.weighed.weights.mean(axis=0)
        told = [
            f"{share:.2g} of {name}"
            for share, name in zip(shares, self.columns[0], strict=True)
        ]
        if len(told) > _MOST_TOLD:
            ends = np.argsort(shares)[[0, -1]]
            return f" ({told[ends[0]]} to {told[ends[1]]})"
        return f" ({', '.join(told)})" if len(told) > 1 else ""

    def _reach_in_words(self, like: pd.Index) -> str:
        """Return to which leads the network counts."""
        text = f"up to {self.length(self.weighed.reach, like)} after a series' last row"
        if self.backward_weights is not None:
            back = self.length(self.backward_weights.reach, like)
            text += f" and {back} before its first"
        return text

    def _gaps_in_words(self, like: pd.Index) -> str:
        """Return what it does in gaps."""
        if self.gap_weights is None:
            return ""
        share = float(self.gap_weights.weights.mean())
        reach = self.length(self.gap_weights.reach, like)
        return f",\nby {share:.2g} in gaps, up to {reach} from the nearest row"

    def adjustments(
        self, history: History, queries: ChannelRows, known: Observations
    ) -> list[Adjustment | None]:
        """Return where the network moves queries to, a move each channel."""
        found: list[Adjustment | None] = [None] * self.sizes[0]
        if self.network is None or self.weights is None:
            return found
        observed = history.observations
        row, passed = _rows_before(history, observed, queries, unit=self.units.time)
        parts = self._parts(observed, known, row, passed)
        n_asked, n_beyond = len(row), sum(part.n_beyond for part in parts)
        if n_beyond > n_asked / 2:
            warnings.warn(
                f"the network counts {self._reach_in_words(observed.like)}, as far as "
                f"it was proved; {n_beyond} of {n_asked} rows asked lie beyond. The "
                "structural model alone answers there. Fit on longer series, or "
                "forecast nearer stamps.",
                RuntimeWarning,
                stacklevel=2,
            )
        shape = n_asked, len(found)
        weights, factors, most = np.zeros(shape), np.ones(shape), np.zeros(shape)
        usual, target = np.full(shape, np.nan), np.zeros(shape)
        for table, distance, _, forecasts in parts:
            mine = (distance > 0) & (distance <= table.reach)
            weights[mine], factors[mine], usual[mine] = table.at(distance[mine])
            most[mine] = table.most
            which = np.flatnonzero(mine & weights.any(axis=1))
            if len(which):
                target[which] = forecasts(which)
        # a latent state that overflows, or a step that no solver could take
        unknown = ~np.isfinite(target)
        if unknown.any():
            first = queries.series[int(np.argmax(unknown.any(1)))]
            warnings.warn(
                "the network's forecasts must be finite; got "
                f"{int(unknown.any(1).sum())} of {n_asked} rows where they are not, "
                f"the first of series {shown(history.rows.keys[first])}. The "
                "structural model answers there. Fit with a lower lr, or ask for "
                "nearer stamps.",
                RuntimeWarning,
                stacklevel=2,
            )
        target[unknown] = 0.0
        weights[unknown] = 0.0
        # measured in units that all series share, given in the series' own
        _, scale = self.units.of_all(observed)
        usual = usual * scale[observed.series[row]]
        for channel in np.flatnonzero(weights.any(0)).tolist():
            found[channel] = Adjustment(
                # the network's logarithms are cut off at small values, y's are not
                link=self.units.links[channel]._replace(least=LEAST),
                target=target[:, channel],
                weight=weights[:, channel],
                factor=factors[:, channel],
                most=most[:, channel],
                usual=usual[:, channel],
            )
        return found

    def _parts(
        self, observed: Observations, known: Observations, row: Numbers, passed: Array
    ) -> list[_Part]:
        """Return what is asked after the last rows, in gaps, and before the first.

        Queries lie so long after the ``row`` of those ``observed`` at or before them.
        """
        is_last = row == observed.bounds[1:][observed.series[row]] - 1
        rows, seen = self.read(known, observed)

        def onwards(which: Numbers) -> Array:
            return self.forecasts(seen, rows, row[which], lead=passed[which])

        lead = np.where(is_last & (passed >= 0), passed, -1.0)
        n_beyond = int((lead > self.weighed.reach).sum())
        parts = [_Part(self.weighed, lead, n_beyond, onwards)]
        if self.gap_weights is not None:
            # what counts in a gap is how far the nearest row is, to either side
            gaps = np.append(observed.gaps, 0.0)[row] / self.units.time
            is_inside = ~is_last & (passed <= self.reach)
            nearest = np.where(is_inside, np.minimum(passed, gaps - passed), -1.0)
            parts.append(_Part(self.gap_weights, nearest, 0, onwards))
        back = self.reversed
        if back is not None:

            def backward(which: Numbers) -> Array:
                # of each series the first row comes last
                rows, seen = back.read(known.reversed(), observed.reversed())
                first = observed.opposite(row[which])
                return back.forecasts(seen, rows, first, lead=-passed[which])

            n_beyond = int((-passed > back.weighed.reach).sum())
            parts.append(_Part(back.weighed, -passed, n_beyond, backward))
        return parts

    def states(self, history: History, queries: QueryRows) -> tuple[Array, Array]:
        """Return the latent state of `network` and its deviation, (row, state).

        Each is that of the row with a value at or before a stamp, carried on from it.
        """
        network: Any = self.network
        series, ticks = queries.series, queries.ticks
        known, seen = self.read(queries.known, history.observations)
        first = known.ticks[known.bounds[:-1]]
        controls = self.forms.known(known, since=first, units=self.units)
        row = seen.at_or_before(series, ticks)
        passed = ticks_between(seen.ticks[row], ticks)
        _check_begun(passed, queries.index)
        # answers come by window
        order = np.lexsort((ticks, row))
        rows, window = np.unique(row[order], return_inverse=True)
        lead = passed[order] / self.units.time
        asked = Queries(window, 0 * window, lead, np.full(len(lead), -1))
        origins, place = self._read_from(seen, rows)
        windows = origins.seen(place, self.window_length)
        table = np.empty((2, len(lead), network.latent_size))
        at_once = max(_STATES_AT_ONCE // network.latent_size**2, 1)
        for begin in range(0, len(rows), at_once):
            some = slice(begin, begin + at_once)
            part = slice(*np.searchsorted(window, (begin, begin + at_once)))
            mine = asked.part(part)._replace(window=window[part] - begin)
            own = seen.series[rows[some]]
            begin_at = ticks_between(first[own], seen.ticks[rows[some]])
            path = control_path(
                controls,
                series=own,
                start=begin_at / self.units.time,
                length=float(mine.lead.max()),
                network=network,
            )
            batch = batch_of(windows.part(some), mine, path, network)
            with own_modes(gradients=False):
                found = torch.stack(network.states(batch))
            table[:, order[part]] = found.double().cpu().numpy()
        return table[0], table[1]

    def read(
        self, every: Observations, seen: Observations
    ) -> tuple[Observations, Observations]:
        """Return all rows of series and those ``seen``, with a network's controls."""
        return self.forms.read(every, seen, self.units.time)

    def forecasts(
        self,
        seen: Observations,
        known: Observations,
        row: Numbers,
        lead: Array,
        farthest: float | None = None,
    ) -> Array:
        """Return forecasts, (query, channel), see `Adjustment.target`; NaN of none.

        Each looks ahead from a ``row`` of those ``seen``, which are sorted, with
        restarts where leads are longer than ``farthest``: as far as it learned. Both
        ``seen`` and what is ``known`` of X are `read`.
        """
        n_channels, series = self.sizes[0], seen.series[row]
        origins, place_of = self._read_from(seen, row)
        # controls are known by the time since their series' last row
        end = seen.ticks[seen.bounds[1:] - 1]
        controls = self.forms.known(known, since=end, units=self.units)
        start = ticks_between(end[series], seen.ticks[row]) / self.units.time
        table = np.empty((len(row), n_channels))
        # what lies farther than was learned is asked of paths, all of them at once
        is_far = lead > (self.reach if farthest is None else farthest)
        near = np.flatnonzero(~is_far)
        at_once = max(_ANSWERS_AT_ONCE // n_channels, 1)
        places = [near[low : low + at_once] for low in range(0, len(near), at_once)]
        for mine in [*places, np.flatnonzero(is_far)]:
            if not len(mine):
                continue
            own, at = series[mine], row[mine]
            # windows are encoded once; every channel is queried at every stamp
            _, some, place = np.unique(at, return_index=True, return_inverse=True)
            some = mine[some]
            queries = Queries(
                np.repeat(place, n_channels),
                np.tile(np.arange(n_channels), len(own)),
                np.repeat(lead[mine], n_channels),
                np.full(len(own) * n_channels, -1),
            )
            windows = origins.seen(place_of[some], self.window_length)
            ask = restarted if is_far[mine[0]] else ahead
            found = np.full((len(own), n_channels), np.nan)
            with own_modes(gradients=False), contextlib.suppress(SolverError):
                answers = ask(
                    self.networks, windows, queries, series[some], controls, start[some]
                )
                found = answers.reshape(found.shape)
            table[mine] = origins.location[own] + origins.scale[own] * found
        return table

    def _read_from(self, seen: Observations, row: Numbers) -> tuple[Origins, Numbers]:
        """Return the rows that windows up to some read, and their places among them.

        However long a series is, no others are scaled.
        """
        ends = np.unique(np.append(row, seen.bounds[1:] - 1))  # a row of each series
        read = ends[:, None] - np.arange(self.window_length)
        first = seen.bounds[:-1][seen.series[ends]]
        is_read = np.zeros(len(seen.ticks), dtype=bool)
        is_read[np.maximum(read, first[:, None])] = True
        place = np.cumsum(is_read) - 1
        return Origins(seen.where(is_read), self.units, whole=seen), place[row]


class _Part(NamedTuple):
    """Queries on one side of what was seen, and how a network answers them."""

    weights: NetworkWeights
    distance: Array  # (query,), from what was seen; below 0 where they are not its own
    n_beyond: int  # of them, that lie farther than was proved
    forecasts: Callable[[Numbers], Array]


def _rows_before(
    history: History, seen: Observations, queries: ChannelRows, unit: float
) -> tuple[Numbers, Array]:
    """Return the row ``seen`` at or before each query, and the time that has passed.

    Before a series' first one that is negative; of a series without any, infinite.
    """
    # times of queries count from each series' first row, with y or without
    first = history.rows.ticks[history.rows.bounds[:-1]]
    times = ticks_between(first[seen.series], seen.ticks) / unit
    # series without y come last
    has_y = queries.series < len(seen.keys)
    own = np.minimum(queries.series, len(seen.keys) - 1)
    row = rows_before(seen.bounds, times, own, asked=queries.times)
    row = np.where(has_y, np.maximum(row, seen.bounds[own]), len(times) - 1)
    passed: Array = np.where(has_y, queries.times - times[row], np.inf)
    return row, passed


def _check_begun(passed: Array, index: pd.Index) -> None:
    """Check that no stamp lies before its series' first value, ``passed`` since."""
    early = np.flatnonzero(passed < 0)
    if len(early):
        raise ValueError(
            "a latent state is that of values seen before; got "
            f"{len(early)} of {len(index)} rows before their series' first value, the "
            f"first at {shown(index[early[0]])}. Ask from there on."
        )
