"""The scaling of a column's candidates: shared by its series, or told apart.

Tested in tests/structural/test_panels.py and search/test_groups.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.data.arrays import Array
from sklode.data.links import Link, has_zeros
from sklode.structural.candidates import Candidate, Model
from sklode.structural.components.space import Form, priors
from sklode.structural.filter.system import Rule
from sklode.structural.rows import ChannelRows, power_of_two
from sklode.structural.scaling import RandomEffects, Scaling, usual_deviation

_TELLING = 4  # rows that tell how series of a panel differ
_FREE = 1e3  # spread of scales that may be anything
# series differ whose scales have so wide a spread, in
# natural logarithms; and locations then, in spreads
_SPREAD, _FAR = 0.25, 3.0
# times the median: larger errors of measurement count as these
_CLIPPED = 5.0
# deviations from the median: values beyond count as there
_WIDEST = 8.0


def plain_candidate(values: Array, link: Link, rule: Rule) -> Candidate:
    """Return the plain form with the location and scale of a usual series.

    ``values`` are what the ``link`` makes of y.
    """
    location, scale = _location_and_scale(values)
    if link.is_identity and has_zeros(values):
        # of rare ones the median is zero, and what is expected is not
        location = float(values.mean())
    form = Form()
    _, _, start = priors(form)
    return Candidate(
        model=Model(form=form, theta=start, rule=rule),
        scaling=Scaling(location=location, scale=scale, link=link),
    )


def told_apart(
    candidate: Candidate, table: ChannelRows, values: Array, span: float
) -> Candidate:
    """Return a candidate with the scaling that series share, or what they differ by.

    They are told apart by their scales, and locations, if these vary by more than
    chance.
    """
    telling = np.flatnonzero(table.lengths >= _TELLING)
    if len(telling) < 2:
        return candidate
    # with a wide prior each series shows its own location and scale
    scaling = candidate.scaling
    free = RandomEffects(spread=_FREE, has_location=True)
    measured = candidate._replace(
        scaling=scaling._replace(random_effects=free)
    ).measured(table, span)
    locations, scales, blur = (each[telling] for each in measured)
    # of constants, doubt is infinite
    varies = np.isfinite(blur)
    if varies.sum() < 2:
        return candidate
    logs = np.log(scales[varies])
    # what is seen varies by the spread and by the errors of what is seen
    variance = logs.var(ddof=1) - blur[varies].mean()
    spread = math.sqrt(max(variance, 1e-6))
    if spread < _SPREAD and varies.all():
        return candidate
    scale, middle = math.exp(np.median(logs)), float(np.median(locations))
    distances = np.abs(locations - middle)[varies] / scales[varies]
    has_location = float(np.median(distances)) > _FAR
    distance = float(locations[varies].std()) / scale if has_location else math.nan
    effects = RandomEffects(spread, has_location=has_location, distance=distance)
    if scaling.link.is_identity and has_zeros(table.values):
        # counts: the larger a series' mean, the more it varies
        sums = np.bincount(table.series, values, len(table.lengths))
        means = sums[telling] / table.lengths[telling]
        share = float(np.mean(means[varies] / scales[varies]))
        middle = share * scale
        # of a scale of normal logarithm
        distance = share * math.sqrt(math.expm1(spread**2))
        effects = RandomEffects(spread, in_proportion=True, distance=distance)
    return candidate._replace(
        scaling=scaling._replace(location=middle, scale=scale, random_effects=effects)
    )


def usual_error(errors: Array) -> float:
    """Return the error of measurement whose square is usual, but for absurd ones."""
    most = _CLIPPED * float(np.median(errors))
    return math.sqrt(float(np.mean(np.minimum(errors, most) ** 2)))


def _location_and_scale(values: Array) -> tuple[float, float]:
    """Return median and standard deviation, of values of which a few may be absurd."""
    # over a power of two no digit is lost,
    # and squares stay in a float's range
    unit = power_of_two(values)
    values = values / unit
    location = float(np.median(values))
    width = _WIDEST * float(usual_deviation(values - location))
    if width > 0:
        values = np.clip(values, location - width, location + width)
    scale = float(values.std()) or abs(location)
    return unit * location, unit * scale or 1.0
