"""A level with a network that looks ahead: one distribution of each forecast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sklode import nn
from sklode.data.history import GivenControls, History
from sklode.data.observations import Observations
from sklode.data.ticks import ticks_between
from sklode.data.windows import Origins, Questions, Units
from sklode.levels.mixture import Move
from sklode.levels.structural import StructuralLevel
from sklode.levels.tables import Queries
from sklode.nn.ahead import FEW
from sklode.nn.modes import own_modes
from sklode.prediction.model import build_encoder

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]

_WINDOWS_AT_ONCE = 256
_ANSWERS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Stacking:
    """How much of a network's forecast counts at each lead, and how wide it is.

    Linear between leads, the same before the first; beyond ``reach`` nothing counts.
    """

    leads: Array  # (knot,), in units of time, increasing
    weights: Array  # (knot, channel), from 0 to 1
    factors: Array  # (knot, channel): of the level's standard deviation
    reach: float  # the longest lead that was proved

    def at(self, channel: int, leads: Array) -> tuple[Array, Array]:
        """Return weights and factors of a channel at leads; 0 and 1 elsewhere."""
        counts = (leads > 0) & (leads <= self.reach)
        weight = np.interp(leads, self.leads, self.weights[:, channel])
        factor = np.interp(leads, self.leads, self.factors[:, channel])
        counts &= weight > 0
        return np.where(counts, weight, 0.0), np.where(counts, factor, 1.0)


@dataclass(repr=False)
class AheadModel:
    """A level, and a trained network where one has proved that it adds to it."""

    network: nn.AheadODE | None  # None: the level alone
    level: StructuralLevel
    units: Units
    clock: str  # of the index, see `sklode.data.ticks.clock_of`
    window_length: int  # rows that the encoder reads
    architecture: dict[str, Any]  # the settings that the network was built with
    columns: tuple[Sequence[Any], Sequence[Any]] = ((), ())  # of y, and of X
    rows: list[dict[str, float]] = field(default_factory=list)  # of the training
    whole_epochs: int = 0  # of training from scratch
    best_epoch: int = 0
    stacking: Stacking | None = None  # None: nothing counts

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return len(self.units.location), len(self.units.control_location)

    @property
    def weighed(self) -> Stacking:
        """What counts at each lead: nothing, where nothing was proved."""
        zeros = np.zeros((1, self.sizes[0]))
        return self.stacking or Stacking(np.zeros(1), zeros, zeros + 1, 0.0)

    @property
    def share(self) -> float:
        """How much of the network counts, on average over leads and channels."""
        return float(self.weighed.weights.mean())

    def moves(
        self, history: History, queries: Queries, given: GivenControls | None
    ) -> list[Move | None]:
        """Return where the network moves queries to, a move each channel."""
        n_channels = self.sizes[0]
        none: list[Move | None] = [None] * n_channels
        if self.network is None or self.stacking is None:
            return none
        known = history.observations
        lead = queries.times - self._ends(known)[queries.series]
        which = np.flatnonzero((lead > 0) & (lead <= self.stacking.reach))
        if not len(which):
            return none
        target = self._forecasts(known, queries.series[which], lead[which], given)
        moves = []
        for channel in range(n_channels):
            weight, factor = self.stacking.at(channel, lead)
            filled = np.zeros(len(lead))
            filled[which] = target[:, channel]
            is_log = not np.isnan(self.units.least[channel])
            moves.append(Move(is_log, filled, weight, factor) if weight.any() else None)
        return moves

    def _ends(self, known: Observations) -> Array:
        """Return the time from each series' first row to its last one."""
        first, last = known.bounds[:-1], known.bounds[1:] - 1
        return ticks_between(known.ticks[first], known.ticks[last]) / self.units.time

    def _forecasts(
        self,
        known: Observations,
        series: Numbers,
        lead: Array,
        given: GivenControls | None,
    ) -> Array:
        """Return forecasts of all channels, (query, channel), in units of `Move`."""
        network: Any = self.network
        numbers, place = np.unique(series, return_inverse=True)
        rows = known.bounds[1:] - 1
        kept = np.full(len(known.ticks), self.units.of_series)
        back = rows[numbers][:, None] - np.arange(self.window_length)
        kept[np.maximum(back, known.bounds[:-1][numbers][:, None])] = True
        some = known.where(kept)  # of series that are asked, their last rows
        place_of = {key: k for k, key in enumerate(some.keys)}
        of = np.array([place_of[known.keys[k]] for k in numbers])
        origins = Origins(some, self.units)
        last = some.bounds[1:][of] - 1
        n_channels = self.sizes[0]
        table = np.empty((len(series), n_channels))
        order = np.argsort(place, kind="stable")
        low = 0
        while low < len(order):
            first = place[order[low]]
            until = np.searchsorted(place[order], first + _WINDOWS_AT_ONCE)
            high = min(int(until), low + max(_ANSWERS_AT_ONCE // n_channels, 1))
            part = order[low:high]
            windows = np.unique(place[part])
            asked = Questions(
                np.repeat(place[part] - windows[0], n_channels),
                np.tile(np.arange(n_channels), len(part)),
                np.repeat(lead[part], n_channels),
                np.full(len(part) * n_channels, -1),
            )
            path = None
            if origins.controls is not None:
                path = self._path(known, rows, numbers[windows], given)
            batch = batch_of(
                origins, last[windows], self.window_length, asked, path, network
            )
            with own_modes(gradients=False):
                found = network.predict(batch).double().cpu().numpy()
            found = found.reshape(len(part), n_channels)
            own = of[place[part]]
            table[part] = origins.location[own] + origins.scale[own] * found
            low = high
        return table

    def _path(
        self,
        known: Observations,
        rows: Numbers,
        numbers: Numbers,
        given: GivenControls | None,
    ) -> tuple[Array, Array]:
        """Return controls from each series' last row on: its own, and those given."""
        units, controls = self.units, known.controls
        times, values = [], []
        for k in numbers:
            at, u = np.zeros(1), controls[rows[k]][None]  # type: ignore[index]
            if given is not None:
                mine = np.flatnonzero(given.series == k)
                since = ticks_between(
                    np.full(len(mine), known.ticks[rows[k]]), given.ticks[mine]
                )
                mine, since = mine[since > 0], since[since > 0]
                since, first = np.unique(since, return_index=True)
                at = np.append(at, since / units.time)
                u = np.concatenate([u, given.values[mine[first]]])
            times.append(at)
            values.append((u - units.control_location) / units.control_scale)
        most = max(map(len, times))
        place = [np.minimum(np.arange(most), len(at) - 1) for at in times]
        pairs = list(zip(times, values, place, strict=True))
        return (
            np.stack([at[p] for at, _, p in pairs]).astype(np.float32),
            np.stack([u[p] for _, u, p in pairs]).astype(np.float32),
        )


def build_ahead(
    settings: Any, n_channels: int, n_controls: int, reach: float, looks_back: bool
) -> nn.AheadODE:
    """Return an untrained network of the sizes and the solver that settings name."""
    encoder, solver = build_encoder(settings, 2 * n_channels + n_controls)
    decoder = None
    if n_channels <= FEW:
        size = n_channels * settings.latent_size
        # of each channel, and of what they share
        width = settings.field_width * (n_channels + 1)
        shape = width, settings.field_depth
        decoder = nn.Decoder(nn.VectorField(size, *shape, n_controls), solver)
    return nn.AheadODE(
        encoder,
        decoder,
        n_channels,
        n_controls,
        settings.latent_size,
        settings.emission_width,
        reach,
        looks_back,
    )


def batch_of(
    origins: Origins,
    rows: Numbers,
    n_rows: int,
    asked: Questions,
    path: tuple[Array, Array] | None,
    network: nn.AheadODE,
    hidden: NDArray[np.bool_] | None = None,
    target: Array | None = None,
) -> nn.AheadBatch:
    """Return windows that end at rows, with what is asked of them.

    ``hidden``, (window, row), are rows that the encoder does not see; ``target``
    (answer,) is the truth, zeros where none is known.
    """
    like = next(network.parameters())
    ages, values, mask, controls = origins.seen(rows, n_rows)
    if hidden is not None:
        mask = mask & ~hidden[..., None]

    def tensor(array: NDArray[Any]) -> torch.Tensor:
        return torch.as_tensor(array, dtype=like.dtype, device=like.device)

    def whole(array: NDArray[Any]) -> torch.Tensor:
        return torch.as_tensor(array, device=like.device)

    return nn.AheadBatch(
        tensor(ages),
        tensor(values),
        whole(mask),
        None if controls is None else tensor(controls),
        None if path is None else nn.ControlPath(*map(tensor, path)),
        whole(asked.window),
        whole(asked.channel),
        tensor(asked.lead),
        tensor(np.zeros(len(asked.lead)) if target is None else target),
    )
