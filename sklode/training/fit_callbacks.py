"""scikit-learn's own callbacks (``sklearn.callback``, from its version 1.9 on).

They are set by `set_callbacks`, follow `fit`, and are propagated by scikit-learn's
searches. The parameter ``callbacks`` is another, simpler protocol, see
`sklode.training.report`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

__all__ = ["FitTask", "SupportsFitCallbacks", "with_callbacks", "without_context"]

if TYPE_CHECKING:

    class _Support:
        """What scikit-learn's mixin has."""

        def set_callbacks(self, *callbacks: Any) -> Any: ...

        def _init_callback_context(self, **settings: Any) -> Any: ...

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that takes leave of scikit-learn's callbacks at its end."""

else:
    try:
        from sklearn.callback import CallbackSupportMixin as _Support
        from sklearn.callback import with_callbacks
    except ImportError:  # scikit-learn before 1.9

        class _Support:
            """Says which version is needed."""

            def set_callbacks(self, *callbacks):
                """Raise an ImportError that says which version is needed."""
                import sklearn

                raise ImportError(
                    "set_callbacks needs scikit-learn 1.9 or later; got "
                    f"{sklearn.__version__}. Upgrade it, or pass objects with "
                    "on_epoch_end(forecaster, row) as the parameter callbacks."
                )

        def with_callbacks(method):
            """Return the method: there are no callbacks to take leave of."""
            return method


_SET = "_skl_callbacks"
_OF_A_SEARCH = "_parent_callback_ctx"
_OF_A_FIT = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
"""Attributes that scikit-learn gives an estimator."""


class SupportsFitCallbacks(_Support):
    """Keep scikit-learn's callbacks where sktime would forget them.

    `reset`, with which every fit begins, deletes attributes, and `clone` copies none.
    """

    __hash__ = object.__hash__
    """Of the object: callbacks keep what they know of a fit under its estimator.

    sktime's estimators, which are equal where their parameters are, have none.
    """

    def _kept_callbacks(self) -> dict[str, Any]:
        """Return the attributes that outlast a reset."""
        names = (_SET, _OF_A_SEARCH, *_OF_A_FIT)
        return {name: vars(self)[name] for name in names if name in vars(self)}

    def _share_callbacks(self, clone: Any) -> None:
        """Let a clone have the same callbacks, not copies, as scikit-learn's has."""
        if _SET in vars(self):
            clone._skl_callbacks = vars(self)[_SET]


def without_context(state: dict[str, Any]) -> None:
    """Take out of an estimator's state what only a fit that is underway needs."""
    for name in (_OF_A_SEARCH, *_OF_A_FIT):
        state.pop(name, None)


class FitTask:
    """What scikit-learn's callbacks are told of a fit: its begin, epochs and end.

    Parameters
    ----------
    estimator : SupportsFitCallbacks
        Being fitted; its method is decorated by `with_callbacks`.
    y, X : DataFrame, DataFrame or None
        What it is fitted on: for scikit-learn, X and y. Where there are no controls its
        callbacks get a table without columns, because they score nothing without y.
    n_epochs : int
        That are ahead.
    """

    def __init__(
        self, estimator: Any, y: pd.DataFrame, X: pd.DataFrame | None, n_epochs: int
    ) -> None:
        self._estimator = estimator
        self._data = {"X": y, "y": pd.DataFrame(index=y.index) if X is None else X}
        self._context: Any = None
        if _SET in vars(estimator) or _OF_A_SEARCH in vars(estimator):
            self._context = estimator._init_callback_context(max_subtasks=n_epochs)
            self._context.call_on_fit_task_begin(estimator=estimator, **self._data)

    def on_epoch_end(self, forecaster: Any, row: dict[str, float]) -> bool:
        """Tell of an epoch; return whether to stop.

        A callback that asks for a fitted estimator gets a copy of the forecaster, with
        the best weights so far.
        """
        if self._context is None:
            return False
        task = self._context.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(estimator=forecaster, **self._data)
        return bool(
            task.call_on_fit_task_end(
                estimator=forecaster, reconstruction_attributes={}, **self._data
            )
        )

    def end(self) -> None:
        """Tell of the end of a fit that has not failed."""
        if self._context is not None:
            fitted = {"_state": "fitted"}  # as sktime says after it
            self._context.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=fitted,
                **self._data,
            )
