"""Constructor parameters, checked as scikit-learn checks them, with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import pandas as pd
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
)

from sklode.data.checks import did_you_mean

SIZE = Interval(Integral, 1, None, closed="left")
"""Constraint of a number of at least one."""

FREQ: list[Any] = [str, pd.DateOffset, pd.Timedelta, None]
"""Constraints of the parameter ``freq``, of which `check_freq` checks the rest."""


def check_constraints(constraints: Mapping[str, list[Any]], estimator: Any) -> None:
    """Check every constructor parameter by the constraints of scikit-learn's kind."""
    for name, value in estimator.get_params(deep=False).items():
        try:
            validate_parameter_constraints(
                constraints, {name: value}, type(estimator).__name__
            )
        except InvalidParameterError as error:
            choices = [c for c in constraints[name] if isinstance(c, StrOptions)]
            options = {option for choice in choices for option in choice.options}
            told = f"{error}{did_you_mean(value, options)}"
            raise InvalidParameterError(told) from None


def check_freq(freq: str | pd.DateOffset | pd.Timedelta | None) -> None:
    """Check that a frequency is known and goes forward."""
    if freq is not None and not _goes_forward(freq):
        raise ValueError(
            "freq must be a frequency that pandas knows and that goes forward, such as "
            f"'1h' or 'MS'; got {freq!r}."
        )


def _goes_forward(freq: Any) -> bool:
    """Return whether a length of time is one that pandas knows, and above zero."""
    start = pd.Timestamp("2000-01-03")
    try:
        return bool(start + pd.tseries.frequencies.to_offset(freq) > start)
    except ValueError:
        return False
