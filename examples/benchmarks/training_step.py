"""Time one training step of the Latent ODE-LSTM: sklode's engines beside other ways.

A step is the evidence lower bound of a batch, its gradients and Adam. All contenders
take turns, and medians are compared, so that a busy machine slows all alike. All have
the same sizes and windows, with one step of the 3/8 rule per gap:

- ``fused``, ``eager``: sklode. Beside what the others do, it clips the
  gradient, reads each channel's mask and has one more layer before q(z0). Its decoder
  goes over the same span in steps of 1, of which the gaps, 0.6 to 1, need fewer than
  there are stamps, and interpolates at the stamps.
- ``straightforward``: the loop over stamps that one writes in torch from the paper.
- ``compile``: that loop with each stamp's step under ``torch.compile``.
- ``torchdiffeq``: that loop with ``odeint`` in rescaled time; the decoder is one call.
- ``jax``: the same in JAX, scans in one jitted step; left out where not installed
  (pip install jax optax).
- ``diffrax``: with its solver in place of scans; it takes long to compile, so only
  where asked for (pip install diffrax).

The floor is the arithmetic of the matrix products alone, by the cheapest algebra, at
the speed of this machine's own float32 product, at its fastest. Memory is the peak of a
step in a process of its own, beyond libraries. All of it takes minutes; half of them
with --no-memory, fewer still with --skip compile.

    python examples/benchmarks/training_step.py [--workloads W2 W4] [--skip compile]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import measuring
import plain_torch
import torch
from workloads import EMISSION_WIDTH, WORKLOADS, Workload, draw, operations

from sklode import nn
from sklode.latent_ode import Batch, LatentODE

Step: TypeAlias = Callable[[], float]

REFERENCE = "straightforward"


def network(load: Workload, engine: str) -> LatentODE:
    """Return sklode's network, with the same weights for every engine."""
    torch.manual_seed(0)
    solver = nn.Solver("rk4", 1.0)
    solver.engine = engine
    shape = (load.field_width, load.field_depth)
    flow = nn.VectorField(load.hidden_size, *shape)
    return LatentODE(
        nn.ODELSTM(2 * load.n_channels, load.hidden_size, flow, solver),
        nn.perceptron(load.hidden_size, load.hidden_size, 2 * load.latent_size),
        nn.Decoder(nn.VectorField(load.latent_size, *shape), solver),
        nn.perceptron(load.latent_size, EMISSION_WIDTH, load.n_channels),
    )


def of_sklode(load: Workload, engine: str) -> Step:
    """Return a function that trains one step and returns its loss."""
    model, windows = network(load, engine), draw(load)
    mask = windows.observed.unsqueeze(-1).expand_as(windows.values).contiguous()
    batch = Batch(windows.times, windows.values, mask, load.n_stamps)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, fused=True)

    def step() -> float:
        bound = model(batch, windows.noise)
        loss = (bound.kl - bound.log_likelihood).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.clip_gradient_norm(parameters, 1.0)
        optimizer.step()
        return loss.item()

    return step


def of_jax(load: Workload) -> Step:
    """Return a step in JAX."""
    import plain_jax

    return plain_jax.by_scan(load)


def of_diffrax(load: Workload) -> Step:
    """Return a step with diffrax."""
    import plain_jax

    return plain_jax.with_diffrax(load)


CONTENDERS: dict[str, Callable[[Workload], Step]] = {
    "fused": partial(of_sklode, engine="fused"),
    "eager": partial(of_sklode, engine="eager"),
    REFERENCE: plain_torch.loop,
    "compile": plain_torch.compiled,
    "torchdiffeq": plain_torch.with_torchdiffeq,
    "jax": of_jax,
    "diffrax": of_diffrax,
}


class Measured(NamedTuple):
    """A contender, or the floor, at a workload."""

    milliseconds: float
    speed_up: float  # over the straightforward loop
    over_floor: float
    megabytes: float | None  # at the peak; None: not measured


def ready(names: Sequence[str], load: Workload, limit: float) -> dict[str, Step]:
    """Return the contenders' steps, each taken once: all is compiled, room is made."""
    steps = {}
    for name in names:
        try:
            with measuring.within(limit):
                step = CONTENDERS[name](load)
                step()
        except (ImportError, RuntimeError, TimeoutError) as error:
            if name == REFERENCE:
                raise
            print(f"{name} left out: {str(error).splitlines()[0]}", flush=True)
        else:
            steps[name] = step
    return steps


def peak_megabytes(name: str, load: Workload, n_threads: int) -> float:
    """Return the memory of a contender's step; called in a fresh process."""
    torch.set_num_threads(n_threads)
    make = CONTENDERS[name]
    return measuring.peak_megabytes(
        make(load._replace(n_stamps=3)), partial(make, load)
    )


def measure(load: Workload, options: argparse.Namespace) -> dict[str, Measured]:
    """Return what a workload takes each contender, and the floor."""
    names = [name for name in CONTENDERS if name in {*options.contenders, REFERENCE}]
    wanted = [name for name in names if name not in options.skip or name == REFERENCE]
    steps = ready(wanted, load, options.limit)
    megabytes: dict[str, float | None] = dict.fromkeys(steps)
    if options.memory:
        for name in steps:
            arguments = name, load, options.threads
            megabytes[name] = measuring.in_own_process(peak_megabytes, *arguments)
    product = measuring.product_seconds()
    seconds = measuring.take_turns(steps, options.repeats)
    product = min(product, measuring.product_seconds())
    floor = operations(load) * product / measuring.PRODUCT_OPERATIONS
    seconds["floor"] = floor
    return {
        name: Measured(
            1e3 * took, seconds[REFERENCE] / took, took / floor, megabytes.get(name)
        )
        for name, took in seconds.items()
    }


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, Measured]]:
    """Print a table per workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names, everything = list(WORKLOADS), list(CONTENDERS)
    usual = [name for name in everything if name != "diffrax"]
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", choices=names, default=names)
    parser.add_argument("--contenders", nargs="+", choices=everything, default=usual)
    parser.add_argument("--skip", nargs="+", choices=everything, default=[])
    parser.add_argument("--depth", type=int, default=2, help="hidden layers of a field")
    parser.add_argument(
        "--limit", type=float, default=120, help="seconds that compiling may take"
    )
    parser.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"medians of {options.repeats} turns, {options.threads} thread(s)")
    table = {}
    for name in options.workloads:
        load = WORKLOADS[name]._replace(field_depth=options.depth)
        table[name] = measure(load, options)
        show(name, load, table[name])
    return table


def show(name: str, load: Workload, table: dict[str, Measured]) -> None:
    """Print what a workload takes."""
    billions = operations(load) / 1e9
    rate = 1e3 * billions / table["floor"].milliseconds
    print(
        f"\n{name}: {load.n_series} × {load.n_stamps} stamps, {load.n_channels} "
        f"channels, hidden {load.hidden_size}, latent {load.latent_size}, fields "
        f"{load.field_width} × {load.field_depth}; {billions:.3g} GFLOP at "
        f"{rate:.0f} GFLOP/s"
    )
    print(f"{'':16}{'ms':>9}{'speed-up':>10}{'× floor':>9}{'peak MB':>9}")
    for contender, took in table.items():
        peak = "" if took.megabytes is None else f"{took.megabytes:.0f}"
        print(
            f"{contender:16}{took.milliseconds:9.2f}{took.speed_up:10.2f}"
            f"{took.over_floor:9.1f}{peak:>9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
