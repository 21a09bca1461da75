"""Compile the fused engine in a process of its own, so that all later ones agree.

The process that compiles a kernel also holds the parts that the kernel was built of,
and may run these in place of the kernel's own copies: it rounds otherwise than those
which load the kernel from disk. If no process that trains compiles, the first fit on a
machine gives the numbers of all that follow.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from sklode import engine, nn
from sklode.levels import Anchor

__all__ = ["compile_apart", "compile_here"]

_ROOT = str(Path(__file__).parents[1])
_PROGRAM = (
    "from sklode.training.compiling import compile_here; compile_here({layout!r})"
)


def compile_apart(layout: str) -> None:
    """Leave compiled code on disk, by another process, where there is a place for it.

    Where that fails, whatever the reason, the first epoch compiles.

    Parameters
    ----------
    layout : {"lanes", "single"}
        See `sklode.engine.simd`.
    """
    if not sys.executable or not engine.keeps_compiled():
        return
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    with contextlib.suppress(OSError):
        subprocess.run(
            [sys.executable, "-c", _PROGRAM.format(layout=layout)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


def compile_here(layout: str) -> None:
    """Run every kernel once, forward and backward, with and without controls.

    Parameters
    ----------
    layout : {"lanes", "single"}
        See `sklode.engine.simd`.
    """
    torch.set_num_threads(1)
    for n_controls in (0, 1):
        network = _network(n_controls)
        network.engine, network.layout = "fused", layout
        times = torch.arange(6.0).repeat(2, 1)
        values = torch.zeros(2, 6, 1)
        controls = torch.zeros(2, 6, n_controls) if n_controls else None
        mask = torch.ones(2, 6, 1, dtype=torch.bool)
        batch = nn.Batch(times, values, mask, 3, controls)
        bound = network(batch, torch.zeros(2, network.latent_size))
        bound.log_likelihood.sum().backward()
        with torch.no_grad():
            network(batch)


def _network(n_controls: int) -> nn.LatentODE:
    """Return a small Latent ODE-LSTM."""
    size, width = 2, 3
    solver = nn.Solver()

    def field(n: int) -> Any:
        return nn.VectorField(size, width, 1, "tanh", n)

    return nn.LatentODE(
        nn.ODELSTM(2 + n_controls, size, field(0), solver),
        nn.Translator(size, size),
        nn.Decoder(field(n_controls), solver),
        nn.Emission(size, 1, width, n_controls),
        Anchor("series", 1),
    )
