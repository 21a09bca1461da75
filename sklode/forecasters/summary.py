"""What a fitted forecaster has seen and chosen, and how well it forecasts."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.calendars import closed_hours
from sklode.data.history import History
from sklode.data.ticks import (
    DAY,
    length_of_time,
    nanoseconds,
    stamps_of,
)
from sklode.model_selection.backtesting import tested

_TOO_NARROW = 0.75  # coverage of the 90 % intervals
_NEAR = 0.2  # of its error at the first row ahead a simple method has, far better
_DRIFT = 2.0  # deviations of the last rows' errors in sum
_WHOLE = 1e-6  # of a season, that floats leave of a whole number of them
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


def summary_of(forecaster: Any, judged: object, origins: int) -> Summary:
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
        parts = getattr(forecaster, "components_", pd.DataFrame()).index
        found = set(parts.get_level_values(-1)) if len(parts) else set()
        topics["held out"], advice = _held_out(history, judged, origins, found)
        # of a panel some series always lie off by chance
        if len(history.steps) == 1 and _largest_drift(forecaster._answers) > _DRIFT:
            advice.append(
                "the last rows lie on one side of what was expected: if that lasts, "
                "fit on the rows since"
            )
        topics["to try"] = "\n".join(advice) or "nothing stands out"
    return topics


def _largest_drift(answers: object) -> float:
    """Return by how many deviations the last rows lie to one side, at the most."""
    states = getattr(answers, "states", None)
    if states is None:  # of the paper's model, which expects nothing row by row
        return 0.0
    return float(np.abs([each.drift for each in states.columns]).max(initial=0.0))


def _seen(history: History) -> str:
    seen, given = history.observations, history.given
    ends = stamps_of(np.array([seen.ticks.min(), seen.ticks.max()]), seen.like)
    first, last = (str(end).removesuffix(" 00:00:00") for end in ends)
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
    hours = closed_hours(seen.ticks[: seen.bounds[1]], seen.like)
    if hours and not isinstance(history.steps[0], pd.offsets.BaseOffset):
        start, end = hours
        text += (
            f"\na step of fh is {pd.Timedelta(history.steps[0])}, by night too; to go "
            "from open row to open row, use\n"
            f"freq=pd.offsets.CustomBusinessHour(start={start!r}, end={end!r})"
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
        counts = parts["year_before"].iloc[0]
        text += [f"52 weeks before count up to {counts:.0%}"] * int(counts > _SMALL)
        lines.append(f"{channel}: {', '.join(text)}")
    return "\n".join(lines)


def _held_out(
    history: History, judged: object, origins: int, parts: set[str]
) -> tuple[str, list[str]]:
    """Return a table of errors, and what to do about them; ``parts`` were found."""
    y, X, like = history.frame(), None, history.observations.like
    if history.controls:
        names = history.columns.numbers
        X = pd.DataFrame(history.observations.controls, y.index, names)
    for channel, column in history.errors.items():
        X = pd.DataFrame(index=y.index) if X is None else X
        X[column] = history.observations.errors[:, history.channels.index(channel)]
    results = tested(
        judged, y, X, horizon=None, origins=origins, coverage=0.9, is_scored=False
    )
    seasons = dict(results.attrs["seasons"])
    errors = results.groupby("method", sort=False).mean()
    errors = errors[["MAE", "RMSE", "first", "coverage"]]
    errors = errors.rename(columns={"coverage": "in 90 %"})
    if (naive := "seasonal naive") in seasons:
        period = seasons.pop(naive)
        name = f"{naive} ({length_of_time(period, like)})"
        seasons, errors = {name: period, **seasons}, errors.rename({naive: name})
    is_one = len(history.steps) == len(history.channels) == 1
    unit = "units of y" if is_one else "standard deviations of each series and column"
    shown = errors.rename_axis(None).map("{:.3g}".format).replace("nan", "")
    text = f"forecasts from {origins} origins, in {unit}\n{shown.to_string()}"
    advice, own = [], errors.loc["forecaster"]
    scores = ["MAE", "RMSE"]
    better = errors[(errors[scores] < own[scores]).all(axis=1)]
    if len(better):
        best = better["MAE"].idxmin()
        advice.append(
            f"{best} was better on these rows: {_remedy(best, seasons, parts, like)}"
        )
    firsts = errors["first"].drop("forecaster")
    if not len(better) and firsts.min() < _NEAR * own["first"]:
        advice.append(
            f"at the first row ahead {firsts.idxmin()} was far better: plot_backtest "
            "shows how forecasts begin"
        )
    if own["in 90 %"] < _TOO_NARROW:
        advice.append("intervals were too narrow: plot_backtest shows from where")
    return text, advice


def _remedy(
    best: str, seasons: dict[str, float], parts: set[str], like: pd.Index
) -> str:
    """Return what to do where a simple method was better than the forecaster."""
    tick = 1.0  # in nanoseconds; one of periods is a period, of whatever multiple
    if isinstance(like, pd.PeriodIndex):
        tick = nanoseconds(like.freq) / like.freq.n
    day = DAY / tick
    # seasons that parts of other names hold: the shape of a day, and kinds of days
    kinds = [part for part in parts if part.startswith("day of ")]
    shapes = {day: "day" in parts or kinds, 7 * day: kinds}
    found = [
        p
        for p in seasons.values()
        if f"season of {length_of_time(p, like)}" in parts or shapes.get(p)
    ]
    better = []
    if best != "last value":
        period = seasons.get(best, 7 * day)
        # whatever divides a period repeats after it too, as days do after a week
        better = [p for p in seasons.values() if abs(period / p % 1) < _WHOLE]
    if not {*better} <= {*found}:
        text = ", ".join(_as_given(p, like) for p in sorted({*found, *better}))
        return f"try StructuralForecaster(seasons=[{text}]), which keeps them"
    if best == "last value" and any(part.startswith("season") for part in parts):
        return "seasons=None leaves out what was found; or give more history"
    return (
        "more history, X for what drives y, or seasons=[...] if you know one, may help"
    )


def _as_given(period: float, like: pd.Index) -> str:
    """Return a season as the parameter ``seasons`` takes it."""
    if isinstance(like, pd.PeriodIndex):
        return f"{period / like.freq.n:.7g}"
    if not isinstance(like, pd.DatetimeIndex | pd.TimedeltaIndex):
        return f"{period:.7g}"
    unit, name = (DAY, "D") if period >= DAY else (10**9, "s")
    return f"'{period / unit:.7g}{name}'"
