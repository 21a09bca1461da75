"""The linear level fitted: to processes whose best forecast is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sklode.data.windows import WindowSet
from sklode.levels import LinearAnchor
from sklode.levels import fitting as levels
from sklode.levels.fitting import fit_linear
from sklode.levels.linear import CROSS_CHANNELS, N_RATES
from tests.series import tiny, uneven_stamps, waves

N_SEEN, HORIZON = 24, 8


def windows(
    values: Any,
    times: np.ndarray | None = None,
    controls: np.ndarray | None = None,
    bounds: Any = None,
    horizon: int = HORIZON,
) -> WindowSet:
    values = np.asarray(values, dtype=float).reshape(len(values), -1)
    times = np.arange(len(values), dtype=float) if times is None else times
    bounds = np.array([0, len(values)] if bounds is None else bounds)
    return WindowSet(times, values, controls, bounds, N_SEEN, horizon)


def fitted(data: WindowSet) -> LinearAnchor:
    values, _, controls = data.rows()
    n_controls = 0 if controls is None else controls.shape[1]
    return fit_linear(LinearAnchor(values.shape[1], n_controls), data)


def ahead(anchor: LinearAnchor, data: WindowSet) -> np.ndarray:
    """Return the levels of all windows after their seen part."""
    arrays = data.gather(np.arange(len(data)))
    times, values, mask = (torch.from_numpy(x) for x in arrays[:3])
    seen, later = slice(N_SEEN), slice(N_SEEN, None)
    u = None if arrays.controls is None else torch.from_numpy(arrays.controls)
    before, after = (None, None) if u is None else (u[:, seen], u[:, later])
    level = anchor(times[:, seen], values[:, seen], mask[:, seen], before)
    return level.at(times[:, later], after).numpy()


def error(forecast: np.ndarray, data: WindowSet) -> np.ndarray:
    """Return each channel's mean squared error over all windows."""
    arrays = data.gather(np.arange(len(data)))
    known = arrays.mask[:, N_SEEN:]
    squares = (forecast - arrays.values[:, N_SEEN:]) ** 2 * known
    return squares.sum((0, 1)) / known.sum((0, 1))


def stamps(rng: np.random.Generator, n: int = 2000) -> np.ndarray:
    return np.cumsum(0.05 + rng.exponential(1.0, n))


def reverting(
    rng: np.random.Generator, times: np.ndarray, rate: float, n_channels: int = 1
) -> np.ndarray:
    """Return an Ornstein-Uhlenbeck process of mean 0 and variance 1."""
    shocks = rng.standard_normal((len(times), n_channels))
    x = shocks.copy()
    for k, kept in enumerate(np.exp(-rate * np.diff(times)), start=1):
        x[k] = kept * x[k - 1] + math.sqrt(1 - kept**2) * shocks[k]
    return x


def best_forecast(data: WindowSet, rate: float) -> np.ndarray:
    """Return the conditional mean of that process: the last value fades."""
    arrays = data.gather(np.arange(len(data)))
    mask, row = arrays.mask[:, :N_SEEN], np.arange(N_SEEN)[:, None]
    place = np.where(mask, row, 0).max(1)
    last = np.take_along_axis(arrays.values, place[:, None], 1)
    since = np.take_along_axis(arrays.times, place, 1)[:, None]
    kept = np.exp(-rate * (arrays.times[:, N_SEEN:, None] - since))
    return kept * np.where(mask.any(1), last[:, 0], 0)[:, None]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("horizon", [1, 8, 40])
def test_a_random_walk_is_held_at_its_last_value_but_for_half_of_its_drift(
    seed: int, horizon: int
) -> None:
    rng = np.random.default_rng(seed)
    data = windows(np.cumsum(0.05 + rng.standard_normal(1200)) / 10, horizon=horizon)
    anchor = fitted(data)
    assert anchor.walking
    assert not anchor.weights[1:].any()
    assert not anchor.weights[0, :-1].any()
    # least squares of all windows' moves, at up to twelve stamps, halved
    arrays = data.gather(np.arange(len(data)))
    n = min(horizon, 12)
    rows = N_SEEN + np.round(np.linspace(0, horizon - 1, n)).astype(int)
    rise = 1 - np.exp(-(rows - N_SEEN + 1) / (2 * max(horizon, 1)))
    moves = arrays.values[:, rows, 0] - arrays.values[:, N_SEEN - 1]
    drift = 0.5 * (moves * rise).sum() / (len(data) * (rise**2).sum())
    assert anchor.rates[-1].item() == pytest.approx(1 / (2 * horizon))
    assert anchor.weights[0, -1].item() == pytest.approx(drift, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_noise_stays_at_its_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    anchor = fitted(windows(rng.standard_normal((1200, 2)), stamps(rng, 1200)))
    assert not anchor.walking
    assert not anchor.weights.any()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_channels", [1, 3, CROSS_CHANNELS + 1])
def test_a_process_that_reverts_is_forecast_by_its_conditional_mean(
    seed: int, n_channels: int
) -> None:
    rng, rate = np.random.default_rng(seed), 0.2
    times = stamps(rng)
    anchor = fitted(windows(reverting(rng, times, rate, n_channels), times))
    assert not anchor.walking
    times = stamps(rng)
    fresh = windows(reverting(rng, times, rate, n_channels), times)
    least = error(best_forecast(fresh, rate), fresh)
    assert (error(ahead(anchor, fresh), fresh) < 1.05 * least).all()
    assert (error(0 * ahead(anchor, fresh), fresh) > 1.2 * least).all()


def test_missing_values_do_not_keep_it_from_the_conditional_mean() -> None:
    rng, rate = np.random.default_rng(0), 0.1
    found = []
    for _ in range(2):
        times = stamps(rng)
        values = reverting(rng, times, rate, 2)
        values[rng.random(values.shape) < 0.4] = np.nan
        found.append(windows(values, times))
    data, fresh = found
    least = error(best_forecast(fresh, rate), fresh)
    assert (error(ahead(fitted(data), fresh), fresh) < 1.05 * least).all()


def led(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a process and one that runs after it, at the same stamps."""
    times = stamps(rng)
    leader = reverting(rng, times, 0.1)[:, 0]
    follower = np.zeros(len(times))
    for k, gap in enumerate(np.diff(times), start=1):
        away = leader[k - 1] - follower[k - 1]
        shock = 0.1 * math.sqrt(gap) * rng.standard_normal()
        follower[k] = follower[k - 1] + away * (1 - math.exp(-0.25 * gap)) + shock
    return times, np.stack([leader, follower], axis=1)


def test_a_channel_that_leads_another_helps_to_forecast_it() -> None:
    rng = np.random.default_rng(0)
    (times, values), (later, others) = led(rng), led(rng)
    both = fitted(windows(values, times))
    alone = fitted(windows(values[:, 1:], times))
    fresh = windows(others, later)
    of_both = error(ahead(both, fresh), fresh)[1]
    fresh = windows(others[:, 1:], later)
    of_one = error(ahead(alone, fresh), fresh)[0]
    assert of_both < 0.7 * of_one


@pytest.mark.slow
def test_each_of_many_channels_is_forecast_from_itself() -> None:
    rng = np.random.default_rng(0)
    times, values = (x[:600] for x in led(rng))
    noise = rng.standard_normal((len(times), CROSS_CHANNELS - 1))
    anchor = fitted(windows(np.hstack([values, noise]), times))
    assert len(anchor.weights) == 1 + 1 + 5  # an intercept, a last value, its means
    # which others there are does not matter, but for the penalty that all share
    swapped = fitted(windows(np.hstack([noise, values]), times))
    torch.testing.assert_close(swapped.weights[..., -2:], anchor.weights[..., :2])
    assert anchor.weights[..., :2].any()


def test_a_calendar_in_the_controls_is_found() -> None:
    rng = np.random.default_rng(0)
    times = stamps(rng)
    u = math.sqrt(2) * np.sin(2 * np.pi * times / 17 + [[0.0], [1.0]]).T
    around = 0.5 * reverting(rng, times, 0.3, 2)
    values = around + u @ [[0.8, 0.0], [0.0, -0.4]]
    data = windows(values, times, u)
    anchor = fitted(data)
    expected = torch.tensor([[0.8, 0.0], [0.0, -0.4]])
    torch.testing.assert_close(anchor.by_control, expected, rtol=0, atol=0.05)
    rest = windows(around, times)
    least = error(best_forecast(rest, 0.3), rest)
    assert (error(ahead(anchor, data), data) < 1.05 * least).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_controls_that_say_nothing_do_no_harm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = stamps(rng)
    values = reverting(rng, times, 0.2)
    u = rng.standard_normal((len(times), 3))
    later = stamps(rng)
    others, u_later = reverting(rng, later, 0.2), rng.standard_normal((len(later), 3))
    fresh = windows(others, later, u_later)
    with_controls = error(ahead(fitted(windows(values, times, u)), fresh), fresh)
    fresh = windows(others, later)
    without = error(ahead(fitted(windows(values, times)), fresh), fresh)
    assert with_controls < 1.02 * without


def test_controls_may_explain_a_channel_that_is_never_observed() -> None:
    rng = np.random.default_rng(0)
    u = rng.standard_normal((800, 1))
    values = np.hstack([u + 0.1 * rng.standard_normal((800, 1)), u])
    values[:, 1] = np.nan
    anchor = fitted(windows(values, None, u))
    assert anchor.by_control[0].tolist() == pytest.approx([1.0, 0.0], abs=0.01)
    assert torch.isfinite(anchor.weights).all()


def test_few_windows_tell_nothing() -> None:
    walk = np.cumsum(np.random.default_rng(0).standard_normal(200))
    n = N_SEEN + HORIZON + 18
    few = fitted(windows(walk[:n]))  # nineteen windows
    assert not few.walking
    assert not few.weights.any()
    assert not ahead(few, windows(walk[:n])).any()
    assert fitted(windows(walk[: n + 1])).walking


def test_windows_that_reach_no_further_than_is_seen_tell_nothing() -> None:
    walk = np.cumsum(np.random.default_rng(0).standard_normal((400, 2)), axis=0)
    for data in (
        windows(walk, horizon=0),
        windows(walk, bounds=np.arange(0, 401, N_SEEN // 2)),  # series too short
    ):
        anchor = fitted(data)
        assert not anchor.walking
        assert not anchor.weights.any()


def test_channels_that_are_never_seen_before_what_follows_tell_nothing() -> None:
    values = np.cumsum(np.random.default_rng(0).standard_normal((200, 2)), axis=0)
    values[100:, 0] = values[:100, 1] = np.nan
    data = WindowSet(np.arange(200.0), values, None, np.array([0, 200]), 1, 1)
    data.start = data.start[99:100].repeat(40)
    data.end = data.start + 2  # all see the first channel, and then the second
    data.series = np.zeros(40, dtype=int)
    anchor = fitted(data)
    assert not anchor.walking
    assert not anchor.weights.any()


def test_a_constant_channel_stays_constant_and_leaves_the_other_alone() -> None:
    rng = np.random.default_rng(0)
    times = stamps(rng)
    values = reverting(rng, times, 0.2)
    data = windows(np.hstack([values, np.zeros_like(values)]), times)
    levels = ahead(fitted(data), data)
    assert not levels[..., 1].any()
    least = error(best_forecast(data, 0.2), data)
    assert error(levels, data)[0] < 1.05 * least[0]


def test_a_series_that_never_moves_is_held() -> None:
    data = windows(np.zeros((300, 2)))
    assert not ahead(fitted(data), data).any()


def test_a_fit_is_repeated_and_leaves_its_windows_alone() -> None:
    rng = np.random.default_rng(0)
    times = stamps(rng, 600)
    data = windows(reverting(rng, times, 0.2, 2), times, rng.standard_normal((600, 1)))
    before = [x.copy() for x in data.rows() if x is not None]
    first, second = fitted(data).state_dict(), fitted(data).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for x, y in zip(before, data.rows(), strict=True):
        np.testing.assert_array_equal(x, y)


def test_series_of_a_panel_are_fitted_together_and_apart() -> None:
    rng = np.random.default_rng(0)
    bounds = np.arange(0, 4001, 50)
    times = np.concatenate([stamps(rng, 50) for _ in bounds[1:]])
    values = np.concatenate(
        [reverting(rng, times[a : a + 50], 0.2) for a in bounds[:-1]]
    )
    anchor = fitted(windows(values, times, bounds=bounds))
    times = stamps(rng)
    fresh = windows(reverting(rng, times, 0.2), times)
    least = error(best_forecast(fresh, 0.2), fresh)
    assert error(ahead(anchor, fresh), fresh) < 1.05 * least


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    n_seen=st.integers(1, 8),
    horizon=st.integers(1, 8),
)
def test_a_block_is_forecast_from_all_windows_that_share_no_row_with_it(
    lengths: list[int], n_seen: int, horizon: int
) -> None:
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(bounds[-1], dtype=float)
    data = WindowSet(rows, rows[:, None], None, bounds, n_seen, horizon)
    which = np.arange(len(data))
    blocks = levels._overlaps(data, which) if len(data) >= 10 else []
    rows_of = [set(range(a, b)) for a, b in zip(data.start, data.end, strict=True)]
    for inside, apart in blocks:
        ours = set().union(*(rows_of[k] for k in which[inside.numpy()]))
        low, high = min(ours), max(ours)
        for k in which:
            assert bool(apart[k]) == (not rows_of[k] & set(range(low, high + 1)))
    if blocks:
        members = torch.cat([inside for inside, _ in blocks])
        assert members.tolist() == list(range(len(data)))
        assert len(blocks) == 10


def test_of_many_windows_some_are_used_from_first_to_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[np.ndarray] = []
    overlaps = levels._overlaps

    def recorded(data: WindowSet, which: np.ndarray) -> Any:
        used.append(which)
        return overlaps(data, which)

    monkeypatch.setattr(levels, "_overlaps", recorded)
    monkeypatch.setattr(levels, "_MOST_WINDOWS", 100)
    fitted(windows(np.random.default_rng(0).standard_normal(1000)))
    (which,) = used
    assert (which[0], which[-1], len(which)) == (0, 1000 - N_SEEN - HORIZON, 100)
    assert set(np.diff(which)) <= {9, 10}


def test_ages_and_rates_span_window_and_horizon() -> None:
    walk = np.cumsum(np.random.default_rng(0).standard_normal(300))
    anchor = fitted(windows(walk, 1.0 * np.arange(300)))
    assert anchor.ages.tolist() == pytest.approx([23 ** (k / 3) for k in range(4)])
    expected = [HORIZON ** (-k / (N_RATES - 1)) for k in range(N_RATES)]
    assert anchor.rates[:-1].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("walks", [True, False])
def test_a_ridge_regression_explains_what_the_drift_leaves(walks: bool) -> None:
    rng = np.random.default_rng(0)
    features, phi = rng.standard_normal((50, 4)), rng.random((50, 3, 4))
    target, scale = rng.standard_normal((50, 3, 2)) + 1, np.array([1.0, 2.0, 0.5, 3.0])
    features[:, 0] = 1
    chosen = np.arange(50) < 30
    known = rng.random((50, 3, 2)) < 0.8
    arrays = (features, scale, phi, target, known)
    pairs = levels._Pairs(*(torch.from_numpy(x) for x in arrays))
    found = levels._solve(pairs, torch.from_numpy(chosen), walks)
    drift_alone, ridge = found[0], found[levels._PENALTIES.index(0.3)]
    for channel in range(2):
        rows = known[chosen][..., channel]
        y, slow = target[chosen][..., channel][rows], phi[chosen][..., -1][rows]
        drift = 0.5 * (slow @ y) / (slow @ slow) if walks else 0.0
        design = np.einsum("wf,wsj->wsfj", features[:, 1:], phi[..., :-1])[chosen][rows]
        design = design.reshape(len(y), 9)
        gram = design.T @ design + 0.3 * len(y) * np.eye(9)
        solution = np.linalg.solve(gram, design.T @ (y - drift * slow)).reshape(3, 3)
        expected = np.zeros((4, 4))
        expected[0, -1] = drift
        np.testing.assert_allclose(drift_alone[..., channel], expected, atol=1e-12)
        expected[1:, :-1] = solution / scale[1:, None]
        np.testing.assert_allclose(ridge[..., channel], expected, atol=1e-12)


def test_what_is_chosen_is_what_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    u = rng.standard_normal((200, 1))
    data = windows(u + 0.1 * rng.standard_normal((200, 1)), None, u)
    for k in range(4):
        chosen: list[levels._Candidate] = []

        def kth(found: list[levels._Candidate], k: int = k, to: list = chosen) -> Any:
            to.append(found[k])
            return found[k]

        monkeypatch.setattr(levels, "_choose", kth)
        anchor = fitted(data)
        assert bool(anchor.walking) == chosen[0].walks == (k % 2 == 1)
        torch.testing.assert_close(anchor.by_control.double(), chosen[0].by_control)
        assert bool(anchor.by_control.any()) == (k > 1)


@pytest.mark.parametrize(("n", "expected"), [(52, 52 / 32), (160, 5), (900, 10)])
def test_blocks_count_as_independent_as_far_as_windows_fit_side_by_side(
    monkeypatch: pytest.MonkeyPatch, n: int, expected: float
) -> None:
    told: list[float] = []

    def recorded(errors: torch.Tensor, n_independent: float) -> int:
        told.append(n_independent)
        return 0

    monkeypatch.setattr(levels, "_largest_good", recorded)
    fitted(windows(np.random.default_rng(0).standard_normal(n)))
    assert told == [expected]


def candidate(walks: bool, errors: Any) -> levels._Candidate:
    rows = [torch.tensor(e, dtype=torch.float64) for e in errors]
    least = rows + [rows[0] + 9] * (len(levels._PENALTIES) - len(rows))
    nothing: Any = None
    return levels._Candidate(walks, nothing, nothing, torch.stack(least))


def test_a_walk_is_given_up_only_where_there_is_no_doubt() -> None:
    doubt = [0.5, -0.5] * 5  # a standard error of 0.167
    walk = candidate(True, [[2.0] * 10])

    def gaining(by: float, alone: float = 3.0) -> levels._Candidate:
        """Return a level that gains so much, and without regression has an error."""
        return candidate(False, [[alone] * 10, [2.0 - by + d for d in doubt]])

    assert levels._choose([gaining(0.6), walk]) is walk
    doubtless = gaining(0.7)
    assert levels._choose([doubtless, walk]) is doubtless
    # where the mean alone is better than the last value, it is no walk
    hardly = gaining(0.1, alone=1.95)
    assert levels._choose([hardly, walk]) is hardly
    assert levels._choose([candidate(False, [[3.0] * 10]), walk]) is walk


def test_the_largest_penalty_is_taken_that_none_beats_clearly() -> None:
    doubt = torch.tensor([0.5, -0.5] * 5, dtype=torch.float64)
    errors = torch.full((len(levels._PENALTIES), 10), 5.0, dtype=torch.float64)
    errors[0] = 2.0 + doubt
    errors[3] = 2.0
    errors[6] = 1.7
    # 0.3 is less than two standard errors of 0.167, and 0.3 without doubt is more
    assert levels._largest_good(errors, 10.0) == 0
    errors[0] += 0.1
    assert levels._largest_good(errors, 10.0) == 6
    # long windows overlap: of ten blocks only some count
    assert levels._largest_good(errors, 4.0) == 0
    assert list(levels._PENALTIES) == sorted(levels._PENALTIES, reverse=True)


def revert(n: int = 400, seed: int = 0) -> pd.Series:
    rng = np.random.default_rng(seed)
    values = reverting(rng, np.arange(float(n)), 0.2)[:, 0]
    return pd.Series(values, uneven_stamps(n), name="y")


@pytest.mark.parametrize(("factor", "by"), [(1.0, 1e6), (-1e-3, 0.0), (300.0, -7.0)])
def test_forecasts_follow_the_scale_and_the_origin_of_y(
    factor: float, by: float
) -> None:
    y, steps = revert(), [-3, 1, 5, 12]
    settings: dict[str, Any] = {"normalize": "linear", "horizon": 5, "lr": 1e-9}
    expected = tiny(**settings).fit(y).predict(steps)
    forecast = tiny(**settings).fit(factor * y + by).predict(steps)
    assert expected.abs().max() > 0.3
    np.testing.assert_allclose((forecast - by) / factor, expected, rtol=0, atol=1e-4)


def test_forecasts_do_not_depend_on_the_unit_of_time() -> None:
    y = revert()
    slow = y.set_axis(y.index[0] + 60 * (y.index - y.index[0]))
    settings: dict[str, Any] = {"normalize": "linear", "horizon": 5, "lr": 1e-9}
    expected = tiny(**settings).fit(y)
    forecast = tiny(**settings).fit(slow)
    for minutes in (1, 7, 40):
        later = pd.DatetimeIndex([y.index[-1] + pd.Timedelta(minutes=minutes)])
        after = pd.DatetimeIndex([slow.index[-1] + pd.Timedelta(hours=minutes)])
        np.testing.assert_allclose(
            forecast.predict_at(after), expected.predict_at(later), rtol=0, atol=1e-6
        )


def test_too_short_a_series_is_forecast_by_its_mean() -> None:
    y = 50 + waves(uneven_stamps(24))
    forecast = tiny(normalize="linear", lr=1e-9).fit(y).predict([1, 9])
    assert forecast.tolist() == pytest.approx([y.mean()] * 2, abs=1e-3)
