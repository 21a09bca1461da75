"""Evaluation at the test rows' own stamps: splitters, metrics, backtests and scores."""

from sklode.model_selection.backtesting import backtest
from sklode.model_selection.evaluation import AbsoluteHorizon, AlignedMetric
from sklode.model_selection.scores import energy_score, quantile_crps

__all__ = [
    "AbsoluteHorizon",
    "AlignedMetric",
    "backtest",
    "energy_score",
    "quantile_crps",
]
