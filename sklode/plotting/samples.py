"""Sample paths, and the band that most of them keep to."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from sklode.plotting import marks
from sklode.plotting.counts import check_count
from sklode.plotting.panels import Pair, Panels, as_frame
from sklode.plotting.styles import CURVES, shades
from sklode.plotting.time_axis import TimeAxis

__all__ = ["plot_samples"]


def plot_samples(
    samples: Any,
    y: Any = None,
    *,
    coverage: float | None = 0.9,
    max_paths: int = 50,
    title: str | None = None,
    x_label: str | None = None,
    y_label: str | None = None,
    max_panels: int = 12,
    ax: Any = None,
) -> Any:
    """Plot sample paths as thin lines, with their median and a band around it.

    Parameters
    ----------
    samples : DataFrame
        What ``sample`` or ``sample_prior`` returns, with index ``(sample, *row)``.
    y : Series or DataFrame, optional
        Observations of the same series and channels.
    coverage : float or None, default=0.9
        Share of the paths between the band's bounds, at each time; None: no band.
    max_paths : int, default=50
        Paths drawn, the first ones. Median and band are of all.
    title, x_label, y_label, max_panels, ax
        As in `plot_forecast`.

    Returns
    -------
    Axes or ndarray of Axes
        As in `plot_forecast`.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If an argument is of another kind, or indexes are of different kinds.
    ValueError
        If series, channels or the number of axes do not fit, or ``coverage`` is not
        between 0 and 1.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> from sklode.plotting import plot_samples
    >>> y = load_airline()
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2).fit(y)
    >>> ax = plot_samples(forecaster.sample(fh=range(1, 25)), y)
    """
    _check_options(coverage, max_paths)
    frame = as_frame(samples, "samples")
    _check_samples(frame)
    history: dict[Pair, pd.Series] = {}
    if y is None:
        first = frame.index.get_level_values(0) == frame.index[0][0]
        panels = Panels.of(frame[first].droplevel(0), "samples")
    else:
        observed = as_frame(y, "y")
        panels = Panels.of(observed, "y")
        history = panels.curves(observed, "y")
    paths = panels.paths(frame, "samples")
    times, sheet = marks.sheet(panels, [history, paths], ax, max_panels)
    for pair, axes in zip(panels.pairs(), sheet.axes, strict=True):
        if pair in paths and len(paths[pair]):  # none where X was not given
            marks.mark_end(axes, times, history.get(pair), [paths[pair]])
            _draw(axes, times, paths[pair], coverage, max_paths)
        if pair in history:
            marks.observations(axes, times, history[pair], "observed")
    marks.write(sheet, panels, title, x_label, y_label)
    return sheet.returned


def _draw(
    axes: Any,
    times: TimeAxis,
    paths: pd.DataFrame,
    coverage: float | None,
    max_paths: int,
) -> None:
    """Draw paths (time, sample) of a panel, their median and their band."""
    style = CURVES[0]
    shown = paths.iloc[:, :max_paths]
    marks.threads(axes, times, shown, f"{shown.shape[1]} sample paths")
    if coverage is not None:
        tail = (1 - coverage) / 2
        table = np.nanquantile(paths.to_numpy(), [tail, 0.5, 1 - tail], axis=1)
        bounds = pd.DataFrame({"lower": table[0], "upper": table[2]}, paths.index)
        label = f"{100 * coverage:g} % of {paths.shape[1]} paths"
        marks.band(axes, times, bounds, style, label, shades(1, True)[0])
    median = pd.Series(np.nanmedian(paths.to_numpy(), axis=1), paths.index)
    marks.line(axes, times, median, style, "median")


def _check_options(coverage: Any, max_paths: Any) -> None:
    if coverage is not None and not (
        isinstance(coverage, Real) and 0 < float(coverage) < 1
    ):
        raise ValueError(
            f"coverage must be a share between 0 and 1, or None; got {coverage!r}. "
            "Pass for example 0.9."
        )
    check_count("max_paths", max_paths, 1)


def _check_samples(samples: pd.DataFrame) -> None:
    if samples.index.nlevels < 2 or samples.index.names[0] != "sample":
        raise ValueError(
            "samples must have the index (sample, *row of the forecast); got the "
            f"levels {list(samples.index.names)}. Pass what sample or sample_prior "
            "returns."
        )
    if not len(samples):
        raise ValueError("samples must hold at least one path; got none.")
    again = samples.index.duplicated()
    if again.any():
        row = int(again.argmax())
        raise ValueError(
            "every path in samples must have one row for each stamp; got "
            f"{', '.join(map(str, samples.index[row]))} again at row {row}. Number "
            "the paths apart."
        )
