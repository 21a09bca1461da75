"""Axes to draw on, with their legend, and the strokes that all pictures share.

Colours are those of Okabe and Ito; dashes and markers differ as well.

Tested in tests/plotting/test_series.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklode.data.arrays import Array, Flags

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

AxesArray: TypeAlias = NDArray[Any]
"""An array of matplotlib's Axes; of arrays of objects numpy knows no element's type."""
Given: TypeAlias = "Axes | Iterable[Axes] | ArrayLike | None"
"""What a caller gives to draw on, Axes in the end; None: a new figure has them."""
Colour: TypeAlias = str | tuple[str, float]  # with its opacity
Dashes: TypeAlias = str | tuple[int, tuple[int, ...]]  # where they begin, lengths


class Style(TypedDict):
    """How a line looks."""

    color: str
    linestyle: Dashes
    marker: str
    zorder: NotRequired[float]


class Edge(TypedDict):
    """How the edge of a band looks."""

    edgecolor: str
    linestyle: Dashes


# Of text and truth, of observations, of the line between them, of marked places.
INK, GREY, PALE, GUIDE = "0.15", "0.45", "0.8", "0.65"

# Told apart by eyes that see few colours, and in print without any.
_STYLES: tuple[Style, ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#E69F00", "linestyle": "--", "marker": "s"},
    {"color": "#009E73", "linestyle": ":", "marker": "D"},
    {"color": "#CC79A7", "linestyle": "-.", "marker": "^"},
    {"color": "#000000", "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (8, 3)), "marker": "P"},
)

MOST_LINES = len(_STYLES)  # that can be told apart
_MOST_AXES = 12  # of series and channels in a new figure, so that each can be read
_MOST_NAMED = 9  # of many names, in a message
_FEW = 30  # values of a line up to which each has its marker
_DOT = 40.0  # points: a dot's size, times the root of the number of dots
_ENTRY, _LETTER = 45, 6  # points that an entry of a legend takes, and each letter
_INCH = 72  # points


def pyplot() -> ModuleType:
    """Return ``matplotlib.pyplot``, which `import sklode` leaves alone."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "sklode.plotting needs matplotlib, which is not installed. Run "
            "pip install matplotlib."
        ) from error
    return plt


def styles_of(several: Collection[object]) -> tuple[Style, ...]:
    """Return how the line of each of several things looks."""
    if not 0 < len(several) <= MOST_LINES:
        raise ValueError(
            f"a picture must have 1 to {MOST_LINES} lines, which can be told apart; "
            f"got {len(several)}. Draw several pictures."
        )
    return _STYLES[: len(several)]


def check_fitted(forecaster: object, method: str, has: str, kind: str) -> None:
    """Check that this is a fitted forecaster with an attribute of its kind."""
    if isinstance(forecaster, type):
        raise TypeError(
            f"{method} takes a fitted forecaster; got the class {forecaster.__name__}. "
            f"Make one and fit it: {forecaster.__name__}().fit(y)."
        )
    if not (hasattr(forecaster, has) and hasattr(forecaster, "check_is_fitted")):
        raise TypeError(
            f"{method} is of a forecaster {kind}; got a {type(forecaster).__name__}. "
            "Pass the fitted forecaster of a pipeline or search itself."
        )
    forecaster.check_is_fitted(method)


def check_held(
    known: Collection[Hashable], names: Iterable[Hashable], owner: str
) -> None:
    """Check that ``owner``, which may say for whom, holds all names."""
    missing = [name for name in names if name not in known]
    if missing:
        more = len(known) - _MOST_NAMED
        got = f"{list(known)[:_MOST_NAMED]}" + f" and {more} more" * (more > 0)
        remedy = "Draw what fits"
        if list(known) == [()]:
            got, remedy = "one series, which has no key", "Leave series out"
        raise ValueError(f"{owner} must hold {missing[0]!r}; got {got}. {remedy}.")


def check_few(n: int, ax: Given) -> None:
    """Check that a new figure has room for n series and channels."""
    if ax is None and n > _MOST_AXES:
        raise ValueError(
            f"at most {_MOST_AXES} axes are drawn, one for each series and channel;"
            f" got {n}. Pass a part of them, or axes of your own as ax."
        )


def axes_of(
    ax: Given,
    shape: tuple[int, ...],
    size: tuple[float, float],
    n_columns: int,
) -> AxesArray:
    """Return an array of the caller's axes, or of new ones, each of some inches."""
    n = math.prod(shape)
    if ax is not None:
        return _given(ax, n)
    n_lines = math.ceil(n / n_columns)
    width, height = size
    figure = pyplot().figure(
        figsize=(width * n_columns, height * n_lines), layout="constrained"
    )
    # one by one, for n axes may not fill the last line
    made = [figure.add_subplot(n_lines, n_columns, k + 1) for k in range(n)]
    for axes in made:
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.02)
    return np.array(made, dtype=object).reshape(shape)


def _given(ax: Given, n: int) -> AxesArray:
    """Return the axes that a caller gave."""
    # of objects, else numpy would look into them for numbers
    given = np.asarray(ax, dtype=object)
    for one in given.flat:
        if not isinstance(one, pyplot().Axes):
            raise TypeError(
                "ax must be a matplotlib Axes or an array of them; got "
                f"{type(one).__name__}. Pass the second of what plt.subplots() returns."
            )
        # pandas counts periods by their ordinals, and leaves their frequency here
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


def add_legend(axes: AxesArray, is_new: bool) -> None:
    """Add a legend of two things or more, below a new figure, else in an axes."""
    # the first of each label: axes show the same things
    drawn: dict[str, Artist] = {}
    for one in axes.ravel():
        handles, labels = one.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            drawn.setdefault(label, handle)
    # a single thing is named by the labels of its axes
    if len(drawn) < 2:
        return
    handles, labels = list(drawn.values()), list(drawn)
    first = axes.ravel()[0]
    if not is_new:
        first.legend(handles, labels, framealpha=0.7, edgecolor="none")
        return
    figure = first.figure
    # as few lines as hold all entries, which then are spread evenly over them
    width = _ENTRY + _LETTER * max(map(len, labels))
    n_lines = math.ceil(len(labels) * width / (_INCH * figure.get_figwidth()))
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=math.ceil(len(labels) / n_lines),
        frameon=False,
    )


def points(axes: Axes, x: Array, values: Array, label: str, filled: bool) -> None:
    """Draw dots, with a thin line between those that are near, or rings."""
    # so that the area that all dots cover stays the same: it grows as n size^2
    size = float(np.clip(_DOT / math.sqrt(len(x)), 1.5, 4.0))
    if filled:
        (drawn,) = axes.plot(x, values, label=label, color=PALE)
        drawn.set(markerfacecolor=GREY, markeredgecolor="none")
    else:
        (drawn,) = axes.plot(x, values, label=label, linestyle="")
        drawn.set(markerfacecolor="white", markeredgecolor=INK)
    drawn.set(marker="o", markersize=size, linewidth=0.8, markeredgewidth=0.7)


def line(axes: Axes, x: ArrayLike, values: Array, style: Style, label: str) -> None:
    """Draw a line; single points have markers, and all where they are few."""
    known = np.isfinite(values).ravel()
    # a line through one point has no length
    is_shown = known if known.sum() <= _FEW else _alone(known)
    shown = np.flatnonzero(is_shown).tolist()
    (drawn,) = axes.plot(x, values, label=label, **style)
    drawn.set(linewidth=1.6, markersize=4)
    drawn.set(markevery=shown, marker=style["marker"] if shown else "")


def band(
    axes: Axes,
    x: Array,
    bounds: Array,
    fill: Colour,
    label: str,
    edge: Edge | None = None,
) -> None:
    """Fill between bounds, (point, 2); at single points draw a bar."""
    low, high = np.transpose(bounds)
    # below the lines, which have an order of 2
    filled = axes.fill_between(x, low, high, label=label)
    filled.set(facecolor=fill, linewidth=0.0, zorder=1)
    if edge is not None:
        filled.set(linewidth=0.8, **edge)
    # between bounds at one place there is no area
    bar = _alone(np.isfinite(low))
    if bar.any():
        axes.vlines(x[bar], low[bar], high[bar], [fill], linewidth=5, zorder=1)


def _alone(known: Flags) -> Flags:
    """Return which known points have no neighbour."""
    # neighbours before and after, as the same array one place on and one back
    padded = np.pad(known, 1)
    return known & ~padded[:-2] & ~padded[2:]
