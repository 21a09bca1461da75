"""What windows' last seen rows know of the level, at other times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sklode.data.history import History
from sklode.data.scaling import Normalisation, Timeline
from sklode.data.windows import WindowSet
from sklode.levels.carried import Carried
from sklode.levels.channel import ChannelLevel
from sklode.levels.structural import StructuralLevel
from sklode.levels.tables import Queries
from sklode.prediction.model import arrays_of
from tests.series import uneven_stamps


def wave(n: int = 90, logarithm: bool = False) -> pd.DataFrame:
    rng, index = np.random.default_rng(3), uneven_stamps(n)
    hours = (index - index[0]) / pd.Timedelta("1h")
    season = np.sin(2 * np.pi * np.asarray(hours) / (hours.max() / 6))
    noise = rng.standard_normal((n, 2)) * [0.05, 0.3]
    y = np.column_stack([season, np.cumsum(noise[:, 1])])
    y[:, 0] += noise[:, 0]
    y[4:9, 1] = np.nan
    return pd.DataFrame(np.exp(y) if logarithm else y, index, ["a", "b"])


def fitted(y: pd.DataFrame, X: Any = None, **how: Any) -> Any:
    observations = History.of(y, X).observations
    return observations, StructuralLevel.fit(observations, **how)


@pytest.mark.parametrize("logarithm", [False, True])
def test_forward_it_is_the_forecast_of_who_has_seen_no_later_row(
    logarithm: bool,
) -> None:
    y = wave(logarithm=logarithm)
    observations, level = fitted(y, logarithm=logarithm)
    units = Normalisation.of(observations)
    carried = Carried(level, observations, units)
    origins, elapsed = np.array([30, 60]), np.array([[0.3, 2.0, 7.5]] * 2)
    found = carried.at(origins, elapsed, None)
    for k, origin in enumerate(origins):
        before = observations.until(np.array([origin + 1]))
        for channel, table in enumerate(level.tables(before)):
            heaviest = max(level.channels[channel], key=lambda c: c.weight)
            alone = ChannelLevel.of(
                [heaviest._replace(weight=1.0)], table, level.spans[channel]
            )
            at = table.times[-1] + elapsed[k]
            asked = Queries(np.zeros(3, int), at, np.zeros((3, 0)))
            expected = alone.answered(asked).quantiles(np.array([0.5]), noise=False)
            normalised = (expected[:, 0] - units.location[channel]) / units.scale[
                channel
            ]
            np.testing.assert_allclose(found[k, :, channel], normalised, rtol=1e-4)


def test_backward_it_fades_and_goes_on_as_forward() -> None:
    rows = pd.RangeIndex(60)
    line = pd.DataFrame({"a": 3.0 + 0.5 * np.arange(60)}, rows)
    observations, level = fitted(line)
    carried = Carried(
        level, observations, Normalisation.of(observations, rescale=False)
    )
    found = carried.at(np.array([40]), np.array([[-30.0, -3.0, 0.0, 10.0]]), None)
    np.testing.assert_allclose(found[0, :, 0], [8.0, 21.5, 23.0, 28.0], atol=0.3)


def test_controls_act_where_they_are() -> None:
    rng, rows = np.random.default_rng(0), pd.RangeIndex(100)
    X = pd.DataFrame({"u": 5 + 2 * rng.standard_normal(100)}, rows)
    y = pd.DataFrame({"a": 3 * X["u"] + 0.01 * rng.standard_normal(100)}, rows)
    observations, level = fitted(y, X)
    units = Normalisation.of(observations)
    carried = Carried(level, observations, units)
    asked = np.array([[5.0], [6.0]])[None]
    found = carried.at(np.array([99]), np.array([[1.0, 2.0]]), units.controls(asked))
    given = units.original(found)[0, :, 0]
    np.testing.assert_allclose(given, [15.0, 18.0], atol=0.1)


def test_relative_windows_hold_what_is_left_of_it() -> None:
    y = wave()
    observations, level = fitted(y)
    units, line = Normalisation.of(observations), Timeline.of(observations)
    plain = WindowSet(*arrays_of(observations, units, line), 12, 5)
    carried = Carried(level, observations, units)
    relative = plain.on(carried, is_relative=True)
    which = np.array([3, 40, 3])
    for windows in (relative, relative.shortened(0.5), relative.reaching(2)):
        bare = replace_level(windows)
        levels = windows.levels(which)
        rows, mask = bare.gather(which).values, bare.gather(which).mask
        expected = np.where(mask, rows - levels, 0.0)
        np.testing.assert_allclose(windows.gather(which).values, expected, atol=1e-6)
        last = windows.start[which] + windows.window_length - 1
        times = windows.times[windows.start[which][:, None] + np.arange(windows.span)]
        elapsed = times - windows.times[last][:, None]
        np.testing.assert_allclose(levels, carried.at(last, elapsed, None), rtol=1e-5)
    kept = plain.on(carried, is_relative=False)
    np.testing.assert_array_equal(kept.gather(which).values, plain.gather(which).values)


def replace_level(windows: WindowSet) -> WindowSet:
    return windows.on(None, is_relative=False)


def test_a_level_knows_nothing_of_rows_after_the_origin() -> None:
    y = wave()
    observations, level = fitted(y)
    units = Normalisation.of(observations)
    later = observations.values.copy()
    later[50:] += 100.0
    changed = replace(observations, values=later)
    asked = np.array([10, 49]), np.array([[-4.0, 1.0, 9.0]] * 2), None
    before, after = (
        Carried(level, one, units).at(*asked) for one in (observations, changed)
    )
    np.testing.assert_array_equal(before, after)
