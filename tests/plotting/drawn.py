"""What stands on axes, read back from the artists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from numpy.typing import NDArray

Points = NDArray[np.float64]


def line(axes: Axes, label: str) -> Line2D:
    """Return the only line with a label."""
    (found,) = (one for one in axes.lines if one.get_label() == label)
    return found


def points(axes: Axes, label: str) -> Points:
    """Return the points of a line, (point, 2), without the gaps between its parts."""
    xy = line(axes, label).get_xydata()
    found = np.asarray(xy, dtype=float)
    return found[~np.isnan(found).any(axis=1)]


def n_parts(axes: Axes, label: str) -> int:
    """Return into how many parts a line is broken."""
    x = np.asarray(line(axes, label).get_xdata(), dtype=float)
    return int(np.isnan(x).sum()) + 1


def band(axes: Axes, label: str) -> dict[str, Points]:
    """Return the edges of a filled band, (point, 2) each, by side."""
    (filled,) = (one for one in axes.collections if one.get_label() == label)
    edges: dict[str, list[Points]] = {"lower": [], "upper": []}
    for path in filled.get_paths():
        # a polygon: first x and the upper end there, along the lower edge, back above
        vertices = np.unique(np.asarray(path.vertices, dtype=float), axis=0)
        for x in np.unique(vertices[:, 0]):
            at = vertices[vertices[:, 0] == x]
            edges["lower"].append(at[at[:, 1].argmin()])
            edges["upper"].append(at[at[:, 1].argmax()])
    return {side: np.array(each) for side, each in edges.items()}


def legend(axes: Any) -> list[str]:
    """Return the entries of the legend of axes, or of their figure."""
    found = axes.get_legend()
    if found is None:
        (found,) = axes.figure.legends
    return [text.get_text() for text in found.get_texts()]


def luminance(color: Any) -> float:
    """Return how light a colour is in grey, between 0 and 1."""
    return float(np.dot(to_rgb(color), [0.299, 0.587, 0.114]))


def dates(index: pd.Index) -> Points:
    """Return where matplotlib draws datetimes: days since 1970, in UTC."""
    if index.tz is not None:
        index = index.tz_convert("UTC").tz_localize(None)
    days = (index - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    return np.asarray(days, dtype=float)
