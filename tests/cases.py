"""Which cases of a parametrised test are left to the slow run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """Mark one case: of its behaviour another case stays fast."""
    return pytest.param(*values, marks=pytest.mark.slow)


def mostly_slow(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """Mark all cases of one value but those named, or but the first."""
    found = list(cases)
    assert set(fast) <= set(found)
    kept = fast or found[:1]
    return [case if case in kept else slow(case) for case in found]
