"""What the reference leaves out of a class, and the parameters that it shows."""

from __future__ import annotations

import inspect
from typing import Any

from sphinx.util.inspect import stringify_signature

from sklode.forecasters.base import ContinuousForecaster


def skip(
    app: Any, what: str, name: str, member: Any, skipped: bool, options: Any
) -> bool | None:
    """Leave out the fields of named tuples and what only sktime's own tests call."""
    is_field = type(member).__name__ == "_tuplegetter"
    return True if is_field or name == "get_test_params" else None


def parameters(
    app: Any, what: str, name: str, member: Any, options: Any, shown: str, returns: str
) -> tuple[str, str] | None:
    """Show the parameters of a forecaster; Sphinx reads those of sktime's __new__."""
    if what != "class" or shown != "(*args, **kwargs)":
        return None
    signature = inspect.signature(member)
    return stringify_signature(signature, show_annotation=False), returns


def setup(app: Any) -> dict[str, Any]:
    """Ask before every member and signature."""
    # Where a property has a docstring, numpydoc shows its first lines in place of what
    # the class says of the attribute, which is more here.
    for name, member in vars(ContinuousForecaster).copy().items():
        if name.endswith("_") and isinstance(member, property):
            setattr(ContinuousForecaster, name, property(member.fget, doc=""))
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", parameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
