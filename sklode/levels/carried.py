"""The level of windows: what their last seen rows know, carried to other times."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations
from sklode.data.scaling import Normalisation
from sklode.levels.channel import filtered_rows
from sklode.levels.components import Component, heaviest
from sklode.levels.forms import StateSpace
from sklode.levels.structural import StructuralLevel

__all__ = ["Carried"]

Array = NDArray[np.floating]
Numbers = NDArray[np.int64]


class Carried:
    """The most probable level of each channel, from any row on.

    Forward in time it is the forecast of who has seen no later row. Backward it is the
    same curve: what fades with time ahead fades as fast with time before, and a slope
    goes on. Values and controls are in the units of a `Normalisation`.
    """

    def __init__(
        self,
        level: StructuralLevel,
        observations: Observations,
        normalisation: Normalisation,
    ) -> None:
        self._level, self._normalisation = level, normalisation
        self._observations = observations

    @functools.cached_property
    def _channels(self) -> list[tuple[Component, StateSpace, Array]]:
        """Of each channel its heaviest component, and the states after each row.

        Found when first asked for: a forecast of the level alone needs none.
        """
        level, channels = self._level, []
        tables = level.tables(self._observations, every_row=True)
        for components, span, table in zip(
            level.channels, level.spans, tables, strict=True
        ):
            component = heaviest(components)
            space = component.space(span)
            _, states = filtered_rows(component, space, table)
            channels.append((component, space, states.astype(np.float32)))
        return channels

    def at(self, origins: Numbers, elapsed: Array, controls: Array | None) -> Array:
        """Return normalised levels, (window, slot, channel).

        ``elapsed`` (window, slot) is the time since the row ``origins`` (window,), in
        units of the usual gap; ``controls`` are (window, slot, control).
        """
        result = np.empty((*elapsed.shape, len(self._channels)))
        if controls is not None:
            own = self._normalisation.original_controls(controls)
            controls = self._level.controls(own)
        for k, (component, space, states) in enumerate(self._channels):
            signal = _carried(states[origins].astype(np.float64), elapsed, space)
            n = component.form.n_controls
            if n and controls is not None:
                effects = states[origins, -n:].astype(np.float64)
                signal += np.einsum("wsu,wu->ws", controls, effects)
            result[..., k] = component.original(signal)
        return self._normalisation.values(result)


def _carried(states: Array, elapsed: Array, space: StateSpace) -> Array:
    """Return the signal, X aside, so long after states, (window, slot)."""
    level, slope, velocity, deviation = states.T[:4, :, None]
    size = np.abs(elapsed)
    memory, fade = space.rates[2], space.rates[4]
    signal = level + slope * elapsed + deviation * np.exp(-size / fade)
    signal -= velocity * memory * np.sign(elapsed) * np.expm1(-size / memory)
    for k, (frequency, kept, _) in enumerate(space.waves):
        u, w = states.T[4 + 2 * k : 6 + 2 * k, :, None]
        angle = frequency * elapsed
        signal += np.exp(-size / kept) * (u * np.cos(angle) + w * np.sin(angle))
    result: Array = signal
    return result
