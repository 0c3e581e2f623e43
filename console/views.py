"""The views: what each shows, and how it becomes HTML. A page has one; its stream sends the same one again."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from console.jobs import Jobs
from console.models import JobState
from console.service import Service, UnknownError
from console.settings import Settings
from consumers.render import safe

Data = Mapping[str, Any]

_POSITIONS = {"north-america": (215, 165), "europe": (520, 130), "south-america": (335, 395)}
"""Places on the map, in its own units; regions that it does not know stand on a circle."""


class Views:
    """Every view of a console.

    Args:
        settings: the console's.
        service: what it knows.
        jobs: what it runs.
    """

    def __init__(self, settings: Settings, service: Service, jobs: Jobs) -> None:
        self._settings = settings
        self._service = service
        self._jobs = jobs
        self._data: dict[str, Callable[[str], Awaitable[Data]]] = {
            "overview": self._overview,
            "topics": self._topics,
            "topic": self._topic,
            "groups": self._groups,
            "brokers": self._brokers,
            "mirrors": self._mirrors,
        }
        if settings.control_room:
            self._data |= {"map": self._map, "proof": self._proof, "aggregates": self._aggregates}
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "thousands": thousands,
            "size": size,
            "rate": rate,
            "duration": duration,
            "visible": lambda text: safe(str(text)),
            "when": when,
        }
        self._environment.globals |= {"settings": settings, "regions": [region.name for region in settings.regions]}

    def __contains__(self, view: str) -> bool:
        return view in self._data

    async def data(self, view: str, of: str) -> Data:
        """What a view shows.

        Raises:
            UnknownError: there is no such view, or nothing that it could be of.
        """
        if view not in self._data:
            raise UnknownError(f"this console has no view '{view}'")
        return await self._data[view](of)

    def fragment(self, view: str, data: Data | None) -> str:
        """A view as HTML; without data, it says that the data is on its way."""
        return (
            self.template(f"fragments/{view}.html.j2", data=data)
            if data is not None
            else self.template("fragments/waiting.html.j2")
        )

    async def live(self, view: str, of: str) -> str:
        """A view as HTML, now."""
        try:
            return self.fragment(view, await self.data(view, of))
        except UnknownError as error:
            return self.template("fragments/gone.html.j2", reason=str(error))

    def template(self, name: str, **context: Any) -> str:
        """Any template."""
        return self._environment.get_template(name).render(**context)

    async def _overview(self, _: str) -> Data:
        flows, mirrors = await self._service.overview()
        return {"flows": flows, "mirrors": mirrors}

    async def _topics(self, _: str) -> Data:
        return {"answer": await self._service.topics()}

    async def _topic(self, name: str) -> Data:
        from console.service import compare

        topics, problems = await self._service.topic(name)
        return {
            "name": name,
            "topics": topics,
            "problems": problems,
            "comparison": compare(name, list(self._service.regions), topics, problems),
        }

    async def _groups(self, _: str) -> Data:
        return {"answer": await self._service.groups()}

    async def _brokers(self, _: str) -> Data:
        return {"answer": await self._service.brokers()}

    async def _mirrors(self, _: str) -> Data:
        return {"answer": await self._service.mirrors()}

    async def _map(self, _: str) -> Data:
        flows = await self._service.flows()
        places = places_of([region.name for region in self._settings.regions])
        arcs = [arc(places, flow.source, flow.target) for flow in flows.flows]
        return {"flows": flows, "places": places, "arcs": arcs}

    async def _proof(self, _: str) -> Data:
        return {"job": self._jobs.state("proof"), "sentence": sentence(self._jobs.state("proof"))}

    async def _aggregates(self, _: str) -> Data:
        job = self._jobs.state("aggregates")
        return {"job": job, "charts": charts(job), "totals": totals(job)}


def places_of(names: list[str]) -> dict[str, tuple[float, float]]:
    """Where each region stands on the map."""
    unknown = [name for name in names if name not in _POSITIONS]
    turn = 2 * math.pi / max(1, len(unknown))
    circle = {
        name: (400 + 230 * math.cos(i * turn - 0.4), 260 + 170 * math.sin(i * turn - 0.4))
        for i, name in enumerate(unknown)
    }
    return {name: _POSITIONS.get(name) or circle[name] for name in names}


def arc(places: Mapping[str, tuple[float, float]], source: str, target: str) -> dict[str, Any] | None:
    """A bent line from one region to another, and the middle of it; None where an end is not on the map."""
    if source not in places or target not in places:
        return None
    (x1, y1), (x2, y2) = places[source], places[target]
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    # From edge to edge of the circles, bent to the left of its direction, so that there and back are two lines.
    x1, y1, x2, y2 = x1 + 34 * ux, y1 + 34 * uy, x2 - 42 * ux, y2 - 42 * uy
    bend_x, bend_y = (x1 + x2) / 2 + 46 * uy, (y1 + y2) / 2 - 46 * ux
    return {
        "path": f"M{x1:.0f} {y1:.0f} Q{bend_x:.0f} {bend_y:.0f} {x2:.0f} {y2:.0f}",
        "x": round((x1 + 2 * bend_x + x2) / 4),
        "y": round((y1 + 2 * bend_y + y2) / 4),
    }


def sentence(job: JobState) -> str:
    """What came of the proof, in one sentence."""
    if job.state != "done" or not job.result:
        return job.explanation
    from pipeline.tables import summary

    try:
        return summary(job.result)
    except (KeyError, IndexError, TypeError):
        return "its document cannot be read; see the report"


_TOTALS = (
    ("events", "events"),
    ("orders", "orders"),
    ("cancellations", "cancellations"),
    ("units sold", "units"),
    ("revenue", "revenue"),
)
_CHARTS = (("Revenue by product", "by_product", "revenue"), ("Orders by where they came from", "by_region", "orders"))


def totals(job: JobState) -> list[tuple[str, list[str]]]:
    """The aggregates' totals: a row for each, a number for each region."""
    regions = _regions(job)
    return [(label, [_shown(region.get(name)) for region in regions.values()]) for label, name in _TOTALS]


def charts(job: JobState) -> list[dict[str, Any]]:
    """The aggregates' charts: groups of bars, a bar for each region, with its length as a share of the longest."""
    regions = _regions(job)
    found = []
    for title, field, value in _CHARTS:
        values = [
            {str(row["name"]): _number(row[value]) for row in region.get(field, ())} for region in regions.values()
        ]
        labels = list(dict.fromkeys(label for rows in values for label in rows))
        longest = max((number for rows in values for number in rows.values()), default=Decimal(0)) or Decimal(1)
        groups = [
            (label, [(_shown(rows.get(label)), float(max(0, rows.get(label, 0)) / longest)) for rows in values])
            for label in labels
        ]
        if groups:
            found.append({"title": title, "regions": list(regions), "groups": groups})
    return found


def _regions(job: JobState) -> dict[str, dict[str, Any]]:
    regions = (job.result or {}).get("regions")
    return regions if isinstance(regions, dict) else {}


def _number(value: object) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)


def _shown(value: object) -> str:
    return "–" if value is None else f"{_number(value):,}"


def thousands(number: float | None) -> str:
    """A number with its thousands apart; a dash where it is not known."""
    return "–" if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    """Bytes in a unit that fits."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


def rate(number: float | None) -> str:
    """Something a second."""
    return "…" if number is None else f"{number:,.1f}" if number < 100 else f"{number:,.0f}"


def duration(milliseconds: float | None) -> str:
    """A time in a unit that fits."""
    if milliseconds is None:
        return "–"
    return f"{milliseconds:,.0f} ms" if abs(milliseconds) < 1000 else f"{milliseconds / 1000:,.1f} s"


def when(seconds: float | None) -> Markup:
    """A moment; the page shows it in the viewer's zone."""
    if seconds is None:
        return Markup("–")
    moment = datetime.fromtimestamp(seconds, UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(timespec="milliseconds"), text)


@lru_cache(maxsize=64)
def prose(markdown: str) -> Markup:
    """An exercise's text as HTML. It is the kit's own, and still nothing in it is taken for HTML."""
    from markdown_it import MarkdownIt

    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))  # noqa: S704 - see above
