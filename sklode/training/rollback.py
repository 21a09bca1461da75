"""What a refused call did to an object is undone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

__all__ = ["all_or_nothing"]

_CHANGED = {"_converter_store_y", "_pretrained_attrs"}
"""What sktime changes in place: how to give answers in y's type, what was pretrained.
"""


_Method = TypeVar("_Method", bound=Callable[..., Any])


def all_or_nothing(
    method: _Method, names: Collection[str] = (), lasting: Collection[str] = ()
) -> _Method:
    """Return a method that leaves its object as it was where it raises.

    sktime's own methods write what they read of the input, such as the cutoff, before
    the forecaster has seen whether it can be used.

    Parameters
    ----------
    method : callable
        Takes the object first, and replaces attributes; it changes none in place but
        those of `_CHANGED`.
    names : collection of str, default=()
        The attributes that are restored; none: all. A method that several threads may
        call at once names those that it writes.
    lasting : collection of str, default=()
        The attributes that stay as the refused call has left them.
    """

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(self).copy()
        kept = {name: copy.copy(before[name]) for name in _CHANGED & before.keys()}
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            after = vars(self)
            if names:
                after.update({name: before[name] for name in names if name in before})
            else:
                stays = {name: after[name] for name in lasting if name in after}
                after.clear()
                after.update(before, **kept, **stays)
            raise

    return cast(_Method, whole)
