"""The level of a series: what is known of it without a network."""

from sklode.levels.anchors import ANCHORS, Anchor, Level
from sklode.levels.linear import LinearAnchor, LinearLevel

__all__ = ["ANCHORS", "Anchor", "Level", "LinearAnchor", "LinearLevel"]
