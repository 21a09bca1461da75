"""Lines, markers and greys that differ without colour, and to the colour-blind.

The colours are those of Okabe and Ito. Where two things share an axes they differ in
the dashes of their lines or in the shape of their markers as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "CURVES",
    "GREY",
    "GUIDE",
    "INK",
    "PALE",
    "Curve",
    "Shade",
    "dot_size",
    "shades",
]

INK, GREY, PALE, GUIDE = "0.15", "0.45", "0.8", "0.65"
"""Of text and truth, of observations, of the line between them, of marked times."""


class Curve(NamedTuple):
    """How a line looks."""

    color: str
    linestyle: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib takes for the line without its markers."""
        return {"color": self.color, "linestyle": self.linestyle, "linewidth": 1.6}


class Shade(NamedTuple):
    """How a band is filled: how opaque, after how much white is mixed in."""

    opacity: float
    white: float

    def of(self, color: str) -> tuple[tuple[float, float, float], float]:
        """Return what matplotlib takes for a shade of a colour."""
        from matplotlib.colors import to_rgb

        red, green, blue = (x + (1 - x) * self.white for x in to_rgb(color))
        return (red, green, blue), self.opacity


CURVES = (
    Curve("#0072B2", "-", "o"),
    Curve("#E69F00", "--", "s"),
    Curve("#009E73", ":", "D"),
    Curve("#CC79A7", "-.", "^"),
    Curve("#000000", (0, (6, 1, 1, 1, 1, 1)), "v"),
    Curve("#56B4E9", (0, (8, 3)), "P"),
)
"""Of the first thing compared, the second..."""


def dot_size(n: int) -> float:
    """Return the diameter in points of each of ``n`` dots."""
    return 4.0 if n <= 60 else 3.0 if n <= 300 else 2.2 if n <= 1000 else 1.5


def shades(n: int, alone: bool) -> list[Shade]:
    """Return how ``n`` bands within each other are filled, the widest one first.

    Those of the only forecast are opaque, so that the legend shows them as they are.
    """
    if not alone:
        return [Shade(0.12, 0.0)] * n
    return [Shade(1.0, 1 - (0.18 + 0.3 * k / max(n - 1, 1))) for k in range(n)]
