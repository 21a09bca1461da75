"""A forecaster changes wholly or not at all.

Tested in tests/forecasters/test_inputs.py.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sktime.forecasting.base import BaseForecaster

from sklode.data.checks import check_names

_CHANGED_IN_PLACE = {"_converter_store_y", "_pretrained_attrs"}  # by sktime

_Method = TypeVar("_Method", bound=Callable[..., Any])


@contextlib.contextmanager
def transaction(forecaster: Any, *, changes: bool) -> Iterator[Any]:
    """Yield a copy to work on, which takes the forecaster's place at a good end.

    sktime's methods write what they read of the input before it is known to be of use.
    What only asks (``changes`` is False), maybe in several threads, leaves nothing but
    its horizon.
    """
    twin = object.__new__(type(forecaster))
    for name, value in vars(forecaster).items():
        in_place = name in _CHANGED_IN_PLACE
        vars(twin)[name] = copy.copy(value) if in_place else value
    yield twin
    if changes:
        # at once: nothing can come between
        forecaster.__dict__ = vars(twin).copy()
    elif "_fh" in vars(twin):
        forecaster._fh = twin._fh


def changing(method: _Method) -> _Method:
    """Return a method that changes its object in a `transaction`."""
    return _within(method, changes=True)


def asking(method: _Method) -> _Method:
    """Return a method that asks its object in a `transaction`."""
    return _within(method, changes=False)


def _within(method: Any, *, changes: bool) -> Any:
    _, *names = inspect.signature(method).parameters

    @functools.wraps(method)
    def within(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self, BaseForecaster):
            raise TypeError(
                f"{method.__name__} is asked of a forecaster; got a "
                f"{type(self).__name__} in its place. Make one first: "
                f"StructuralForecaster().{method.__name__}(...)."
            )
        check_names(f"{type(self).__name__}.{method.__name__}", kwargs, names)
        with transaction(self, changes=changes) as twin:
            result = method(twin, *args, **kwargs)
        return self if result is twin else result

    return within
