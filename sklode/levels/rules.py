"""How the filter takes innovations that are too large to be true.

Up to some number of standard deviations an innovation counts as it is; beyond, the less
the larger it is, as an error of the observation. Several such in a row and on one side
are no errors: the level has moved.
"""

CUT = 3.0
"""Innovations beyond so many standard deviations weigh less."""

CLEAR = 2.5
"""Beyond so many times that they hardly weigh at all."""

RUN = 3
"""So many in a row, beyond the cut on one side, are a new level."""
