"""How a network reads X at any time: columns that are linear, held, or impulses.

Tested in tests/hybrid/test_controls.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.data.observations import Observations
from sklode.data.scaled_rows import KnownControls
from sklode.data.scaling import Units
from sklode.data.ticks import ticks_between
from sklode.structural.effects.lags import FADES

_MOST_TOLD = 0.5  # share of rows with y, that tell an impulse or a change
_MOSTLY = 0.5  # share of impulses and changes, that have no y


@dataclass(frozen=True)
class ControlForms:
    """How columns of X act between their rows, a control each.

    A column that is given at rows of its own, without y, is one of impulses, as doses
    are. It becomes several controls, sums of what was given and fades since, each at a
    rate. One that mostly stays, and changes at such rows, is held until the next one.
    """

    columns: Numbers  # (control,), of X
    rates: Array  # (control,), see `ControlPath`, in units of time
    n_columns: int  # of X
    runs_back: bool = False  # whether time is reversed

    @classmethod
    def of(cls, rows: Observations, unit: float, longest: float) -> ControlForms:
        """Find them, of all ``rows``; impulses fade over up to ``longest`` units."""
        columns: list[int] = []
        rates: list[float] = []
        is_next = np.diff(rows.series) == 0
        for k, values in enumerate(rows.controls.T):
            changes = np.append(False, (np.diff(values) != 0) & is_next)
            if _is_told_alone(rows, np.not_equal(values, 0)):
                own = (1 / FADES[FADES <= max(longest, FADES[0])]).tolist()
            else:
                own = [0.0 if _is_told_alone(rows, changes) else np.nan]
            columns += [k] * len(own)
            rates += own
        return cls(np.array(columns, dtype=np.int64), np.array(rates), rows.sizes[1])

    @classmethod
    def of_columns(cls, n: int) -> ControlForms:
        """Return controls that are columns, linear between their rows."""
        return cls(np.arange(n), np.full(n, np.nan), n)

    @property
    def are_columns(self) -> bool:
        """Whether each control is a column of X."""
        return not self.fades.any()

    @property
    def fades(self) -> Flags:
        """Whether a control is of impulses, (control,)."""
        return self.rates > 0

    def reversed(self) -> ControlForms:
        """Return the same of reversed time."""
        return replace(self, runs_back=not self.runs_back)

    def read(
        self, every: Observations, seen: Observations, unit: float
    ) -> tuple[Observations, Observations]:
        """Return all rows of series and those ``seen``, with controls in place of X.

        Series with a row seen come first in both, in one order.
        """
        if self.are_columns:
            return every, seen
        if self.runs_back:
            onwards = self.reversed().read(every.reversed(), seen.reversed(), unit)
            return onwards[0].reversed(), onwards[1].reversed()
        # imports need not wait for numba
        from sklode.structural.filter.forward import accumulate

        controls = every.controls[:, self.columns]
        first = every.ticks[every.bounds[:-1]][every.series]
        times = ticks_between(first, every.ticks) / unit
        for k in np.flatnonzero(self.fades):
            controls[:, k] = accumulate(
                times=times,
                bounds=every.bounds,
                columns=np.ascontiguousarray(controls[:, [k]]),
                memory=1 / self.rates[k],
            )[:, 0]
        place = every.at_or_before(seen.series, seen.ticks)
        seen = replace(seen, controls=controls[place])
        return replace(every, controls=controls), seen

    def known(
        self, read: Observations, since: Numbers, units: Units
    ) -> KnownControls | None:
        """Return controls of `read` rows; times count from ``since``, (series,).

        Series that have no such time come last, and are left out.
        """
        if not len(self.columns):
            return None
        own = np.arange(read.bounds[len(since)])
        read = read.rows(own, read.bounds[: len(since) + 1], read.keys[: len(since)])
        times = ticks_between(since[read.series], read.ticks) / units.time
        values = units.controls(read.controls)
        rates = None if np.isnan(self.rates).all() else self.rates
        return KnownControls(read.bounds, times, values, rates, self.runs_back)


def _is_told_alone(rows: Observations, is_told: Flags) -> bool:
    """Return whether what a column tells, at some rows, stands where y has no value.

    And at few rows with y: else these show when it comes.
    """
    is_seen: Flags = np.any(np.isfinite(rows.values), axis=1)
    if not is_told.any() or is_told[is_seen].mean() >= _MOST_TOLD:
        return False
    return bool(is_seen[is_told].mean() <= 1 - _MOSTLY)
