"""Series at their true times, with forecasts, intervals or sample paths.

A picture has an axes for each series and channel of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import product
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_scalar

from sklode.data.checks import (
    check_index,
    check_rows,
    check_same_kind,
    check_table,
    check_times,
)
from sklode.data.ticks import series_of
from sklode.plotting import canvas

Array = NDArray[np.float64]

Parts = dict[tuple[tuple[Hashable, ...], Hashable], tuple[Array, Array]]
"""By the keys of a series and a channel of which anything is known: places of times,
increasing, and values there, (time, column); NaN where a line ends."""

_UNITS = {"d": 864e11, "h": 36e11, "min": 6e10, "s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
"""Nanoseconds of what durations are counted in, the longest first."""


def plot_forecast(
    y: Any,
    y_pred: Any = None,
    y_interval: Any = None,
    *,
    y_test: Any = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    x_label: str | None = None,
    y_label: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot a series with its forecasts and their intervals, at their true times.

    Every observation is a dot where its stamp lies. Lines and bands end at a gap of
    more than three times what nine in ten gaps are at most: a weekend is bridged, a
    season without data is not.

    Parameters
    ----------
    y : Series or DataFrame
        Observations; a panel has a MultiIndex (instance levels..., time). Times are
        datetimes, periods (each at its start), timedeltas or integers.
    y_pred : Series, DataFrame or dict, optional
        A forecast with series and channels of ``y``, or several by name.
    y_interval : DataFrame or dict, optional
        What ``predict_interval`` returns, of any number of coverages; of several
        forecasts a dict with their names.
    y_test : Series or DataFrame, optional
        Truth at the forecast's times, or at others.
    labels : sequence of str, optional
        Names in the legend of ``y``, each forecast and ``y_test``, where given.
    title, x_label, y_label : str, optional
        By default none, the name of the index, and the channel.
    ax : Axes or array of Axes, optional
        Where to draw: one for each series and channel, channels of a series next to
        each other. None: a new figure, of twelve at most.

    Returns
    -------
    Axes or ndarray of Axes
        ``ax``; of a new figure one Axes, or an array of shape (channel,), (series,) or,
        where there are several of both, (series, channel).

    Raises
    ------
    TypeError, ValueError
        If kinds of arguments or times, series, channels, labels or axes do not fit.
    """
    panels = Panels(y, "y", ax)
    preds, intervals = _by_name(y_pred, y_interval)
    y_name, *names, test_name = _names(labels, preds, y_test)
    styles = canvas.styles_of(preds)
    panels.add(y, "y", partial(canvas.points, label=y_name, filled=True))
    panels.add(y_test, "y_test", partial(canvas.points, label=test_name, filled=False))
    for key, style, name in zip(preds, styles, names, strict=True):
        panels.add(preds[key], "y_pred", partial(canvas.line, style=style, label=name))
        panels.add_intervals(intervals.get(key), style, name if len(preds) > 1 else "")
    return panels.draw(title, x_label, y_label)


def plot_samples(
    samples: Any,
    y: Any = None,
    *,
    coverage: float | None = 0.9,
    max_paths: int = 50,
    title: str | None = None,
    x_label: str | None = None,
    y_label: str | None = None,
    ax: Any = None,
) -> Any:
    """Plot sample paths as thin lines, with their median and a band around it.

    Parameters
    ----------
    samples : DataFrame
        What ``sample`` returns, with index ``(sample, *row)``.
    y : Series or DataFrame, optional
        Observations of the same series and channels.
    coverage : float or None, default=0.9
        Share of the paths between the band's bounds, at each time; None: no band.
    max_paths : int, default=50
        Paths drawn, the first ones. Median and band are of all.
    title, x_label, y_label, ax
        As in `plot_forecast`.

    Returns
    -------
    Axes or ndarray of Axes
        As in `plot_forecast`, and the same errors.
    """
    check_scalar(max_paths, "max_paths", Integral, min_val=1)
    is_share = isinstance(coverage, Real) and 0 < float(coverage) < 1
    if coverage is not None and not is_share:
        raise ValueError(
            f"coverage must be a share between 0 and 1, or None; got {coverage!r}."
        )
    frame = _as_frame(samples, "samples")
    if frame.index.nlevels < 2 or frame.index.names[0] != "sample" or not len(frame):
        raise ValueError(
            "samples must have rows with the index (sample, *row of the forecast); got "
            f"{len(frame)} with the levels {list(frame.index.names)}. Pass what sample "
            "returns."
        )
    check_index(frame.index, "samples")  # each path has a stamp once
    first = frame.xs(frame.index[0][0], level=0)
    panels = Panels(first, "samples", ax) if y is None else Panels(y, "y", ax)
    (style,) = canvas.styles_of([samples])
    tail = (1 - float(coverage or 0)) / 2

    def draw(axes: Any, x: Array, paths: Array) -> None:
        quantiles = pd.DataFrame(paths).quantile([tail, 0.5, 1 - tail], axis=1)
        low, median, high = quantiles.to_numpy()
        canvas.line(axes, x, median, style, "median")
        shown = paths[:, :max_paths]
        canvas.threads(axes, x, shown, f"{shown.shape[1]} sample paths")
        if coverage is not None:
            label = f"{100 * coverage:g} % of {paths.shape[1]} paths"
            fill = canvas.tint(style["color"], 0.18)
            canvas.band(axes, x, np.stack([low, high], axis=1), fill, label)

    panels.add(y, "y", partial(canvas.points, label="observed", filled=True))
    panels.add(frame.unstack(level=0), "samples", draw, n_last=1)
    return panels.draw(title, x_label, y_label)


class Panels:
    """A picture with an axes for each series and channel, and its layers."""

    def __init__(self, y: Any, name: str, ax: Any) -> None:
        canvas.pyplot()  # says how to install matplotlib
        frame = _as_frame(y, name)
        check_index(frame.index, name)
        check_rows(frame)
        _, self.keys = series_of(frame.index)  # ((),) of a single series
        self.channels = list(frame.columns)
        self.levels = list(frame.index.names)  # the last one is time
        self.times = frame.index.get_level_values(-1)
        self.unit = _unit_of(self.times, ax)
        self.ax = ax
        self.layers: list[tuple[Parts, Callable[..., None]]] = []

    def add(
        self, data: Any, name: str, draw: Callable[..., None], n_last: int = 0
    ) -> None:
        """Add what is known in a table, or in None, and how it is drawn.

        ``draw(axes, places, values)``, of values (time, column), is called for each
        axes; columns have ``n_last`` levels below that of the channels.
        """
        parts: Parts = {}
        self.layers.append((parts, draw))
        if data is None:
            return
        frame = _as_frame(data, name)
        if frame.index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y, {self.levels}; got "
                f"{list(frame.index.names)}. Draw what was made from the same y."
            )
        times = frame.index.get_level_values(-1)
        check_times(frame.index, name)
        check_same_kind(times, self.times, f"the index of {name}")
        numbers, keys = series_of(frame.index)
        canvas.check_held(self.keys, keys, f"the series of y, like those of {name},")
        columns = frame.columns
        columns = columns.droplevel([*range(-n_last, 0)]) if n_last else columns
        channels = list(columns.unique())
        is_only = len(channels) == len(self.channels) == 1  # a Series may have no name
        if not is_only:
            canvas.check_held(self.channels, channels, f"the channels of y and {name}")
            canvas.check_held(channels, self.channels, f"the channels of {name} and y")
        values = frame.to_numpy(dtype=float, na_value=np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        places = _places(times, self.unit)
        order = np.argsort(places, kind="stable")
        for channel in self.channels:
            own = values[:, [is_only or one == channel for one in columns]]
            known = order[~np.isnan(own[order]).all(axis=1)]
            for k, key in enumerate(keys):
                rows = known[numbers[known] == k]
                if len(rows):
                    parts[key, channel] = _broken(places[rows], own[rows])

    def add_intervals(self, table: Any, style: dict[str, Any], owner: str) -> None:
        """Add the bands of a forecast, the widest first; one of several has a name."""
        if table is None:
            return
        columns = getattr(table, "columns", pd.Index([]))
        if not _are_bounds(columns):
            raise TypeError(
                "y_interval must be what predict_interval returns, with the columns "
                f"(channel, coverage, lower or upper); got a {type(table).__name__} "
                f"with {list(columns)[:4]}. Pass forecaster.predict_interval(fh)."
            )
        lower_first = table.sort_index(axis=1, level=-1, sort_remaining=False)
        coverages = sorted(columns.unique(level=-2), reverse=True)
        shares = np.linspace(0.18, 0.48, len(coverages))
        for share, coverage in zip(shares, coverages, strict=True):
            label = f"{100 * coverage:g} % interval"
            look = {"fill": canvas.tint(style["color"], share)}
            if owner:  # they may overlap
                label += f", {owner}"
                look = {"fill": (style["color"], 0.15), "edgecolor": style["color"]}
                look |= {"linestyle": style["linestyle"]}
            bounds = lower_first.xs(coverage, axis=1, level=-2)
            draw = partial(canvas.band, label=label, **look)
            self.add(bounds, "y_interval", draw, n_last=1)

    def draw(
        self,
        title: str | None,
        x_label: str | None,
        y_label: str | None,
        n_columns: int | None = None,
        apart: Sequence[Callable[[Any], None]] = (),
    ) -> Any:
        """Draw the layers, the first one of what was seen; return the axes.

        ``apart`` draw what is not over time, each on an axes of its own, the last ones.
        """
        sheet = self._canvas(n_columns, len(apart))
        n_timed = len(sheet.axes) - len(apart)
        for draw, axes in zip(apart, sheet.axes[n_timed:], strict=True):
            draw(axes)
        x_label = str(self.levels[-1] or "") if x_label is None else x_label
        pairs = product(self.keys, self.channels)
        for pair, axes in zip(pairs, sheet.axes[:n_timed], strict=True):
            self._dress(axes)
            for parts, draw in self.layers:
                if pair in parts:
                    draw(axes, *parts[pair])
            key, channel = pair
            last = self._last(key, channel)
            if last is not None:
                guide = axes.axvline(last, color=canvas.GUIDE, linewidth=0.8)
                guide.set(linestyle=(0, (1, 2)), zorder=0)
            if key:
                axes.set_title(", ".join(map(str, key)), fontsize="medium")
            name = "" if self.channels in ([0], [None]) else str(channel)  # of a Series
            axes.set_ylabel(name if y_label is None else y_label)
            if axes.xaxis.get_tick_params()["labelbottom"]:
                axes.set_xlabel(x_label)
        return sheet.explained(title)

    def _last(self, key: tuple[Hashable, ...], channel: Hashable) -> float | None:
        """Return where the first layer of a series ends, if anything is drawn after.

        That of its channel, or of others where that has none.
        """
        seen, *others = (
            {c: x[-1] for (k, c), (x, _) in parts.items() if k == key}
            for parts, _ in self.layers
        )
        last = seen.get(channel, max(seen.values(), default=math.inf))
        return last if any(x > last for ends in others for x in ends.values()) else None

    def _canvas(self, n_columns: int | None, n_apart: int) -> canvas.Canvas:
        """Return an axes for each series and channel, and some more."""
        n_series, n_channels = len(self.keys), len(self.channels) + n_apart
        shape = tuple(n for n in (n_series, n_channels) if n > 1)
        if n_columns is None:
            n_columns = n_channels if n_series > 1 else 1 if n_channels <= 6 else 2
            if n_channels == 1:
                n_columns = min(3, math.ceil(math.sqrt(n_series)))
        size = (9.0, 4.2) if not shape else (9.0, 2.2) if n_columns == 1 else (3.6, 2.4)
        # one time axis serves all where none would be squeezed into a corner
        spans = [x[[0, -1]] for parts, _ in self.layers for x, _ in parts.values()]
        longest = np.ptp(spans, axis=1).max() if spans else 0.0
        share_x = n_series == 1 or bool(spans and np.ptp(spans) <= 2 * longest)
        return canvas.Canvas.of(self.ax, shape, size, n_columns, share_x, n_apart)

    def _dress(self, axes: Any) -> None:
        """Let ticks read as stamps, unless they do already."""
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axis = axes.xaxis
        if axis.have_units():
            return
        if self.unit is not None:
            axis.set_units(self.unit)
            axis.set_major_formatter(f"{{x:g}} {self.unit}")
        elif isinstance(self.times, pd.DatetimeIndex | pd.PeriodIndex):
            # a date without a zone is shown as it is, whatever matplotlib's own zone
            zone = getattr(self.times, "tz", None) or "UTC"
            axis.axis_date(zone)
            # eight dates touch below four inches; and less than 2 n + 1 of at least n
            # would leave some spans without a fitting interval
            is_narrow = axes.bbox.width < 4 * axes.figure.dpi
            fewest, most = (2, 5) if is_narrow else (3, 8)
            locator = AutoDateLocator(tz=zone, minticks=fewest, maxticks=most)
            axis.set_major_locator(locator)
            axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))


def _unit_of(times: pd.Index, ax: Any) -> str | None:
    """Return what durations are counted in: as on the axes, else so that few are."""
    if not isinstance(times, pd.TimedeltaIndex):
        return None
    axes = np.asarray(() if ax is None else ax, dtype=object).ravel()
    known = [one.xaxis.get_units() for one in axes if hasattr(one, "xaxis")]
    largest = np.abs(times.as_unit("ns").asi8).max()
    fitting = [unit for unit, n in _UNITS.items() if largest >= 5 * n]
    return next(unit for unit in [*known, *fitting, "ns"] if unit in _UNITS)


def _places(times: pd.Index, unit: str | None) -> Array:
    """Return where stamps lie; datetimes and periods as matplotlib's dates."""
    from matplotlib.dates import date2num

    if isinstance(times, pd.TimedeltaIndex):
        return times.as_unit("ns").asi8 / _UNITS[unit or "ns"]
    if isinstance(times, pd.PeriodIndex):  # they reach farther than datetimes
        times = pd.Index(times.asfreq("us", how="start").asi8.view("datetime64[us]"))
    if isinstance(times, pd.DatetimeIndex):
        return np.asarray(date2num(times.values))
    return times.to_numpy(dtype=float)


def _as_frame(data: Any, name: str) -> pd.DataFrame:
    """Return a Series or DataFrame of numbers as a DataFrame."""
    if not isinstance(data, pd.Series | pd.DataFrame):
        raise TypeError(
            f"{name} must be a Series or DataFrame over its time stamps; got "
            f"{type(data).__name__}. Use pd.Series(values, index)."
        )
    check_table(data, name)
    return pd.DataFrame(data)


def _are_bounds(columns: pd.Index) -> bool:
    """Return whether each channel has both bounds of each coverage, a number."""
    if columns.nlevels < 3:
        return False
    ends, bounds = columns.get_level_values(-1), columns.droplevel(-1)
    lower, upper = (set(bounds[ends == side]) for side in ("lower", "upper"))
    is_numeric = all(isinstance(c, Real) for c in columns.get_level_values(-2))
    return is_numeric and lower == upper and len(columns) == 2 * len(lower) > 0


def _by_name(y_pred: Any, y_interval: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return forecasts, and the intervals of some of them, by the same names."""
    if y_pred is None and isinstance(y_interval, Mapping):
        y_pred = dict.fromkeys(y_interval)
    preds = dict(y_pred) if isinstance(y_pred, Mapping) else {"forecast": y_pred}
    if not isinstance(y_interval, Mapping):
        if len(preds) > 1 and y_interval is not None:
            raise TypeError(
                "intervals of several forecasts must be a dict with their names, "
                f"{list(preds)}; got a {type(y_interval).__name__}. Name them."
            )
        y_interval = dict.fromkeys(preds, y_interval)
    canvas.check_held(preds, y_interval, "the forecasts that have intervals")
    return preds, dict(y_interval)


def _names(labels: Any, preds: dict[Any, Any], y_test: Any) -> list[str]:
    """Return the names of y, of each forecast and of y_test, given or not."""
    names = ["observed", *map(str, preds), "held out"]
    is_given = [True, *(one is not None for one in preds.values()), y_test is not None]
    if labels is None:
        return names
    if isinstance(labels, str) or len(labels) != sum(is_given):
        raise ValueError(
            f"labels must be {sum(is_given)}, of y, each forecast and y_test; got "
            f"{labels!r}. Leave out what is not given."
        )
    given = iter(labels)
    pairs = zip(names, is_given, strict=True)
    return [str(next(given)) if is_one else name for name, is_one in pairs]


def _broken(x: Array, values: Array) -> tuple[Array, Array]:
    """Return places and values with NaN in long gaps, where a line ends."""
    gaps = np.diff(x)
    usual = np.quantile(gaps, 0.9, method="lower") if len(gaps) else 0.0
    ends = np.flatnonzero(gaps > 3.0 * usual) + 1
    return np.insert(x, ends, np.nan), np.insert(values, ends, np.nan, axis=0)
