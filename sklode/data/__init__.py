"""From pandas to arrays: stamps, observations, windows, checks.

Indexes and frequencies become numbers here, steps of a horizon stamps.
"""

from sklode.data.clock import calendar_features
from sklode.data.datasets import load_co2

__all__ = ["calendar_features", "load_co2"]
