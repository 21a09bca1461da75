"""The record is the one of Mauna Loa."""

from __future__ import annotations

import pytest

from sklode.data import load_co2


def test_the_co2_record_has_lost_its_missing_weeks() -> None:
    pytest.importorskip("statsmodels")
    y = load_co2()
    gaps = y.index.to_series().diff().dropna().dt.days
    assert len(y) == 2284 - 59
    assert y.index.freq is None
    assert (gaps.min(), gaps.max()) == (7, 133)
    assert y.between(310, 375).all()
