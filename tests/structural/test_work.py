"""Nothing is worked out twice: calls are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode import StructuralForecaster
from sklode.structural import fit as fitting
from sklode.structural.coupling.coupling import Coupling
from sklode.structural.design import Design
from sklode.structural.filtered_column import FilteredColumn
from sklode.structural.predictive.scale_by_lead import VarianceInflation
from tests.cases import slow


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often columns are filtered, and so on."""
    found: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        method = vars(owner)[name]
        given: Callable[..., Any] = getattr(method, "__func__", method)

        def counted(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return given(*args, **kwargs)

        is_of_class = isinstance(method, classmethod)
        monkeypatch.setattr(
            owner, name, classmethod(counted) if is_of_class else counted
        )

    count(Design, "tables")
    count(FilteredColumn, "filter")
    count(Coupling, "conditioned")
    count(VarianceInflation, "measured")
    return found


def columns(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = 10 + np.cumsum(rng.normal(size=(90, n)), axis=0)
    names = [f"c{k}" for k in range(n)]
    return pd.DataFrame(values, pd.date_range("2024-01-01", periods=90), names)


def rows(y: pd.DataFrame) -> Any:
    return StructuralForecaster(seasons=None).fit(y)._history.rows


@pytest.mark.parametrize("n", [1, slow(3)])
def test_a_fit_makes_tables_once_and_filters_columns_only_to_couple_them(
    n: int, calls: Counter[str]
) -> None:
    observed = rows(columns(n))
    calls.clear()
    model = fitting.fit_model(observed, ())
    # once more where effects were found, for which tables then have columns
    assert calls["tables"] == 1 + bool(model.design.effects)
    assert calls["filter"] == (n if n > 1 else 0)


def test_an_answer_asks_each_column_once(calls: Counter[str]) -> None:
    forecaster = StructuralForecaster(seasons=None, bounds=(-1000, 1000))
    forecaster.fit(columns(3))
    calls.clear()
    forecaster.sample([1, 2, 3], n_samples=20)
    assert calls["conditioned"] == 3
    assert calls["measured"] == 3
    calls.clear()
    forecaster.predict_quantiles([1, 2], alpha=[0.1, 0.9])
    # how wide errors were stays known
    assert calls == {"conditioned": 3}
    calls.clear()
    forecaster.predict([1, 2])
    assert calls == {"conditioned": 3}


def test_forecasts_do_not_ask_how_wide_errors_were(calls: Counter[str]) -> None:
    forecaster = StructuralForecaster(seasons=None).fit(columns(1))
    forecaster.predict([1, 2])
    assert calls["measured"] == 0
