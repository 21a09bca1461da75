"""What a fitted forecaster has seen and chosen, and how well it forecasts."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.ticks import length_of_time, stamps_of
from sklode.model_selection import backtest

_TOO_NARROW = 0.75  # coverage of the 90 % intervals
_DRIFT = 2.0  # deviations of the last rows' errors in sum
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


def summary_of(forecaster: Any, judged: Any, origins: int) -> Summary:
    """Return the summary of a fitted forecaster; ``judged`` forecasts as it does."""
    history = forecaster._history
    topics = Summary(model=type(forecaster).__name__, seen=_seen(history))
    if history.left_out is not None and history.left_out.any():
        topics["left out"] = (
            f"{history.left_out.sum()} value(s) of a broken sensor: fit has warned of "
            "each kind; clean=False keeps them"
        )
    if hasattr(forecaster, "level_"):
        topics["level"] = _parts(forecaster.level_)
    if hasattr(forecaster, "network_share_"):
        share = forecaster.network_share_
        told = f"moves the level's forecast, by a weight of {share:.2g} on average"
        told = told if share else "does not count: the level alone forecasts"
        is_whole = forecaster.level == "series"
        topics["network"] = "is the whole forecast" if is_whole else told
    if forecaster._fit_seconds is not None:  # None of one that was loaded
        topics["time"] = f"fit took {forecaster._fit_seconds:.2g} s"
    n_rows = int(history.observations.lengths.max())
    if origins and n_rows < origins + 2:
        topics["held out"] = f"{n_rows} rows are too few to hold some out"
    elif origins:
        topics["held out"], advice = _held_out(history, judged, origins)
        states = getattr(forecaster._answers, "states", None)
        drifts = [each.drift for each in states.channels] if states else []
        if len(history.steps) == 1 and np.abs(drifts).max(initial=0.0) > _DRIFT:
            advice.append(
                "the last rows lie on one side of what was expected: if that lasts, "
                "fit on the rows since"
            )
        topics["to try"] = "\n".join(advice) or "nothing stands out"
    return topics


def _seen(history: Any) -> str:
    seen, given = history.observations, history.given
    ends = stamps_of(np.array([seen.ticks.min(), seen.ticks.max()]), seen.like)
    first, last = (str(end).removesuffix(" 00:00:00") for end in ends)
    told = (
        f"{len(seen.keys)} series, {len(given.ticks)} rows, "
        f"{len(history.channels)} column(s); {first} to {last}\n"
    )
    if history.controls:
        told += f"X: {', '.join(map(str, history.controls))}\n"
    gaps = seen.gaps[seen.gaps > 0]
    if len(gaps):
        usual, longest = np.median(gaps), gaps.max()
        lengths = (length_of_time(gap, seen.like) for gap in (usual, longest))
        told += "usual gap {}, longest {}; ".format(*lengths)
    return told + f"{np.isnan(given.values).mean():.1%} of values missing"


def _parts(level: pd.DataFrame) -> str:
    """Return the parts of each channel, largest first."""
    lines = []
    for channel, parts in level.groupby(level="channel", sort=False):
        shares = parts["share"].droplevel("channel").sort_values(ascending=False)
        told = [f"{n} {'<1%' if x < _SMALL else f'{x:.0%}'}" for n, x in shares.items()]
        logarithm, values = parts.iloc[0][["logarithm", "values"]]
        told += ["of the logarithm"] * bool(logarithm)
        told += [values] * (values != "any")
        lines.append(f"{channel}: {', '.join(told)}")
    return "\n".join(lines)


def _held_out(history: Any, judged: Any, origins: int) -> tuple[str, list[str]]:
    """Return a table of errors, and what to do about them."""
    y, X = history.frame(), None
    if history.controls:
        X = pd.DataFrame(history.observations.controls, y.index, history.controls)
    errors = backtest(judged, y, X, origins=origins).groupby("method").mean()
    errors = errors.drop(columns="seconds").rename(columns={"coverage": "in 90 %"})
    is_one = len(history.steps) == len(history.channels) == 1
    unit = "units of y" if is_one else "standard deviations of each series and column"
    shown = errors.rename_axis(None).map("{:.3g}".format).replace("nan", "")
    told = f"forecasts from {origins} origins, in {unit}\n{shown.to_string()}"
    advice, own = [], errors.loc["forecaster"]
    for method, simple in errors.drop("forecaster").iterrows():
        if (own[["MAE", "RMSE"]] > simple[["MAE", "RMSE"]]).all():
            advice.append(
                f"{method} was better on these rows: more history, X for what drives "
                "y, or seasons=[...] if you know one, may help"
            )
    if own["in 90 %"] < _TOO_NARROW:
        advice.append("intervals were too narrow: plot_backtest shows from where")
    return told, advice
