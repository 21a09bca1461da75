"""Measure how a training step of the fused engine grows with its sizes.

One size varies at a time: stamps, series, or the neurons of state, latent state and
field together. The slope of a straight line through the logarithms is the exponent: by
stamps and by series, 1 or less says that nothing grows faster than the data. Products
grow with the square of the neurons.

    python examples/benchmarks/scaling.py [--plot scaling.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import measuring
import numpy as np
import torch
from training_step import CONTENDERS, Step
from workloads import Workload, operations

BASE = Workload(32, 100, 2, 24, 24, 24)

SIZES: dict[str, Sequence[int]] = {
    "stamps": (25, 50, 100, 200, 400, 800, 1600),
    "series": (16, 32, 64, 128, 256, 512, 1024),
    "neurons": (8, 16, 32, 64, 128),
}

GUIDES = {"stamps": 1, "series": 1, "neurons": 2}
"""Exponents to compare with."""


def workload(axis: str, size: int) -> Workload:
    """Return the base workload with one of its sizes changed."""
    if axis == "stamps":
        return BASE._replace(n_stamps=size)
    if axis == "series":
        return BASE._replace(n_series=size)
    return BASE._replace(hidden_size=size, latent_size=size, field_width=size)


class Growth(NamedTuple):
    """Milliseconds of a step by size."""

    sizes: list[int]
    milliseconds: list[float]
    floors: list[float]
    exponent: float


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of the line through logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(costs), 1)
    return float(slope)


def growth(axis: str, sizes: Sequence[int], engine: str, repeats: int) -> Growth:
    """Measure one axis, all its sizes in turns."""
    make: Callable[[Workload], Step] = CONTENDERS[engine]
    steps = {str(size): make(workload(axis, size)) for size in sizes}
    for step in steps.values():
        step()  # compiles, and makes room
    product = measuring.product_seconds()
    seconds = measuring.take_turns(steps, repeats)
    product = min(product, measuring.product_seconds())
    rate = measuring.PRODUCT_OPERATIONS / product
    milliseconds = [1e3 * seconds[str(size)] for size in sizes]
    floors = [1e3 * operations(workload(axis, size)) / rate for size in sizes]
    return Growth(list(sizes), milliseconds, floors, exponent(sizes, milliseconds))


def show(axis: str, measured: Growth) -> None:
    """Print a table of one axis."""
    print(f"\n{axis:>10}{'ms':>10}{'× floor':>10}")
    for size, took, floor in zip(*measured[:3], strict=True):
        print(f"{size:10}{took:10.2f}{took / floor:10.1f}")
    print(f"{'exponent':>10}{measured.exponent:10.2f}", flush=True)


def plot(table: dict[str, Growth], path: str) -> None:
    """Save a picture: a panel per axis, with a line of a known slope."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    figure, panels = plt.subplots(
        1, len(table), figsize=(3.6 * len(table), 3.6), squeeze=False, sharey=True
    )
    for panel, (axis, measured) in zip(panels[0], table.items(), strict=True):
        sizes = np.array(measured.sizes)
        guide = measured.milliseconds[-1] * (sizes / sizes[-1]) ** GUIDES[axis]
        panel.loglog(sizes, guide, "--", color="0.6", label=f"slope {GUIDES[axis]}")
        panel.loglog(sizes, measured.floors, ":", color="C1", label="floor")
        panel.loglog(sizes, measured.milliseconds, "o-", color="C0", label="step")
        panel.set_title(f"{axis}: exponent {measured.exponent:.2f}", fontsize=11)
        panel.set_xlabel(axis)
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    panels[0, 0].set_ylabel("ms per training step")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> dict[str, Growth]:
    """Print a table per axis; save a picture where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    axes = list(SIZES)
    parser.add_argument("--engine", default="fused", choices=list(CONTENDERS))
    parser.add_argument("--axes", nargs="+", choices=axes, default=axes)
    parser.add_argument("--points", type=int, help="only so many sizes of each axis")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--plot", metavar="PNG", help="path of a picture to save")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(
        f"a step of {options.engine}: {BASE.n_series} × {BASE.n_stamps} stamps, "
        f"{BASE.hidden_size} neurons, fields of {BASE.field_depth} layers, but for "
        "what varies"
    )
    table = {}
    for axis in options.axes:
        sizes = SIZES[axis][: options.points]
        table[axis] = growth(axis, sizes, options.engine, options.repeats)
        show(axis, table[axis])
    if options.plot:
        plot(table, options.plot)
    return table


if __name__ == "__main__":
    main()
