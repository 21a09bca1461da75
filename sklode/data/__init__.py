"""From pandas to arrays: stamps, observations, windows, checks.

The only package that knows indexes, frequencies and units; all after it sees numbers.
"""

from sklode.data.calendar import calendar_features
from sklode.data.datasets import load_co2

__all__ = ["calendar_features", "load_co2"]
