"""Both engines train to the same forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.series import MOSTLY_ONE, on_engine, tiny, waves


def test_auto_is_fused() -> None:
    assert tiny().fit(waves()).network_.engines() == ("fused", "fused")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_every_engine_trains_to_the_same_forecasts(kind: type) -> None:
    y, steps = waves(pd.RangeIndex(40)), [-3, 1, 2, 8]
    # where one rounding more leads training elsewhere, engines cannot agree
    calm = {"batch_size": 8, "lr": 0.02, "window_length": 12, "horizon": 6}
    sizes = {"hidden_size": 6, "latent_size": 3, "field_width": 6}

    def fit(engine: str, max_epochs: int = 20) -> Any:
        with on_engine(engine):
            return tiny(kind, max_epochs=max_epochs, **calm, **sizes).fit(y)

    eager, fused = map(fit, ("eager", "fused"))
    expected = eager.predict(steps)
    untrained = fit("eager", max_epochs=1).predict(steps)
    assert np.abs(expected - untrained).max() > 0.2 * np.std(y)
    np.testing.assert_allclose(
        fused.predict(steps), expected, rtol=0, atol=1e-3 * np.std(y)
    )
    np.testing.assert_allclose(fused.history_["loss"], eager.history_["loss"], 1e-3)
    np.testing.assert_array_equal(fit("fused").predict(steps), fused.predict(steps))
