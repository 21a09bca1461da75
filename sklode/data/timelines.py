"""The model's time: ticks of an index in time units, with long gaps shortened.

What happened before a gap of a thousand time units says little of what follows it, and
a solver that walked through ten years between two hours would take as many steps. Such
a gap passes faster: its two ends at the usual pace, so that what is near an observation
is as far from it as elsewhere, and its middle in a fifth of the time that it counts.
Before the first observation and after the last one time is never shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sklode.data.observations import Observations, gaps_of
from sklode.data.places import rows_before
from sklode.data.ticks import ticks_between

__all__ = ["Timeline"]

_LONGEST_GAP = 1000.0
"""In time units. Longer gaps hide the phase of any period that stamps can show."""

_LONGEST_MEAN_GAP = 10.0
"""The longest gap is shorter where else gaps were longer than this on average."""

_END = 0.4
"""Share of a shortened gap that passes at the usual pace, at each of its ends."""


@dataclass(frozen=True)
class Timeline:
    """From ticks to time units.

    Attributes
    ----------
    unit : float
        Ticks of one time unit.
    longest_gap : float
        In time units: as much a longer gap between two observations counts.
    """

    unit: float
    longest_gap: float

    @classmethod
    def of(cls, observations: Observations, unit: float) -> Timeline:
        """Measure the gaps of ``observations``."""
        gaps = np.sort(gaps_of(observations) / unit)
        gaps = gaps[gaps > 0]
        if not len(gaps) or gaps[-1] <= _LONGEST_GAP:
            return cls(unit, _LONGEST_GAP)
        # the largest bound under which the mean is what it may be
        room = _LONGEST_MEAN_GAP * len(gaps) - np.cumsum(gaps)
        n_longer = len(gaps) - 1 - np.arange(len(gaps))
        bounds = room[:-1] / n_longer[:-1]
        fits = np.flatnonzero(bounds >= gaps[:-1])
        longest = bounds[fits[-1]] if len(fits) else _LONGEST_MEAN_GAP
        return cls(unit, float(min(longest, _LONGEST_GAP)))

    def of_rows(self, observations: Observations) -> NDArray[np.float64]:
        """Return the time of each row since its series' first stamp, (row,)."""
        ticks = observations.ticks
        first = np.repeat(observations.bounds[:-1], observations.lengths)
        is_long = gaps_of(observations) / self.unit > self.longest_gap
        if not is_long.any():
            return ticks_between(ticks[first], ticks) / self.unit
        # counted from the last long gap: what is added up is never large
        row = np.arange(len(ticks))
        after_long = np.append(False, is_long)
        start = np.maximum.accumulate(np.where(after_long | (row == first), row, 0))
        within = ticks_between(ticks[start], ticks) / self.unit
        jumps = np.where(after_long, np.append(0.0, within[:-1]) + self.longest_gap, 0)
        total = np.cumsum(jumps)
        times: NDArray[np.float64] = total - total[first] + within
        return times

    def at(
        self,
        observations: Observations,
        series: NDArray[np.int64],
        ticks: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return the times of any stamps since their series' first one.

        Parameters
        ----------
        observations : Observations
            The series.
        series : ndarray of shape (stamp,)
            Numbers of the stamps' series.
        ticks : ndarray of shape (stamp,)
            The stamps.

        Returns
        -------
        ndarray of shape (stamp,)
            Increasing with the stamps; negative before the series' first one.
        """
        known, bounds = observations.ticks, observations.bounds
        first = bounds[:-1][series]
        gaps = np.append(gaps_of(observations) / self.unit, 0.0)
        if not (gaps > self.longest_gap).any():
            return ticks_between(known[first], ticks) / self.unit
        row = np.maximum(rows_before(bounds, known, series, ticks), first)
        since = ticks_between(known[row], ticks) / self.unit
        gap = gaps[row]  # 0 after a series' last row
        end = _END * self.longest_gap
        slow = np.maximum(gap - 2 * end, 1.0)  # how long its middle is
        passed = np.minimum(since, end)
        passed += np.clip(since - end, 0, slow) * (self.longest_gap - 2 * end) / slow
        passed += np.maximum(since - end - slow, 0)
        passed = np.where(gap > self.longest_gap, passed, since)
        times: NDArray[np.float64] = self.of_rows(observations)[row] + passed
        return times
