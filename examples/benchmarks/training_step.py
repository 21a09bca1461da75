"""Time one training step of the Latent ODE-LSTM under each engine, side by side.

A step is the evidence lower bound of a batch, its gradients, clipping and Adam. The
engines take turns, and medians are compared, so that a busy machine slows all alike.

    python examples/benchmarks/training_step.py [--threads 1] [--repeats 9]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from sklode import nn

ENGINES = ("fused", "unrolled", "eager")


class Workload(NamedTuple):
    """Sizes of a batch and of a network with two hidden layers in its fields."""

    n_series: int
    n_stamps: int
    n_channels: int
    hidden_size: int
    latent_size: int
    field_width: int
    field_depth: int


WORKLOADS = {
    "W1": Workload(1000, 100, 2, 25, 25, 20, 2),
    "W2": Workload(32, 100, 2, 25, 25, 20, 2),
    "W3": Workload(32, 365, 4, 4, 4, 25, 1),
    "W4": Workload(1, 1000, 2, 32, 16, 64, 2),
}


def network(load: Workload, engine: str) -> nn.LatentODE:
    """Return the network, with the same weights for every engine."""
    torch.manual_seed(0)
    solver = nn.FixedStepSolver("rk4", 1.0)
    shape = (load.field_width, load.field_depth, "tanh")
    flow = nn.VectorField(load.hidden_size, *shape)
    made = nn.LatentODE(
        nn.ODELSTM(2 * load.n_channels, load.hidden_size, flow, solver),
        nn.Translator(load.hidden_size, load.latent_size),
        nn.Decoder(nn.VectorField(load.latent_size, *shape), solver),
        nn.Emission(load.latent_size, load.n_channels, 20),
        nn.Anchor("series", load.n_channels),
        engine=engine,
    )
    made.layout = "single" if load.n_series <= 3 else "lanes"
    return made


def batch(load: Workload) -> nn.Batch:
    """Return windows whose gaps are at most one solver step."""
    rng = np.random.default_rng(0)
    shape = (load.n_series, load.n_stamps)
    times = np.cumsum(rng.uniform(0.6, 1.0, shape), axis=1)
    values = rng.standard_normal((*shape, load.n_channels))
    mask = rng.random((*shape, load.n_channels)) < 0.8
    return nn.Batch(
        torch.tensor(times - times[:, :1], dtype=torch.float32),
        torch.tensor(values, dtype=torch.float32),
        torch.tensor(mask),
        load.n_stamps,
        None,
        None,
    )


def step_of(load: Workload, engine: str) -> Callable[[], float]:
    """Return a function that trains one step and returns the seconds it took."""
    model, windows = network(load, engine), batch(load)
    noise = torch.zeros(load.n_series, load.latent_size)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> float:
        start = time.perf_counter()
        bound = model(windows, noise)
        loss = (bound.kl - bound.log_likelihood).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.clip_gradient_norm(list(model.parameters()), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    return step


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Print milliseconds, and ratios to plain torch, per workload and engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"milliseconds a step (times eager), {options.threads} thread(s)")
    table = {}
    for name in options.workloads:
        steps = {engine: step_of(WORKLOADS[name], engine) for engine in ENGINES}
        for step in steps.values():
            step()  # compiles, and makes room
        seconds = [
            {engine: step() for engine, step in steps.items()}
            for _ in range(options.repeats)
        ]
        table[name] = {
            engine: float(np.median([turn[engine] for turn in seconds]))
            for engine in ENGINES
        }
        cells = [
            f"{engine} {1e3 * took:.1f} ({table[name]['eager'] / took:.1f})"
            for engine, took in table[name].items()
        ]
        print(f"{name}: " + ", ".join(cells), flush=True)
    return table


if __name__ == "__main__":
    main()
