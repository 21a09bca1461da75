"""Fit the linear anchor: ridge regression, its penalty and its form by validation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.windows import WindowSet, spread
from sklode.levels.linear import N_RATES, LinearAnchor, relaxation

__all__ = ["fit_linear"]

_PENALTIES = (math.inf, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Per pair of a window and a stamp after it; infinite: no regression at all."""

_DRIFT = 0.5
"""Share of a walk's mean drift that is believed.

Of the drift of a walk even the sign is rarely certain. On the training parts of three
stocks, forecast forward, a half did best (none, a quarter, three quarters and all of it
were tried).
"""

_N_BLOCKS = 10
_CLEAR, _BEYOND_DOUBT = 2.0, 4.0
"""Standard errors that a smaller penalty must gain, and a level that is no walk.

Chosen by forecasting parts of three stocks' and the climate's training parts from what
lies before them; with fewer, prices were now and then taken to return to their mean.
"""
_MOST_WINDOWS, _MOST_STAMPS = 2000, 12
_CONTROL_PENALTY = 1e-3


class _Sample(NamedTuple):
    """Windows in double precision, (window, time, ...)."""

    times: Tensor
    values: Tensor
    mask: Tensor
    controls: Tensor | None

    @classmethod
    def of(cls, windows: WindowSet, which: NDArray[np.int64]) -> _Sample:
        arrays = windows.gather(which)
        controls = None
        if arrays.controls is not None:
            controls = torch.from_numpy(arrays.controls).double()
        return cls(
            torch.from_numpy(arrays.times).double(),
            torch.from_numpy(arrays.values).double(),
            torch.from_numpy(arrays.mask),
            controls,
        )


class _Pairs(NamedTuple):
    """Windows and stamps after them, in double precision."""

    features: Tensor  # (window, [channel,] feature), of unit variance
    scale: Tensor  # (feature,)
    phi: Tensor  # (window, stamp, rate)
    target: Tensor  # (window, stamp, channel): from the base
    known: Tensor  # (window, stamp, channel), bool


class _Candidate(NamedTuple):
    walks: bool
    with_controls: bool
    errors: Tensor  # (penalty, block)


def fit_linear(anchor: LinearAnchor, windows: WindowSet) -> LinearAnchor:
    """Set the weights of an anchor by the windows of the training part.

    Walk or not, controls or none: what has the least error over ten blocks of windows,
    each forecast by weights from the windows that do not overlap it; a walk, where
    there is doubt. The penalty is the largest that none beats by two standard errors.

    Parameters
    ----------
    anchor : LinearAnchor
        Changed in place.
    windows : WindowSet
        Normalised; those that reach beyond their seen part are used.

    Returns
    -------
    LinearAnchor
        The same; its level is zero, the training mean, where too few windows reach
        beyond their seen part to tell, or observe there what they have seen before.
    """
    reaching = np.flatnonzero(windows.end - windows.start > windows.window_length)
    if len(reaching) < 2 * _N_BLOCKS:
        return anchor
    reaching = spread(reaching, _MOST_WINDOWS)
    sample = _Sample.of(windows, reaching)
    times, values = sample.times, sample.values
    n_seen = windows.window_length
    span_seen = float((times[:, n_seen - 1]).median())
    span_ahead = float((times[:, -1] - times[:, n_seen - 1]).median())
    double = LinearAnchor(values.shape[2], len(anchor.by_control)).double()
    double.ages.copy_(_steps(span_seen, len(double.ages)))
    double.rates[:-1] = 1 / _steps(span_ahead, N_RATES)
    double.rates[-1] = 1 / (2 * max(span_ahead, 1.0))
    overlap = _overlaps(windows, reaching)
    found = []
    for with_controls in (False, True) if len(anchor.by_control) else (False,):
        _regress_on_controls(double, windows, with_controls)
        for walks in (False, True):
            pairs = _pairs(double, sample, n_seen, walks)
            errors = _validate(pairs, overlap, walks)
            found.append(_Candidate(walks, with_controls, errors))
    if found[0].errors.shape[1] < 2:
        return anchor
    n_independent = min(_N_BLOCKS, windows.bounds[-1] / windows.span)
    best = _choose(found)
    _regress_on_controls(double, windows, best.with_controls)
    double.walking.fill_(best.walks)
    pairs = _pairs(double, sample, n_seen, best.walks)
    everything = torch.ones(len(times), dtype=torch.bool)
    penalty = _largest_good(best.errors, max(n_independent, 1.0))
    double.weights.copy_(_solve(pairs, everything, best.walks, [penalty])[0])
    anchor.load_state_dict(double.state_dict())
    return anchor


def _steps(span: float, n: int) -> Tensor:
    """Return times from a time unit to a span, by geometric steps."""
    return torch.logspace(0, math.log10(max(span, 2.0)), n, dtype=torch.float64)


def _overlaps(
    windows: WindowSet, which: NDArray[np.int64]
) -> list[tuple[Tensor, Tensor]]:
    """Return for each block its windows, and those that share no row with any."""
    blocks = []
    for part in np.array_split(np.arange(len(which)), _N_BLOCKS):
        low = windows.start[which[part]].min()
        high = windows.end[which[part]].max()
        apart = (windows.end[which] <= low) | (windows.start[which] >= high)
        inside = np.zeros(len(which), dtype=bool)
        inside[part] = True
        blocks.append((torch.from_numpy(inside), torch.from_numpy(apart)))
    return blocks


def _regress_on_controls(
    anchor: LinearAnchor, windows: WindowSet, with_controls: bool
) -> None:
    """Set B by regression over all rows, or to zero."""
    anchor.by_control.zero_()
    values, mask, controls = windows.rows()
    if controls is None or not with_controls:
        return
    for channel in range(values.shape[1]):
        known = mask[:, channel]
        u = torch.from_numpy(controls[known]).double()
        y = torch.from_numpy(values[known, channel]).double()
        u = torch.cat([u, torch.ones_like(u[:, :1])], dim=1)
        penalty = _CONTROL_PENALTY * max(len(y), 1)
        gram = u.T @ u + penalty * torch.eye(u.shape[1], dtype=torch.float64)
        anchor.by_control[:, channel] = torch.linalg.solve(gram, u.T @ y)[:-1]


def _pairs(anchor: LinearAnchor, sample: _Sample, n_seen: int, walks: bool) -> _Pairs:
    times, values, mask, controls = sample
    if controls is not None:
        values = torch.where(mask, values - controls @ anchor.by_control, 0.0)
    seen = slice(n_seen)
    last, t_last, features = anchor.describe(
        times[:, seen], values[:, seen], mask[:, seen], walks
    )
    n_ahead = times.shape[1] - n_seen
    ahead = np.unique(np.linspace(0, n_ahead - 1, min(n_ahead, _MOST_STAMPS)).round())
    columns = torch.from_numpy(n_seen + ahead.astype(np.int64))
    phi = relaxation(times[:, columns] - t_last.unsqueeze(-1), anchor.rates, walks)
    target = values[:, columns] - (last.unsqueeze(1) if walks else 0.0)
    # a channel that a window has not seen has no base to count from
    known = mask[:, columns] & mask[:, seen].any(1, keepdim=True)
    scale = features.flatten(0, -2).std(0)
    scale = torch.where(scale > 1e-9, scale, torch.ones_like(scale))
    return _Pairs(features / scale, scale, phi, target, known)


def _solve(
    pairs: _Pairs, chosen: Tensor, walks: bool, penalties: list[float]
) -> list[Tensor]:
    """Return weights, (feature, rate, channel), for each penalty.

    The drift comes first, from the intercept and the slowest rate alone; the other
    features then explain what it leaves, with the other rates. Without a walk there is
    no drift: the training mean is zero.
    """
    n_channels = pairs.target.shape[2]
    shape = pairs.features.shape[-1], pairs.phi.shape[-1], n_channels
    found = [torch.zeros(shape, dtype=torch.float64) for _ in penalties]
    shared = pairs.features.ndim == 2
    gram = None
    for channel in range(n_channels):
        known = pairs.known[chosen][..., channel]
        y = pairs.target[chosen][..., channel][known]
        if not len(y):
            continue
        drift = 0.0
        if walks:
            slow = pairs.phi[chosen][..., -1][known]
            drift = _DRIFT * float(slow @ y) / max(float(slow @ slow), 1e-12)
            y = y - drift * slow
        features = pairs.features if shared else pairs.features[:, channel]
        if gram is None or not shared or not bool(pairs.known.all()):
            products = _products(features[chosen], pairs.phi[chosen])[known]
            gram = products.T @ products
        moment = products.T @ y
        eye = torch.eye(len(gram), dtype=torch.float64)
        for weights, penalty in zip(found, penalties, strict=True):
            if math.isfinite(penalty):
                solution = torch.linalg.solve(gram + penalty * len(y) * eye, moment)
                solution = solution.view(shape[0] - 1, shape[1] - 1)
                weights[1:, :-1, channel] = solution / pairs.scale[1:, None]
            weights[0, -1, channel] = drift
    return found


def _products(features: Tensor, phi: Tensor) -> Tensor:
    """Return features times rates, (window, stamp, product)."""
    return (features[:, None, 1:, None] * phi[:, :, None, :-1]).flatten(2)


def _validate(
    pairs: _Pairs, blocks: list[tuple[Tensor, Tensor]], walks: bool
) -> Tensor:
    """Return the mean squared error of each block, (penalty, block).

    A block that all windows overlap is forecast by weights of zero.
    """
    spec = "wf,wsj,fjc->wsc" if pairs.features.ndim == 2 else "wcf,wsj,fjc->wsc"
    errors = torch.full((len(_PENALTIES), len(blocks)), torch.nan, dtype=torch.float64)
    for k, (inside, apart) in enumerate(blocks):
        known = pairs.known[inside]
        for i, weights in enumerate(_solve(pairs, apart, walks, list(_PENALTIES))):
            features = pairs.features[inside] * pairs.scale
            forecast = torch.einsum(spec, features, pairs.phi[inside], weights)
            squares = (forecast - pairs.target[inside]) ** 2
            errors[i, k] = squares[known].mean()
    return errors[:, ~errors.isnan().any(0)]


def _choose(found: list[_Candidate]) -> _Candidate:
    """Return the candidate with the least error, but a walk where there is doubt.

    There is none where the mean alone forecasts better than the last value and drift
    alone, or where the gain is far larger than its standard error.
    """

    def best(candidates: list[_Candidate]) -> _Candidate:
        return min(candidates, key=lambda c: float(c.errors.mean(1).min()))

    def least(candidate: _Candidate) -> Tensor:
        return candidate.errors[int(candidate.errors.mean(1).argmin())]

    level = best([c for c in found if not c.walks])
    walk = best([c for c in found if c.walks])
    if level.errors[0].mean() < walk.errors[0].mean():
        return best(found)
    gain = least(walk) - least(level)
    margin = _BEYOND_DOUBT * gain.std() / len(gain) ** 0.5
    return level if gain.mean() > margin else walk


def _largest_good(errors: Tensor, n_independent: float) -> float:
    """Return the largest penalty that none beats clearly.

    Parameters
    ----------
    errors : Tensor of shape (penalty, block)
    n_independent : float
        So many of the blocks count: long windows overlap those of other blocks.
    """
    best = errors[int(errors.mean(1).argmin())]
    excess = errors - best
    margin = _CLEAR * excess.std(1) / n_independent**0.5
    good = excess.mean(1) <= margin
    return _PENALTIES[int(good.to(torch.uint8).argmax())]
