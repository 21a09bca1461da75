"""Calls that change a forecaster wholly or not at all."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


def on_a_copy(method: _Method, writes: tuple[str, ...] | None = None) -> _Method:
    """Return a method that changes its object only where it ends well.

    sktime's own methods write what they read of the input, such as the cutoff, before
    the forecaster has seen whether it can be used. So they work on a copy, which then
    takes the object's place; a model is never changed in place. A method that several
    threads may call at once takes over only the attributes that it names in ``writes``.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        for name in _CHANGED_IN_PLACE & vars(self).keys():
            vars(twin)[name] = copy.copy(vars(self)[name])
        result = method(twin, *args, **kwargs)
        changed = vars(twin)
        if writes is None:
            self.__dict__ = changed.copy()  # at once: nothing can come between
        else:
            vars(self).update({n: changed[n] for n in writes if n in changed})
        return self if result is twin else result

    return cast(_Method, whole)


keeping_horizon = functools.partial(on_a_copy, writes=("_fh",))
"""Of methods that only ask: a refused horizon is not that of the next call."""

_CHANGED_IN_PLACE = {"_converter_store_y", "_pretrained_attrs"}
"""What sktime changes so: how to give answers in y's type, what was pretrained."""
