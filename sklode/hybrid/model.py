"""A structural model and a network that looks ahead: one distribution a forecast."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.errors import SolverError
from sklode.data.history import History
from sklode.data.links import LEAST
from sklode.data.observations import Observations
from sklode.data.scaled_rows import KnownControls
from sklode.data.ticks import ticks_between
from sklode.engine.threads import own_modes
from sklode.hybrid.network import HybridBatch, HybridODE
from sklode.hybrid.origins import Origins, Queries
from sklode.nn import ControlPath
from sklode.structural.answers import StructuralAnswers
from sklode.structural.model import StructuralModel
from sklode.structural.predictive.scale_by_lead import interpolated
from sklode.structural.predictive.steps import Adjustment
from sklode.structural.results import answers_of
from sklode.structural.rows import ChannelRows
from sklode.training.model import TrainedModel, by_lead

_ANSWERS_AT_ONCE = 2**12


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
    structural: StructuralModel
    weights: NetworkWeights | None = None  # None: nothing counts

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

    @property
    def contribution(self) -> str:
        """How much of a forecast is the network's, in words."""
        if not self.share:
            return "does not count: the structural model alone forecasts"
        weight = f"by a weight of {self.share:.2g} on average"
        return f"moves the structural model's forecast, {weight}"

    def adjustments(
        self, history: History, queries: ChannelRows, known: Observations
    ) -> list[Adjustment | None]:
        """Return where the network moves queries to, a move each channel."""
        found: list[Adjustment | None] = [None] * self.sizes[0]
        if self.network is None or self.weights is None:
            return found
        # Times of queries count from each series' first row, of all rows; leads, from
        # its last row with a value. Both are in the same unit, see `HybridTraining`.
        first = history.rows.ticks[history.rows.bounds[:-1]]
        seen = history.observations
        span = np.full(len(first), -np.inf)
        # series without y have no lead: they come last
        n_seen = len(seen.keys)
        ends = seen.ticks[seen.bounds[1:] - 1]
        span[:n_seen] = ticks_between(first[:n_seen], ends) / self.units.time
        lead = queries.times - span[queries.series]
        which = np.flatnonzero((lead > 0) & (lead <= self.weights.reach))
        target = np.zeros((len(lead), len(found)))
        origins = self.last_rows(seen)
        target[which] = self.forecasts(
            seen,
            origins=origins,
            series=queries.series[which],
            lead=lead[which],
            known=known,
        )
        # a latent state that overflows, or a step that no solver could take
        unknown = ~np.isfinite(target)
        if unknown.any():
            first = queries.series[int(np.argmax(unknown.any(1)))]
            warnings.warn(
                "the network's forecasts must be finite; got "
                f"{int(unknown.any(1).sum())} of {len(lead)} rows where they are not, "
                f"the first of series {history.rows.keys[first]}. The structural model "
                "answers there. Fit with a lower lr, or ask for nearer stamps.",
                RuntimeWarning,
                stacklevel=2,
            )
        target[unknown] = 0.0
        weights, factors, usual = self.weights.at(lead)
        weights[unknown] = 0.0
        # measured in units that all series share, given in the series' own
        own = np.minimum(queries.series, n_seen - 1)
        usual = usual * origins.scale[own]
        for channel in np.flatnonzero(weights.any(0)).tolist():
            found[channel] = Adjustment(
                # the network's logarithms are cut off at small values, y's are not
                link=self.units.links[channel]._replace(least=LEAST),
                target=target[:, channel],
                weight=weights[:, channel],
                factor=factors[:, channel],
                most=np.full(len(lead), self.weights.most[channel]),
                usual=usual[:, channel],
            )
        return found

    def last_rows(self, seen: Observations) -> Origins:
        """Return the rows that a window reads, however long a series is."""
        return Origins(seen.latest(self.window_length), self.units, whole=seen)

    def forecasts(
        self,
        seen: Observations,
        origins: Origins,
        series: Numbers,
        lead: Array,
        known: Observations,
    ) -> Array:
        """Return forecasts, (query, channel), see `Adjustment.target`; NaN of none.

        They look ahead from ``origins``, the `last_rows` of those ``seen``.
        """
        network: Any = self.network
        n_channels, last = self.sizes[0], origins.bounds[1:] - 1
        controls = None
        if known.controls.shape[1]:
            end = seen.ticks[seen.bounds[1:] - 1]
            since = ticks_between(end[known.series], known.ticks)
            values = self.units.controls(known.controls)
            controls = KnownControls(known.bounds, since / self.units.time, values)
        # a step's control is that of its middle: it may lie beyond the last stamp
        decoder = network.decoder
        spacing = 0.0 if decoder is None else decoder.solver.grid_spacing
        table = np.empty((len(series), n_channels))
        at_once = max(_ANSWERS_AT_ONCE // n_channels, 1)
        for low in range(0, len(series), at_once):
            part = slice(low, low + at_once)
            own = series[part]
            # windows are encoded once; every channel is queried at every stamp
            numbers, place = np.unique(own, return_inverse=True)
            queries = Queries(
                np.repeat(place, n_channels),
                np.tile(np.arange(n_channels), len(own)),
                np.repeat(lead[part], n_channels),
                np.full(len(own) * n_channels, -1),
            )
            path = None
            if controls is not None:
                far = np.full(len(numbers), lead[part].max() + spacing)
                path = controls.paths(numbers, 0.0 * far, far)
            batch = batch_of(
                origins=origins,
                rows=last[numbers],
                n_rows=self.window_length,
                queries=queries,
                path=path,
                network=network,
            )
            found = np.full((len(own), n_channels), np.nan)
            with own_modes(gradients=False), contextlib.suppress(SolverError):
                answers = network.predict(batch).double().cpu().numpy()
                found = answers.reshape(found.shape)
            table[part] = origins.location[own] + origins.scale[own] * found
        return table


def batch_of(
    origins: Origins,
    rows: Numbers,
    n_rows: int,
    queries: Queries,
    path: tuple[Array, Array] | None,
    network: HybridODE,
    hidden: Flags | None = None,
    target: Array | None = None,
) -> HybridBatch:
    """Return windows of ``n_rows`` that end at ``rows``, with the queries of them.

    The encoder does not see ``hidden`` rows, (window, row); ``target`` is the
    truth, (answer,).
    """
    like = next(network.parameters())
    ages, values, mask, controls = origins.seen(rows, n_rows)
    if hidden is not None:
        mask = mask & ~hidden[..., None]
    if target is None:
        target = np.zeros(len(queries.lead))

    def tensor(array: Array | Flags | Numbers) -> torch.Tensor:
        # values get the network's precision; indices and masks stay what they are
        found = torch.as_tensor(array, device=like.device)
        return found.to(like.dtype) if found.is_floating_point() else found

    ahead = None
    if path is not None:
        times, values_ahead = path
        ahead = ControlPath(times=tensor(times), values=tensor(values_ahead))
    return HybridBatch(
        times=tensor(ages),
        values=tensor(values),
        mask=tensor(mask),
        controls=None if controls is None else tensor(controls),
        path=ahead,
        window=tensor(queries.window),
        channel=tensor(queries.channel),
        lead=tensor(queries.lead),
        target=tensor(target),
    )
