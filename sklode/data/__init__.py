"""From pandas to arrays: stamps, observations, windows, checks.

Here indexes and frequencies become numbers, and steps of a horizon become stamps.
"""

from sklode.data.clock import calendar_features
from sklode.data.datasets import load_co2

__all__ = ["calendar_features", "load_co2"]
