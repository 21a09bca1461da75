from collections.abc import Iterator

import matplotlib as mpl
import pytest

mpl.use("Agg")

import matplotlib.pyplot as plt


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no function shows a figure or changes matplotlib's settings."""

    def shown(*args: object, **kwargs: object) -> None:
        raise AssertionError("plt.show was called")

    monkeypatch.setattr(plt, "show", shown)
    before = mpl.rcParams.copy()
    yield
    changed = {key for key in before if before[key] != mpl.rcParams[key]}
    assert not changed
    plt.close("all")
