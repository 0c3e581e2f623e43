"""What the watch serves to Prometheus at ``/metrics``: the audit's numbers after its last round.

What is not known is absent: before the first round nothing is served but the time of the start and, of the lab's own
audit, whether it is paused; a topic that is not judged has no differences, and a canary that has not arrived has no
age. The number of series grows with flows and topics, never with records.
"""

from __future__ import annotations

import base64
import hmac
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from loosehanger.audit.balance import KINDS
from loosehanger.audit.verdicts import verdict_of
from loosehanger.errors import WrongUseError
from loosehanger.kafka.retention_risk import TopicRisk

PATH = "/metrics"
PREFIX = "loosehanger_audit"
MOST_FLOWS = 500
"""Most copies of topics with metrics of their own; ``loosehanger_audit_copies_left_out`` counts the others."""
VERDICTS = ("proved", "disproved", "inconclusive")
ALARMS = ("problems", "canaries", "findings", "notes", "not_judged")
"""The kinds of alarm, named as in the watch's JSON document."""
_COPY = ("source", "target", "mirror", "topic")
_WRONG_IN_THE_LAB = "the scraper's token is missing or wrong; run ./lab monitoring"
_IDLE_S = 10
"""Seconds after which a connection that sends nothing is closed."""
Document = Mapping[str, Any]
Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


class AuditMetrics(Collector):
    """The metrics of the last round.

    Args:
        every_s: seconds from one round to the next.
        canary_s: seconds from one canary to the next; None for none.
        with_risks: whether mirrors' lag and time to loss are served, too; the lab's console serves the lab's.
        now: returns the seconds since the epoch.
    """

    def __init__(
        self,
        every_s: float,
        canary_s: float | None = None,
        now: Callable[[], float] = time.time,
        *,
        with_risks: bool = False,
    ) -> None:
        self._every_s = every_s
        self._canary_s = canary_s
        self._with_risks = with_risks
        self._now = now
        self._started = now()
        self._last: Document | None = None
        self._paused: bool | None = None
        """Whether the audit waits for a stage; None for a watch, which does not."""

    def following(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yields the documents, and keeps the last one for the next scrape.

        Args:
            documents: as from ``Watch.updates``.
        """
        for document in documents:
            # A scrape in another thread reads this name once, so it never sees half a round.
            self._last = None if self._paused else document
            yield document

    def last(self) -> Document | None:
        """The document of the last round; None before the first."""
        return self._last

    def pause(self) -> None:
        """Forgets the last round: what it found is no longer known."""
        self._paused, self._last = True, None

    def resume(self) -> None:
        """Has the next round served."""
        self._paused = False

    def collect(self) -> Iterator[Metric]:
        """Yields the metric families."""
        started = _gauge("started_timestamp_seconds", "When this run of the audit began", ())
        started.add_metric([], self._started)
        yield started
        if self._paused is not None:
            paused = _gauge("paused", "Whether the audit of the lab waits until a set-up or a stage has finished", ())
            paused.add_metric([], self._paused)
            yield paused
        if (document := self._last) is not None:
            yield from _round(document, self._every_s)
            yield from _flows(document)
            yield from self._canaries(document)
            if self._with_risks:
                yield from _risks(document)

    def _canaries(self, document: Document) -> Iterator[Metric]:
        if self._canary_s is None:
            return
        interval = _gauge("canary_interval_seconds", "Time from one canary to the next", ())
        interval.add_metric([], self._canary_s)
        age = _gauge("canary_age_seconds", "Time since the newest canary that arrived was sent", _COPY)
        latency = _gauge("canary_latency_seconds", "From sending that canary until the audit read its copy", _COPY)
        for entry in document["canaries"]:
            if entry["newest"] is not None:
                labels = [entry["source"], entry["target"], entry["mirror"], entry["topic"]]
                age.add_metric(labels, max(self._now() - datetime.fromisoformat(entry["newest"]).timestamp(), 0.0))
                latency.add_metric(labels, entry["latency_s"])
        yield from (interval, age, latency)


def _round(document: Document, every_s: float) -> Iterator[Metric]:
    ended = _gauge("round_timestamp_seconds", "When the last round had asked the regions", ())
    ended.add_metric([], document["at"] / 1000)
    read = _gauge("read_timestamp_seconds", "When the records of a region were last read", ())
    if document["read_at"] is not None:
        read.add_metric([], document["read_at"] / 1000)
    interval = _gauge("round_interval_seconds", "Time from the beginning of one round to the next", ())
    interval.add_metric([], every_s)
    since = _gauge("since_timestamp_seconds", "The time from which records are counted and judged", ())
    since.add_metric([], document["since"] / 1000)
    verdict = _gauge("round_verdict", "Verdict of the last round about all that it judges", ("verdict",))
    present = verdict_of(document)
    for name in VERDICTS:
        verdict.add_metric([name], name == present)
    alarms = _gauge("alarms", "Alarms that the audit shows", ("kind",))
    for kind in ALARMS:
        entries = document[kind]
        if kind == "canaries":
            entries = [entry for entry in entries if entry["late"] or entry["missing"]]
        alarms.add_metric([kind], len(entries))
    yield from (ended, read, interval, since, verdict, alarms)


def _flows(document: Document) -> Iterator[Metric]:
    judged = _gauge("judged", "Whether the copy is judged", _COPY)
    records = _counter("source_records", "Records at the source that the audit has checked", _COPY)
    copies = _counter("target_records", "Records of the copy that the audit has checked", _COPY)
    differences = _gauge("differences", "Records that differ now, by kind; sources are joined by +", (*_COPY, "kind"))
    in_flight = _gauge("in_flight_records", "Records that were not copied yet; sources are joined by +", _COPY)
    late = _gauge("late_records", "Records that were not copied for too long; sources are joined by +", _COPY)
    left_out = _gauge("copies_left_out", "Copies of topics beyond the bound, which have no metrics here", ())
    flows, others = document["flows"], document["not_judged"]
    shown = flows[:MOST_FLOWS]
    for flow in shown:
        labels = [flow["source"], flow["target"], flow["mirror"], flow["topic"]]
        judged.add_metric(labels, 1)
        records.add_metric(labels, flow["records"])
    for flow in others[: MOST_FLOWS - len(shown)]:
        judged.add_metric([flow["source"], flow["target"], flow["mirror"], flow["topic"]], 0)
    # Records of a target's topic cannot be attributed to one of several sources, so they are counted once.
    together: dict[tuple[str, str], list[Document]] = {}
    for flow in shown:
        together.setdefault((flow["target"], flow["target_topic"]), []).append(flow)
    for (target, _), same in together.items():
        source, mirror, topic = (_joined(flow[name] for flow in same) for name in ("source", "mirror", "topic"))
        labels = [source, target, mirror, topic]
        copies.add_metric(labels, same[0]["copies"])
        in_flight.add_metric(labels, same[0]["in_flight"])
        late.add_metric(labels, same[0]["late"])
        for kind in KINDS:
            differences.add_metric([*labels, kind], same[0][kind])
    left_out.add_metric([], max(len(flows) + len(others) - MOST_FLOWS, 0))
    yield from (judged, records, copies, differences, in_flight, late, left_out)


class RiskFamilies:
    """The metrics of mirrors' lag and time to loss, which the lab's console serves, and a watch of other clusters."""

    def __init__(self) -> None:
        def gauge(name: str, meaning: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"loosehanger_mirror_{name}", meaning, labels=_COPY)

        self.lag = gauge("lag_records", "Records at the source that the mirror has not copied")
        self._age = gauge("lag_seconds", "Age of the oldest record that the mirror has not copied")
        self._loss = gauge(
            "time_to_loss_seconds",
            "Time until the source may delete a record that the mirror has not copied; absent while nothing waits",
        )
        self._near = gauge("loss_near", "Whether that is soon, and half of the retention is used up")
        self.gone = gauge(
            "deleted_offsets", "Offsets that the source deleted before the mirror had copied them, since the start"
        )
        self._held = gauge(
            "held_offsets", "Offsets behind the last stable offset, held back by an open transaction at the source"
        )
        self._held_s = gauge(
            "held_seconds", "For how long the same open transaction has held back offsets at the source"
        )

    def add(self, labels: Sequence[str], risk: TopicRisk) -> None:
        """Adds the risk of a copy; ``gone`` is the caller's."""
        self.lag.add_metric(labels, risk.behind)
        self._age.add_metric(labels, risk.age_s or 0.0)
        self._near.add_metric(labels, risk.endangered)
        self._held.add_metric(labels, risk.held)
        self._held_s.add_metric(labels, risk.held_s)
        if risk.loss_in_s is not None:
            self._loss.add_metric(labels, risk.loss_in_s)

    def all(self) -> tuple[GaugeMetricFamily, ...]:
        """The families."""
        return self.lag, self._age, self._loss, self._near, self.gone, self._held, self._held_s


def _risks(document: Document) -> Iterator[Metric]:
    families = RiskFamilies()
    for flow in document["flows"][:MOST_FLOWS]:
        if flow["loss"]:
            labels = [flow["source"], flow["target"], flow["mirror"], flow["topic"]]
            risk = TopicRisk(**flow["loss"])
            families.add(labels, risk)
            families.gone.add_metric(labels, risk.gone)
    yield from families.all()
    unread = _gauge("unread_offsets", "Offsets that are there and that the audit has not read yet", ())
    unread.add_metric([], document["unread"])
    yield unread


def _joined(names: Iterable[str]) -> str:
    return "+".join(sorted(set(names)))


def _gauge(name: str, meaning: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)


def _counter(name: str, meaning: str, labels: Sequence[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=labels)


def application(metrics: AuditMetrics, token: str, pages: Mapping[str, Application] | None = None) -> Application:
    """The WSGI application: the metrics in Prometheus' text format or OpenMetrics, for the scraper's token only.

    Args:
        metrics: of the watch.
        token: the scraper's. For pages it is also a password, of any user, for a browser asks for one.
        pages: further applications, by their paths.
    """
    others = pages or {}
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    encoded: Application = make_wsgi_app(registry, disable_compression=True)

    def answer(request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = request.get("PATH_INFO", "")
        if not _has_token(request.get("HTTP_AUTHORIZATION", ""), token, basic=path in others):
            wrong = "the token is missing or wrong" if others else _WRONG_IN_THE_LAB
            return _refuse(start, "401 Unauthorized", wrong, "Basic" if path in others else "Bearer")
        if path != PATH and path not in others:
            return _refuse(start, "404 Not Found", f"there is only {' and '.join([PATH, *others])}")
        if request.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _refuse(start, "405 Method Not Allowed", f"{path} can only be read")
        return others[path](request, start) if path in others else encoded(request, start)

    return answer


def _has_token(authorization: str, token: str, *, basic: bool) -> bool:
    scheme, _, given = authorization.partition(" ")
    # WSGI's text has a character for each byte.
    credentials = given.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic" and basic:
        try:
            _, _, credentials = base64.b64decode(credentials, validate=True).partition(b":")
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(credentials, token.encode())


def _refuse(start: StartResponse, status: str, reason: str, scheme: str = "Bearer") -> Iterable[bytes]:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
    if status.startswith("401"):
        headers.append(("WWW-Authenticate", f'{scheme} realm="the audit"' if scheme == "Basic" else scheme))
    start(status, headers)
    return [f"{reason}\n".encode()]


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Logs nothing: the watch's output is its own."""


class _Server(ThreadingWSGIServer):
    # A port with connections of the last run in TIME_WAIT can be bound again.
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that left before its answer was complete."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _server_of(host: str) -> type[_Server]:
    return _Server6 if ":" in host else _Server


class MetricsServer:
    """Serves the metrics in threads of its own; a context manager.

    Args:
        metrics: of the watch.
        address: the host and the port; port 0 for any that is free.
        token: the scraper's.
        pages: further applications, by their paths.

    Raises:
        WrongUseError: the address cannot be listened on.
    """

    def __init__(
        self,
        metrics: AuditMetrics,
        address: tuple[str, int],
        token: str,
        pages: Mapping[str, Application] | None = None,
    ) -> None:
        host, port = address
        try:
            self._server = make_server(host, port, application(metrics, token, pages), _server_of(host), _Handler)
        except OSError as error:
            reason = error.strerror or error
            raise WrongUseError(f"--metrics: cannot listen on {host}:{port} ({reason}); name another port") from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_port)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
