"""Innovations that are large: errors of observation, or steps of the trend.

Outliers: beyond a Huber threshold, in standard deviations, innovations count the less
the larger, as errors of observation. Steps: where innovations on one side add up
(CUSUM, Page 1954), the trend may be anywhere. Tested in
tests/structural/filter/test_forward.py.
"""

from __future__ import annotations

import math

from sklode.engine.compiling import inner

# beyond so many thresholds the weight falls with the third power
CLEAR = 2.5
# deviations on one side, each less DRIFT and at most MOST, add up to a step, see
# `system.STEP`. A smaller drift, of 1, follows steps sooner: a week after a step errors
# are 0.8 of the best simple method's, and with this one 1.0. But it also takes chance
# for steps
DRIFT, MOST = 1.25, 3.25


@inner
def huber(size, threshold):
    """Return what an innovation of so many deviations costs, see `filter_rows`."""
    if size <= threshold:
        return 0.5 * size * size
    return threshold * threshold * (0.5 + math.log(size / threshold))


@inner
def outlier_variance(F, size, threshold):
    """Return F over the weight of an innovation, which falls as 1 / size, then faster.

    So an update moves the states by as much as one at the threshold (Huber 1981), and
    beyond `CLEAR` thresholds by ever less.
    """
    if size > threshold:
        F *= size / threshold
        if size > CLEAR * threshold:
            F *= (size / (CLEAR * threshold)) ** 2
    return F


@inner
def cusum(up, down, v, size):
    """Return the sums of innovations on each side after one more (Page 1954)."""
    # a missing v is not seen here: NaN has a sign
    counted = math.copysign(min(size, MOST), v)
    return max(up + counted - DRIFT, 0.0), max(down - counted - DRIFT, 0.0)


@inner
def shift(level, P, M, parts, gains, variance, jump):
    """Let the level, a state, step by a variance, in P, M and the parts of a row."""
    # its design is 1: P Z' and Z P Z' grow by as much
    P[level, level] += jump
    M[level] += jump
    for part in range(len(parts)):
        gains[part, level] += parts[part, level] * jump
        variance[part] += parts[part, level] * jump
