"""A network past the longest lead that it learned: its forecasts become rows.

From the last of them it looks ahead again, as from any row that was seen. That is
multiple shooting, forward in time (Iakovlev and others, "Latent Neural ODEs with Sparse
Bayesian Multiple Shooting", 2023).

Tested in tests/hybrid/test_restarts.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from sklode.data.arrays import Array, Numbers
from sklode.data.scaled_rows import KnownControls
from sklode.hybrid.network import HybridODE
from sklode.hybrid.windows import Queries, Windows, batch_of, control_path

# of the longest lead that is learned, after which it looks ahead again
_SHARE = 0.8
_MOST_RESTARTS = 100  # what lies farther is not asked of it
_ROWS_AT_ONCE = 2**12  # of stages, that are forecast together


def stage(reach: float) -> float:
    """Return how far it is from one restart to the next, in whole units of time."""
    return max(math.floor(_SHARE * reach), 1.0)


def farthest(reach: float) -> float:
    """Return the longest lead that restarts reach."""
    return (_MOST_RESTARTS + 1) * stage(reach)


def ahead(
    networks: Sequence[HybridODE],
    windows: Windows,
    queries: Queries,
    series: Numbers,
    known: KnownControls | None,
    start: Array,
) -> Array:
    """Return the networks' mean of what is asked after windows, within reach.

    Scaled, (answer,). ``series`` has the windows' own, whose controls are ``known``,
    and ``start`` where they end, (window,). Queries are sorted by window.
    """
    if not len(queries.lead):
        return np.empty(0)
    like, longest = networks[0], float(queries.lead.max())
    path = control_path(known, series, start, longest, like)
    batch = batch_of(windows, queries, path, like)
    answers = (network.predict(batch) for network in networks)
    found: Array = np.mean([one.double().cpu().numpy() for one in answers], axis=0)
    return found


def restarted(
    networks: Sequence[HybridODE],
    windows: Windows,
    queries: Queries,
    series: Numbers,
    known: KnownControls | None,
    start: Array,
) -> Array:
    """Return the same of leads of any length, by as many restarts as fit in.

    Rows are the networks' mean, so that these stay together.
    """
    like = networks[0]
    length = stage(like.reach)
    at_once = max(_ROWS_AT_ONCE // (int(length) * like.n_channels), 1)
    found = np.empty(len(queries.lead))
    for first in range(0, len(series), at_once):
        end = first + at_once
        part = slice(*np.searchsorted(queries.window, (first, end)))
        own, numbers = queries.part(part), series[first:end]
        now, begun = windows.part(slice(first, end)), start[first:end]
        passed = 0.0
        own = own._replace(window=own.window - first)
        each = np.maximum(np.ceil(own.lead / length) - 1, 0)
        answers = np.empty(len(own.lead))
        for number in range(int(each.max(initial=0)) + 1):
            which = each == number
            if number:
                now = _continued(networks, now, length, numbers, known, begun)
                begun, passed = begun + length, passed + length
            if which.any():
                asked = own.part(which)
                asked = asked._replace(lead=asked.lead - passed)
                answers[which] = ahead(networks, now, asked, numbers, known, begun)
        found[part] = answers
    return found


def _continued(
    networks: Sequence[HybridODE],
    windows: Windows,
    length: float,
    series: Numbers,
    known: KnownControls | None,
    begun: Array,
) -> Windows:
    """Return windows with what follows: forecasts as rows, a unit of time apart."""
    n, n_channels = len(windows.ages), networks[0].n_channels
    times = np.arange(1.0, length + 1)
    each = len(times) * n_channels
    queries = Queries(
        np.repeat(np.arange(n), each),
        np.tile(np.arange(n_channels), n * len(times)),
        np.tile(np.repeat(times, n_channels), n),
        np.full(n * each, -1),
    )
    values = ahead(networks, windows, queries, series, known, begun)
    values = values.reshape(n, len(times), n_channels).astype(np.float32)
    controls = None
    path = control_path(known, series, begun, length, networks[0])
    if path is not None:
        at = torch.as_tensor(times).to(path.times).expand(n, -1)
        controls = path.at(at).cpu().numpy()[:, ::-1]
    return windows.after(times, values[:, ::-1], controls)
