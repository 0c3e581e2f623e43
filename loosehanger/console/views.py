"""The views: the data of each, and its HTML. A page contains a view, and its stream sends the same view again."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loosehanger.console.change_log import ChangeLog
from loosehanger.console.charting import MOST_LINES, PLOTS, RANGES, ChartSelection, plot, within
from loosehanger.console.formats import duration, rate, size, span, thousands
from loosehanger.console.geography import Coordinates, Point, window
from loosehanger.console.history import LastHour
from loosehanger.console.jobs import Jobs
from loosehanger.console.learning import Learning, progress_of
from loosehanger.console.links import DELAYS, LinkView
from loosehanger.console.models import Flow, JobState, Link, LinkDirection
from loosehanger.console.operations import Operations
from loosehanger.console.region_views import UnknownError
from loosehanger.console.service import Service
from loosehanger.console.settings import OPERATOR_OFF, Settings
from loosehanger.console.topic_rows import TopicRows
from loosehanger.errors import LabError
from loosehanger.events.render import safe
from loosehanger.lab.progress import read_progress

Data = Mapping[str, Any]


class Views:
    """Every view of a console.

    Args:
        settings: the console's.
        service: the regions' data.
        jobs: the control room's jobs.
        links: the links between the regions.
        history: the last hour.
        operations: for the users.
        changes: the change log, for the charts' marks.
        learning: the exercises.
    """

    def __init__(
        self,
        settings: Settings,
        service: Service,
        jobs: Jobs,
        links: LinkView,
        history: LastHour,
        operations: Operations,
        changes: ChangeLog | None = None,
        learning: Learning | None = None,
    ) -> None:
        self._learning = learning
        self._changes = changes
        self._links = links
        self._operations = operations
        self._history = history
        self._pasts: dict[str, tuple[int, Data]] = {}
        self._settings = settings
        self._service = service
        self._jobs = jobs
        self._data: dict[str, Callable[[str], Awaitable[Data]]] = {
            "overview": self._overview,
            "topics": self._topics,
            "topic": self._topic,
            "groups": self._groups,
            "users": self._users,
            "brokers": self._brokers,
            "mirrors": self._mirrors,
            "charts": self._charts,
        }
        if settings.control_room:
            self._data |= {"map": self._map, "proof": self._proof, "aggregates": self._aggregates}
        if learning is not None and settings.control_room and settings.scenario:
            self._data |= {"scenario": self._scenario}
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,  # The files do not change while it runs, and each look at one costs a system call.
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            **{one.__name__: one for one in (thousands, size, rate, duration, span)},
            "visible": lambda text: safe(str(text)),
            "when": when,
            "capitalise": lambda text: text[:1].upper() + text[1:],
            "link_settings": lambda way: ", ".join(settings_of(way)) or "unshaped",
        }
        self._environment.globals |= {
            "ident": ident,
            "settings": settings,
            "regions": [region.name for region in settings.regions],
            "operator_off": OPERATOR_OFF,
            "why_not": operations.why_not,
            "why_not_act": operations.why_not_act,
            "routes": settings.routes,
            "sources": service.topics.sources,
            "consoles": list,
            "topic_rows": TopicRows(self._environment),
        }

    def __contains__(self, view: str) -> bool:
        return view in self._data

    async def data(self, view: str, of: str) -> Data:
        """A view's data.

        Raises:
            UnknownError: the view, or its subject, does not exist.
        """
        if view not in self._data:
            raise UnknownError(f"this console has no view '{view}'")
        return await self._data[view](of)

    def fragment(self, view: str, data: Data | None) -> str:
        """A view as HTML; without data, a note that it is loading."""
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
        """Renders a template."""
        return self._environment.get_template(name).render(**context)

    def share(self, **values: Any) -> None:
        """Gives values to all templates."""
        self._environment.globals |= values

    async def _overview(self, _: str) -> Data:
        flows, mirrors = await self._service.overview()
        return {"flows": flows, "mirrors": mirrors}

    async def _topics(self, _: str) -> Data:
        return {"answer": await self._service.topics.every()}

    async def _topic(self, name: str) -> Data:
        topics, problems = await self._service.topics.named(name)
        return {
            "name": name,
            "topics": topics,
            "problems": problems,
            "readers": await self._service.readers(topics),
            "comparisons": self._service.topics.comparisons(name, topics, problems),
        }

    async def _groups(self, _: str) -> Data:
        return {"answer": await self._service.groups()}

    async def _users(self, _: str) -> Data:
        return {"answer": await self._operations.users()}

    async def _brokers(self, _: str) -> Data:
        return {"answer": await self._service.brokers()}

    async def _mirrors(self, _: str) -> Data:
        answer, links = await asyncio.gather(self._service.mirrors.every(), self._links.all())
        ends = {(one.reads, one.writes) for mirror in answer.mirrors for one in mirror.connectors}
        return {"answer": answer, "links": {pair: link_note(links, *pair) for pair in ends}}

    def _setting(self) -> Data:
        """The scenario that is set up, its stage and the platform; empty where that is not known."""
        progress = None
        if self._settings.lab_home:
            with suppress(LabError):  # A record of another version of the kit is reported by ./lab.
                progress = read_progress(self._settings.lab_home)
        if progress is None:
            return {"scenario": self._settings.scenario, "stage": "", "unfinished": "", "platform": ""}
        return {name: getattr(progress, name) for name in ("scenario", "stage", "unfinished", "platform")}

    async def _map(self, _: str) -> Data:
        flows = await self._service.all_flows()
        land, places = places_of({region.name: region.place for region in self._settings.regions})
        links = await self._links.all()
        settings = [link_note(links, flow.source, flow.target) for flow in flows.flows]
        labels = [label(flow, note) for flow, note in zip(flows.flows, settings, strict=True)]
        runs_in = {(one.name, one.source, one.target): one.region for one in self._settings.routes}
        ends = [(flow.source, flow.target) for flow in flows.flows]
        arcs = lines(places, ends, [len(texts) - 1 for texts in labels])
        return {
            "setting": self._setting(), "labels": labels, "label": (LABEL[1], LABEL_LINE),
            "flows": flows, "size": _MAP, "land": land, "places": places, "arcs": arcs,
            "links": links, "delays": DELAYS,
            "runs_in": [runs_in.get((flow.mirror, flow.source, flow.target), flow.target) for flow in flows.flows],
        }  # fmt: skip

    async def _charts(self, of: str) -> Data:
        self._service.look()
        samples, made = self._pasts.get(of, (-1, {}))
        if samples != self._history.samples:
            made = self._past(of)
            if len(self._pasts) >= _MOST_PASTS:
                self._pasts.clear()
            self._pasts[of] = self._history.samples, made
        return made

    def _past(self, text: str) -> Data:
        """The charts of the flows, of a region's topics, or of a topic and its copies."""
        wanted, now = ChartSelection.parse(text), time.time()
        of = wanted.subject
        if not of:
            past = self._history.past(lambda subject: not subject.topic, now)
        elif of in self._service.regions:
            past = self._history.past(lambda subject: subject.region == of and bool(subject.topic), now)
        else:
            places = {tuple(place) for family in self._service.topics.families(of) for place in family}
            past = self._history.past(lambda subject: (subject.region, subject.topic) in places, now)
        past = within(past, wanted.range)
        drawn = sorted(past.series, key=lambda one: -sum(filter(None, one.records_per_s)))[:MOST_LINES]
        drawn.sort(key=past.series.index)
        changes = self._changes.latest() if self._changes else []
        marks = self._history.marks.latest(min(past.times, default=now), changes, self._jobs.past())
        made = [plot(measure, past, drawn, marks, whole=wanted.whole) for measure in PLOTS]
        return {
            "of": of, "wanted": wanted, "samples": len(past.times), "marks": marks, "seconds": RANGES[wanted.range][1],
            # A region's page opens on what it has.
            "charts": sorted(made, key=lambda chart: not chart["lines"]),
            "more": len(past.series) - len(drawn), "left_out": past.left_out,
        }  # fmt: skip

    async def _proof(self, _: str) -> Data:
        job = self._jobs.state("proof")
        return {"job": job, "sentence": sentence(job), "examples": examples(job), "past": self._jobs.past()}

    async def _scenario(self, of: str) -> Data:
        assert self._learning is not None
        return progress_of(self._learning, int(of) if of.isascii() and of.isdecimal() else 0)

    async def _aggregates(self, _: str) -> Data:
        job = self._jobs.state("aggregates")
        return {"job": job, "charts": charts(job), "totals": totals(job)}


def places_of(coordinates: Mapping[str, Coordinates | None]) -> tuple[str, dict[str, Point]]:
    """The land's outline and each region's point on the map; regions without coordinates are put on a circle.

    Returns:
        The transform of the land's outline, empty where no place is known, and the regions' points.
    """
    unknown = [name for name, place in coordinates.items() if place is None]
    turn = 2 * math.pi / max(1, len(unknown))
    width, height = _MAP
    points = {
        name: (width / 2 + 0.3 * width * math.cos(i * turn - 0.4), height / 2 + 0.3 * height * math.sin(i * turn - 0.4))
        for i, name in enumerate(unknown)
    }
    known = {name: place for name, place in coordinates.items() if place is not None}
    if not known:
        return "", points
    shown = window(known.values(), _MAP, _MARGIN, _LARGEST)
    points |= {name: shown.point(place) for name, place in known.items()}
    return shown.transform, {name: points[name] for name in coordinates}


def arc(places: Mapping[str, Point], source: str, target: str) -> dict[str, Any] | None:
    """A bent line from one region to another, and the middle of it; None where an end is not on the map."""
    if source not in places or target not in places:
        return None
    (x1, y1), (x2, y2) = places[source], places[target]
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    # From edge to edge of the circles, bent to the left of its direction, so that opposite flows are two lines.
    x1, y1, x2, y2 = x1 + 34 * ux, y1 + 34 * uy, x2 - 42 * ux, y2 - 42 * uy
    bend_x, bend_y = (x1 + x2) / 2 + 46 * uy, (y1 + y2) / 2 - 46 * ux
    return {
        "path": f"M{x1:.0f} {y1:.0f} Q{bend_x:.0f} {bend_y:.0f} {x2:.0f} {y2:.0f}",
        "x": round((x1 + 2 * bend_x + x2) / 4),
        "y": round((y1 + 2 * bend_y + y2) / 4),
        "head": _head(x2, y2, x2 - bend_x, y2 - bend_y),
        "points": [
            tuple((1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c for a, b, c in ((x1, bend_x, x2), (y1, bend_y, y2)))
            for t in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        ],
    }


def _head(x: float, y: float, dx: float, dy: float) -> str:
    """An arrowhead's corners at the end of a line that comes from a direction."""
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    tip, base = (x + 10 * ux, y + 10 * uy), (x - 10 * ux, y - 10 * uy)
    corners = (tip, (base[0] + 9 * uy, base[1] - 9 * ux), (base[0] - 9 * uy, base[1] + 9 * ux))
    return " ".join(f"{left:.0f},{top:.0f}" for left, top in corners)


def label(flow: Flow, note: str) -> list[tuple[str, bool]]:
    """The lines below a flow's rate on the map, each with whether it is a warning.

    Args:
        flow: the flow.
        note: its link's settings; empty for none.
    """
    unknown = "lag not known" if flow.explanation else "measuring the lag …"
    behind = unknown if flow.lag is None else f"{flow.lag:,} behind"
    lines = [(f"{behind}, p99 {duration(flow.latency_ms_p99)}", False)]
    if flow.gone:
        lines.append((f"{flow.gone:,} lost", True))
    elif flow.endangered:
        lines.append((f"time to loss: {span(flow.loss_in_s)}", True))
    elif flow.lag and flow.lag_s is not None and flow.lag_s >= _OLD_S:
        lines.append((f"the oldest is {span(flow.lag_s)} old", False))
    return [*lines, *([(f"link: {note}", False)] if note else [])]


def link_note(links: Iterable[Link], source: str, target: str) -> str:
    """The settings of the link from one region to another, in a few words; empty where it is unshaped."""
    for link in links:
        if {source, target} == set(link.between):
            way = next((way for way in link.directions if way.target == target), None)
            if way is None or link.state == "cut":
                return link.state
            return ", ".join(settings_of(way))
    return ""


def settings_of(way: LinkDirection) -> list[str]:
    """The settings of a direction of a link, each in a few words."""
    jitter = f" ± {duration(way.jitter_ms)}" if way.jitter_ms else ""
    return [
        *(["silent"] if way.silent else []),
        *(["connections refused"] if way.refuses else []),
        *([f"{duration(way.delay_ms)}{jitter}"] if way.delay_ms else []),
        *([f"{size(way.bytes_per_s)}/s"] if way.bytes_per_s else []),
    ]


LABEL = (184, 48)
"""Width and height of a flow's label."""
LABEL_LINE = 18
"""The height of each further line."""
_MAP = (1120, 560)
"""The map's width and height."""
_MARGIN = (200, 110)
"""The regions' distance from its left and right, and from its upper and lower edge."""
_LARGEST = 3.0
"""The largest scale of the land's outline, which is coarse."""
_REGION = (150, 100)
"""Width and height of a region, with its name above or below."""
_ROUNDS = 8
_OLD_S = 10.0
"""The age from which the map shows the oldest waiting record."""


def lines(
    places: Mapping[str, Point], flows: Sequence[tuple[str, str]], more: Sequence[int] = ()
) -> list[dict[str, Any] | None]:
    """A line for each flow, with a place for its label that is free of other labels and regions if possible.

    ``both`` says whether there is also a flow in the opposite direction, so that labels must name their direction.

    Args:
        places: the regions' points.
        flows: source and target of each.
        more: how many additional lines each label has; empty for none.
    """
    spots = _labels(tuple(places.items()), tuple(flows), tuple(more) or (0,) * len(flows))
    arcs = [arc(places, source, target) for source, target in flows]
    return [
        line and {**line, "x": spot[0], "y": spot[1], "both": flow[::-1] in flows}
        for line, spot, flow in zip(arcs, spots, flows, strict=True)
    ]


@lru_cache(maxsize=64)
def _labels(
    places: tuple[tuple[str, tuple[float, float]], ...], flows: tuple[tuple[str, str], ...], more: tuple[int, ...]
) -> list[tuple[float, float]]:
    """The labels' places, each as near to the middle of its line as the others allow.

    One label at a time moves to its best place while the others stay, until a round changes nothing. Overlapping
    another label or a region costs most, and overlapping another flow's line costs less.
    """
    arcs = [arc(dict(places), source, target) for source, target in flows]
    middles = [(line["x"], line["y"]) if line else (0.0, 0.0) for line in arcs]
    regions = [(x, y + (-22 if y < _MAP[1] / 2 else 22), *_REGION) for _, (x, y) in places]
    spots = list(middles)

    def cost(index: int, spot: tuple[float, float]) -> float:
        box = _box(spot, more[index])
        others = [_box(spots[k], more[k]) for k in range(len(flows)) if k != index and arcs[k]]
        crossed = sum(
            _overlap(box, (*point, 0, 0))
            for k, line in enumerate(arcs)
            if line and k != index
            for point in line["points"]
        )
        blocked = sum(_overlap(box, other) for other in (*regions, *others))
        return math.dist(spot, middles[index]) + 10 * crossed + 1000 * blocked

    for _ in range(_ROUNDS):
        before = list(spots)
        for index, line in enumerate(arcs):
            if line is not None:
                spots[index] = min(_near(middles[index]), key=lambda spot, index=index: cost(index, spot))  # type: ignore[misc]
        if spots == before:
            break
    return spots


def _box(spot: tuple[float, float], more: int) -> tuple[float, float, float, float]:
    """A label's box, which grows downwards: its middle and its size."""
    return spot[0], spot[1] + more * LABEL_LINE / 2, LABEL[0], LABEL[1] + more * LABEL_LINE


def _near(middle: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """The possible places of a label around the middle of its line, within the map."""
    reach = range(-150, 151, 25)
    for x, y in product((middle[0] + step for step in reach), (middle[1] + step for step in reach)):
        if LABEL[0] / 2 < x < _MAP[0] - LABEL[0] / 2 and LABEL[1] / 2 < y < _MAP[1] - LABEL[1] / 2:
            yield x, y


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two boxes, given by their middles and sizes, overlap."""
    return all(abs(one[i] - other[i]) < (one[i + 2] + other[i + 2]) / 2 for i in (0, 1))


_MOST_PASTS = 16


def sentence(job: JobState) -> str:
    """The proof's outcome in one sentence."""
    if job.state != "done" or not job.result:
        return job.explanation
    from loosehanger.proof.report.tables import summary

    try:
        return summary(job.result)
    except (KeyError, IndexError, TypeError):
        return "its document cannot be read; see the report"


_MOST_EXAMPLES = 200


def examples(job: JobState) -> list[dict[str, Any]]:
    """The differing records of a proof's document, with links to each at the source and at the target."""
    flows = (job.result or {}).get("flows")
    found: list[dict[str, Any]] = []
    for flow in flows if isinstance(flows, list) else ():
        for one in flow.get("examples", ()):
            partition = one.get("partition")
            places = (
                (flow.get("source"), flow.get("topic"), partition, one.get("source_offset")),
                (flow.get("target"), flow.get("target_topic"), one.get("target_partition", partition),
                 one.get("target_offset")),
            )  # fmt: skip
            found.append({
                "kind": str(one.get("kind", "")).replace("_", " "), "topic": str(flow.get("topic")),
                "key": str(one.get("key") or ""), "places": [_place(*place) for place in places],
            })  # fmt: skip
    return found[:_MOST_EXAMPLES]


def _place(region: object, topic: object, partition: object, offset: object) -> dict[str, object] | None:
    if offset is None:
        return None
    place = {"region": region, "topic": topic, "partition": partition, "offset": offset}
    return {**place, "href": f"/search?{urlencode(place)}"}


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
    result = []
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
            result.append({"title": title, "regions": list(regions), "groups": groups})
    return result


def _regions(job: JobState) -> dict[str, dict[str, Any]]:
    regions = (job.result or {}).get("regions")
    return regions if isinstance(regions, dict) else {}


def _number(value: object) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)
    return number if number.is_finite() else Decimal(0)


def _shown(value: object) -> str:
    return "–" if value is None else f"{_number(value):,}"


def ident(*parts: object) -> str:
    """An element's id, from the names of its subject: the same in every rendering, so that the page finds it again."""
    return "-".join(re.sub(r"[^A-Za-z0-9]", lambda sign: f"_{ord(sign[0]):x}_", str(part)) for part in parts)


_AFTER_9999 = 253_402_300_800
"""Seconds since the epoch. A record may have any timestamp, and no calendar continues after that."""


def when(seconds: float | None) -> Markup:
    """A moment, which the page shows in the viewer's time zone."""
    if seconds is None:
        return Markup("–")
    if not 0 <= seconds < _AFTER_9999:
        return Markup("{} ms").format(round(seconds * 1000))
    moment = datetime.fromtimestamp(seconds, UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(timespec="milliseconds"), text)
