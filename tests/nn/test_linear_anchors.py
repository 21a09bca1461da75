"""The linear level: what it reads off a window, and how it goes on from there."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from sklode.levels import LinearAnchor
from sklode.levels.linear import CROSS_CHANNELS, N_AGES, N_RATES
from tests.networks import latent_ode, linear_anchor, windows

pytestmark = pytest.mark.usefixtures("float64")

BOTH = pytest.mark.parametrize("walks", [True, False])
AGES = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
RATES = torch.tensor([1.0, 0.5, 0.25, 0.125], dtype=torch.float64)


def observations() -> tuple[Tensor, Tensor, Tensor]:
    """Return one window: the second channel was seen at 0 and 3 only."""
    times = torch.tensor([[0.0, 1.0, 3.0, 6.0]])
    values = torch.tensor([[[2.0, 10.0], [4.0, 0.0], [0.0, 20.0], [6.0, 0.0]]])
    mask = torch.tensor([[[True, True], [True, False], [False, True], [True, False]]])
    return times, values, mask


def silent(
    n_channels: int = 2, n_controls: int = 0, walks: bool = True
) -> LinearAnchor:
    """Return an anchor whose weights are zero."""
    anchor = linear_anchor(n_channels, n_controls, walks)
    anchor.weights.zero_()
    anchor.by_control.zero_()
    return anchor


def many(n_channels: int = 2, n_controls: int = 0) -> tuple[Tensor, ...]:
    """Return windows as an anchor is given them: zero where nothing was observed."""
    batch = windows(n_channels=n_channels, n_controls=n_controls)
    values = torch.where(batch.mask, batch.values, 0.0)
    given = batch.times, values, batch.mask
    return given if batch.controls is None else (*given, batch.controls)


def level(anchor: LinearAnchor, *asked: float) -> Tensor:
    answer: Tensor = anchor(*observations()).at(torch.tensor([asked]))[0]
    return answer


def test_a_walk_without_weights_holds_each_last_value() -> None:
    # the last of channel 0 is 6, at time 6; that of channel 1 is 20, at time 3
    expected = torch.tensor([[6.0, 20.0]]).expand(5, -1)
    assert torch.equal(level(silent(), -2.0, 3.0, 6.0, 7.0, 1e6), expected)


def test_a_level_without_weights_is_zero() -> None:
    assert torch.equal(level(silent(walks=False), -2.0, 6.0, 90.0), torch.zeros(3, 2))


def test_the_drift_of_a_walk_starts_at_its_last_stamp_and_is_used_up() -> None:
    anchor = silent()
    anchor.weights[0, -1] = torch.tensor([8.0, -4.0])
    share = torch.tensor([0.0, 0.0, 1 - math.exp(-0.125 * 3), 1.0])
    expected = torch.tensor([6.0, 20.0]) + share.unsqueeze(1) * anchor.weights[0, -1]
    # time 6 is the last stamp of both, though channel 1 was last seen at 3
    torch.testing.assert_close(level(anchor, 0.0, 6.0, 9.0, 1e4), expected)


@pytest.mark.parametrize("j", range(N_RATES + 1))
def test_a_level_fades_at_its_rate_on_both_sides_of_the_last_stamp(j: int) -> None:
    anchor = silent(walks=False)
    anchor.weights[1, j, 0] = 0.5  # of the last value, 6, for channel 0
    anchor.weights[2, j, 1] = 2.0  # of the last value, 20, for channel 1
    fade = torch.tensor([1.0, math.exp(-2 * RATES[j]), math.exp(-2 * RATES[j]), 0.0])
    expected = fade.unsqueeze(1) * torch.tensor([3.0, 40.0])
    torch.testing.assert_close(level(anchor, 6.0, 8.0, 4.0, 1e6), expected)


def means_by_hand() -> list[float]:
    """Return the means of both channels' observations for each age, and plain ones."""
    found = []
    for age in (*AGES.tolist(), math.inf):
        old, less, now = math.exp(-6 / age), math.exp(-5 / age), 1.0
        found.append((2 * old + 4 * less + 6 * now) / (old + less + now))
        old, now = math.exp(-6 / age), math.exp(-3 / age)
        found.append((10 * old + 20 * now) / (old + now))
    return found


def test_features_of_a_level_are_means_that_forget_with_age() -> None:
    last, t_last, features = silent(walks=False).describe(*observations(), False)
    assert last.tolist() == [[6.0, 20.0]]
    assert t_last.tolist() == [6.0]
    expected = torch.tensor([[1.0, 6.0, 20.0, *means_by_hand()]])
    torch.testing.assert_close(features, expected)


def test_features_of_a_walk_are_how_far_the_means_are_from_the_last_values() -> None:
    _, _, features = silent().describe(*observations(), True)
    means = torch.tensor(means_by_hand()).view(N_AGES + 1, 2)
    moves = (means - torch.tensor([6.0, 20.0])).flatten().tolist()
    # where a walk stands says nothing of where it goes
    expected = torch.tensor([[1.0, 0.0, 0.0, *moves]])
    torch.testing.assert_close(features, expected)


def test_weights_are_those_of_features_rates_and_channels() -> None:
    anchor = linear_anchor(walks=False)
    _, _, features = anchor.describe(*observations(), False)
    phi = torch.exp(-RATES * 1.5)
    expected = torch.zeros(2)
    for f, feature in enumerate(features[0]):
        for j in range(N_RATES + 1):
            expected += feature * phi[j] * anchor.weights[f, j]
    torch.testing.assert_close(level(anchor, 7.5)[0], expected)


@BOTH
def test_a_channel_without_any_observation_is_taken_to_be_at_zero(walks: bool) -> None:
    times, values, mask = observations()
    mask[..., 1], values[..., 1] = False, 0.0
    anchor = linear_anchor(walks=walks)
    last, t_last, features = anchor.describe(times, values, mask, walks)
    assert last[0, 1] == 0
    assert t_last.item() == 6
    assert not features[0, 2::2].any()
    assert features[0, 1::2].any()
    seen = anchor(times, values, mask).at(torch.tensor([[6.0]]))[0, 0]
    assert walks == (seen[1] == 0)  # a level may follow from the other channel


@BOTH
def test_what_was_not_observed_does_not_count(walks: bool) -> None:
    times, values, mask = observations()
    anchor, asked = linear_anchor(walks=walks), torch.tensor([[6.5, 7.0]])
    expected = anchor(times, values, mask).at(asked)
    more = (
        torch.tensor([[0.0, 0.5, 1.0, 3.0, 6.0, 6.0, 9.0]]),
        values[:, [0, 0, 1, 2, 3, 3, 3]],
        mask[:, [0, 0, 1, 2, 3, 3, 3]],
    )
    more[2][:, [1, 5, 6]] = False
    more[1][~more[2]] = 0.0
    torch.testing.assert_close(anchor(*more).at(asked), expected)
    observed_zero = mask.clone()
    observed_zero[0, 2, 0] = True
    assert (anchor(times, values, observed_zero).at(asked) != expected).all()


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mean_whose_weights_underflow_is_the_last_value(
    walks: bool, dtype: torch.dtype
) -> None:
    anchor = silent(walks=walks).to(dtype)
    times = torch.tensor([[0.0, 1.0, 900.0]], dtype=dtype)
    values = torch.tensor([[[3.0, 5.0], [4.0, 7.0], [6.0, 0.0]]], dtype=dtype)
    mask = torch.tensor([[[True, True], [True, True], [True, False]]])
    _, _, features = anchor.describe(times, values, mask, walks)
    expected = torch.tensor([7.0] * N_AGES + [6.0], dtype=dtype)  # the last is plain
    torch.testing.assert_close(features[0, 4::2], expected - 7.0 * walks)
    of_first = torch.full((N_AGES,), 0.0 if walks else 6.0, dtype=dtype)
    torch.testing.assert_close(features[0, 3:-2:2], of_first)


@BOTH
def test_the_origin_of_time_does_not_matter(walks: bool) -> None:
    anchor, (times, values, mask) = linear_anchor(walks=walks), many()
    asked = times[:, -3:] + 2.0
    expected = anchor(times, values, mask).at(asked)
    shifted = anchor(times - 4096.0, values, mask).at(asked - 4096.0)
    torch.testing.assert_close(shifted, expected)


@BOTH
@pytest.mark.parametrize("n_channels", [2, CROSS_CHANNELS + 1])
def test_a_window_has_the_same_level_alone_and_in_a_batch(
    walks: bool, n_channels: int
) -> None:
    anchor, given = linear_anchor(n_channels, 1, walks), many(n_channels, 1)
    times, controls = given[0] + 1.0, given[3]
    together = anchor(*given).at(times, controls)
    for k in range(len(times)):
        one = slice(k, k + 1)
        alone = anchor(*(x[one] for x in given)).at(times[one], controls[one])
        torch.testing.assert_close(alone, together[one])


@BOTH
def test_copies_of_a_batch_follow_each_other(walks: bool) -> None:
    anchor, given = linear_anchor(2, 1, walks), many(2, 1)
    times, controls = given[0] + 1.0, given[3]
    once = anchor(*given)
    asked = times.repeat(3, 1), controls.repeat(3, 1, 1)
    expected = once.at(times, controls).repeat(3, 1, 1)
    torch.testing.assert_close(once.repeated(3).at(*asked), expected)


@BOTH
def test_controls_are_taken_off_what_is_read_and_added_to_the_level(
    walks: bool,
) -> None:
    anchor, (times, values, mask, controls) = linear_anchor(2, 3, walks), many(2, 3)
    without = LinearAnchor(2)
    without.load_state_dict({**anchor.state_dict(), "by_control": torch.zeros(0, 2)})
    later, then = times + 2.5, torch.randn(controls.shape)
    expected = without(times, values, mask).at(later)
    moved = torch.where(mask, values + controls @ anchor.by_control, 0.0)
    found = anchor(times, moved, mask, controls).at(later, then)
    torch.testing.assert_close(found, expected + then @ anchor.by_control)
    assert (anchor(times, moved, mask, controls).at(later) == found).sum() == 0


@BOTH
def test_up_to_eight_channels_read_each_other_and_more_only_themselves(
    walks: bool,
) -> None:
    assert CROSS_CHANNELS == 8
    for n_channels in (8, 9):
        anchor, (times, values, mask) = (
            linear_anchor(n_channels, walks=walks),
            many(n_channels),
        )
        asked = times[:, -1:] + 3.0
        other = values.clone()
        other[..., 4] *= 3
        moves = anchor(times, other, mask).at(asked) - anchor(times, values, mask).at(
            asked
        )
        changed = (moves != 0).any(0)[0].tolist()
        assert changed == [n_channels == 8 or c == 4 for c in range(n_channels)]


@BOTH
def test_a_channel_for_itself_is_forecast_as_one_channel_alone(walks: bool) -> None:
    n = CROSS_CHANNELS + 1
    anchor, (times, values, mask) = linear_anchor(n, walks=walks), many(n)
    mask[:, -1] = True  # the last stamp is then that of every channel
    asked = times[:, -1:] + torch.tensor([-4.0, 0.0, 3.0])
    together = anchor(times, values, mask).at(asked)
    alone = silent(1, walks=walks)
    for c in range(n):
        one = slice(c, c + 1)
        alone.weights.copy_(anchor.weights[..., one])
        expected = alone(times, values[..., one], mask[..., one]).at(asked)
        torch.testing.assert_close(together[..., one], expected)


@pytest.mark.parametrize("n_channels", [2, CROSS_CHANNELS + 1])
def test_what_is_added_to_a_walk_is_added_to_its_level(n_channels: int) -> None:
    anchor, (times, values, mask) = linear_anchor(n_channels), many(n_channels)
    mask[:, 0] = True  # of a channel that was not seen nothing is known
    asked = times + 2.0
    before = anchor(times, values, mask).at(asked)
    by = 10 * torch.randn(n_channels)
    after = anchor(times, torch.where(mask, values + by, 0.0), mask).at(asked)
    torch.testing.assert_close(after, before + by)


def test_an_anchor_is_kept_with_the_weights_and_never_trained() -> None:
    anchor, given = linear_anchor(2, 1, walks=True), many(2, 1)
    assert list(anchor.parameters()) == []
    assert set(anchor.state_dict()) == {
        "ages",
        "rates",
        "weights",
        "by_control",
        "walking",
    }
    restored = LinearAnchor(2, 1)
    restored.load_state_dict(anchor.state_dict())
    asked = given[0] + 1.0, given[3]
    expected = anchor(*given).at(*asked)
    assert torch.equal(restored(*given).at(*asked), expected)
    assert torch.equal(copy.deepcopy(anchor)(*given).at(*asked), expected)


@BOTH
def test_a_silent_network_answers_with_the_level_and_its_controls(walks: bool) -> None:
    network, batch = latent_ode(n_controls=2), windows(n_controls=2)
    network.anchor = linear_anchor(2, 2, walks)
    network.emission.start_silent()
    posterior = network.encode(batch)
    assert batch.controls is not None
    given = (x[:, : batch.n_seen] for x in (batch.times, batch.mask, batch.controls))
    times, mask, seen = given
    values = torch.where(mask, batch.values[:, : batch.n_seen], 0.0)
    z0 = posterior.q_z0.mean
    answer = network.decode(z0, posterior, batch.times, batch.path).mean
    level = network.anchor(times, values, mask, seen)
    torch.testing.assert_close(answer, level.at(batch.times, batch.controls))


def test_the_encoder_reads_deviations_from_the_level() -> None:
    network, batch = latent_ode(n_controls=2), windows(n_controls=2)
    network.anchor = silent(2, 2, walks=False)
    expected = network.encode(batch).q_z0.mean
    network.anchor.by_control.normal_()
    assert batch.controls is not None
    moved = batch._replace(
        values=batch.values + batch.controls @ network.anchor.by_control
    )
    torch.testing.assert_close(network.encode(moved).q_z0.mean, expected)
    assert (network.encode(batch).q_z0.mean != expected).all()
