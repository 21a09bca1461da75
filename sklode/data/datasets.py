"""A real irregular record to try sklode on.

Tested in tests/test_examples.py.
"""

from __future__ import annotations

import pandas as pd


def load_co2() -> pd.Series:
    """Load the weekly CO2 record of Mauna Loa, in ppm, without its missing weeks.

    It ships with statsmodels, which is needed;
    59 of its 2284 weeks from 1958 to 2001 are missing,
    and dropping them leaves gaps of one week to nineteen.
    """
    try:
        from statsmodels.datasets import co2
    except ImportError as error:
        raise ImportError(
            "load_co2 needs statsmodels, which is not installed. "
            "Run pip install statsmodels."
        ) from error
    record: pd.Series = co2.load_pandas().data["co2"].dropna().rename_axis("date")
    return record
