"""Random numbers of a place: a function of seed, series and time alone.

Bits are hashed (the finaliser of splitmix64; Steele, Lea, Flood 2014) from place and
counter: what is drawn for a stamp does not depend on other queries.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sklode.data.arrays import Array, Numbers

Bits = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(2**32 - 1)


def normals(
    seed: int, kind: int, series: Numbers, times: Array, n_draws: int, width: int
) -> NDArray[np.float64]:
    """Return standard normal draws for places, (draw, place, width).

    A place is one of ``series`` at one of ``times``, (place,); ``kind`` keeps
    purposes apart. Draws are stratified, one in each of ``n_draws`` intervals
    of equal probability: quantiles and variance scatter less.
    """
    # -0.0 + 0.0 is 0.0: equal times have equal bits
    times = np.asarray(times, dtype=np.float64) + 0.0
    parts = np.uint64(kind), series.astype(np.uint64), times.view(np.uint64)
    place = _mixed(np.array([seed], dtype=np.uint64))
    # mixed after each part: two places whose parts are exchanged differ
    for part in parts:
        place = _mixed(place ^ part)
    counter = np.arange(width * n_draws, dtype=np.uint64).reshape(width, n_draws)
    bits = _mixed(place[:, None, None] ^ _mixed(counter))
    # The order of random bits is a random permutation: which interval each draw is
    # from. The highest 16 bits say it, which are sorted fastest; the lowest 32, where
    # in its interval it lies, never at an end.
    highest = (bits >> np.uint64(48)).astype(np.uint16)
    stratum = highest.argsort(axis=-1, kind="stable")
    within = ((bits & _LOW) + 0.5) / (_LOW + np.uint64(1))
    uniform = torch.from_numpy((stratum + within) / n_draws)
    return np.moveaxis(torch.special.ndtri(uniform).numpy(), -1, 0)


def _mixed(bits: Bits) -> Bits:
    """Return well mixed bits, one to one."""
    bits = bits + _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))
