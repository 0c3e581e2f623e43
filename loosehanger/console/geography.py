"""Where places are on the map: Miller's projection of the world, and the part of it that shows the regions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

Point = tuple[float, float]
"""To the right and down, in the units of what is drawn."""
WORLD_WIDTH = 1000.0
"""The outline of the land, ``static/vendor/land.svg``, is so wide, from one antimeridian to the other."""
MOST_NORTHERN = 82
"""The latitude of its upper edge: places are no farther from the equator."""


@dataclass(frozen=True)
class Coordinates:
    """A place on earth, in degrees: north and east are positive."""

    latitude: float
    longitude: float


@dataclass(frozen=True)
class Window:
    """The part of the world that a drawing shows."""

    scale: float
    left: float
    top: float

    @property
    def transform(self) -> str:
        """What SVG has to do with the outline of the land."""
        return f"translate({self.left:.1f} {self.top:.1f}) scale({self.scale:.4f})"

    def point(self, place: Coordinates) -> Point:
        """Where a place is in the drawing."""
        x, y = project(place)
        return self.left + self.scale * x, self.top + self.scale * y


def project(place: Coordinates) -> Point:
    """Where a place is on the outline of the land."""
    unit = WORLD_WIDTH / (2 * math.pi)
    return math.radians(place.longitude + 180) * unit, (_miller(MOST_NORTHERN) - _miller(place.latitude)) * unit


def window(places: Iterable[Coordinates], size: Point, margin: Point, largest: float) -> Window:
    """The part of the world in which all places keep a distance from the edges.

    Args:
        places: one at least.
        size: width and height of the drawing.
        margin: how far from its left and right, and from its upper and lower edge, they stay.
        largest: how much larger than the outline it may become.
    """
    points = [project(place) for place in places]
    spans = [(min(values), max(values)) for values in zip(*points, strict=True)]
    fits = [
        (whole - 2 * edge) / (high - low)
        for (low, high), whole, edge in zip(spans, size, margin, strict=True)
        if high > low
    ]
    scale = min([largest, *fits])
    left, top = (whole / 2 - scale * (low + high) / 2 for (low, high), whole in zip(spans, size, strict=True))
    return Window(scale, left, top)


def _miller(latitude: float) -> float:
    return 1.25 * math.log(math.tan(math.pi / 4 + 0.4 * math.radians(latitude)))
