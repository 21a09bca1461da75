"""Forecasts beside what was observed, at their true times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sklode.plotting import marks
from sklode.plotting.panels import Pair, Panels, as_frame
from sklode.plotting.styles import CURVES, Curve, shades
from sklode.plotting.time_axis import TimeAxis

__all__ = ["plot_forecast"]


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
    max_panels: int = 12,
    ax: Any = None,
) -> Any:
    """Plot a series with its forecasts and their intervals, at their true times.

    Every observation is a dot where its stamp lies. The thin line between dots, and the
    line of a forecast, end at a gap of more than three times what nine in ten of the
    gaps are at most, so that no line claims what nobody knows. Missing values are
    absent. A panel, and a series of several channels, are drawn as small multiples.

    Parameters
    ----------
    y : Series or DataFrame
        Observations; a panel has a MultiIndex (instance levels..., time). Times are
        datetimes, periods (each at its start), timedeltas, integers or floats.
    y_pred : Series, DataFrame or dict, optional
        A forecast with series and channels of ``y``, or several by name.
    y_interval : DataFrame or dict, optional
        What ``predict_interval`` returns, of any number of coverages; of several
        forecasts a dict with their names.
    y_test : Series or DataFrame, optional
        Truth at the forecast's times, or at others.
    labels : sequence of str, optional
        Names in the legend of ``y``, each forecast and ``y_test``, in that order, of
        those that are given.
    title, x_label, y_label : str, optional
        Of the picture and its axes; by default none, the name of the index, and the
        channel.
    max_panels : int, default=12
        More axes than these are an error, where ``ax`` is not given.
    ax : Axes or array of Axes, optional
        Where to draw: one for each series and channel, channels of a series next to
        each other. None: a new figure.

    Returns
    -------
    Axes or ndarray of Axes
        ``ax``; of a new figure one Axes, or an array of shape (channel,), (series,) or,
        where there are several of both, (series, channel).

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError
        If an argument is of another kind, or indexes are of different kinds.
    ValueError
        If series, channels, labels or the number of axes do not fit.

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> from sklode.plotting import plot_forecast
    >>> y = load_airline()
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2).fit(y[:-12])
    >>> y_pred = forecaster.predict(fh=range(1, 13))
    >>> y_interval = forecaster.predict_interval(coverage=[0.5, 0.9])
    >>> ax = plot_forecast(y[:-12], y_pred, y_interval, y_test=y[-12:])
    """
    frame = as_frame(y, "y")
    panels = Panels.of(frame, "y")
    history = panels.curves(frame, "y")
    truth = {}
    if y_test is not None:
        truth = panels.curves(as_frame(y_test, "y_test"), "y_test")
    y_name, y_test_name, forecasts = _read(panels, y_pred, y_interval, y_test, labels)
    later = [truth, *(tables for f in forecasts for tables in (f.curves, f.widest()))]
    times, sheet = marks.sheet(panels, [history, *later], ax, max_panels)
    n_banded = sum(bool(forecast.bands) for forecast in forecasts)
    for pair, axes in zip(panels.pairs(), sheet.axes, strict=True):
        follows = [part[pair] for part in later if pair in part]
        marks.mark_end(axes, times, history.get(pair), follows)
        for forecast in forecasts:
            forecast.fill(axes, times, pair, len(forecasts) == 1, n_banded > 1)
        if pair in history:
            marks.observations(axes, times, history[pair], y_name)
        if pair in truth:
            marks.truth(axes, times, truth[pair], y_test_name)
        for forecast in forecasts:
            if pair in forecast.curves:
                curve = forecast.curves[pair]
                marks.line(axes, times, curve, forecast.style, forecast.name)
    marks.write(sheet, panels, title, x_label, y_label)
    return sheet.returned


@dataclass(frozen=True, eq=False)
class _Forecast:
    """A forecast by panel: its values, and its bands by coverage, widest first."""

    name: str
    style: Curve
    curves: dict[Pair, pd.Series]
    bands: dict[Pair, dict[float, pd.DataFrame]]

    def widest(self) -> dict[Pair, pd.DataFrame]:
        """Return the widest band of each panel."""
        return {pair: next(iter(bands.values())) for pair, bands in self.bands.items()}

    def fill(
        self, axes: Any, times: TimeAxis, pair: Pair, alone: bool, edged: bool
    ) -> None:
        """Draw the bands of a panel, named where the forecast is not alone."""
        bands = self.bands.get(pair, {})
        filling = shades(len(bands), not edged)
        for (coverage, bounds), shade in zip(bands.items(), filling, strict=True):
            label = f"{100 * coverage:g} % interval"
            if not alone:
                label += f", {self.name}"
            marks.band(axes, times, bounds, self.style, label, shade, edged)


def _read(
    panels: Panels, y_pred: Any, y_interval: Any, y_test: Any, labels: Any
) -> tuple[str, str, list[_Forecast]]:
    """Return the names of y and y_test, and the forecasts with theirs."""
    preds = _by_name(y_pred, "forecast")
    alone = next(iter(preds), "forecast")
    if len(preds) > 1 and y_interval is not None:
        _check_dict(y_interval, list(preds))
    intervals = _by_name(y_interval, alone)
    unknown = [name for name in intervals if preds and name not in preds]
    if unknown:
        raise ValueError(
            f"intervals must have names of forecasts, {list(preds)}; got "
            f"{unknown[0]!r}. Use the same names in y_pred and y_interval."
        )
    keys = list(preds or intervals)
    if len(keys) > len(CURVES):
        raise ValueError(
            f"at most {len(CURVES)} forecasts can be told apart; got {len(keys)}. "
            "Draw them in several pictures."
        )
    y_name, *names, y_test_name = _names(labels, list(preds), y_test is not None)
    names = names or [str(key) for key in keys]
    forecasts = []
    for key, name, style in zip(keys, names, CURVES, strict=False):
        curves, bands = {}, {}
        if key in preds:
            curves = panels.curves(as_frame(preds[key], "y_pred"), "y_pred")
        if key in intervals:
            bands = panels.bands(intervals[key], "y_interval")
        forecasts.append(_Forecast(name, style, curves, bands))
    return y_name, y_test_name, forecasts


def _by_name(given: Any, name: str) -> dict[Any, Any]:
    """Return what is given by name; alone it has this one."""
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {name: given}


def _check_dict(y_interval: Any, names: list[Any]) -> None:
    if not isinstance(y_interval, Mapping):
        raise TypeError(
            f"intervals of several forecasts must be a dict with their names, {names}; "
            f"got a {type(y_interval).__name__}. Pass for example "
            f"y_interval={{{names[0]!r}: y_interval}}."
        )


def _names(labels: Any, forecasts: list[Any], is_tested: bool) -> list[str]:
    """Return the names of y, of each forecast and of y_test, given or not."""
    names = ["observed", *(str(name) for name in forecasts), "held out"]
    if labels is None:
        return names
    parts = ["y", *(f"y_pred[{name!r}]" for name in forecasts)]
    if len(forecasts) == 1:
        parts[1] = "y_pred"
    parts += ["y_test"] if is_tested else []
    if isinstance(labels, str) or len(labels) != len(parts):
        raise ValueError(
            f"labels must name what is drawn, {', '.join(parts)}; got {labels!r}. Pass "
            f"a list of {len(parts)}."
        )
    given = [str(label) for label in labels]
    return given if is_tested else [*given, names[-1]]
