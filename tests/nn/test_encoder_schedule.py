"""How the encoder splits gaps, skips what is not observed and ignores padding."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sklode.nn import ODELSTM, ODERNN, RNN, Solver
from sklode.nn.encoders import MAX_SUBSTEPS
from tests.networks import amplified, field
from tests.problems import AddingCell, Recorder, amplification, decay

pytestmark = pytest.mark.usefixtures("float64")

Encoder = RNN | ODERNN | ODELSTM


def encoder_of(kind: str) -> Encoder:
    made: dict[str, Encoder] = {
        "rnn": RNN(2, 4),
        "ode-rnn": ODERNN(2, 4, field(4), Solver()),
        "ode-lstm": ODELSTM(2, 4, field(4), Solver()),
    }
    encoder: Encoder = amplified(made[kind], 2.0)
    return encoder


EVERY_KIND = pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])


def carried_over(gap: float, solver: Solver) -> float:
    """Return what is left of h = 1 after one gap of dh/dt = +h, walked backward."""
    encoder = ODERNN(1, 1, decay(-1.0), solver)
    encoder.cell = AddingCell(1, 1)
    h = encoder(
        torch.tensor([[0.0, gap]]),
        torch.tensor([[[0.0], [1.0]]]),
        torch.ones(1, 2, dtype=torch.bool),
    )
    return float(h.detach())


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
@pytest.mark.parametrize(
    ("gap", "step_size", "n_steps"),
    [
        (0.3, 1.0, 1),
        (1.0, 1.0, 1),  # a gap as long as the step is one step
        (2.5, 1.0, 3),
        (3.0, 1.0, 3),
        (0.7, 0.2, 4),
        (6.0, 0.2, 30),
        (40.0, 2.0, 20),
    ],
)
def test_gap_longer_than_step_size_is_split_into_equal_steps(
    method: str, gap: float, step_size: float, n_steps: int
) -> None:
    expected = amplification(method, -gap / n_steps) ** n_steps
    solver = Solver(method, step_size)
    assert carried_over(gap, solver) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("gap", [100.0, 33.0])
def test_gap_is_split_into_no_more_than_the_cap(gap: float) -> None:
    expected = amplification("rk4", -gap / MAX_SUBSTEPS) ** MAX_SUBSTEPS
    assert carried_over(gap, Solver()) == pytest.approx(expected, rel=1e-10)


def test_split_gap_equals_solving_the_pieces() -> None:
    encoder = encoder_of("ode-rnn")
    solver, f = encoder.solver, encoder.vector_field
    assert solver is not None
    x = torch.randn(1, 2, 2)
    gap = 4.2
    h = encoder(torch.tensor([[0.0, gap]]), x, torch.ones(1, 2, dtype=torch.bool))
    state = encoder.cell(x[:, 1], torch.zeros(1, 4))
    for _ in range(5):
        state = solver.step(f, state, torch.tensor([[-gap / 5]]))
    torch.testing.assert_close(h, encoder.cell(x[:, 0], state))


def test_gaps_are_split_per_series_without_a_union_of_stamps() -> None:
    calls = []
    for n_series in (1, 16):
        f = Recorder(field(4))
        encoder = ODERNN(2, 4, f, Solver("euler"))
        times = (0.5 * torch.rand(n_series, 9)).cumsum(1)
        seen = torch.ones(n_series, 9, dtype=torch.bool)
        encoder(times, torch.randn(n_series, 9, 2), seen)
        calls.append(len(f.states))
    assert calls == [8, 8]


def test_adaptive_solver_takes_a_gap_whole() -> None:
    class Counting(Solver):
        lengths: list[float]

        def step(self, field: torch.nn.Module, state: Tensor, dt: Tensor) -> Tensor:
            self.lengths.append(float(dt))
            return super().step(field, state, dt)

    solver = Counting("dopri5", rtol=1e-8)
    solver.lengths = []
    assert carried_over(7.0, solver) == pytest.approx(9.118819655545162e-4, rel=1e-4)
    assert solver.lengths == [-7.0]


@EVERY_KIND
@given(data=st.data())
def test_series_is_encoded_alike_alone_and_in_a_batch(
    kind: str, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 999)))
    encoder = encoder_of(kind)
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    longest_gap = data.draw(st.sampled_from([0.5, 2.0, 9.0]))
    alone = []
    times = torch.zeros(len(lengths), max(lengths))
    inputs = torch.randn(len(lengths), max(lengths), 2)
    observed = torch.zeros(times.shape, dtype=torch.bool)
    for k, n in enumerate(lengths):
        t = (0.05 + longest_gap * torch.rand(n)).cumsum(0)
        seen = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        # padded by repeating the last stamp
        times[k], times[k, :n], observed[k, :n] = t[-1], t, seen
        alone.append(encoder(t[None], inputs[k : k + 1, :n], seen[None]))
    together = encoder(times, inputs, observed)
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-12, rtol=0)


@EVERY_KIND
def test_padding_changes_nothing(kind: str) -> None:
    encoder = encoder_of(kind)
    times = torch.tensor([[0.0, 0.7, 2.9]])
    x, seen = torch.randn(1, 3, 2), torch.ones(1, 3, dtype=torch.bool)
    padded_times = torch.tensor([[0.0, 0.7, 2.9, 2.9, 2.9]])
    padding = 1e3 * torch.ones(1, 2, 2)
    padded_seen = torch.tensor([[True, True, True, False, False]])
    padded_x = torch.cat([x, padding], 1)
    h = encoder(padded_times, padded_x, padded_seen)
    assert torch.equal(h, encoder(times, x, seen))
    states = encoder.states(padded_times, padded_x, padded_seen)
    assert torch.equal(states[:, :3], encoder.states(times, x, seen))


@EVERY_KIND
@pytest.mark.parametrize("place", ["start", "middle", "end", "everywhere"])
def test_fully_masked_stamp_changes_nothing(kind: str, place: str) -> None:
    # between two stamps it falls on the end of a solver step
    inserted = {
        "start": [-5.3],
        "middle": [2.0],
        "end": [4.5, 9.0],
        "everywhere": [-2.2, -0.1, 2.0, 3.7],
    }[place]
    encoder = encoder_of(kind)
    times, x = torch.tensor([[0.0, 1.0, 3.0, 3.5]]), torch.randn(1, 4, 2)
    seen = torch.ones(1, 4, dtype=torch.bool)
    order = torch.argsort(torch.cat([times[0], torch.tensor(inserted)]))
    more_times = torch.cat([times[0], torch.tensor(inserted)])[order][None]
    more_x = torch.cat([x[0], 1e3 * torch.ones(len(inserted), 2)])[order][None]
    more_seen = torch.cat([seen[0], torch.zeros(len(inserted), dtype=torch.bool)])
    h = encoder(more_times, more_x, more_seen[order][None])
    torch.testing.assert_close(h, encoder(times, x, seen), atol=1e-13, rtol=0)


def test_fully_masked_stamp_within_a_step_changes_only_the_solver_error() -> None:
    encoder = encoder_of("ode-lstm")
    x = torch.randn(1, 3, 2)
    times, more_times = torch.tensor([[0.0, 2.0]]), torch.tensor([[0.0, 0.9, 2.0]])
    seen, more_seen = torch.tensor([[True, True]]), torch.tensor([[True, False, True]])
    differences = []
    for step_size in (0.2, 0.1):
        encoder.solver = Solver("rk4", step_size)
        h = encoder(times, x[:, [0, 2]], seen)
        more = encoder(more_times, x, more_seen)
        differences.append(float((h - more).abs().max().detach()))
    assert 0 < differences[0] < 1e-5
    assert differences[1] < differences[0] / 10


@EVERY_KIND
def test_series_without_any_observation_is_encoded_as_zeros(kind: str) -> None:
    encoder = encoder_of(kind)
    times = torch.rand(2, 4).cumsum(1)
    seen = torch.tensor([[False] * 4, [True] * 4])
    h = encoder(times, torch.randn(2, 4, 2), seen)
    assert torch.equal(h[0], torch.zeros(4))
    assert float(h[1].detach().abs().min()) > 0


def test_nothing_flows_before_the_first_visit() -> None:
    # the field is not zero at h = 0: any flow would show
    encoder = ODERNN(1, 1, field(1), Solver())
    times = torch.tensor([[0.0, 1.0, 5.0]])
    seen = torch.tensor([[False, False, True]])
    states = encoder.states(times, torch.ones(1, 3, 1), seen)
    assert torch.equal(states[0, :2], torch.zeros(2, 1))
    torch.testing.assert_close(
        states[0, 2:], encoder.cell(torch.ones(1, 1), torch.zeros(1, 1))
    )


@EVERY_KIND
def test_moving_the_times_changes_nothing(kind: str) -> None:
    encoder = encoder_of(kind)
    times = (2 * torch.rand(3, 6)).cumsum(1)
    x, seen = torch.randn(3, 6, 2), torch.rand(3, 6) < 0.8
    moved = times + torch.tensor([[1024.0], [-64.0], [0.0]])
    torch.testing.assert_close(
        encoder(moved, x, seen), encoder(times, x, seen), atol=1e-10, rtol=0
    )
