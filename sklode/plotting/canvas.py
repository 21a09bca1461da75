"""Axes to draw on, with their legend, and the strokes that all pictures share.

Colours are those of Okabe and Ito; dashes and markers differ as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

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


def series_number(keys: Sequence[Any], series: Any) -> int:
    """Return the place of the series asked for among keys; None asks for the first."""
    key = series if isinstance(series, tuple) else (series,)
    key = keys[0] if series is None else key
    check_held(list(keys), [key], "what fit has seen")
    return keys.index(key)


class Canvas(NamedTuple):
    """Axes in a row, and what is returned to the caller for them."""

    axes: list[Any]
    returned: Any  # as given; of a new figure an Axes, or an array of them
    is_ours: bool  # whether the figure was made here

    @classmethod
    def of(
        cls,
        ax: Any,
        shape: tuple[int, ...] = (),
        size: tuple[float, float] = (6.4, 5.0),
        n_columns: int = 1,
        share_x: bool = False,
        n_apart: int = 0,
    ) -> Canvas:
        """Return the caller's axes, or new ones of a shape, each of some inches.

        ``share_x``: all share one, but for the last ones, ``n_apart`` of them.
        """
        n = math.prod(shape)
        if ax is not None:
            axes = _given(ax, n)
            return cls(axes, ax if n == 1 else np.asarray(ax), is_ours=False)
        if n > _MOST_AXES:
            raise ValueError(
                f"at most {_MOST_AXES} axes are drawn, one for each series and channel;"
                f" got {n}. Pass a part of them, or axes of your own as ax."
            )
        n_rows = math.ceil(n / n_columns)
        whole = size[0] * n_columns, size[1] * n_rows
        figure = pyplot().figure(figsize=whole, layout="constrained")
        made = np.empty(n, dtype=object)
        for k in range(n):
            shared = made[0] if share_x and 0 < k < n - n_apart else None
            made[k] = figure.add_subplot(n_rows, n_columns, k + 1, sharex=shared)
            made[k].spines[["top", "right"]].set_visible(False)
            made[k].margins(x=0.02)
            is_last = k + n_columns >= n - n_apart
            made[k].xaxis.set_tick_params(labelbottom=is_last or not share_x)
        return cls(list(made), made.reshape(shape) if shape else made[0], is_ours=True)

    def explained(self, title: str | None) -> Any:
        """Write the title and, of two things or more, the legend; return the axes."""
        first, figure = self.axes[0], self.axes[0].figure
        if title is not None:
            (figure.suptitle if len(self.axes) > 1 else first.set_title)(title)
        named: dict[str, Any] = {}
        for one in self.axes:
            for drawn, label in zip(*one.get_legend_handles_labels(), strict=True):
                named.setdefault(label, drawn)
        if len(named) < 2:
            return self.returned
        entries = list(named.values()), list(named)
        width = 45 + 6 * max(map(len, named))  # points that an entry takes
        n_rows = math.ceil(len(named) * width / (72 * figure.get_figwidth()))
        below = {"ncols": math.ceil(len(named) / n_rows), "frameon": False}
        if not self.is_ours:
            first.legend(*entries, framealpha=0.7, edgecolor="none")
        elif len(self.axes) > 1:
            figure.legend(*entries, loc="outside lower center", **below)
        else:  # of the axes: who adds to them may replace it
            below |= {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
            first.legend(*entries, borderaxespad=3.5, **below)
        return self.returned


def _given(ax: Any, n: int) -> list[Any]:
    """Return the axes that a caller gave, one after the other."""
    axes = list(np.asarray(ax, dtype=object).ravel())
    for one in axes:
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
    if len(axes) != n:
        raise ValueError(
            f"ax must hold {n} Axes, one for each part of the picture; got {len(axes)}."
            f" Pass for example plt.subplots({n})[1], or leave ax out."
        )
    return axes


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


def tint(color: str, share: float) -> tuple[float, ...]:
    """Return white with a share of a colour: opaque, so that the legend shows it."""
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - x) for x in to_rgb(color))


def threads(axes: Any, x: Any, paths: Any, label: str | None = None) -> None:
    """Draw paths, (point, path), as thin lines below all others."""
    alpha = min(0.35, max(0.15, 8 / max(paths.shape[1], 1)))
    style = {"color": INK, "linewidth": 0.6, "alpha": alpha, "zorder": 1.5}
    drawn = axes.plot(x, paths, **style)
    if label is not None:
        drawn[0].set_label(label)


def _alone(known: Any) -> Any:
    """Return which known points have no neighbour."""
    padded = np.pad(known, 1)
    return known & ~padded[:-2] & ~padded[2:]
