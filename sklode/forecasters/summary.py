"""What a fitted forecaster has seen and chosen, and how well it forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from sklode.data.ticks import length_of_time, stamps_of
from sklode.model_selection import backtest

_TOO_NARROW = 0.75  # coverage of the 90 % intervals
_SMALL = 0.005  # share of a part that is not told


@dataclass(frozen=True, repr=False)
class Summary:
    """Lines of text by topic; in a notebook a table."""

    title: str
    topics: dict[str, str]

    def __repr__(self) -> str:
        lines = [self.title]
        for topic, text in self.topics.items():
            lines.append(f"{topic:<10}" + text.replace("\n", "\n" + 10 * " "))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{escape(topic)}</th><td style='text-align:left'>"
            f"<pre>{escape(text)}</pre></td></tr>"
            for topic, text in self.topics.items()
        )
        return f"<b>{escape(self.title)}</b><table>{''.join(rows)}</table>"


def summary_of(forecaster: Any, judged: Any, origins: int) -> Summary:
    """Return the summary of a fitted forecaster; ``judged`` forecasts as it does."""
    history = forecaster._history
    topics = _seen(history)
    if hasattr(forecaster, "level_"):
        topics["level"] = _parts(forecaster.level_)
    if hasattr(forecaster, "network_share_"):
        topics["network"] = _network(forecaster)
    if forecaster._fit_seconds is not None:  # of one that was not loaded
        topics["time"] = f"fit took {forecaster._fit_seconds:.2g} s"
    n_rows = int(history.observations.lengths.max())
    if origins and n_rows < origins + 2:
        topics["held out"] = f"{n_rows} rows are too few to hold some out"
    elif origins:
        y, X = history.frame(), None
        if history.controls:
            X = pd.DataFrame(history.observations.controls, y.index, history.controls)
        errors = backtest(judged, y, X, origins=origins).groupby("method").mean()
        errors = errors.drop(columns="seconds").rename(columns={"coverage": "in 90 %"})
        shown = errors.rename_axis(None).map("{:.3g}".format).replace("nan", "")
        is_one = len(history.steps) == len(history.channels) == 1
        unit = "y's unit" if is_one else "standard deviations of each series and column"
        text = f"forecasts from {origins} origins, in {unit}\n{shown.to_string()}"
        topics["held out"] = text
        topics["to try"] = _advice(errors)
    return Summary(f"{type(forecaster).__name__}, fitted", topics)


def _seen(history: Any) -> dict[str, str]:
    seen = history.observations
    ends = stamps_of(np.array([seen.ticks.min(), seen.ticks.max()]), seen.like)
    first, last = (str(end).removesuffix(" 00:00:00") for end in ends)
    gaps = seen.gaps[seen.gaps > 0]
    text = (
        f"{len(seen.keys)} series, {len(seen.ticks)} rows, "
        f"{len(history.channels)} column(s); {first} to {last}"
    )
    if len(gaps):
        usual, longest = (
            length_of_time(gap, seen.like) for gap in (np.median(gaps), gaps.max())
        )
        text += f"\nusual gap {usual}, longest {longest}"
    missing = np.isnan(seen.values).mean()
    text += f"; {missing:.1%} of values missing"
    topics = {"seen": text}
    if history.left_out is not None and history.left_out.any():
        topics["left out"] = (
            f"{history.left_out.sum()} value(s) of a broken sensor: fit has warned of "
            "each kind; clean=False keeps them"
        )
    return topics


def _parts(level: pd.DataFrame) -> str:
    """Return the parts of each channel, largest first."""
    lines = []
    for channel, parts in level.groupby(level="channel", sort=False):
        shares = parts["share"].droplevel("channel").sort_values(ascending=False)
        told = [f"{name} {x:.0%}" for name, x in shares.items() if x > _SMALL]
        first = parts.iloc[0]
        told += ["of the logarithm"] if first["logarithm"] else []
        told += [str(first["values"])] if first["values"] != "any" else []
        lines.append(f"{channel}: {', '.join(told)}")
    return "\n".join(lines)


def _network(forecaster: Any) -> str:
    if forecaster.level == "series":
        return 'is the whole forecast (level="series")'
    if forecaster.network_share_:
        weights = forecaster.network_weights_.to_numpy()
        low, high = weights.min(), weights.max()
        return f"moves the level's forecast, with weights of {low:.2g} to {high:.2g}"
    return "does not count: the level alone forecasts"


def _advice(errors: pd.DataFrame) -> str:
    mae = errors["MAE"]
    best = mae.drop("forecaster").idxmin()
    if mae["forecaster"] > mae[best]:
        return (
            f"{best} was better on these rows. More history, X for what drives y, or "
            "seasons=[...] if you know one, may help."
        )
    if errors.loc["forecaster", "in 90 %"] < _TOO_NARROW:
        return "intervals were too narrow: plot_backtest shows from which origins"
    return "nothing stands out"
