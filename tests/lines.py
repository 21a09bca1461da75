"""Straight lines in true elapsed time, and forecasters that have learned them.

An index is given together with the stamps that its relative steps stand for, from
pandas or written out, never from sklode. A learned forecaster goes through pretrain and
fit like any other; only its network's weights are then set to what training would find
at best, so that it is exact to a thousandth of a step where training takes seconds to
come within a third of one. It reads every observation of a window: a row at a wrong
place, or none where one was, moves its forecast off the line.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Normal

from sklode import LatentODERNNForecaster, nn

START, SLOPE = 100.0, 3.0
"""The line's value at its origin, and its change over one step."""

TOLERANCE = SLOPE / 100
"""A hundredth of a step: an hour in a daily series is four of them."""

SPREAD, NOISE = 0.015, 0.02
"""Standard deviations of q(z0) and of the emission, in steps; together 0.025."""

_TINY = 2.0**-20
"""Where tanh is the identity, in single precision as well."""

_BEFORE, _AFTER, _SEEN = 3, 6, 24

BERLIN = "Europe/Berlin"


class Kind(NamedTuple):
    """An index, and the stamps around it.

    Attributes
    ----------
    index : Index
        Of y.
    step : Timedelta or int
        The line's unit of time: the median gap.
    before : Index
        Stamps before the first.
    near : Index
        The stamps that the steps -4 to 6 stand for.
    offsets : tuple
        Calendar offsets, with the steps that they amount to.
    """

    index: pd.Index
    step: Any
    before: pd.Index
    near: pd.Index
    offsets: tuple[tuple[Any, int], ...] = ()

    def steps(self, *steps: int) -> pd.Index:
        """Return the stamps of relative steps."""
        return self.near[[k + 4 for k in steps]]


def line(stamps: pd.Index, step: Any) -> np.ndarray:
    """Return the line's values: true elapsed time, in steps, since its origin."""
    if isinstance(stamps, pd.PeriodIndex):
        origin = pd.Period("2021-01-01", stamps.freq)
        return START + SLOPE * np.array([(stamp - origin).n for stamp in stamps])
    if isinstance(stamps, pd.DatetimeIndex):
        origin = pd.Timestamp("2021-01-01", tz=None if stamps.tz is None else "UTC")
        return START + SLOPE * ((stamps - origin) / step).to_numpy()
    return START + SLOPE * (stamps / step).to_numpy()


def on_line(stamps: pd.Index, step: Any, name: str = "y") -> pd.Series:
    """Return the line at ``stamps``."""
    return pd.Series(line(stamps, step), stamps, name=name)


def two_columns(index: pd.Index, step: Any) -> pd.DataFrame:
    """Return the line, and the line 50 higher."""
    first = on_line(index, step)
    return pd.DataFrame({"low": first, "high": first + 50})


def assert_on_line(answer: Any, stamps: pd.Index, step: Any, off: float = 0) -> None:
    """Assert that an answer has these stamps, and the line's values there."""
    pd.testing.assert_index_equal(answer.index, stamps, exact="equiv")
    values = np.asarray(answer, dtype=float).reshape(len(stamps), -1)
    expected = np.repeat(line(stamps, step)[:, None] + off, values.shape[1], axis=1)
    np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)


class _FromTheLastValue(nn.LatentODE):
    """Reads what differs from each channel's last value, which is added to z0."""

    def posterior(
        self,
        times: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor,
        controls: torch.Tensor | None = None,
    ) -> Any:
        rows = torch.arange(mask.shape[1]).view(1, -1, 1)
        latest = torch.where(mask, rows, 0).amax(1, keepdim=True)
        last = torch.where(mask, values, 0.0).gather(1, latest)
        found = super().posterior(times, values - last, mask, controls)
        q_z0 = Normal(found.q_z0.mean + last.squeeze(1), found.q_z0.stddev)
        return found._replace(q_z0=q_z0)


def learned(
    y: pd.Series | pd.DataFrame, kind: Any = LatentODERNNForecaster, **settings: Any
) -> Any:
    """Return a forecaster pretrained on ``y`` that continues lines of this slope.

    ``y``'s median gap is one step.
    """
    width = 1 if isinstance(y, pd.Series) else y.shape[1]
    few = {"hidden_size": 2 * width, "latent_size": width, "field_width": 2}
    forecaster = kind(
        **few,
        emission_width=width,
        window_length=8,
        horizon=4,
        level="series",
        max_epochs=1,
        finetune_epochs=0,
        random_state=0,
    ).set_params(**settings)
    panel = y
    if y.index.nlevels == 1:
        frame = y.to_frame() if isinstance(y, pd.Series) else y
        panel = pd.concat({"only": frame}, names=["series", "time"])
    forecaster.pretrain(panel)
    model = forecaster.pretrained_
    model.network.__class__ = _FromTheLastValue
    # of the size of a window's rise: noise far below it would be below the least one
    units = replace(model.normalisation, scale=np.full(width, 4 * SLOPE))
    model.normalisation = units
    _teach(model.network, SLOPE / units.scale)
    return forecaster


def _teach(network: Any, slope: np.ndarray) -> None:
    """Set a network's weights to a line of this slope, per channel and time unit.

    The encoder's state, all of it tiny: the change of the line from the last stamp back
    to this one, and the sum over the stamps of what was observed beside it, zero on a
    line. z0 is the last value, the first, and an eighth of the second.
    """
    n, per_unit = len(slope), torch.as_tensor(slope, dtype=torch.float32)
    eye = torch.eye(n)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        encoder, cell = network.encoder, network.encoder.cell
        # (change, surplus) from (x, mask), and from what they were
        by_x = torch.cat([0 * eye, eye])
        by_h = torch.cat(
            [torch.cat([eye, 0 * eye], 1), torch.cat([-eye, eye], 1)],
        )
        rows = slice(0, 2 * n)
        if isinstance(encoder, nn.ODELSTM):  # gates i, f, o: open, shut, open
            rows = slice(4 * n, 6 * n)
            cell.bias_ih.copy_(
                torch.tensor([30.0, -30, 0, 30]).repeat_interleave(2 * n)
            )
        cell.weight_ih[rows, :n] = _TINY * by_x
        cell.weight_hh[rows] = by_h
        if isinstance(encoder, nn.RNN):  # its last input is the gap
            cell.weight_ih[rows, -1] = _TINY * torch.cat([-per_unit, per_unit])
        else:
            encoder.vector_field.output.bias[:n] = _TINY * per_unit
        first, _, second = network.posterior_head.network
        first.weight.copy_(torch.eye(2 * n))
        second.weight[:n] = torch.cat([eye, eye / 8], 1) / _TINY
        second.bias[n:] = 2 * (SPREAD * per_unit).log()
        network.decoder.vector_field.output.bias.copy_(per_unit)
        inner, _, outer = network.emission.network
        inner.weight.copy_(_TINY * eye)
        outer.weight.copy_(eye / _TINY)
        noise = NOISE * per_unit - 1e-3
        network.emission.raw_noise.copy_(noise.expm1().log())


def _median_gap(index: pd.Index) -> Any:
    if isinstance(index, pd.PeriodIndex):
        return 1
    return pd.Series(index).diff().median()


def _grid(whole: pd.Index, *offsets: Any, holes: tuple[int, ...] = ()) -> Kind:
    """Cut y's index, with holes, out of stamps that follow each other in steps."""
    end = _BEFORE + _SEEN
    index = whole[_BEFORE:end]
    index = index.delete(list(holes)) if holes else index
    near = whole[end - 5 : end + _AFTER]
    return Kind(index, _median_gap(index), whole[:_BEFORE], near, offsets)


def _gapped(first: Any, gap: Any, step: Any, *offsets: Any) -> Kind:
    """Return stamps with gaps of one to three times ``gap``, most of them two."""
    places = np.cumsum([0, 2, 1, 2, 3, 2, 1, 2, 3, 2, 2, 1, 2, 3, 1, 2, 3, 2, 2, 2, 3])
    index = pd.Index([first + int(k) * gap for k in places])
    before = pd.Index([first - 5 * gap, first - gap])
    near = pd.Index([index[-1] + k * step for k in range(-4, _AFTER + 1)])
    return Kind(index, _median_gap(index), before, near, offsets)


def _dates(start: str, freq: Any, **options: Any) -> pd.DatetimeIndex:
    return pd.date_range(start, periods=_BEFORE + _SEEN + _AFTER, freq=freq, **options)


def _periods(freq: str) -> pd.PeriodIndex:
    return pd.period_range("2020-10-01", periods=_BEFORE + _SEEN + _AFTER, freq=freq)


def _in_unit(kind: Kind, unit: str) -> Kind:
    index, near = kind.index.as_unit(unit), kind.near.as_unit(unit)
    return kind._replace(index=index, near=near)


_HOURS = ((pd.offsets.Hour(1), 1), (pd.offsets.Hour(2), 2), (pd.offsets.Minute(180), 3))
_DAYS = ((pd.offsets.Day(1), 1), (pd.DateOffset(days=3), 3))
_MONTHS = ((pd.DateOffset(months=1), 1), (pd.DateOffset(months=5), 5))
_SECONDS = ((pd.offsets.Second(68), 2),)

_LOCAL = {
    "hours into summer time": ("2021-03-27 03:00", "h"),
    "hours into winter time": ("2021-10-30 03:00", "h"),
    "hours up to summer time": ("2021-03-26 23:00", "h"),
    "hours up to winter time": ("2021-10-29 23:00", "h"),
    "days into summer time, some missing": ("2021-03-10 12:00", "D"),
    "days into winter time, some missing": ("2021-10-10 12:00", "D"),
    "days up to summer time": ("2021-03-01 12:00", "D"),
    "days up to winter time": ("2021-10-04 12:00", "D"),
}
"""Stamps in Berlin, where clocks change on 2021-03-28 and 2021-10-31."""


def _integers() -> dict[str, Kind]:
    count = pd.RangeIndex(7, 7 + _BEFORE + _SEEN + _AFTER)
    threes = pd.RangeIndex(5, 77, 3)
    return {
        "range": _grid(count),
        "range in threes": Kind(
            threes, 3, pd.Index([-4, 2]), pd.Index(threes[-1] + np.arange(-4, 7))
        ),
        "integers with gaps": _grid(pd.Index(count.to_numpy()), holes=(4, 5, 11)),
        "uneven integers": _gapped(-60, 3, 1),
        "months": _grid(_periods("M"), (pd.offsets.MonthEnd(2), 2)),
        "months with gaps": _grid(
            _periods("M"), (pd.offsets.MonthEnd(1), 1), holes=(3, 9, 10)
        ),
        "hours as periods": _grid(_periods("h"), (pd.offsets.Hour(2), 2)),
    }


def _calendars() -> dict[str, Kind]:
    one = (7,)
    fifteenth = _dates("2020-01-15", pd.DateOffset(months=1))
    ends = (pd.offsets.MonthEnd(1), 1), (pd.offsets.MonthEnd(3), 3)
    starts = ((pd.offsets.MonthBegin(2), 2), *_MONTHS)
    quarter = (pd.offsets.QuarterBegin(1, startingMonth=1), 1)
    working = (pd.offsets.BDay(2), 2), (pd.DateOffset(weeks=1), 5)
    return {
        "month ends": _grid(_dates("2020-01-31", "ME"), *ends),
        "month ends, one missing": _grid(_dates("2020-01-31", "ME"), *ends, holes=one),
        "month starts": _grid(_dates("2020-01-01", "MS"), *starts),
        "month starts, one missing": _grid(
            _dates("2020-01-01", "MS"), *starts, holes=one
        ),
        "15th of months, one missing": _grid(fifteenth, *_MONTHS, holes=one),
        "quarters, one missing": _grid(_dates("2016-01-01", "QS"), quarter, holes=one),
        "weeks, one missing": _grid(
            _dates("2021-01-02", "7D"), (pd.offsets.Week(2), 2), holes=one
        ),
        "working days, a holiday missing": _grid(
            _dates("2021-03-01", "B"), *working, holes=one
        ),
    }


def _clocks() -> dict[str, Kind]:
    hours, second = _dates("2021-03-01", "h"), pd.Timedelta("1s")
    spans = pd.to_timedelta(np.arange(-3, 30), unit="h")
    uneven = _gapped(
        pd.Timestamp("2021-03-01 00:00:07"), 17 * second, 34 * second, *_SECONDS
    )
    kinds = {
        "hours": _grid(hours, *_HOURS),
        "hours without freq": _grid(pd.DatetimeIndex(hours.to_numpy()), *_HOURS),
        "hours with gaps": _grid(hours, *_HOURS, holes=(4, 12, 13)),
        "hours as timedeltas": _grid(spans, *_HOURS),
        "uneven timedeltas": _gapped(
            3600 * second, 17 * second, 34 * second, *_SECONDS
        ),
    }
    for name, (start, freq) in _LOCAL.items():
        offsets = _HOURS if freq == "h" else _DAYS
        holes = (3, 15, 18) if "missing" in name else ()
        kinds[name] = _grid(_dates(start, freq, tz=BERLIN), *offsets, holes=holes)
    for unit in ("s", "ms", "us", "ns"):
        kinds[f"uneven, unit {unit}"] = _in_unit(uneven, unit)
    return kinds


KINDS = {**_integers(), **_calendars(), **_clocks()}

_COMMON = (
    "range",
    "uneven integers",
    "months with gaps",
    "month ends, one missing",
    "working days, a holiday missing",
    "hours without freq",
    "uneven timedeltas",
    "days into summer time, some missing",
    "uneven, unit us",
)


def of_kinds(wanted: Callable[[Kind], bool] = lambda _: True) -> Any:
    """Return a test's parameter ``name``: the kinds of index, the rarer ones slow."""
    names = [name for name, kind in KINDS.items() if wanted(kind)]
    rare = [name for name in names if name not in _COMMON]
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in rare]
    common = [name for name in names if name in _COMMON]
    return pytest.mark.parametrize("name", [*common, *slow])


"""Every kind of index by its name."""


@functools.cache
def _learned(name: str, kind: Any, fit: bool) -> bytes:
    stamps, step, *_ = KINDS[name]
    y = on_line(stamps, step)
    forecaster = learned(y, kind)
    return pickle.dumps(forecaster.fit(y) if fit else forecaster)


def learned_on(name: str, kind: Any = LatentODERNNForecaster) -> Any:
    """Return a forecaster that has learned the line on a kind of index, not fitted."""
    return pickle.loads(_learned(name, kind, False))


def fitted_on(name: str, kind: Any = LatentODERNNForecaster) -> Any:
    """Return a forecaster that has learned the line, fitted to all of its index."""
    return pickle.loads(_learned(name, kind, True))
