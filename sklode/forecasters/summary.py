"""What a fitted forecaster has seen and chosen, and how well it forecasts."""

from __future__ import annotations

from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.calendars import opening_hours
from sklode.data.history import History
from sklode.data.ticks import date_or_time, length_of_time, stamps_of
from sklode.forecasters.advice import errors_of, is_better, remedy_of
from sklode.model_selection.backtesting import backtested

_TOO_NARROW = 0.75  # coverage of the 90 % intervals
_OTHER_WIDTH = np.log(4 / 3)  # of intervals that are too narrow or too wide
_NEAR = 0.2  # of its error at the first row ahead a simple method has, far better
_DRIFT = 2.0  # deviations of the last rows' errors in sum
_BEFORE = {"year_before": "52 weeks", "week_before": "a week", "day_before": "a day"}
_SMALL = 0.005  # share of a part that rounds to nothing


class Summary(dict[str, str]):
    """Text by topic: printed as lines, shown in a notebook as a table."""

    def __repr__(self) -> str:
        lines = (
            f"{topic:<10}" + text.replace("\n", "\n" + 10 * " ")
            for topic, text in self.items()
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{escape(topic)}</th><td><pre>{escape(text)}</pre></td></tr>"
            for topic, text in self.items()
        )
        return f"<table>{''.join(rows)}</table>"


def summary_of(
    forecaster: Any, judged: Any, origins: int, horizon: int | None
) -> Summary:
    """Return the summary of a fitted forecaster; ``judged`` forecasts as it does."""
    history = forecaster._history
    topics = Summary(model=type(forecaster).__name__, seen=_seen(history))
    if forecaster._answers.leaves_weeks_open:
        topics["seen"] += (
            "\nholidays: rows do not show whether weeks end on their stamps or begin "
            "there; a PeriodIndex tells"
        )
    if history.left_out is not None and history.left_out.any():
        topics["left out"] = (
            f"{history.left_out.sum()} value(s) of a broken sensor: fit has warned of "
            "each kind; clean=False keeps them"
        )
    if hasattr(forecaster, "components_"):
        topics["structure"] = _parts(forecaster.components_)
        if idle := _idle(history, forecaster.components_):
            topics["structure"] += f"\nno effect was found of {', '.join(idle)}"
    if hasattr(forecaster, "network_share_"):
        like = history.observations.like
        topics["network"] = forecaster._model.contribution(like)
    # a forecaster that was loaded from a file was not fitted here
    if forecaster._fit_seconds is not None:
        seconds = forecaster._fit_seconds
        # two digits, which ":.2g" gives numbers below ten without an exponent
        text = f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
        topics["time"] = f"fit took {text} s"
    n_rows = int(history.observations.lengths.max())
    if origins and n_rows < origins + 2:
        topics["held out"] = f"{n_rows} rows are too few to hold some out"
    elif origins:
        topics["held out"], advice = _held_out(forecaster, judged, origins, horizon)
        # of a panel some series always lie off by chance
        if len(history.steps) == 1 and forecaster._answers.drift > _DRIFT:
            advice.append(
                "the last rows lie on one side of what was expected: if that lasts, "
                "fit on the rows since"
            )
        topics["to try"] = "\n".join(advice) or "nothing stands out"
    return topics


def _seen(history: History) -> str:
    seen, given = history.observations, history.given
    ends = stamps_of(np.array([seen.ticks.min(), seen.ticks.max()]), seen.like)
    first, last = map(date_or_time, ends)
    text = (
        f"{len(seen.keys)} series, {len(given.ticks)} rows, "
        f"{len(history.channels)} column(s); {first} to {last}\n"
    )
    if history.controls:
        text += f"X: {', '.join(map(str, history.controls))}\n"
    gaps = seen.gaps[seen.gaps > 0]
    if len(gaps):
        usual, longest = np.median(gaps), gaps.max()
        lengths = (length_of_time(gap, seen.like) for gap in (usual, longest))
        text += "usual gap {}, longest {}; ".format(*lengths)
    text += f"{np.isnan(given.values).mean():.1%} of values missing"
    by_day = opening_hours(seen.ticks[: seen.bounds[1]], seen.like)
    if by_day and not isinstance(history.steps[0], pd.offsets.BaseOffset):
        text += (
            f"\na step of fh is {pd.Timedelta(history.steps[0])}, by night too; for "
            f"open rows alone, use\n{by_day}"
        )
    return text


def _parts(components: pd.DataFrame) -> str:
    """Return the parts of each channel, largest first."""
    lines = []
    for channel, parts in components.groupby(level="channel", sort=False):
        shares = parts["share"].droplevel("channel").sort_values(ascending=False)
        text = [f"{n} {'<1%' if x < _SMALL else f'{x:.0%}'}" for n, x in shares.items()]
        link, values, kinds = parts.iloc[0][["link", "values", "kinds"]]
        text += [f"of the {link}"] * (link != "identity")
        text += [values] * (values != "any")
        text += [f"{kinds} kinds of series"] * int(kinds > 1)
        ratio = parts["dispersion"].iloc[0]
        by_clock = (
            f"errors up to {ratio:.2g} times as wide at some hours or days as at others"
        )
        text += [by_clock] * int(ratio > 1)
        for name, length in _BEFORE.items():
            counts = parts[name].iloc[0]
            told = f"values {length} before count up to {counts:.0%}"
            text += [told] * int(counts > _SMALL)
        lines.append(f"{channel}: {', '.join(text)}")
    return "\n".join(lines)


def _idle(history: History, components: pd.DataFrame) -> list[str]:
    """Return the columns of X that are in no part."""
    parts = components.index.get_level_values("part").unique()
    return [
        str(name)
        for name in history.controls
        if not any(str(part).startswith(f"{name} ") for part in parts)
    ]


def _held_out(
    forecaster: Any, judged: Any, origins: int, horizon: int | None
) -> tuple[str, list[str]]:
    """Return a table of errors, and what to do about them."""
    history: History = forecaster._history
    y, X, like = history.frame(), None, history.observations.like
    if history.controls:
        names = history.columns.numbers
        X = pd.DataFrame(history.observations.controls, y.index, names)
    for channel, column in history.errors.items():
        X = pd.DataFrame(index=y.index) if X is None else X
        X[column] = history.observations.errors[:, history.channels.index(channel)]

    backtest_of = partial(
        backtested, y=y, X=X, horizon=horizon, origins=origins, is_scored=False
    )
    results = backtest_of(judged, coverage=0.9)
    seasons = dict(results.attrs["seasons"])
    names_told: dict[str, str] = {}
    if (naive := "seasonal naive") in seasons:
        names_told[naive] = f"{naive} ({length_of_time(seasons[naive], like)})"
    by_method = results["MAE"].unstack("method")
    errors = results.groupby("method", sort=False).mean()
    own = errors.loc["forecaster"]
    shown = errors[["MAE", "RMSE", "first", "coverage"]]
    shown = shown.rename(index=names_told, columns={"coverage": "in 90 %"})
    shown = shown.rename_axis(None).map("{:.3g}".format).replace("nan", "")
    is_one = len(history.steps) == len(history.channels) == 1
    unit = "units of y" if is_one else "standard deviations of each series and column"
    n_rows = results.attrs["horizon"]
    text = (
        f"forecasts of {n_rows} row(s) from {origins} origins, in {unit}\n"
        f"{shown.to_string()}"
    )
    if np.isfinite(own["empirical"]):
        text += (
            f"\ninterval score {own['interval']:.3g}; {own['empirical']:.3g} with the "
            "widths that errors from other origins had"
        )
    advice = []
    rivals = by_method.drop(columns="forecaster")
    better = [name for name in rivals if is_better(rivals[name], by_method.forecaster)]
    if better:
        best = min(better, key=lambda name: errors.loc[name, "MAE"])
        remedy = remedy_of(
            best,
            seasons,
            judged,
            own=by_method.forecaster,
            history=history,
            parts=getattr(forecaster, "components_", pd.DataFrame()),
            errors_by=lambda other: errors_of(backtest_of(other, coverage=None)),
        )
        advice.append(
            f"{names_told.get(best, best)} was better on these rows: {remedy}"
        )
    firsts = errors["first"].drop("forecaster")
    if not better and firsts.min() < _NEAR * own["first"]:
        advice.append(
            f"at the first row ahead {firsts.idxmin()} was far better: plot_backtest "
            "shows how forecasts begin"
        )
    return text, advice + _of_intervals(results.xs("forecaster", level="method"))


def _of_intervals(own: pd.DataFrame) -> list[str]:
    """Return whether intervals were too narrow or too wide."""
    covered, width = own["coverage"].mean(), own["width"].mean()
    is_other = abs(np.log(width)) > _OTHER_WIDTH
    if is_other and is_better(own["empirical"], own["interval"]):
        kind = "narrow" if width > 1 else "wide"
        return [
            f"intervals were too {kind}: {width:.2g} of their width would have held "
            "90 %; plot_backtest shows where"
        ]
    if covered < _TOO_NARROW:
        return ["intervals were too narrow: plot_backtest shows from where"]
    return []
