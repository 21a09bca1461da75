"""Which engine runs: the user's choice, where it can be had."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.series import FORECASTERS, MOSTLY_ONE, tiny, waves


def test_auto_is_fused() -> None:
    assert tiny().fit(waves()).engine_ == ("fused", "fused")


@pytest.mark.parametrize(
    ("settings", "got"),
    [
        ({"method": "dopri5"}, "method='dopri5'"),
        ({"adjoint": True}, "adjoint=True"),
        ({"field_depth": 3}, "field_depth=3"),
        ({"device": "meta"}, "device='meta'"),
        (
            {"method": "dopri5", "adjoint": True, "field_depth": 3},
            "method='dopri5', adjoint=True, field_depth=3",
        ),
    ],
    ids=["adaptive", "adjoint", "three layers", "device", "all of it"],
)
@pytest.mark.parametrize("kind", FORECASTERS)
def test_what_the_fused_engine_cannot_serve_is_refused(
    kind: type, settings: Any, got: str
) -> None:
    message = (
        "engine='fused' serves fixed-step methods without adjoint, one or two hidden "
        "layers, sklode's own modules, and the CPU; got "
        f"{got}. Change that, or use engine='auto'."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny(kind, engine="fused", **settings).fit(waves())


def test_an_activation_that_no_engine_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'activation' parameter.*'tanh'.*'relu'"):
        tiny(engine="fused", activation="relu").fit(waves())


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOSTLY_ONE)
def test_every_engine_trains_to_the_same_forecasts(kind: type) -> None:
    y, steps = waves(pd.RangeIndex(40)), [-3, 1, 2, 8]
    # where one rounding more leads training elsewhere, engines cannot agree
    calm = {"batch_size": 8, "lr": 0.02, "window_length": 12, "horizon": 6}
    sizes = {"hidden_size": 6, "latent_size": 3, "field_width": 6}

    def fit(engine: str, max_epochs: int = 20) -> Any:
        return tiny(kind, engine=engine, max_epochs=max_epochs, **calm, **sizes).fit(y)

    eager, fused = map(fit, ("eager", "fused"))
    assert eager.engine_ == ("eager", "eager")
    assert fused.engine_ == ("fused", "fused")
    expected = eager.predict(steps)
    untrained = fit("eager", max_epochs=1).predict(steps)
    assert np.abs(expected - untrained).max() > 0.2 * np.std(y)
    np.testing.assert_allclose(
        fused.predict(steps), expected, rtol=0, atol=1e-3 * np.std(y)
    )
    np.testing.assert_allclose(fused.history_["loss"], eager.history_["loss"], 1e-3)
    np.testing.assert_array_equal(fit("fused").predict(steps), fused.predict(steps))
