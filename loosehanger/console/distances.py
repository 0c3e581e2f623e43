"""Presets for links: the round-trip times between cities, computed from their distance."""

from __future__ import annotations

import math
from typing import NamedTuple

from loosehanger.console.geography import Coordinates

_EARTH_KM = 6371.0
_KM_A_MS = 200.0
"""Light in glass travels at two thirds of its speed in vacuum."""
_DETOUR = 1.4
"""Cables are longer than the great circle."""
SOURCE = (
    "The round trips are computed, not measured: the great-circle distance at 200 km a millisecond, the speed of light "
    "in glass, times 1.4 for the detours of cables. A real route may take half as long again."
)
"""Where the presets' numbers come from."""
_CITIES = {
    "Ashburn": Coordinates(39.0, -77.5),
    "Frankfurt": Coordinates(50.1, 8.7),
    "London": Coordinates(51.5, -0.1),
    "Portland": Coordinates(45.5, -122.7),
    "São Paulo": Coordinates(-23.5, -46.6),
    "Singapore": Coordinates(1.35, 103.8),
    "Sydney": Coordinates(-33.9, 151.2),
}
_PAIRS = (
    ("Frankfurt", "London"),
    ("Frankfurt", "Ashburn"),
    ("Frankfurt", "São Paulo"),
    ("Frankfurt", "Singapore"),
    ("Ashburn", "São Paulo"),
    ("Ashburn", "Portland"),
    ("Singapore", "Sydney"),
)


class Preset(NamedTuple):
    """A pair of cities."""

    name: str
    round_trip_ms: int

    @property
    def delay(self) -> str:
        """The delay of each direction, as a link takes it."""
        return f"{self.round_trip_ms / 2:g}ms"


def round_trip_ms(one: Coordinates, other: Coordinates) -> float:
    """The time of a round trip between two places, in ms, by the haversine formula."""
    (north, east), (north_, east_) = (
        (math.radians(place.latitude), math.radians(place.longitude)) for place in (one, other)
    )
    half = math.sin((north_ - north) / 2) ** 2
    half += math.cos(north) * math.cos(north_) * math.sin((east_ - east) / 2) ** 2
    return 2 * _DETOUR * 2 * _EARTH_KM * math.asin(math.sqrt(half)) / _KM_A_MS


PRESETS = tuple(Preset(f"{one} – {other}", round(round_trip_ms(_CITIES[one], _CITIES[other]))) for one, other in _PAIRS)
