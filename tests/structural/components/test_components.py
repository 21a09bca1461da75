"""Each component's equations, against algebra that knows nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad_vec
from scipy.linalg import expm

from sklode.structural.components import space
from sklode.structural.components.block import Block, BlockSlopes, Component
from sklode.structural.components.deviation import Deviation, SmoothDeviation
from sklode.structural.components.harmonics import Season
from sklode.structural.components.regression import Regression
from sklode.structural.components.space import BASE, Form
from sklode.structural.components.trend import Trend
from sklode.structural.rows import ChannelRows
from sklode.structural.search.posterior import Posterior
from tests.structural.processes import candidate

SPAN = 20.0
GAPS = np.array([1e-4, 0.3, 1.0, 7.5, 40.0])
# sizes; the drift F and the noise's density L of dx = F x dt + noise of covariance L dt
SIZES: dict[str, Any] = {
    "trend": (Trend(), [0.7, 0.8, 2.0, 0.9, 6.0]),
    "trend without velocity": (Trend(has_velocity=False), [0.7, 0.8, 2.0]),
    "deviation": (Deviation(), [0.6, 3.0]),
    "smooth deviation": (SmoothDeviation(), [0.5, 1.7, 0.6, 3.0]),
    "season": (Season(12.0, gap=1.0, most=2), [0.8, 50.0]),
    "regression": (Regression(2), []),
}
each = pytest.mark.parametrize("name", SIZES)


def equations(name: str, sizes: Any) -> tuple[Any, Any]:
    """Return F and the density of the noise of dx = F x dt + noise."""
    if name.startswith("trend"):
        walk = sizes[1] ** 2 / SPAN
        if len(sizes) == 3:
            return np.array([[0.0, 1], [0, 0]]), np.diag([walk, 0.0])
        velocity, memory = (sizes[3] / SPAN) ** 2, sizes[4]
        drift = np.array([[0, 1, 1], [0, 0, 0], [0, 0, -1 / memory]])
        return drift, np.diag([walk, 0, 2 * velocity / memory])
    if name == "deviation":
        return np.array([[-1 / sizes[1]]]), np.array([[2 * sizes[0] ** 2 / sizes[1]]])
    if name == "smooth deviation":
        a, b = 1 / sizes[1], 1 / sizes[3]
        drift = np.array([[-a, 0], [1, -b]])
        # of a velocity of variance s^2 b (a + b), which makes s^2 of the deviation
        of_velocity = 2 * a * sizes[0] ** 2 * b * (a + b)
        return drift, np.diag([of_velocity, 2 * b * sizes[2] ** 2])
    if name == "season":
        shares = np.repeat([1, 0.5], 2) / 1.5
        density = 2 * sizes[0] ** 2 * shares / sizes[1]
        return -np.eye(4) / sizes[1], np.diag(density)
    return np.zeros((2, 2)), np.zeros((2, 2))


def blank(component: Component, n: int) -> Block:
    return Block(
        decay=np.ones((n, component.n_states)),
        moves=np.zeros((n, len(component.links))),
        added=np.zeros((n, component.n_states)),
        both=np.zeros((n, len(component.pairs))),
    )


def written(component: Component, sizes: Any) -> tuple[Block, list[Any], list[Any]]:
    """Return a component's block of gaps, and T and Q as matrices."""
    block = blank(component, len(GAPS))
    component.transition(np.array(sizes), SPAN, GAPS, block)
    transitions, noises = [], []
    for g in range(len(GAPS)):
        moved = np.eye(component.n_states)
        for link, (to, by, _) in enumerate(component.links):
            moved[to, by] = block.moves[g, link]
        noise = np.diag(block.added[g])
        for pair, (one, other) in enumerate(component.pairs):
            noise[one, other] = noise[other, one] = block.both[g, pair]
        transitions.append(np.diag(block.decay[g]) @ moved)
        noises.append(noise)
    return block, transitions, noises


@each
def test_a_gap_is_crossed_as_the_equation_says(name: str) -> None:
    component, sizes = SIZES[name]
    drift, density = equations(name, sizes)
    _, transitions, noises = written(component, sizes)
    for gap, found, noise in zip(GAPS, transitions, noises, strict=True):
        np.testing.assert_allclose(found, expm(drift * gap), atol=1e-12)

        def at(t: float) -> Any:
            root = expm(drift * t)
            return root @ density @ root.T

        expected, _ = quad_vec(at, 0, gap, epsabs=1e-13, epsrel=1e-12)
        np.testing.assert_allclose(noise, expected, rtol=1e-5, atol=1e-15)


@pytest.mark.parametrize("name", ["deviation", "smooth deviation", "season"])
def test_what_fades_begins_as_it_is_in_the_long_run(name: str) -> None:
    component, sizes = SIZES[name]
    start = component.start(np.array(sizes), SPAN, 0.0)
    _, transitions, noises = written(component, sizes)
    for found, noise in zip(transitions, noises, strict=True):
        np.testing.assert_allclose(found @ start @ found.T + noise, start, rtol=1e-8)


def test_the_slope_counts_from_the_last_stamp() -> None:
    sizes = np.array([0.7, 0.0, 0.0])
    start = Trend(has_velocity=False).start(sizes, SPAN, 0.0)
    at_end = np.array([[1, SPAN], [0, 1]])
    expected = np.diag([0.0, (0.7 / SPAN) ** 2])
    np.testing.assert_allclose(at_end @ start @ at_end.T, expected, atol=1e-15)


@each
def test_slopes_are_those_of_a_linear_function_of_the_block(name: str) -> None:
    """By differences; the function has other weights at each entry."""
    component, sizes = SIZES[name]
    rng = np.random.default_rng(0)
    like = blank(component, len(GAPS))
    weights = [rng.normal(size=part.shape) for part in like]
    half = rng.normal(size=(component.n_states, component.n_states))
    of_start = half + half.T

    def value(theta: Any) -> float:
        own = np.exp(theta)
        block = blank(component, len(GAPS))
        component.transition(own, SPAN, GAPS, block)
        parts = [np.log(block.decay), *block[1:]]
        found = sum((w * part).sum() for w, part in zip(weights, parts, strict=True))
        return float(found + (of_start * component.start(own, SPAN, 0.0)).sum())

    theta, block = np.log(sizes), blank(component, len(GAPS))
    component.transition(np.exp(theta), SPAN, GAPS, block)
    of = BlockSlopes(Block(*weights), start=of_start)
    found = component.slopes(np.exp(theta), SPAN, GAPS, block=block, of=of)
    steps = 1e-6 * np.eye(len(theta))
    expected = [(value(theta + s) - value(theta - s)) / 2e-6 for s in steps]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


# A component that the package does not have


@dataclass(frozen=True)
class QuadraticTrend:
    """A trend of a constant, a line and a parabola, whose bend wanders."""

    names = ("bend",)
    n_states = 3
    # a state is read before it is moved
    links = ((0, 1, False), (0, 2, False), (1, 2, False))
    pairs = ((0, 1), (0, 2), (1, 2))

    def transition(self, sizes: Any, span: float, gaps: Any, block: Block) -> None:
        block.moves[:] = np.column_stack([gaps, gaps**2 / 2, gaps])
        power = sizes[0] ** 2 * gaps[:, None]
        block.added[:] = power * np.column_stack([gaps**4 / 20, gaps**2 / 3, gaps**0])
        block.both[:] = power * np.column_stack([gaps**3 / 8, gaps**2 / 6, gaps / 2])

    def start(self, sizes: Any, span: float, before: float) -> Any:
        return np.diag([1.0, 0.1, 0.01])

    def slopes(
        self, sizes: Any, span: float, gaps: Any, block: Block, of: BlockSlopes
    ) -> Any:
        added = (of.block.added * block.added).sum()
        return np.array([2 * (added + (of.block.both * block.both).sum())])

    def design(self, clock: Any, columns: Any, design: Any) -> None:
        design[:, 0] = 1.0


@pytest.fixture
def _with_quadratic_trend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register it: in the list of components, and its hyperparameter's prior."""
    monkeypatch.setitem(BASE, "bend", (0.01, 1.5, 0.01))
    several = [*space.COMPONENTS, lambda form, most: [QuadraticTrend()]]
    monkeypatch.setattr(space, "COMPONENTS", several)
    space.layout_of.cache_clear()
    yield
    space.layout_of.cache_clear()


def dense_loss(model: Any, table: ChannelRows) -> float:
    """Return minus the log density of rows, by the covariances of all states."""
    own = model.space(SPAN)
    times, n = table.times, len(own.start)
    design = space.layout_of(model.form, model.harmonics).design(
        times, np.zeros((len(times), 0))
    )
    covariances = np.zeros((len(times), len(times)))
    variance = own.start
    for i in range(len(times)):
        if i:
            crossed, noise = matrices(own, times[i] - times[i - 1])
            variance = crossed @ variance @ crossed.T + noise
        passed = np.eye(n)
        for j in range(i, len(times)):
            if j > i:
                passed = matrices(own, times[j] - times[j - 1])[0] @ passed
            covariances[i, j] = design[j] @ passed @ variance @ design[i]
            covariances[j, i] = covariances[i, j]
    covariances += np.diag(own.noise + table.errors**2)
    _, log_det = np.linalg.slogdet(covariances)
    solved = np.linalg.solve(covariances, table.values)
    return 0.5 * float(log_det + table.values @ solved)


def matrices(own: Any, gap: float) -> tuple[Any, Any]:
    """Return T and Q of a gap."""
    found = own.transition(np.array([gap]))
    moved = np.eye(len(own.start))
    for link, (to, by) in enumerate(found.links):
        moved[to, by] = found.moves[0, link]
    noise = np.diag(found.added[0])
    for pair, (one, other) in enumerate(found.pairs):
        noise[one, other] = noise[other, one] = found.both[0, pair]
    return np.diag(found.decay[0]) @ moved, noise


@pytest.mark.usefixtures("_with_quadratic_trend")
@pytest.mark.parametrize("returning", [False, True])
def test_a_new_component_is_one_class_and_its_registration(returning: bool) -> None:
    one = candidate(Form((5.0,), returning=returning), noise=0.4).model
    theta = np.insert(one.theta, len(BASE) - 1, np.log(0.05))
    model = one._replace(theta=theta)
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1.0, 25))
    table = ChannelRows(
        times=times - times[0],
        values=np.cumsum(rng.normal(size=25)),
        inputs=np.zeros((25, 1)),
        errors=0.1 * rng.random(25),
        bounds=np.array([0, 25]),
    )
    own = model.space(SPAN)
    # trend, deviation, season, the new one, and all
    assert own.parts.shape == (5, len(own.start))
    found = model.filtered(own, table).loss
    assert found == pytest.approx(dense_loss(model, table), rel=1e-9)
    posterior = Posterior(model, np.full(len(theta), True), table, SPAN)
    _, slope = posterior.with_slope()(theta)
    steps = 1e-5 * np.eye(len(theta))
    pairs = [(posterior(theta + step), posterior(theta - step)) for step in steps]
    expected = np.array([(up - down) / 2e-5 for up, down in pairs])
    assert abs(expected[len(BASE) - 1]) > 1e-3
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-5)
