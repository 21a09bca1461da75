"""Modules that an engine may run, and that go where a machine has room for them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sklode.engine import autograd as fused
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.shapes import Controls, State, States, Steps, Times
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField


class Accelerated(nn.Module):
    """A network with an ``encoder`` and a ``decoder`` that the fused engine may run.

    ``engine`` is "fused", where it serves them, or "eager": plain torch always. Pickles
    and copies keep the device as far as the machine has it.
    """

    engine = "fused"
    encoder: Any
    decoder: Any

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: tensors on the CPU, which every machine has.

        It says where they were; there they are again wherever that device is.
        """
        device = next(self.parameters()).device
        twin: Any = self if device.type == "cpu" else copy.deepcopy(self).to("cpu")
        return {**twin.__dict__, "device": str(device)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device = state.get("device", "cpu")
        super().__setstate__({k: v for k, v in state.items() if k != "device"})
        self.settle(device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copy on the same device, which by way of a pickle would be the CPU."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def settle(self, device: str) -> None:
        """Go back to a device, as far as this machine has it."""
        if torch.device(device).type == "cpu":
            return
        try:
            self.to(device)
        except (RuntimeError, AssertionError):  # none, or one without room
            self.to("cpu")

    def engines(self) -> tuple[str, ...]:
        """Return which engine runs the encoder, and the decoder where there is one."""
        example = next(self.parameters())
        parts = [part for part in (self.encoder, self.decoder) if part is not None]
        return tuple(self._engine_of(part, example) for part in parts)

    def _engine_of(self, part: Any, example: Tensor) -> str:
        """Return the engine that runs a part: plain torch where the other cannot."""
        ours = type(part) in (ODELSTM, ODERNN, RNN, Decoder)
        if self.engine == "eager" or not ours:
            return "eager"
        field = part.vector_field
        if field is None:  # an encoder without a flow
            return "fused" if fused.supports("euler", example) else "eager"
        covered = (
            type(field) is VectorField
            and len(field.layers) <= 2
            and type(part.solver) is Solver
            and fused.supports(part.solver.method, example)
        )
        return "fused" if covered else "eager"

    def _encoded(self, times: Times, inputs: Tensor, observed: Tensor) -> State:
        """Return the encoder's state after all visits, through the engine."""
        run = None if self._engine_of(self.encoder, inputs) == "eager" else self._run
        h: State = self.encoder(times, inputs, observed, run)
        return h

    def _decoded(
        self, z0: State, t0: Tensor, times: Times, controls: ControlPath | None
    ) -> States:
        """Return the decoder's states at times, through the engine."""
        runs = self._engine_of(self.decoder, z0) == "fused"
        dense = self._dense if runs else None
        z: States = self.decoder(z0, t0, times, controls, dense)
        return z

    def _run(self, inputs: Tensor, dt: Steps, visits: Tensor) -> State:
        """Take all steps of the encoder through the fused engine."""
        encoder, cell = self.encoder, self.encoder.cell
        weights = fused.CellWeights(
            cell.weight_ih, cell.weight_hh, cell.bias_ih + cell.bias_hh
        )
        if encoder.vector_field is None:
            return fused.encode(inputs, dt, visits, weights, None, "euler")
        field, _ = _split_weights(encoder.vector_field, cell.hidden_size)
        method = encoder.solver.method
        return fused.encode(inputs, dt, visits, weights, field, method)

    def _dense(
        self,
        z0: State,
        dt: Steps,
        held: Controls | None,
        left: Tensor,
        theta: Tensor,
    ) -> States:
        """Take all steps, and answer between them, through the fused engine."""
        decoder = self.decoder
        field, by_control = _split_weights(decoder.vector_field, z0.shape[-1])
        bias = None
        if held is not None and by_control is not None:  # added to the first layer's
            bias = functional.linear(held, by_control)
        method = decoder.solver.method
        return fused.decode_at(z0, dt, bias, left, theta, field, method)


def _split_weights(
    field: VectorField, state_size: int
) -> tuple[fused.FieldWeights, Tensor | None]:
    """Return a field's layers, and the first layer's weights of the controls."""
    first, *inner = field.layers
    by_state, by_control = first.weight, None
    if by_state.shape[1] > state_size:
        by_state, by_control = by_state.tensor_split([state_size], dim=1)
    weights = fused.FieldWeights(
        by_state,
        first.bias,
        tuple((layer.weight, layer.bias) for layer in inner),
        field.output.weight,
        field.output.bias,
    )
    return weights, by_control
