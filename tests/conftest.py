import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import settings

from sklode.engine.tableaus import TABLEAUS
from sklode.structural.filtered_model import FilteredModel
from sklode.structural.predictive.recalibration import NORMAL, Recalibration
from sklode.structural.rows import ChannelRows
from tests.problems import MERSON

# The same examples in every run: a failure is met again by running again.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=25
)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with slow tests: of several workers none is left with a long one."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Start every test from the same global generator, whichever tests ran before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _warnings_every_time() -> Iterator[None]:
    """Have torch repeat its once-a-process warnings, which only one test would meet."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.fixture
def float64() -> Iterator[None]:
    """Make float64 the default, so that a known value can be met to 1e-10."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def merson(monkeypatch: pytest.MonkeyPatch) -> str:
    """Add a solver of five stages by its record alone; return its name."""
    monkeypatch.setitem(TABLEAUS, "merson", MERSON)
    return "merson"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, also where a shell has had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def as_a_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave errors the quantiles of a normal distribution, whose median is the mean."""

    def kinds(self: object, channel: int, queries: ChannelRows, _: object) -> object:
        return Recalibration(NORMAL[None], np.zeros(len(queries.times), np.int64))

    monkeypatch.setattr(FilteredModel, "_recalibration", kinds)
