"""Axes to draw on: those that are given, or small multiples of a new figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklode.plotting.time_axis import Places

__all__ = ["Canvas", "canvas", "given_axes", "overlap", "pyplot"]

_MOST_INSIDE = 6
"""Entries of a legend that does not hide too much."""

_MOST_SEARCHED = 5000
"""Points among which a legend seeks the emptiest place."""


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, which `import sklode` leaves alone.

    Raises
    ------
    ImportError
        With the command that installs it.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "sklode.plotting needs matplotlib, which is not installed. Run "
            'pip install "sklode[plot]".'
        ) from error
    return plt


@dataclass(frozen=True, eq=False)
class Canvas:
    """Axes in a row, and what is returned to the caller for them.

    Attributes
    ----------
    axes : list of Axes
        One after the other.
    returned : Axes or ndarray of Axes
        As they were given; else an Axes, or an array of the shape asked for.
    is_ours : bool
        Whether the figure was made here.
    """

    axes: list[Any]
    returned: Any
    is_ours: bool

    def head(self, title: str | None) -> None:
        """Write the title: above the axes, or of several above them all."""
        if title is None:
            return
        if len(self.axes) == 1:
            self.axes[0].set_title(title)
        else:
            self.axes[0].figure.suptitle(title)

    def explain(self, outside: bool = False) -> None:
        """Add one legend of all that has a label in any axes.

        In a figure that was made here it stands below them where ``outside`` says so,
        the axes are several or its entries many.
        """
        named = self._named(self.axes)
        if len(named) < 2:
            return
        entries = list(named.values()), list(named)
        first = self.axes[0]
        outside = outside or len(self.axes) > 1 or len(named) > _MOST_INSIDE
        if self.is_ours and outside:
            n_columns = max(2, int(first.figure.get_figwidth() // 2))
            columns = {"ncols": min(len(named), n_columns), "frameon": False}
            first.figure.legend(*entries, loc="outside lower center", **columns)
            return
        _legend(first, entries)

    def explain_each(self) -> None:
        """Add a legend to every axes."""
        for axes in self.axes:
            named = self._named([axes])
            _legend(axes, (list(named.values()), list(named)))

    def _named(self, several: list[Any]) -> dict[str, Any]:
        """Return what has a label: lines, in the order drawn, then all else."""
        from matplotlib.lines import Line2D

        named: dict[str, Any] = {}
        for axes in several:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
        in_order = sorted(named, key=lambda n: not isinstance(named[n], Line2D))
        return {name: named[name] for name in in_order}


def _legend(axes: Any, entries: tuple[list[Any], list[str]]) -> None:
    n_points = sum(len(line.get_xdata()) for line in axes.lines)
    place = "best" if n_points <= _MOST_SEARCHED else "upper left"
    axes.legend(*entries, loc=place, framealpha=0.7, edgecolor="none")


def canvas(
    ax: Any,
    shape: tuple[int, ...],
    what: str,
    max_panels: int | None = None,
    size: tuple[float, float] | None = None,
    share_x: bool = False,
    n_columns: int | None = None,
) -> Canvas:
    """Return axes: the given ones, or new ones.

    Parameters
    ----------
    ax : Axes, array of Axes or None
        Given by the caller.
    shape : tuple of int
        Of the axes returned: (), (panel,) or (row, column).
    what : str
        What each of them shows, for a message.
    max_panels : int, optional
        The most axes that are made.
    size : tuple of float, optional
        Of each axes, in inches.
    share_x : bool, default=False
        Whether new axes share their horizontal axis.
    n_columns : int, optional
        Of new axes in a row; None: about as many as rows, 3 at most.

    Raises
    ------
    TypeError
        If ``ax`` holds something else.
    ValueError
        If it holds another number of axes, or more than ``max_panels`` are needed.
    """
    plt = pyplot()
    n = math.prod(shape)
    if ax is not None:
        given = given_axes(ax)
        if len(given) != n:
            raise ValueError(
                f"ax must hold {n} Axes, one for each {what}; got {len(given)}. Pass "
                f"for example plt.subplots({n})[1], or leave ax out."
            )
        return Canvas(given, ax if n == 1 else np.asarray(ax), is_ours=False)
    if max_panels is not None and n > max_panels:
        raise ValueError(
            f"at most max_panels={max_panels} axes are drawn, one for each {what}; got "
            f"{n}. Pass a part of the series or channels, or raise max_panels."
        )
    n_rows, n_across = _grid(shape, n_columns)
    if size is None:
        size = (9.0, 4.2) if n == 1 else (9.0, 2.2) if n_across == 1 else (3.6, 2.4)
    _, grid = plt.subplots(
        n_rows,
        n_across,
        figsize=(size[0] * n_across, size[1] * n_rows),
        sharex=share_x,
        squeeze=False,
        layout="constrained",
    )
    cells = list(grid.ravel())
    for axes in cells[n:]:
        axes.remove()
    axes_kept: NDArray[Any] = np.empty(n, dtype=object)
    axes_kept[:] = cells[:n]
    for k, axes in enumerate(axes_kept):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.02)
        axes.xaxis.set_tick_params(labelbottom=not share_x or k + n_across >= n)
    returned = axes_kept[0] if shape == () else axes_kept.reshape(shape)
    return Canvas(list(axes_kept), returned, is_ours=True)


def given_axes(ax: Any) -> list[Any]:
    """Return the axes that a caller gave, one after the other.

    Raises
    ------
    TypeError
        If ``ax`` holds something else.
    ValueError
        If pandas has drawn periods there.
    """
    from matplotlib.axes import Axes

    given = list(np.asarray(ax, dtype=object).ravel())
    for one in given:
        if not isinstance(one, Axes):
            raise TypeError(
                "ax must be a matplotlib Axes or an array of them; got "
                f"{type(one).__name__}. Pass the second of what plt.subplots() returns."
            )
        if getattr(one, "freq", None) is not None:
            raise ValueError(
                "ax must count time as matplotlib does; got one on which pandas has "
                "drawn periods. Draw there with plot(x_compat=True), or here first."
            )
    return given


def _grid(shape: tuple[int, ...], n_columns: int | None) -> tuple[int, int]:
    """Return rows and columns of a new figure for axes of a shape."""
    if len(shape) == 2:
        return shape
    n = math.prod(shape)
    n_columns = n_columns or min(3, math.ceil(math.sqrt(n)))
    return math.ceil(n / n_columns), n_columns


def overlap(spans: Sequence[Places]) -> bool:
    """Return whether one time axis serves all: none would be squeezed into a corner."""
    spans = [span for span in spans if len(span)]
    if not spans:
        return True
    whole = max(s.max() for s in spans) - min(s.min() for s in spans)
    return bool(whole <= 2 * max(np.ptp(s) for s in spans))
