"""Fit the linear anchor: ridge regression, its penalty and its form by validation."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sklode.data.windows import WindowArrays, WindowSet, spread
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


class _Pairs(NamedTuple):
    """Windows and stamps after them, in double precision."""

    features: Tensor  # (window, [channel,] feature), of unit variance
    scale: Tensor  # (feature,)
    phi: Tensor  # (window, stamp, rate)
    target: Tensor  # (window, stamp, channel): from the base
    known: Tensor  # (window, stamp, channel), bool


class _Candidate(NamedTuple):
    walks: bool
    by_control: Tensor  # (control, channel)
    pairs: _Pairs
    errors: Tensor  # (penalty, block)


def fit_linear(anchor: LinearAnchor, windows: WindowSet) -> LinearAnchor:
    """Set the weights of an anchor, in place, by the windows of the training part.

    Walk or not, controls or none: what has the least error over ten blocks of windows,
    each forecast by weights from the windows that do not overlap it; a walk, where
    there is doubt. The penalty is the largest that none beats by two standard errors.

    The level stays zero, the training mean, where too few windows reach beyond their
    seen part to tell, or observe there what they have seen before.
    """
    reaching = np.flatnonzero(windows.end - windows.start > windows.window_length)
    if len(reaching) < 2 * _N_BLOCKS:
        return anchor
    reaching = spread(reaching, _MOST_WINDOWS)
    sample, n_seen = windows.gather(reaching), windows.window_length
    times = torch.from_numpy(sample.times).double()
    last_seen = times[:, n_seen - 1]
    span = max(float((times[:, -1] - last_seen).median()), 1.0)
    double = LinearAnchor(sample.values.shape[2], len(anchor.by_control)).double()
    double.ages.copy_(_steps(float(last_seen.median()), len(double.ages)))
    double.rates[:-1] = 1 / _steps(span, N_RATES)
    double.rates[-1] = 1 / (2 * span)
    overlap = _overlaps(windows, reaching)
    found = []
    for by_control in _regressions_on_controls(windows):
        for walks in (False, True):
            pairs = _pairs(double, sample, by_control, n_seen, walks)
            errors = _validate(pairs, overlap, walks)
            found.append(_Candidate(walks, by_control, pairs, errors))
    if found[0].errors.shape[1] < 2:
        return anchor
    n_independent = min(_N_BLOCKS, windows.bounds[-1] / windows.span)
    best = _choose(found)
    double.by_control.copy_(best.by_control)
    double.walking.fill_(best.walks)
    everything = torch.ones(len(reaching), dtype=torch.bool)
    penalty = _largest_good(best.errors, max(n_independent, 1.0))
    double.weights.copy_(_solve(best.pairs, everything, best.walks)[penalty])
    anchor.load_state_dict(double.state_dict())
    return anchor


def _steps(span: float, n: int) -> Tensor:
    """Return times from a time unit to a span, by geometric steps."""
    return torch.logspace(0, math.log10(max(span, 2.0)), n, dtype=torch.float64)


def _overlaps(
    windows: WindowSet, which: NDArray[np.int64]
) -> list[tuple[Tensor, Tensor]]:
    """Return for each block its windows, and which ones share no row with any."""
    blocks = []
    for inside in np.array_split(np.arange(len(which)), _N_BLOCKS):
        low = windows.start[which[inside]].min()
        high = windows.end[which[inside]].max()
        apart = (windows.end[which] <= low) | (windows.start[which] >= high)
        blocks.append((torch.from_numpy(inside), torch.from_numpy(apart)))
    return blocks


def _regressions_on_controls(windows: WindowSet) -> list[Tensor]:
    """Return B of zero and, where there are controls, of a regression over all rows."""
    values, mask, controls = windows.rows()
    if controls is None:
        return [torch.zeros(0, values.shape[1], dtype=torch.float64)]
    found = np.zeros((controls.shape[1], values.shape[1]))
    for channel in range(values.shape[1]):
        known = mask[:, channel]
        u = np.column_stack([controls[known], np.ones(known.sum())]).astype(np.float64)
        penalty = _CONTROL_PENALTY * max(len(u), 1) * np.eye(u.shape[1])
        moment = u.T @ values[known, channel].astype(np.float64)
        found[:, channel] = np.linalg.solve(u.T @ u + penalty, moment)[:-1]
    by_control = torch.from_numpy(found)
    return [torch.zeros_like(by_control), by_control]


def _pairs(
    anchor: LinearAnchor,
    sample: WindowArrays,
    by_control: Tensor,
    n_seen: int,
    walks: bool,
) -> _Pairs:
    times, values = (torch.from_numpy(x).double() for x in sample[:2])
    mask = torch.from_numpy(sample.mask)
    if sample.controls is not None:
        explained = torch.from_numpy(sample.controls).double() @ by_control
        values = torch.where(mask, values - explained, 0.0)
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


def _solve(pairs: _Pairs, chosen: Tensor, walks: bool) -> Tensor:
    """Return weights, (penalty, feature, rate, channel).

    The drift comes first, from the intercept and the slowest rate alone; the other
    features then explain what it leaves, with the other rates. Without a walk there is
    no drift: the training mean is zero.
    """
    scale, shared = pairs.scale, pairs.features.ndim == 2
    features, phi, target, known = (
        x[chosen] for x in (pairs.features, pairs.phi, pairs.target, pairs.known)
    )
    shape = len(_PENALTIES), len(scale), phi.shape[-1], target.shape[-1]
    weights = torch.zeros(shape, dtype=torch.float64)
    gram = None
    for channel in range(target.shape[-1]):
        rows = known[..., channel]
        y = target[..., channel][rows]
        if not len(y):
            continue
        if walks:
            slow = phi[..., -1][rows]
            drift = _DRIFT * (slow @ y) / (slow @ slow).clamp(min=1e-12)
            weights[:, 0, -1, channel] = drift
            y = y - drift * slow
        if gram is None or not shared or not bool(known.all()):
            own = features if shared else features[:, channel]
            products = own[:, None, 1:, None] * phi[:, :, None, :-1]
            products = products.flatten(2)[rows]
            gram = products.T @ products
        eye = torch.eye(len(gram), dtype=torch.float64)
        moment = products.T @ y
        for weight, penalty in zip(weights[1:], _PENALTIES[1:], strict=True):
            solution = torch.linalg.solve(gram + penalty * len(y) * eye, moment)
            solution = solution.view(shape[1] - 1, shape[2] - 1)
            weight[1:, :-1, channel] = solution / scale[1:, None]
    return weights


def _validate(
    pairs: _Pairs, blocks: list[tuple[Tensor, Tensor]], walks: bool
) -> Tensor:
    """Return the mean squared error of each block, (penalty, block).

    A block that all windows overlap is forecast by weights of zero.
    """
    shared = pairs.features.ndim == 2
    spec = "wf,wsj,pfjc->pwsc" if shared else "wcf,wsj,pfjc->pwsc"
    found = []
    for inside, apart in blocks:
        features = pairs.features[inside] * pairs.scale
        weights = _solve(pairs, apart, walks)
        forecast = torch.einsum(spec, features, pairs.phi[inside], weights)
        squares = (forecast - pairs.target[inside]) ** 2
        found.append(squares[:, pairs.known[inside]].mean(1))
    errors = torch.stack(found, 1)
    return errors[:, ~errors.isnan().any(0)]


def _choose(found: list[_Candidate]) -> _Candidate:
    """Return the candidate with the least error, but a walk where there is doubt.

    There is none where the mean alone forecasts better than the last value and drift
    alone, or where the gain is far larger than its standard error.
    """
    in_order = sorted(found, key=lambda c: float(_least(c.errors).mean()))
    level = next(c for c in in_order if not c.walks)
    walk = next(c for c in in_order if c.walks)
    if level.errors[0].mean() < walk.errors[0].mean():
        return in_order[0]
    gain = _least(walk.errors) - _least(level.errors)
    margin = _BEYOND_DOUBT * gain.std() / len(gain) ** 0.5
    return level if gain.mean() > margin else walk


def _least(errors: Tensor) -> Tensor:
    """Return each block's error under the penalty that is best for all, (block,)."""
    return errors[int(errors.mean(1).argmin())]


def _largest_good(errors: Tensor, n_independent: float) -> int:
    """Return the number of the largest penalty that none beats clearly.

    Errors are (penalty, block), of which so many blocks count as independent: long
    windows overlap those of other blocks.
    """
    excess = errors - _least(errors)
    margin = _CLEAR * excess.std(1) / n_independent**0.5
    good = excess.mean(1) <= margin
    return int(good.to(torch.uint8).argmax())
