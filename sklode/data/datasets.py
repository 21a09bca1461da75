"""Data to try sklode on: the paper's spirals and a real irregular record."""

from __future__ import annotations

import numpy as np
import pandas as pd

__all__ = ["load_co2", "make_spirals"]

_N_POINTS, _N_WINDOW = 500, 250
_AROUND = _N_WINDOW // 4


def make_spirals(
    n_series: int = 1000,
    n_stamps: int = 100,
    noise: float = 0.3,
    random_state: int | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Make the paper's panel of clockwise and counterclockwise spirals.

    500 points of t in [0, 6 pi]; each series is a window of 250 consecutive points from
    a random start, of which the same sorted random positions are observed, the first
    one always (paper, section "Bidirectional spiral dataset").

    Parameters
    ----------
    n_series : int, default=1000
        Number of series, the two kinds alternating.
    n_stamps : int, default=100
        Observed positions of the 250 of a window.
    noise : float, default=0.3
        Standard deviation of the Gaussian noise.
    random_state : int, optional
        Of starts, positions and noise.

    Returns
    -------
    observed : DataFrame
        Columns "x", "y" under a MultiIndex (series, position), ``n_stamps`` rows each.
    truth : DataFrame
        The same without noise at positions -62 to 311: a quarter of a window before
        and after it as well.

    Raises
    ------
    ValueError
        If ``n_stamps`` is not between 1 and 250.
    """
    if not 1 <= n_stamps <= _N_WINDOW:
        raise ValueError(f"n_stamps must be between 1 and {_N_WINDOW}; got {n_stamps}.")
    rng = np.random.default_rng(random_state)
    t = np.linspace(0, 6 * np.pi, _N_POINTS)
    s = 6 * np.pi + 1 - t
    inward, outward = 0.3 * 50 / s, 0.3 * t
    clockwise = np.stack([inward * np.cos(s) - 5, inward * np.sin(s)], axis=1)
    counterclockwise = np.stack([outward * np.cos(t) + 5, outward * np.sin(t)], axis=1)
    curves = np.stack([clockwise, counterclockwise])[np.arange(n_series) % 2]

    start = rng.integers(_AROUND, _N_POINTS - _N_WINDOW - _AROUND, size=n_series)
    others = rng.choice(np.arange(1, _N_WINDOW), n_stamps - 1, replace=False)
    around = np.arange(-_AROUND, _N_WINDOW + _AROUND)
    exact = np.take_along_axis(curves, (start[:, None] + around)[..., None], axis=1)
    index = pd.MultiIndex.from_product(
        [range(n_series), around], names=["series", "position"]
    )
    truth = pd.DataFrame(exact.reshape(-1, 2), index, ["x", "y"])
    is_observed = np.isin(around, [0, *others])
    observed = truth[np.tile(is_observed, n_series)]
    return observed + noise * rng.standard_normal(observed.shape), truth


def load_co2() -> pd.Series:
    """Load the weekly CO2 record of Mauna Loa, in ppm, without its missing weeks.

    It ships with statsmodels; 59 of its 2284 weeks from 1958 to 2001 are missing, and
    dropping them leaves gaps of one week to nineteen.

    Raises
    ------
    ImportError
        If statsmodels is not installed.
    """
    try:
        from statsmodels.datasets import co2
    except ImportError as error:
        raise ImportError(
            "load_co2 needs statsmodels, which is not installed. Run "
            "pip install 'sklode[examples]'."
        ) from error
    series = co2.load_pandas().data["co2"].dropna()
    index = pd.DatetimeIndex(series.index, freq=None, name="date")
    return pd.Series(series.to_numpy(), index, name="co2")
