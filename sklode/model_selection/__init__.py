"""Evaluation at the test rows' own stamps: splitters, metrics, backtests and scores."""

from sklode.data.scores import energy_score, quantile_crps
from sklode.model_selection.backtesting import backtest
from sklode.model_selection.evaluation import AbsoluteHorizon, AlignedMetric

__all__ = [
    "AbsoluteHorizon",
    "AlignedMetric",
    "backtest",
    "energy_score",
    "quantile_crps",
]
