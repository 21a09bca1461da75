"""What all of them share: a structural forecaster that is fitted beside them.

Tested in tests/test_transformers.py.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import pandas as pd
from sktime.base import BaseObject
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
from sktime.transformations.base import BaseTransformer

from sklode.data.history import History, with_columns
from sklode.forecasters.inputs import read_tables
from sklode.forecasters.protocols import Container
from sklode.forecasters.structural import StructuralForecaster

# a lone series' key where a panel is asked for; users never see it
_ALONE = "alone"


class PrototypeTransformer(BaseTransformer):
    """A transformer whose answers are those of a structural forecaster."""

    _tags: ClassVar[dict[str, object]] = {
        "authors": ["the sklode developers"],
        "maintainers": ["the sklode developers"],
        "scitype:transform-input": "Series",
        "scitype:transform-output": "Series",
        "scitype:instancewise": True,
        "y_inner_mtype": "None",
        "fit_is_empty": False,
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:missing_values:removes": True,
        "capability:inverse_transform": False,
        # in a pipeline a forecast stays as it is
        "skip-inverse-transform": True,
    }
    forecaster: StructuralForecaster | None

    def _check_X_y(
        self, X: Container = None, y: Container = None, return_metadata: bool = False
    ) -> Any:
        return super()._check_X_y(read(X), y, return_metadata)

    def _learn(self, X: pd.DataFrame) -> None:
        """Find hyperparameters; a fit of a clone on other rows keeps them."""
        check_values(X)
        one = StructuralForecaster()
        if self.forecaster is not None:
            one = self.forecaster.clone()
        # pretrain, whose hyperparameters a later fit keeps, takes a panel
        panel = X if X.index.nlevels > 1 else pd.concat({_ALONE: X}, names=["key"])
        self._told: set[str] = set()
        with _told_once(self._told):
            self.forecaster_ = one.pretrain(panel)

    def _fitted(self, X: pd.DataFrame) -> StructuralForecaster:
        """Return a forecaster of these rows, with the hyperparameters of `fit`."""
        names, *_ = self.forecaster_.pretrained_.columns
        with _told_once(self._told):
            return self.forecaster_.clone().fit(with_columns(X, names))


def read(y: Container) -> Container:
    """Return y as the forecasters read it, whose messages name row and remedy."""
    table, *_ = read_tables(y, None, has_errors=False)
    return table


def named_as(X: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Return a forecaster's answers in the order of X's columns, a lone one's name."""
    if X.shape[1] == 1:
        return found.set_axis(X.columns, axis=1)
    return found[X.columns]


def check_values(y: pd.DataFrame) -> None:
    """Check that values are finite, and that each column has any.

    Before a forecaster does, which sees a lone series under a key or one column alone.
    """
    History.of(y, None, clean=False).observations.check_channels([*y.columns])


def check_prototype(estimator: BaseObject) -> None:
    """Check that ``forecaster`` is a structural one, or None, and nothing else is."""
    for name, given in estimator.get_params(deep=False).items():
        if name != "forecaster" and isinstance(given, BaseForecaster):
            raise TypeError(
                f"a forecaster must be passed by name; got a {type(given).__name__} as "
                f"{name}. Use {type(estimator).__name__}(forecaster=...)."
            )
    if not isinstance(estimator.forecaster, StructuralForecaster | None):
        raise TypeError(
            "forecaster must be a StructuralForecaster, whose settings are used, or "
            f"None; got a {type(estimator.forecaster).__name__}. Use for example "
            'forecaster=StructuralForecaster(seasons=["1D"]).'
        )


@contextlib.contextmanager
def _told_once(told: set[str]) -> Iterator[None]:
    """Say what a sensor wrote once, with a remedy of transformers.

    Rows that are fitted and then transformed are judged twice.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", ".*clean=False")
        yield
    for one in caught:
        text = str(one.message).replace(f" of series ({_ALONE!r},)", "")
        if "clean=False" in text:
            remedy = "forecaster=StructuralForecaster(clean=False)"
            text = text.replace("clean=False", remedy)
            if text in told:
                continue
            told.add(text)
        warnings.warn_explicit(text, one.category, one.filename, one.lineno)


def at(index: pd.Index) -> pd.Index | ForecastingHorizon:
    """Return a horizon of stamps: integers are else steps."""
    if index.nlevels > 1:
        return index
    if isinstance(index, pd.DatetimeIndex):
        # whose freq may be another than that of the rows
        index = index.copy()
        index.freq = None
    return ForecastingHorizon(index, is_relative=False)
