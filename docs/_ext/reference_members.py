"""Members that the reference leaves out, because their class already tells of them."""

from __future__ import annotations

from typing import Any


def skip(
    app: Any, what: str, name: str, member: Any, skipped: bool, options: Any
) -> bool | None:
    """Leave out the fields of named tuples and what only sktime's own tests call."""
    is_field = type(member).__name__ == "_tuplegetter"
    return True if is_field or name == "get_test_params" else None


def setup(app: Any) -> dict[str, Any]:
    """Ask before every member."""
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
