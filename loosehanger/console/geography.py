"""The map: Miller's projection of the world, and the part of it that shows the regions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

Point = tuple[float, float]
"""To the right and down, in the units of what is drawn."""
WORLD_WIDTH = 1000.0
"""Width of the land's outline, ``static/vendor/land.svg``, from one antimeridian to the other."""
MOST_NORTHERN = 82
"""The latitude of its upper edge, and the largest distance of a place from the equator."""


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
        """The SVG transform of the land's outline."""
        return f"translate({self.left:.1f} {self.top:.1f}) scale({self.scale:.4f})"

    def point(self, place: Coordinates) -> Point:
        """A place's point in the drawing."""
        x, y = project(place)
        return self.left + self.scale * x, self.top + self.scale * y


def project(place: Coordinates) -> Point:
    """A place's point on the land's outline."""
    unit = WORLD_WIDTH / (2 * math.pi)
    return math.radians(place.longitude + 180) * unit, (_miller(MOST_NORTHERN) - _miller(place.latitude)) * unit


def window(places: Iterable[Coordinates], size: Point, margin: Point, largest: float) -> Window:
    """The part of the world in which all places keep a distance from the edges.

    Args:
        places: at least one.
        size: width and height of the drawing.
        margin: the distance of the places from the left and right, and from the upper and lower edge.
        largest: the largest scale of the outline.
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
