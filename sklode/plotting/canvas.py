"""Axes to draw on, with their legend, and the strokes that all pictures share.

Colours are those of Okabe and Ito; dashes and markers differ as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

INK, GREY, PALE, GUIDE = "0.15", "0.45", "0.8", "0.65"
"""Of text and truth, of observations, of the line between them, of marked places."""

_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#E69F00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": ":", "marker": "D"},
    {"color": "#CC79A7", "linestyle": "-.", "marker": "^"},
    {"color": "#000000", "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (8, 3)), "marker": "P"},
)

_MOST_AXES = 12


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, which `import sklode` leaves alone."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "sklode.plotting needs matplotlib, which is not installed. Run "
            'pip install "sklode[plot]".'
        ) from error
    return plt


def styles_of(several: Collection[Any]) -> tuple[dict[str, Any], ...]:
    """Return how the line of each of several things looks."""
    if not 0 < len(several) <= len(_STYLES):
        raise ValueError(
            f"a picture must have 1 to {len(_STYLES)} lines, which can be told apart; "
            f"got {len(several)}. Draw several pictures."
        )
    return _STYLES[: len(several)]


def check_held(known: Collection[Any], names: Iterable[Any], owner: str) -> None:
    """Check that ``owner``, which may say for whom, holds all names."""
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(
            f"{owner} must hold {missing[0]!r}; got {list(known)[:9]}. Draw what fits."
        )


def axes_of(
    ax: Any, shape: tuple[int, ...], size: tuple[float, float], n_columns: int
) -> Any:
    """Return an array of the caller's axes, or of new ones, each of some inches."""
    n = math.prod(shape)
    if ax is not None:
        return _given(ax, n)
    if n > _MOST_AXES:
        raise ValueError(
            f"at most {_MOST_AXES} axes are drawn, one for each series and channel;"
            f" got {n}. Pass a part of them, or axes of your own as ax."
        )
    n_rows = math.ceil(n / n_columns)
    whole = size[0] * n_columns, size[1] * n_rows
    figure = pyplot().figure(figsize=whole, layout="constrained")
    made = [figure.add_subplot(n_rows, n_columns, k + 1) for k in range(n)]
    for axes in made:
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.02)
    return np.array(made, dtype=object).reshape(shape)


def _given(ax: Any, n: int) -> Any:
    """Return the axes that a caller gave."""
    given = np.asarray(ax, dtype=object)
    for one in given.flat:
        if not isinstance(one, pyplot().Axes):
            raise TypeError(
                "ax must be a matplotlib Axes or an array of them; got "
                f"{type(one).__name__}. Pass the second of what plt.subplots() returns."
            )
        if getattr(one, "freq", None) is not None:
            raise ValueError(
                "ax must count time as matplotlib does; got one on which pandas has "
                "drawn periods. Draw there with plot(x_compat=True), or here first."
            )
    if given.size != n:
        raise ValueError(
            f"ax must hold {n} Axes, one for each part of the picture; got "
            f"{given.size}. Pass for example plt.subplots({n})[1], or leave ax out."
        )
    return given


def explained(axes: Any, is_new: bool) -> Any:
    """Add a legend of two things or more; return the axes, an only one as itself."""
    first, figure = axes.flat[0], axes.flat[0].figure
    named: dict[str, Any] = {}
    for one in axes.flat:
        for drawn, label in zip(*one.get_legend_handles_labels(), strict=True):
            named.setdefault(label, drawn)
    entries = list(named.values()), list(named)
    if len(named) > 1 and is_new:
        width = 45 + 6 * max(map(len, named))  # points that an entry takes
        n_rows = math.ceil(len(named) * width / (72 * figure.get_figwidth()))
        look = {"ncols": math.ceil(len(named) / n_rows), "frameon": False}
        figure.legend(*entries, loc="outside lower center", **look)
    elif len(named) > 1:
        first.legend(*entries, framealpha=0.7, edgecolor="none")
    return axes if axes.ndim else axes.item()


def points(axes: Any, x: Any, values: Any, label: str, filled: bool) -> None:
    """Draw dots, with a thin line between those that are near, or rings."""
    style = {"color": PALE, "markerfacecolor": GREY, "markeredgecolor": "none"}
    if not filled:
        style = {"linestyle": "", "markerfacecolor": "white", "markeredgecolor": INK}
    size = float(np.clip(40 / math.sqrt(len(x)), 1.5, 4.0))
    (drawn,) = axes.plot(x, values, marker="o", markersize=size, label=label, **style)
    drawn.set(linewidth=0.8, markeredgewidth=0.7)


def line(axes: Any, x: Any, values: Any, style: dict[str, Any], label: str) -> None:
    """Draw a line; single points have markers, and all where they are few."""
    known = np.isfinite(values).ravel()
    shown = np.flatnonzero(known if known.sum() <= 30 else _alone(known)).tolist()
    (drawn,) = axes.plot(x, values, linewidth=1.6, markersize=4, label=label, **style)
    drawn.set(markevery=shown, marker=style["marker"] if shown else "")


def band(axes: Any, x: Any, bounds: Any, fill: Any, label: str, **edge: Any) -> None:
    """Fill between bounds, (point, 2); at single points draw a bar."""
    low, high = np.transpose(bounds)
    edge = {"linewidth": 0.8 if edge else 0.0, **edge}
    axes.fill_between(x, low, high, facecolor=fill, zorder=1, label=label, **edge)
    bar = _alone(np.isfinite(low))
    if bar.any():
        axes.vlines(x[bar], low[bar], high[bar], [fill], linewidth=5, zorder=1)


def _alone(known: Any) -> Any:
    """Return which known points have no neighbour."""
    padded = np.pad(known, 1)
    return known & ~padded[:-2] & ~padded[2:]
