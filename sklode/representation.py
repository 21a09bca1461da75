"""A forecaster as HTML, for notebooks: its state, what it has seen, its parameters."""

from __future__ import annotations

import html
import inspect
from typing import Any

__all__ = ["as_html"]

_STYLE = """
.sklode {font-family: monospace; border: 1px solid #8888; border-radius: 4px;
  display: inline-block; padding: 0.4em 0.8em; text-align: left}
.sklode b {font-weight: bold}
.sklode .state {border-radius: 0.8em; padding: 0 0.6em; margin-left: 0.8em;
  border: 1px solid #8888}
.sklode .fitted {background: #2e7d32; color: white}
.sklode .pretrained {background: #1565c0; color: white}
.sklode table {border-collapse: collapse; margin: 0.3em 0}
.sklode td {text-align: left; padding: 0 1.2em 0 0; background: none; border: none}
.sklode tr.default {opacity: 0.65}
.sklode summary {cursor: pointer}
"""

_LONGEST = 100
"""Characters of a value that are shown."""


def as_html(forecaster: Any) -> str:
    """Return HTML that says what a forecaster is, whether it is fitted, and how set.

    Parameters
    ----------
    forecaster : object
        With sktime's ``get_params`` and ``state``.
    """
    state = {"new": "not fitted"}.get(forecaster.state, forecaster.state)
    changed, others = _parameters(forecaster)
    parts = [
        f"<style>{_STYLE}</style><div class='sklode'>",
        f"<div><b>{html.escape(type(forecaster).__name__)}</b>",
        f"<span class='state {forecaster.state}'>{html.escape(state)}</span></div>",
    ]
    if state == "fitted":
        parts.append(f"<div>{html.escape(_fit_in_words(forecaster))}</div>")
    if changed:
        parts.append(_table(changed, "changed"))
    parts.append(f"<details><summary>{len(others)} parameters at their defaults")
    parts.append(f"</summary>{_table(others, 'default')}</details></div>")
    return "".join(parts)


def _parameters(forecaster: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters that were changed, and those at their defaults."""
    defaults = inspect.signature(type(forecaster).__init__).parameters
    changed: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in forecaster.get_params(deep=False).items():
        is_default = repr(value) == repr(defaults[name].default)
        (others if is_default else changed)[name] = value
    return changed, others


def _table(values: dict[str, Any], kind: str) -> str:
    rows = (
        f"<tr class='{kind}'><td>{html.escape(name)}</td>"
        f"<td>{html.escape(_shortened(repr(value)))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _fit_in_words(forecaster: Any) -> str:
    """Return what a fitted forecaster has seen and how it was trained."""
    history = forecaster._history
    lengths = history.observations.lengths
    amounts = [
        _counted(int(lengths.sum()), "row"),
        *([_counted(len(lengths), "series")] if len(history.levels) > 1 else []),
        _counted(len(history.channels), "channel"),
        *([_counted(len(history.controls), "control")] if history.controls else []),
    ]
    epochs = f"best epoch {forecaster.best_epoch_} of {forecaster.n_epochs_}"
    unit = f"time unit {forecaster.time_unit_}"
    return f"{', '.join(amounts)}; {epochs}; {unit}"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 or what.endswith("s") else f"{n} {what}s"
