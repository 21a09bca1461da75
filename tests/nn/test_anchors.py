import pytest
import torch
from torch import Tensor

from sklode.nn.anchors import Anchor

pytestmark = pytest.mark.usefixtures("float64")


def observations() -> tuple[Tensor, Tensor, Tensor]:
    """Return one window: the second channel was seen at 0 and 3 only."""
    times = torch.tensor([[0.0, 1.0, 3.0, 6.0]])
    values = torch.tensor([[[2.0, 10.0], [4.0, 0.0], [0.0, 20.0], [6.0, 0.0]]])
    mask = torch.tensor([[[True, True], [True, False], [False, True], [True, False]]])
    return times, values, mask


def level(anchor: Anchor, *asked: float) -> Tensor:
    answer: Tensor = anchor(*observations()).at(torch.tensor([asked]))[0].detach()
    return answer


def test_series_anchor_is_zero() -> None:
    assert torch.equal(level(Anchor("series", 2), 0.0, 9.0), torch.zeros(2, 2))


def test_window_anchor_is_the_mean_of_what_was_observed() -> None:
    expected = torch.tensor([[4.0, 15.0], [4.0, 15.0]])
    assert torch.equal(level(Anchor("window", 2), -3.0, 100.0), expected)


def test_last_anchor_is_damped_from_the_last_observation_to_the_mean() -> None:
    anchor = Anchor("last", 2)
    with torch.no_grad():
        anchor.raw_damping.zero_()  # softplus(0) = log 2: halved in each time unit
    # the last of channel 0 is 6, at time 6; that of channel 1 is 20, at time 3
    expected = torch.tensor(
        [[6.0, 15 + 5 / 8], [4 + 2 / 4, 15 + 5 / 32], [4 + 2 / 8, 20.0]]
    )
    torch.testing.assert_close(level(anchor, 6.0, 8.0, 3.0), expected)


def test_last_anchor_is_damped_per_channel() -> None:
    anchor = Anchor("last", 2)
    with torch.no_grad():
        anchor.raw_damping.copy_(torch.tensor([0.0, -100.0]))
    expected = torch.tensor([[4 + 2 / 4, 20.0]])
    torch.testing.assert_close(level(anchor, 8.0), expected)


def test_last_anchor_starts_close_to_holding_the_last_value() -> None:
    held = level(Anchor("last", 2), 16.0)[0]
    # a tenth of the way to the mean in ten time units or more
    assert 4 + 2 * 0.9 < held[0] < 6
    assert 15 + 5 * 0.9 < held[1] < 20


@pytest.mark.parametrize("kind", ["series", "window", "last"])
def test_channel_without_any_observation_has_level_zero(kind: str) -> None:
    times, values, mask = observations()
    mask[..., 1] = False
    values[..., 1] = 0.0
    at = Anchor(kind, 2)(times, values, mask).at(torch.tensor([[0.0, 5.0]]))
    assert torch.equal(at[0, :, 1], torch.zeros(2))


def test_observed_zero_counts_in_mean_and_as_last() -> None:
    times = torch.tensor([[0.0, 1.0, 2.0]])
    values = torch.tensor([[[6.0], [0.0], [0.0]]])
    mask = torch.tensor([[[True], [True], [False]]])
    mean = Anchor("window", 1)(times, values, mask).at(times)
    assert mean.flatten().tolist() == [3.0] * 3
    last = Anchor("last", 1)(times, values, mask)
    assert last.at(torch.tensor([[1.0]])).item() == 0.0


@pytest.mark.parametrize("kind", ["window", "last"])
def test_padding_changes_no_level(kind: str) -> None:
    times, values, mask = observations()
    asked = torch.tensor([[0.0, 4.0, 20.0]])
    padded = (
        torch.cat([times, times[:, -1:].expand(1, 3)], 1),
        torch.cat([values, torch.zeros(1, 3, 2)], 1),
        torch.cat([mask, torch.zeros(1, 3, 2, dtype=torch.bool)], 1),
    )
    anchor = Anchor(kind, 2)
    assert torch.equal(anchor(*padded).at(asked), anchor(times, values, mask).at(asked))
