import importlib.util
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import settings

from sklode import engine
from sklode.training.compiling import compile_apart

# The same examples in every run: a failure is met again by running again.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, max_examples=25
)
settings.load_profile("repeatable")


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


@pytest.fixture(autouse=True, scope="session")
def _compiled_apart() -> None:
    """Have the kernels on disk, as every fit does that finds none there.

    A process in which tests of the kernels compile them rounds otherwise than others.
    """
    if importlib.util.find_spec("numba") is None:
        return
    layouts = ["lanes", "single"]
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        layouts.reverse()  # each of two workers begins with another one
    for layout in layouts:
        if not engine.is_compiled(np.dtype("float32"), layout):
            compile_apart(layout)


@pytest.fixture
def float64() -> Iterator[None]:
    """Make float64 the default, so that a known value can be met to 1e-10."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, also where a shell has had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
