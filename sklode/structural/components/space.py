"""What a candidate may be made of, and its state space by hyperparameters.

Hyperparameters are logarithms, in units of a series' spread and span or, for memories,
of time. Their priors are normal and wide: they matter for short series.

A new component is a file beside this one, with an entry in `COMPONENTS` and, for its
hyperparameters, in `BASE`. Tested in tests/structural/components/test_components.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from sklode.data.arrays import Array, Flags, Numbers
from sklode.structural.components import deviation, harmonics, noise, trend
from sklode.structural.components.block import Block, BlockSlopes, Component
from sklode.structural.components.deviation import Deviation, SmoothDeviation
from sklode.structural.components.harmonics import Season
from sklode.structural.components.regression import Regression
from sklode.structural.components.trend import Trend
from sklode.structural.filter.system import LossSlopes, Schedule, System, Transition

_PRIORS = trend.PRIORS | deviation.PRIORS | noise.PRIORS
_ORDER = (
    *("slope", "random walk", "velocity", "velocity memory"),
    *("OU", "OU memory", "noise", "constant"),
)
BASE = {name: _PRIORS[name] for name in _ORDER}
"""Hyperparameters of every form: median, width of its prior, start of the search.

Files hold them in this order; seasons' follow, each one's size and memory.
"""

PLACE = {name: k for k, name in enumerate(BASE)}
"""Where each of them stands among a form's hyperparameters."""

LEVEL, SLOPE = 0, 1
"""States that steps and turns of the trend move."""

# of a lone series, of whose first level nothing else tells: in units of the spread, and
# so a prior that is all but flat (Durbin and Koopman 2012, chapter 5)
VAGUE = 10.0


class Form(NamedTuple):
    """What a candidate is made of, beside what all are made of."""

    periods: tuple[float, ...] = ()
    linked: bool = False
    """Whether it is of what y is linked to, not of y itself."""
    effects: tuple[tuple[int, ...], ...] = ()
    """Columns of X that each effect reads, see `effects`."""
    gap: float = 1.0
    """Usual one of the channel's own rows, in units of time: priors count by it."""
    returning: bool = False
    """Whether the velocity moves the deviation, not the trend: what wanders smoothly
    comes back."""

    @property
    def columns(self) -> list[int]:
        """Columns of X that all effects read, in the order of their states."""
        return [column for effect in self.effects for column in effect]

    @property
    def memories(self) -> Numbers:
        """Where seasons' memories stand among hyperparameters; sizes are before."""
        return len(BASE) + 1 + 2 * np.arange(len(self.periods))


def _trend(form: Form, most: int) -> list[Component]:
    return [Trend(has_velocity=not form.returning)]


def _deviation(form: Form, most: int) -> list[Component]:
    return [SmoothDeviation() if form.returning else Deviation()]


def _seasons(form: Form, most: int) -> list[Component]:
    return [Season(period, form.gap, most) for period in form.periods]


def _regression(form: Form, most: int) -> list[Component]:
    return [Regression(len(form.columns))] if form.effects else []


COMPONENTS: list[Callable[[Form, int], Iterable[Component]]] = [
    _trend,
    _deviation,
    _seasons,
    _regression,
]
"""What forms are made of, in the order of states; of harmonics the most are given."""


class _Layout(NamedTuple):
    """Where components stand among states, links, pairs and hyperparameters."""

    components: list[Component]
    states: list[slice]
    links_of: list[slice]
    pairs_of: list[slice]
    theta: list[Numbers]
    links: Numbers
    is_free: Flags
    pairs: Numbers
    parts: Array  # (part, state), see `StateSpace.parts`

    @property
    def n_states(self) -> int:
        """Number of all states."""
        return int(self.parts.shape[1])

    def block(self, k: int, of: Transition | LossSlopes) -> Block:
        """Return what a component has of arrays by gap."""
        states, links, pairs = self.states[k], self.links_of[k], self.pairs_of[k]
        return Block(
            decay=of.decay[:, states],
            moves=of.moves[:, links],
            added=of.added[:, states],
            both=of.both[:, pairs],
        )

    def design(self, clock: Array, columns: Array) -> Array:
        """Return how states add up to observations, (row, state).

        ``clock`` (row,) are times on the local clock, which seasons follow; ``columns``
        (row, column) are those of effects.
        """
        found = np.zeros((len(clock), self.n_states))
        for component, own in zip(self.components, self.states, strict=True):
            component.design(clock, columns, found[:, own])
        return found


class StateSpace(NamedTuple):
    """A form with hyperparameters; ``start`` is the covariance at a first row."""

    layout: _Layout
    sizes: Array  # (hyperparameter,), no logarithms
    span: float
    start: Array  # (state, state)
    noise: float  # variance of the observations' noise

    @property
    def mixed(self) -> Numbers:
        """States whose noises have a covariance with that of another."""
        # those that are moved first: see `forward.simulate_rows`
        pairs = self.layout.pairs
        return np.array([*dict.fromkeys([*pairs[:, 0], *pairs[:, 1]])], np.int64)

    @property
    def whole(self) -> Array:
        """The lone part that adds up all states, (1, state)."""
        return self.parts[-1:]

    @property
    def parts(self) -> Array:
        """States of trend, deviation, each season, effect, and all, (part, state)."""
        return self.layout.parts.copy()

    @property
    def deviation_and_all(self) -> Array:
        """The parts of the deviation, and of all states, (2, state)."""
        return self.parts[[1, -1]]

    @property
    def deviation(self) -> float:
        """The deviation's variance in the long run."""
        own = self.layout.states[1]
        return float(self.start[own.stop - 1, own.stop - 1])

    def transition(self, gaps: Array) -> Transition:
        """Return T and Q of gaps."""
        layout, n, n_states = self.layout, len(gaps), len(self.start)
        found = Transition(
            decay=np.ones((n, n_states)),
            moves=np.zeros((n, len(layout.links))),
            added=np.zeros((n, n_states)),
            both=np.zeros((n, len(layout.pairs))),
            links=layout.links,
            is_free=layout.is_free,
            pairs=layout.pairs,
        )
        for k, component in enumerate(layout.components):
            sizes = self.sizes[layout.theta[k]]
            component.transition(sizes, self.span, gaps, layout.block(k, found))
        return found

    def system(self, rows: Schedule) -> System:
        """Return what the filter reads of rows."""
        return System(
            bounds=rows.bounds,
            design=rows.design,
            noise=self.noise + rows.errors,
            gap=rows.gap,
            transition=self.transition(rows.gaps),
            level=LEVEL,
        )

    def slopes(self, gaps: Array, transition: Transition, of: LossSlopes) -> Array:
        """Return the loss's slopes in logarithms of hyperparameters."""
        layout, found = self.layout, np.zeros(len(self.sizes))
        for k, component in enumerate(layout.components):
            own, theta = layout.states[k], layout.theta[k]
            found[theta] += component.slopes(
                self.sizes[theta],
                self.span,
                gaps,
                block=layout.block(k, transition),
                of=BlockSlopes(layout.block(k, of), start=of.start[own, own]),
            )
        k = PLACE["noise"]
        found[k] = noise.slope(self.sizes[k], of.noise)
        return found


def priors(form: Form) -> tuple[Array, Array, Array]:
    """Return medians, deviations and starting values of all logarithms."""
    base = BASE | deviation.PRIORS_OF_VELOCITY if form.returning else BASE
    rows = [*base.values()]
    for period in form.periods:
        kept, width, start = harmonics.PERIODS_KEPT
        rows += [harmonics.SIZE, (kept * period, width, start * period)]
    medians, widths, starts = np.array(rows).T
    # memories are in usual gaps of the channel
    memories = [PLACE["velocity memory"], PLACE["OU memory"]]
    medians[memories] *= form.gap
    starts[memories] *= form.gap
    return np.log(medians), widths, np.log(starts)


def state_space(
    form: Form, theta: Array, span: float, most: int, before: float = 0.0
) -> StateSpace:
    """Return the state space, started so long ``before`` the first row."""
    layout = layout_of(form, most)
    # numbers of numpy: hyperparameters far off overflow to infinity, which is refused,
    # where Python's own would raise
    sizes = np.exp(theta)
    n_states = layout.parts.shape[1]
    start = np.zeros((n_states, n_states))
    each = zip(layout.components, layout.states, layout.theta, strict=True)
    for component, own, places in each:
        start[own, own] = component.start(sizes[places], span, before)
    variance = noise.variance(sizes[PLACE["noise"]])
    return StateSpace(layout, sizes, span=span, start=start, noise=variance)


@functools.cache
def layout_of(form: Form, most: int) -> _Layout:
    """Return a form's components, and where each one's states and so on stand."""
    components = [one for made in COMPONENTS for one in made(form, most)]
    states, links_of, pairs_of, theta = [], [], [], []
    links: list[tuple[int, int, bool]] = []
    pairs: list[tuple[int, int]] = []
    season, n = len(BASE), 0
    for component in components:
        states.append(slice(n, n + component.n_states))
        links_of.append(slice(len(links), len(links) + len(component.links)))
        pairs_of.append(slice(len(pairs), len(pairs) + len(component.pairs)))
        links += [(n + i, n + j, is_free) for i, j, is_free in component.links]
        pairs += [(n + i, n + j) for i, j in component.pairs]
        if isinstance(component, Season):
            own, season = [season, season + 1], season + 2
        else:
            own = [[*BASE].index(name) for name in component.names]
        theta.append(np.array(own, np.int64))
        n += component.n_states
    of_effects = [np.full(len(e), k) for k, e in enumerate(form.effects)]
    part = np.concatenate(
        [np.full(own.stop - own.start, k) for k, own in enumerate(states)]
    )
    if of_effects:
        part[states[-1]] = len(states) - 1 + np.concatenate(of_effects)
    parts = np.vstack([np.eye(int(part.max()) + 1)[:, part], np.ones(n)])
    return _Layout(
        components=components,
        states=states,
        links_of=links_of,
        pairs_of=pairs_of,
        theta=theta,
        links=np.array([link[:2] for link in links], np.int64).reshape(-1, 2),
        is_free=np.array([link[2] for link in links], np.bool_),
        pairs=np.array(pairs, np.int64).reshape(-1, 2),
        parts=parts,
    )
