"""The units of a channel's states: location and scale, shared by its series or not.

Tested in tests/structural/test_panels.py and test_groups.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.data.arrays import Array
from sklode.data.links import Link, has_zeros
from sklode.structural.candidates import Candidate
from sklode.structural.components.space import Form, priors
from sklode.structural.rows import ChannelRows, power_of_two

_TELLING = 4  # rows that tell how series of a panel differ
_FREE = 1e3  # spread of scales that may be anything
# series differ whose scales have so wide a spread, in
# natural logarithms; and locations then, in spreads
_SPREAD, _FAR = 0.25, 3.0
# times the median: larger errors of measurement count as these
_CLIPPED = 5.0
# deviations from the median: values beyond count as there
_WIDEST = 8.0
# what makes the median deviation of normal values a standard
# deviation: 1 over their upper quartile (Huber 1981, section 5.1)
_TO_DEVIATION = 1.4826


def in_units(
    table: ChannelRows,
    values: Array,
    span: float,
    linked: bool,
    link: Link,
    threshold: float,
) -> Candidate:
    """Return the plain form with the location and scale of a usual series.

    ``values`` are y's, or of a form that is ``linked`` the link's.
    """
    form = Form((), linked)
    location, scale = _location_and_scale(values)
    if not linked and has_zeros(values):
        # of rare ones the median is zero, and what is expected is not
        location = float(values.mean())
    _, _, start = priors(form)
    units = Candidate(
        form=form,
        logs=start,
        weight=1.0,
        location=location,
        scale=scale,
        threshold=threshold,
        link=link,
    )
    return _told_apart(units, table, values, span)


def _told_apart(
    units: Candidate, table: ChannelRows, values: Array, span: float
) -> Candidate:
    """Return units that series of a panel share, or what they differ by.

    They are told apart by their scales, and locations, if these vary by more than
    chance.
    """
    telling = np.flatnonzero(table.lengths >= _TELLING)
    if len(telling) < 2:
        return units
    # with a wide prior each series shows its own location and scale
    free = units._replace(scale_spread=_FREE, centred=True)
    measured = free.measured(table, span)
    locations, scales, blur = (each[telling] for each in measured)
    # of constants, doubt is infinite
    varies = np.isfinite(blur)
    if varies.sum() < 2:
        return units
    logs = np.log(scales[varies])
    # what is seen varies by the spread and by the errors of what is seen
    variance = logs.var(ddof=1) - blur[varies].mean()
    spread = math.sqrt(max(variance, 1e-6))
    if spread < _SPREAD and varies.all():
        return units
    scale, middle = math.exp(np.median(logs)), float(np.median(locations))
    units = units._replace(scale_spread=spread, location=middle, scale=scale)
    if not units.form.linked and has_zeros(table.values):
        # counts: the larger a series' mean, the more it varies
        sums = np.bincount(table.series, values, len(table.lengths))
        means = sums[telling] / table.lengths[telling]
        share = float(np.mean(means[varies] / scales[varies]))
        return units._replace(location=share * scale, in_proportion=True)
    distances = np.abs(locations - middle)[varies] / scales[varies]
    return units._replace(centred=float(np.median(distances)) > _FAR)


def usual_error(errors: Array) -> float:
    """Return the error of measurement whose square is usual, but for absurd ones."""
    most = _CLIPPED * float(np.median(errors))
    return math.sqrt(float(np.mean(np.minimum(errors, most) ** 2)))


def usual_deviation(values: Array) -> Array:
    """Return the standard deviation from zero that the median tells, of each column.

    Up to half of the values may be absurd; NaN is none.
    """
    deviation: Array = _TO_DEVIATION * np.nanmedian(np.abs(values), axis=0)
    return deviation


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
