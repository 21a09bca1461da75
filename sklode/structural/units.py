"""The units of a channel's states: location and scale, shared by its series or not.

Tested in tests/structural/test_panels.py and test_groups.py.
"""

from __future__ import annotations

import math

import numpy as np

from sklode.data.arrays import Array
from sklode.data.links import Link, has_zeros
from sklode.structural.candidates import Candidate
from sklode.structural.channel_rows import ChannelRows, power_of_two
from sklode.structural.state_space import Form, priors

_TELLING = 4  # rows that tell how series of a panel differ
_FREE = 1e3  # spread of scales that may be anything
# series differ whose scales have so wide a spread, in natural logarithms; and
# locations then, in spreads
_SPREAD, _FAR = 0.25, 3.0
_CLIPPED = 5.0  # times the median: larger errors of measurement count as these
# deviations from the median beyond which values count as there; and what makes the
# median deviation of normal values a standard deviation (Huber 1981, section 5.1)
_WIDEST, _TO_DEVIATION = 8.0, 1.4826


def in_units(
    table: ChannelRows,
    values: Array,
    span: float,
    linked: bool,
    link: Link,
    threshold: float,
) -> Candidate:
    """Return the plain form with location and scale, which all share.

    ``values`` are y's, or of a form that is ``linked`` the link's. Series of a panel
    are told apart by their scales, and locations, if these vary by more than chance.
    """
    form = Form((), linked)
    location, scale = _location_and_scale(values)
    if not linked and has_zeros(values):
        # of rare ones the median is zero, and what is expected is not
        location = float(values.mean())
    _, _, logs = priors(form)
    units = Candidate(
        form=form,
        logs=logs,
        weight=1.0,
        location=location,
        scale=scale,
        threshold=threshold,
        link=link,
    )
    some = np.flatnonzero(table.lengths >= _TELLING)
    if len(some) < 2:
        return units
    free = units._replace(scale_spread=_FREE, centred=True)
    locations, scales, blur = (x[some] for x in free.measured(table, span))
    told = np.isfinite(blur)
    if told.sum() < 2:
        return units
    logs, middle = np.log(scales[told]), float(np.median(locations))
    # what is seen varies by the spread and by the errors of what is seen
    spread = math.sqrt(max(logs.var(ddof=1) - blur[told].mean(), 1e-6))
    if spread < _SPREAD and told.all():
        return units
    far = float(np.median(np.abs(locations - middle)[told] / scales[told]))
    scale = math.exp(np.median(logs))
    units = units._replace(scale_spread=spread, location=middle, scale=scale)
    if not linked and has_zeros(table.values):
        sums = np.bincount(table.series, values, len(table.lengths))[some][told]
        share = float(np.mean(sums / table.lengths[some][told] / scales[told]))
        return units._replace(location=share * scale, in_proportion=True)
    return units._replace(centred=far > _FAR)


def usual_error(errors: Array) -> float:
    """Return the error of measurement whose square is usual, but for absurd ones."""
    most = _CLIPPED * float(np.median(errors))
    return math.sqrt(float(np.mean(np.minimum(errors, most) ** 2)))


def _location_and_scale(values: Array) -> tuple[float, float]:
    """Return median and standard deviation, of values of which a few may be absurd."""
    unit = power_of_two(values)
    values = values / unit
    location = float(np.median(values))
    width = _WIDEST * _TO_DEVIATION * float(np.median(np.abs(values - location)))
    if width > 0:
        values = np.clip(values, location - width, location + width)
    scale = float(values.std()) or abs(location)
    return unit * location, unit * scale or 1.0
