"""What a console serves to Prometheus at ``/metrics``: flows, latencies, mirrors, links, and the last proof.

What is served is what the pages show, whatever the number of records. It is read and encoded between scrapes, so a
scrape waits for no cluster. What is not known is absent: a lag of 0 means that nothing waits.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from loosehanger.audit.metrics import RiskFamilies
from loosehanger.console.context import Context
from loosehanger.console.guard import METRICS
from loosehanger.console.models import Link, Mirror, PastProof
from loosehanger.console.totals import TopicTotals

if TYPE_CHECKING:
    from loosehanger.console.flow_reader import FlowNow

PREFIX = "loosehanger"
MOST_COPIES = 500
"""Most copies of topics with metrics of their own; ``loosehanger_copies_left_out`` counts the others."""
STATES = ("running", "paused", "stopped", "failed", "restarting", "unassigned")
VERDICTS = ("proved", "disproved", "inconclusive", "failed")
_FLOW = ("source", "target", "mirror")
_COPY = (*_FLOW, "topic")
_CONNECTOR = ("region", "mirror", "connector")
EVERY_S = 5.0
"""Between two readings, while the metrics are scraped."""
KEPT_S = 30.0
"""A reading that is older is not served: a scrape waits for the next one."""
SCRAPED_S = 90.0
"""Seconds after a scrape until which the metrics are read for the next one."""
Encoder = Callable[[CollectorRegistry], bytes]
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, eq=False)  # a registry keeps its collectors by identity
class Scrape(Collector):
    """What one scrape reports."""

    flows: Sequence[FlowNow]
    regions: Mapping[str, bool | None]
    """Whether each region's cluster answers; None behind a closed link."""
    mirrors: Sequence[Mirror]
    totals: Mapping[tuple[str, str], TopicTotals]
    """What was read of each copy, by the target region and its topic."""
    links: Sequence[Link]
    proof: PastProof | None
    lost: frozenset[str] = frozenset()
    """The regions that the lab's present stage has killed on purpose."""
    at: float = 0.0
    """When the reading was complete, in seconds since the epoch."""
    changing: bool | None = None
    """Whether a set-up, a stage or a clean-up is running; None where that is not known."""

    def collect(self) -> Iterator[Metric]:
        """Yields the metric families."""
        read = _gauge("metrics_read_timestamp_seconds", "When these metrics were read, in seconds since the epoch", ())
        read.add_metric([], self.at)
        yield read
        if self.changing is not None:
            running = _gauge("stage_running", "Whether a set-up, a stage or a clean-up of the lab is running", ())
            running.add_metric([], self.changing)
            yield running
        yield from self._regions()
        yield from self._flows()
        yield from self._mirrors()
        yield from self._links()
        yield from self._proof()

    def _regions(self) -> Iterator[Metric]:
        up = _gauge("region_up", "Whether the region's cluster answers; absent behind a closed link", ("region",))
        killed = _gauge("region_lost", "Whether the lab's stage has killed the region on purpose", ("region",))
        for name, answers in self.regions.items():
            killed.add_metric([name], name in self.lost)
            if answers is not None:
                up.add_metric([name], answers)
        yield from (up, killed)

    def _flows(self) -> Iterator[Metric]:
        risks = RiskFamilies()
        latency = _histogram(
            "mirror_end_to_end_latency_seconds", "From a record's creation until the console read its copy", _COPY
        )
        records = _counter("mirror_copied_records", "Records of the copy that the console has read", _COPY)
        size = _counter("mirror_copied_bytes", "Uncompressed bytes of keys, values and headers of these records", _COPY)
        desired = _gauge("mirror_desired_running", "Whether the manifest has the mirror copy from this source", _FLOW)
        for one in self.flows:
            if one.connector is not None:
                labels = [one.flow.source, one.flow.target, one.flow.mirror]
                desired.add_metric(labels, (one.connector.wanted or "RUNNING") == "RUNNING")
        left_out = _gauge("copies_left_out", "Copies of topics beyond the bound, which have no metrics here", ())
        copies = [(one, topic, copy) for one in self.flows for topic, copy in sorted(one.copies.items())]
        for one, topic, copy in copies[:MOST_COPIES]:
            labels = [one.flow.source, one.flow.target, one.flow.mirror, topic]
            danger = one.dangers.get(topic)
            if danger is not None:
                risks.add(labels, danger)
            elif one.connector is not None and topic in one.connector.lags:
                risks.lag.add_metric(labels, one.connector.lags[topic])
            if danger is not None or topic in one.lost:
                risks.gone.add_metric(labels, max(one.lost.get(topic, 0), danger.gone if danger else 0))
            if totals := self.totals.get((one.flow.target, copy)):
                records.add_metric(labels, totals.records)
                size.add_metric(labels, totals.bytes)
                latency.add_metric(labels, totals.cumulative(), totals.latency_ms / 1000)
        left_out.add_metric([], max(0, len(copies) - MOST_COPIES))
        yield from (*risks.all(), desired, latency, records, size, left_out)

    def _mirrors(self) -> Iterator[Metric]:
        up = _gauge("mirror_up", "Whether a Connect worker of the mirror answers", ("region", "mirror"))
        state = _states("connector_state", "The connector's state in Kafka Connect", _CONNECTOR)
        wanted = _states("connector_desired_state", "The connector's state by its manifest", _CONNECTOR)
        stalled = _gauge(
            "connector_stalled", "Whether the connector runs and delivers nothing while records wait", _CONNECTOR
        )
        task = _states("task_state", "The task's state in Kafka Connect", (*_CONNECTOR, "task"))
        for mirror in self.mirrors:
            if mirror.health == "unknown" and not mirror.answers:
                continue  # Behind a closed link its state is not known.
            up.add_metric([mirror.region, mirror.name], mirror.answers or mirror.state == "Stopped")
            for one in mirror.connectors:
                labels = [mirror.region, mirror.name, one.name]
                _set(state, labels, one.state)
                _set(wanted, labels, one.wanted or "RUNNING")
                stalled.add_metric(labels, bool(one.stalled))
                for part in one.tasks:
                    _set(task, [*labels, str(part.number)], part.state)
        yield from (up, state, wanted, stalled, task)

    def _links(self) -> Iterator[Metric]:
        between = ("source", "target")
        opened = _gauge("link_open", "Whether records can cross the link in this direction", between)
        delay = _gauge("link_delay_seconds", "One-way delay that is set", between)
        rate = _gauge("link_rate_limit_bytes_per_second", "Rate limit that is set; absent for none", between)
        carried = _counter("link_carried_bytes", "Bytes delivered since the link's relay was started", between)
        for link in self.links:
            for way in link.directions:
                labels = [way.source, way.target]
                opened.add_metric(labels, link.state not in ("cut", "silent", "down") and not way.silent)
                delay.add_metric(labels, way.delay_ms / 1000)
                carried.add_metric(labels, way.carried)
                if way.bytes_per_s is not None:
                    rate.add_metric(labels, way.bytes_per_s)
        yield from (opened, delay, rate, carried)

    def _proof(self) -> Iterator[Metric]:
        if self.proof is None:
            return
        verdict = _states("proof_verdict", "Verdict of the last proof that was run from the control room", ())
        _set(verdict, [], self.proof.verdict, VERDICTS)
        ended = _gauge("proof_ended_timestamp_seconds", "When it ended, in seconds since the epoch", ())
        ended.add_metric([], self.proof.started + self.proof.seconds)
        claims = _gauge("proof_claims", "Its claims, by verdict", ("verdict",))
        for name in VERDICTS[:3]:
            claims.add_metric([name], sum(claim.verdict == name for claim in self.proof.claims))
        yield from (verdict, ended, claims)


async def read(context: Context) -> Scrape:
    """Reads what a scrape reports; counts as use of the console, so that the regions are read between scrapes too."""
    service = context.service
    service.look()
    flows, mirrors, links, states = await asyncio.gather(
        service.flows.measured(), service.mirrors.every(), context.links.all(), service.region_states()
    )
    regions = {one.name: None if one.health == "unknown" else one.health != "bad" for one in states}
    wanted: dict[str, set[str]] = {}
    for one in flows:
        wanted.setdefault(one.flow.target, set()).update(one.copies.values())
    totals = {
        (region, topic): found
        for region, topics in wanted.items()
        if region in service.regions
        for topic, found in service.regions[region].live.totals.of(topics).items()
    }
    past = await asyncio.to_thread(context.jobs.past)
    lost = await asyncio.to_thread(_lost, context)
    changing = await asyncio.to_thread(_changing, context)
    return Scrape(
        flows, regions, mirrors.mirrors, totals, links, past[0] if past else None, lost, time.time(), changing
    )


def _changing(context: Context) -> bool | None:
    from loosehanger.lab.progress import playbook_runs

    return None if context.settings.lab_home is None else playbook_runs(context.settings.lab_home)


def _lost(context: Context) -> frozenset[str]:
    from loosehanger.errors import LabError
    from loosehanger.lab.progress import read_progress

    if context.settings.lab_home is None:
        return frozenset()
    try:
        progress = read_progress(context.settings.lab_home)
    except LabError:
        return frozenset()
    return frozenset(progress.lost if progress else ())


class Exposition:
    """The metrics as text, read and encoded again and again while Prometheus scrapes them.

    Args:
        context: the console's parts.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wanted = asyncio.Event()
        self._reading = asyncio.Lock()
        self._formats: dict[str, tuple[Encoder, float]] = {}
        """The encoder of each content type, and when it was asked for last."""
        self._kept: dict[str, bytes] = {}
        """The last reading, by content type."""
        self._read_at = -KEPT_S

    async def run(self) -> None:
        """Reads until it is cancelled, while the metrics are scraped."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(EVERY_S)  # until the next reading is due
            used = time.monotonic() - SCRAPED_S
            self._formats = {name: known for name, known in self._formats.items() if known[1] > used}
            if not self._formats:
                self._wanted.clear()
                continue
            try:
                async with self._reading:
                    await self._read()
            except Exception:  # One failed reading must not stop the next ones; the log has the trace.
                traceback.print_exc()

    async def answer(self, accept: str) -> tuple[bytes, str]:
        """Returns text and content type for a scrape.

        Args:
            accept: the request's header.
        """
        encode, content_type = choose_encoder(accept)
        self._formats[content_type] = encode, time.monotonic()
        self._wanted.set()
        if text := self._fresh(content_type):
            return text, content_type
        async with self._reading:
            # Another scrape may have waited for the same reading.
            if self._fresh(content_type) is None:
                await self._read()
            return self._kept[content_type], content_type

    def _fresh(self, content_type: str) -> bytes | None:
        return self._kept.get(content_type) if time.monotonic() - self._read_at < KEPT_S else None

    async def _read(self) -> None:
        scrape = await read(self._context)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(scrape)
        encoders = {name: encode for name, (encode, _) in self._formats.items()}
        self._kept = await asyncio.to_thread(lambda: {name: encode(registry) for name, encode in encoders.items()})
        self._read_at = time.monotonic()


@router.get(METRICS)
async def metrics(request: Request) -> Response:
    """Everything that the console measures, in Prometheus' text format or, where it is asked for, OpenMetrics.

    The guard has checked the scraper's token.
    """
    exposition: Exposition = request.app.state.exposition
    text, content_type = await exposition.answer(request.headers.get("accept", ""))
    return Response(text, media_type=content_type)


def _gauge(name: str, meaning: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)


def _counter(name: str, meaning: str, labels: Sequence[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)


def _histogram(name: str, meaning: str, labels: Sequence[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)


def _states(name: str, meaning: str, labels: Sequence[str]) -> GaugeMetricFamily:
    """One series for each state, of which the present one is 1; the label is ``state``, or ``verdict``."""
    return _gauge(name, meaning, (*labels, "verdict" if name.endswith("verdict") else "state"))


def _set(family: GaugeMetricFamily, labels: Iterable[str], present: str, states: Sequence[str] = STATES) -> None:
    for state in states:
        family.add_metric([*labels, state], state == present.lower())
