"""Series at their true times, with forecasts and intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from sklode.data import checks
from sklode.data.arrays import Array, Frame, Key
from sklode.data.tables import check_rows, read_table
from sklode.data.ticks import UNITS, series_of
from sklode.plotting import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONG = 3.0  # times that a gap is longer than the usual one, where a line ends
_USUAL = 0.9  # quantile of gaps: usual ones are at most that long
_FEWEST_UNITS = 5  # that the longest duration must have of the unit of its axis

Forecasts: TypeAlias = dict[Hashable, Frame | None]
"""Tables by the name of a forecast."""
Draw: TypeAlias = Callable[..., None]
"""Draws on axes, at places, values: see `sklode.plotting.canvas`."""
Pair: TypeAlias = tuple[Key, Hashable]
"""The keys of a series and a channel, which have an axes together."""
Parts: TypeAlias = dict[Pair, tuple[Array, Array]]
"""Of pairs of which anything is known: places of times, increasing, and values there,
(time, column); NaN where a line ends."""


def plot_forecast(
    y: Frame,
    y_pred: Frame | Mapping[Hashable, Frame] | None = None,
    y_interval: pd.DataFrame | Mapping[Hashable, pd.DataFrame] | None = None,
    *,
    y_test: Frame | None = None,
    ax: canvas.Given = None,
) -> Any:
    """Plot a series with its forecasts and their intervals, at their true times.

    Lines and bands end at a gap of more than three times what nine in ten gaps are at
    most: a weekend is bridged, a season without data is not.

    Parameters
    ----------
    y : Series or DataFrame
        Observations; a panel has a MultiIndex (instance levels..., time). Times are
        datetimes, periods (each at its start), timedeltas or integers.
    y_pred : Series, DataFrame or dict, optional
        A forecast with the channels of ``y``, or several by name. Series that ``y``
        lacks, such as new ones, are drawn last.
    y_interval : DataFrame or dict, optional
        What ``predict_interval`` returns, of any number of coverages; of several
        forecasts a dict with their names.
    y_test : Series or DataFrame, optional
        Truth at the forecast's times, or at others.
    ax : Axes or array of Axes, optional
        One for each series and channel, channels of a series next to each other. None:
        a new figure, of twelve at most.

    Returns
    -------
    Axes or ndarray of Axes
        ``ax``; of a new figure one Axes, or an array of shape (channel,), (series,) or,
        where there are several of both, (series, channel).

    Raises
    ------
    TypeError, ValueError
        If kinds of arguments or times, series, channels or axes do not fit.
    """
    panels = Panels(y, ax)
    preds, intervals = _by_name(y_pred, y_interval)
    dots = canvas.points
    panels.add(y, name="y", draw=dots, label="observed", filled=True)
    panels.add(y_test, name="y_test", draw=dots, label="held out", filled=False)
    styles = canvas.styles_of(preds)
    for (name, pred), style in zip(preds.items(), styles, strict=True):
        if _are_intervals(getattr(pred, "columns", pd.Index([]))):
            raise TypeError(
                "y_pred must be what predict returns; got intervals. Pass them by "
                "their name: plot_forecast(y, y_interval=intervals)."
            )
        draw = partial(canvas.line, style=style)
        panels.add(pred, name="y_pred", draw=draw, label=str(name))
        owner = f", {name}" if len(preds) > 1 else ""
        panels.add_intervals(intervals.get(name), style, owner)
    _check_order(y, y_pred)
    canvas.check_few(len(panels.keys) * len(panels.channels), ax)
    axes = panels.draw()
    canvas.add_legend(axes, is_new=ax is None)
    return axes if axes.ndim else axes.item()


def _check_order(y: Frame, y_pred: object) -> None:
    """Check that y is not the forecast: short, after the end of a long y_pred."""
    if not isinstance(y_pred, pd.Series | pd.DataFrame) or y.index.nlevels > 1:
        return
    # a backcast may end before y begins, but hardly is longer than y
    if len(y_pred) > len(y) and y_pred.index[-1] < y.index[0]:
        raise ValueError(
            "plot_forecast takes what was observed, then the forecast; got y from "
            f"{y.index[0]} on and y_pred up to {y_pred.index[-1]}. Swap them: "
            "plot_forecast(y, y_pred)."
        )


class Layer(NamedTuple):
    """What is drawn of a table, and what draws it."""

    parts: Parts
    draw: Draw


class Panels:
    """A picture with an axes for each series and channel, and its layers."""

    def __init__(self, y: Frame, ax: canvas.Given) -> None:
        canvas.pyplot()  # says how to install matplotlib
        frame = _as_frame(y, "y")
        checks.check_index(frame.index, "y")
        check_rows(frame)
        _, self.keys = series_of(frame.index)  # ((),) of a single series
        self.channels = list(frame.columns)
        self.levels = list(frame.index.names)  # the last one is time
        self.times = frame.index.get_level_values(-1)
        self.unit = _unit_of(self.times, ax)
        self.ax = ax
        self.layers: list[Layer] = []  # the first is what was seen

    def add(
        self,
        data: Frame | None,
        name: str,
        draw: Draw,
        n_last: int = 0,
        **how: object,
    ) -> None:
        """Add a table, or None, for ``draw(axes, places, values, **how)`` of each axes.

        Columns have ``n_last`` levels below that of the channels.
        """
        if data is None:
            return
        frame = _as_frame(data, name)
        if frame.index.nlevels != len(self.levels):
            raise ValueError(
                f"{name} must have the index levels of y, {self.levels}; got "
                f"{list(frame.index.names)}. Draw what was made from the same y."
            )
        times = frame.index.get_level_values(-1)
        checks.check_times(frame.index, name)
        checks.check_same_kind(times, self.times, f"the index of {name}")
        numbers, keys = series_of(frame.index)
        # without history, after those that have one
        self.keys += tuple(key for key in keys if key not in self.keys)
        columns = self._columns_of(frame.columns, name, n_last)
        places = _places(times, self.unit)
        # an infinite value has no place in a picture
        values = frame.to_numpy(dtype=float, na_value=np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        order = np.argsort(places, kind="stable")
        parts: Parts = {}
        for channel, is_own in columns.items():
            own = values[:, is_own]
            # in the order of time; a band's bounds are two columns
            by_time = own[order]
            known = order[~np.isnan(by_time).all(axis=1)]
            for k, key in enumerate(keys):
                rows = known[numbers[known] == k]
                if len(rows):
                    parts[key, channel] = _broken(places[rows], own[rows])
        self.layers.append(Layer(parts, partial(draw, **how)))

    def _columns_of(
        self, columns: pd.Index, name: str, n_last: int
    ) -> dict[Hashable, list[bool]]:
        """Return which columns of a table are of each channel of y."""
        if n_last:
            columns = columns.droplevel([*range(-n_last, 0)])
        channels = list(columns.unique())
        if len(channels) == len(self.channels) == 1:
            # a Series and its forecast are one channel, whatever their names
            return {self.channels[0]: [True] * len(columns)}
        held = f"the channels of y and {name}"
        canvas.check_held(self.channels, channels, held)
        held = f"the channels of {name} and y"
        canvas.check_held(channels, self.channels, held)
        return {own: [one == own for one in columns] for own in self.channels}

    def add_intervals(
        self, table: pd.DataFrame | None, style: canvas.Style, owner: str
    ) -> None:
        """Add the bands of a forecast, the widest first; one of several has a name."""
        if table is None:
            return
        columns = getattr(table, "columns", pd.Index([]))
        if not _are_intervals(columns):
            raise TypeError(
                "y_interval must be what predict_interval returns, with the columns "
                f"(channel, coverage, lower or upper); got a {type(table).__name__} "
                f"with {list(columns)[:4]}. Pass forecaster.predict_interval(fh)."
            )
        # "lower" comes before "upper" in the alphabet; the order of channels stays
        lower_first = table.sort_index(axis=1, level=-1, sort_remaining=False)
        coverages = sorted(columns.unique(level=-2), reverse=True)
        # the narrower, the less transparent, as narrower ones lie upon wider ones
        opacities = np.linspace(0.18, 0.48, len(coverages)).tolist()
        edge: canvas.Edge | None = None
        # bands of several forecasts overlap: edges tell them apart
        if owner:
            opacities = [0.15] * len(coverages)
            edge = {
                "edgecolor": style["color"],
                "linestyle": style["linestyle"],
            }
        for opacity, coverage in zip(opacities, coverages, strict=True):
            self.add(
                lower_first.xs(coverage, axis=1, level=-2),
                name="y_interval",
                draw=canvas.band,
                n_last=1,
                fill=(style["color"], opacity),
                label=f"{100 * coverage:g} % interval{owner}",
                edge=edge,
            )

    def draw(self, n_more: int = 0) -> canvas.AxesArray:
        """Draw the layers, the first one of what was seen; leave ``n_more`` axes."""
        n_columns = self._n_columns(n_more)
        axes = self._axes(n_more, n_columns)
        pairs = list(product(self.keys, self.channels))
        shares_x = self.ax is None and self._overlap()
        first, *others = axes.ravel()[: len(pairs)]
        # before anything is drawn: then limits suit all of them
        for one in others if shares_x else []:
            one.sharex(first)
        for k, pair in enumerate(pairs):
            one = axes.ravel()[k]
            self._dress(one)
            self._draw_pair(one, pair)
            # of axes that share their time those tell it below which none stands
            if shares_x and k + n_columns < len(pairs):
                one.xaxis.set_tick_params(labelbottom=False)
            if one.xaxis.get_tick_params()["labelbottom"]:
                one.set_xlabel(str(self.levels[-1] or ""))
        return axes

    def _n_columns(self, n_more: int) -> int:
        """Return how many axes stand abreast."""
        # parts of one series over each other: they are compared in time
        if len(self.keys) == 1:
            return 1
        # channels of a series abreast
        n_channels = len(self.channels) + n_more
        if n_channels > 1:
            return n_channels
        # series in about a square
        return min(3, math.ceil(len(self.keys) ** 0.5))

    def _axes(self, n_more: int, n_columns: int) -> canvas.AxesArray:
        """Return axes of series and channels; of a lone one an array without a size."""
        sizes = len(self.keys), len(self.channels) + n_more
        shape = tuple(n for n in sizes if n > 1)
        size = (9.0, 4.2)  # inches of each, as also below
        if shape:
            size = (9.0, 2.2) if n_columns == 1 else (3.6, 2.4)
        return canvas.axes_of(
            self.ax,
            shape=shape,
            size=size,
            n_columns=n_columns,
        )

    def _overlap(self) -> bool:
        """Return whether one time axis serves all, and squeezes none into a corner."""
        seen = self.layers[0].parts.values()
        spans = [(places[0], places[-1]) for places, _ in seen]
        firsts, lasts = np.transpose(spans or [(0.0, 0.0)])
        # there is a time in all of them if the last to begin does before any ends
        return len(self.keys) == 1 or bool(firsts.max() < lasts.min())

    def _draw_pair(self, axes: Axes, pair: Pair) -> None:
        """Draw a channel of a series, and mark where what was seen ends."""
        key, channel = pair
        ends = []
        for layer in self.layers:
            if pair in layer.parts:
                places, values = layer.parts[pair]
                layer.draw(axes, places, values)
                ends.append(places[-1])
        if pair in self.layers[0].parts and max(ends) > ends[0]:
            guide = axes.axvline(ends[0], color=canvas.GUIDE, linewidth=0.8)
            guide.set(linestyle=(0, (1, 2)), zorder=0)
        if key:
            axes.set_title(", ".join(map(str, key)), fontsize="medium")
        # pandas calls the column of a Series without a name 0, sktime calls it None
        if self.channels not in ([0], [None]):
            axes.set_ylabel(str(channel))

    def _dress(self, axes: Axes) -> None:
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
            inches = axes.bbox.width / axes.figure.dpi
            fewest, most = (2, 5) if inches < 4 else (3, 8)
            locator = AutoDateLocator(tz=zone, minticks=fewest, maxticks=most)
            formatter = ConciseDateFormatter(locator, tz=zone)
            axis.set_major_locator(locator)
            axis.set_major_formatter(formatter)


def _are_intervals(columns: pd.Index) -> bool:
    """Return whether columns are those of ``predict_interval``, in any order."""
    if columns.nlevels < 3 or not is_numeric_dtype(columns.levels[-2]):
        return False
    n_bounds = Counter(columns.droplevel(-1))  # of each channel and coverage
    bounds = set(columns.get_level_values(-1))
    return bounds == {"lower", "upper"} and set(n_bounds.values()) == {2}


def _unit_of(times: pd.Index, ax: canvas.Given) -> str | None:
    """Return what durations are counted in: as on the axes, else so that few are."""
    if not isinstance(times, pd.TimedeltaIndex):
        return None
    # units are those of axes that were drawn on, else the largest that suits
    axes = np.asarray(() if ax is None else ax, dtype=object).ravel()
    known = [one.xaxis.get_units() for one in axes if hasattr(one, "xaxis")]
    longest = np.abs(times.as_unit("ns").asi8).max()
    # `UNITS` are nanoseconds, from the longest unit on
    n_units = {unit: longest / n for unit, n in UNITS.items()}
    fitting = [unit for unit, n in n_units.items() if n >= _FEWEST_UNITS]
    return next(unit for unit in [*known, *fitting, "ns"] if unit in UNITS)


def _places(times: pd.Index, unit: str | None) -> Array:
    """Return where stamps lie; datetimes and periods as matplotlib's dates."""
    from matplotlib.dates import date2num

    if isinstance(times, pd.TimedeltaIndex):
        return times.as_unit("ns").asi8 / UNITS[unit or "ns"]
    if isinstance(times, pd.PeriodIndex):
        # by way of microseconds, for nanoseconds end in the years 1677 and 2262
        starts = times.asfreq("us", how="start").asi8
        times = pd.Index(starts.view("datetime64[us]"))
    if isinstance(times, pd.DatetimeIndex):
        return np.asarray(date2num(times.values))
    return times.to_numpy(dtype=float)


def _as_frame(data: Frame, name: str) -> pd.DataFrame:
    """Return a Series or DataFrame of numbers as a DataFrame."""
    if not isinstance(data, pd.Series | pd.DataFrame):
        remedy = "pd.Series(values, index)"
        if hasattr(data, "predict"):
            remedy = "plot_forecast(y, forecaster.predict(fh))"
        raise TypeError(
            f"{name} must be a Series or DataFrame over its time stamps; got "
            f"{type(data).__name__}. Use {remedy}."
        )
    return pd.DataFrame(read_table(data, name))


def _by_name(
    y_pred: Frame | Mapping[Hashable, Frame] | None,
    y_interval: pd.DataFrame | Mapping[Hashable, pd.DataFrame] | None,
) -> tuple[Forecasts, Forecasts]:
    """Return forecasts, and the intervals of some of them, by the same names."""
    # intervals may be drawn without the forecasts that they are of
    if y_pred is None and isinstance(y_interval, Mapping):
        y_pred = dict.fromkeys(y_interval)
    if not isinstance(y_pred, Mapping):
        y_pred = {"forecast": y_pred}
    if not isinstance(y_interval, Mapping | None):
        if len(y_pred) == 1:
            return dict(y_pred), dict.fromkeys(y_pred, y_interval)
        raise TypeError(
            "intervals of several forecasts must be a dict with their names, "
            f"{list(y_pred)}; got a {type(y_interval).__name__}. Name them."
        )
    y_interval = y_interval or {}
    canvas.check_held(y_pred, y_interval, "the forecasts that have intervals")
    return dict(y_pred), dict(y_interval)


def _broken(x: Array, values: Array) -> tuple[Array, Array]:
    """Return places and values with NaN in long gaps, where a line ends."""
    gaps = np.diff(x)
    # one of the gaps that there are, else a long one among few would count as usual
    usual = np.quantile(gaps, _USUAL, method="lower") if len(gaps) else 0.0
    # a NaN before the point after the gap: matplotlib lifts its pen there
    ends = np.flatnonzero(gaps > _LONG * usual) + 1
    places = np.insert(x, ends, np.nan)
    return places, np.insert(values, ends, np.nan, axis=0)
