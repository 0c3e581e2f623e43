"""Puts together the watch between any clusters: readers without Spark, and positions learned from the copies."""

from __future__ import annotations

import argparse
import ipaddress
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loosehanger.audit.canary import Canary, sources
from loosehanger.audit.client_naming import find_reached, name_records
from loosehanger.audit.client_reader import ClientReader
from loosehanger.audit.display import display, line_of
from loosehanger.audit.loop import Options, Parts, Watch
from loosehanger.audit.metrics import AuditMetrics, MetricsServer
from loosehanger.audit.observed_positions import ObservedPositions
from loosehanger.audit.scope import Inventory, Scope, Unfit, scope_between
from loosehanger.audit.state import Folder
from loosehanger.audit.status_page import StatusPage
from loosehanger.audit.topic import AuditTopic
from loosehanger.errors import ExitCode, LabError, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import connection_for
from loosehanger.kafka.patches import repair
from loosehanger.lab.job_options import metrics_token
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import changes_every_name, named_topics, selected_topics, target_topic
from loosehanger.lab.record import Lab
from loosehanger.mirrorproof.prove import ALL_TOPICS
from loosehanger.mirrorproof.watch import report_topic
from loosehanger.proof.flows import Flow, MirrorId
from loosehanger.proof.read.external import flow_name
from loosehanger.suggestions import instead
from loosehanger.times import span

_MOST_OPEN = 50_000
"""The most open buckets, which bounds memory at some 60 MB."""
_PATIENCE_S = 3.0
"""Seconds from a signal until the process ends, whatever still waits for a cluster."""
_FIRST = "Asking the clusters; the first numbers appear in a moment."
Document = Mapping[str, Any]


@dataclass(frozen=True)
class AnyFlows:
    """Flows between any clusters.

    Attributes:
        lab: the clusters.
        mirrors: the flows.
    """

    lab: Lab
    mirrors: tuple[Mirror, ...]

    @classmethod
    def given(cls, options: argparse.Namespace, warn: Callable[[str], object]) -> AnyFlows:
        """The flows that the command line names.

        Raises:
            WrongUseError: a file cannot be used.
        """
        if options.target is None:
            from loosehanger.mirrorproof.configuration import read_configuration  # slow to import

            lab = read_configuration(options.source).lab(os.environ, options.flow, warn)
        else:
            from loosehanger.proof.read.external import two_clusters

            given = (options.topics or ALL_TOPICS, options.policy or "identity", options.source_alias or "source")
            lab = two_clusters(options.source, options.target, *given, warn)
        named = (replace(mirror, name=mirror.name.removeprefix(flow_name(""))) for mirror in lab.mirrors)
        return cls(lab, tuple(named))

    def open(self, name: str) -> Cluster:
        """Opens a cluster, with connections of its own."""
        return Cluster.of(self.lab.region(name), PROVER)

    def survey(self) -> Scope:
        """Asks every cluster for its id and its topics.

        Raises:
            LabError: a cluster does not answer, or no topic can be watched.
            WrongUseError: the two sides of a flow are one cluster.
        """
        ids, inventories = {}, {}
        for name in self.lab.clusters:
            with self.open(name) as cluster:
                ids[name], inventories[name] = cluster.id(), cluster.inventory()
        for mirror in self.mirrors:
            same = ids[mirror.source] and ids[mirror.source] == ids[mirror.target]
            if same and not changes_every_name(mirror):
                raise WrongUseError(
                    f"{mirror.source} and {mirror.target} are the same cluster (id {ids[mirror.source]}), so each "
                    "topic would be compared with itself; check bootstrap.servers of both"
                )
        scope = self.scope(ids, inventories, {})
        if not scope.flows and not scope.excused:
            raise LabError("nothing to watch: no topic of any flow exists at its source")
        return scope

    def scope(self, ids: Mapping[str, str], inventories: Mapping[str, Inventory], unfit: Unfit) -> Scope:
        """Finds the flows; a topic that is named but cannot be watched counts as not judged."""
        scope = scope_between(self.mirrors, [mirror.id for mirror in self.mirrors], ids, inventories, unfit)
        missing = {}
        for mirror in self.mirrors:
            there = inventories.get(mirror.source)
            if there is None:
                continue
            for topic in named_topics(mirror, selected_topics(mirror, there)):
                why = f"{mirror.source} has no topic {topic}"
                if topic in there:
                    why = "its name is that of an internal topic, of an excluded one, or of a copy from the target"
                flow = Flow(mirror, topic, target_topic(mirror, topic))
                missing[flow.id] = flow, why
        return replace(scope, excused={**scope.excused, **missing})

    def watch(self, options: argparse.Namespace, scope: Scope, folder: Folder, report: Callable[[str], None]) -> Watch:
        """Returns the watch.

        Raises:
            WrongUseError: a cluster or a topic that an option names is not there.
        """
        groups = self.groups(options.copier_group)
        self._check_groups(groups)
        parts = Parts(
            self.lab.scenario,
            self.mirrors,
            lambda inventories, unfit: self.scope(scope.clusters, inventories, unfit),
            {name: ClientReader(name, self.open(name)) for name in scope.clusters},
            lambda copied_by: ObservedPositions(
                self.mirrors,
                lambda mirror: self.open(mirror.source),
                copied_by,
                partial(find_reached, self.open),
                options.grace,
                groups,
            ),
            partial(name_records, self.open),
            published=self._publisher(options.report_topic),
            canary=self._canary(options.canary, options.canary_topic),
        )
        limits = Options(
            every_s=options.every,
            late_after_s=options.grace,
            settle_s=options.grace,
            warn_s=options.warn,
            most_open=_MOST_OPEN,
        )
        return Watch(parts, scope, limits, folder, report)

    def groups(self, given: Iterable[str]) -> dict[MirrorId, str]:
        """The consumer group of each flow, by ``--copier-group``: a name without a flow before it applies to all."""
        names = {mirror.name: mirror.id for mirror in self.mirrors}
        found: dict[MirrorId, str] = {}
        for text in given:
            flow, _, group = text.partition(":")
            if group and flow in names:
                found[names[flow]] = group
            else:
                found = {mirror.id: text for mirror in self.mirrors} | found
        return found

    def _check_groups(self, groups: Mapping[MirrorId, str]) -> None:
        """Checks that the groups can be read, and have committed something.

        Raises:
            WrongUseError: a group has committed nothing at its source.
            LabError: the cluster does not answer, or the user may not describe the group.
        """
        for mirror in self.mirrors:
            if group := groups.get(mirror.id):
                with self.open(mirror.source) as cluster:
                    if not cluster.committed(group, cluster.inventory()):
                        raise WrongUseError(
                            f"--copier-group: group '{group}' has committed no offset at {mirror.source}; name the "
                            "group to which the copier commits, or leave the option out"
                        )

    def _publisher(self, wanted: str | None) -> AuditTopic | None:
        if wanted is None:
            return None
        name, topic = report_topic(wanted)
        targets = sorted({mirror.target for mirror in self.mirrors})
        if not name and len(targets) > 1:
            raise WrongUseError(f"--report-topic: {' and '.join(targets)} are targets; name one: {targets[0]}:{topic}")
        name = name or targets[0]
        if name not in self.lab.clusters:
            hint = instead(name, self.lab.clusters, "the clusters are")
            raise WrongUseError(f"--report-topic: there is no cluster '{name}'{hint}")
        return AuditTopic(connection_for(self.lab.region(name), PROVER), topic)

    def _canary(self, every_s: float | None, topic: str | None) -> Canary | None:
        if every_s is None or topic is None:
            return None
        if not (regions := sources(self.mirrors, topic)):
            raise WrongUseError(f"--canary-topic: no flow copies {topic}; name a topic that one does")
        connections = {region: connection_for(self.lab.region(region), PROVER) for region in regions}
        return Canary(connections, every_s, topic, create=False)


class Ending:
    """Ends the process with a summary: after the present round, or within seconds if a cluster does not answer.

    Args:
        as_json: whether standard output is for documents.
        temporary: a folder to remove; None for none.
    """

    def __init__(self, *, as_json: bool, temporary: Path | None) -> None:
        self.ended = threading.Event()
        self._as_json = as_json
        self._temporary = temporary
        self._began = time.monotonic()
        self._last: Document | None = None

    def following(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Yields the documents, and keeps the last one for the summary."""
        for document in documents:
            self._last = document
            yield document

    def end(self) -> None:
        """Ends the watch; another call ends the process at once."""
        if self.ended.is_set():
            self._leave()
        self.ended.set()
        self._timer(_PATIENCE_S, self._leave)

    def end_after(self, seconds: float) -> None:
        """Ends the watch after this time."""
        self._timer(seconds, self.end)

    def summarise(self) -> None:
        """Prints the summary."""
        print(summary(self._last, time.monotonic() - self._began), file=sys.stderr if self._as_json else sys.stdout)

    def _timer(self, seconds: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()

    def _leave(self) -> None:
        # What the last round stored is whole: the next watch continues there.
        if sys.stdout.isatty():
            # The display hides the cursor.
            os.write(sys.stdout.fileno(), b"\x1b[?25h\n")
        self.summarise()
        sys.stdout.flush()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
        os._exit(ExitCode.DONE)


def summary(document: Document | None, seconds: float) -> str:
    """Returns the summary of a watch.

    Args:
        document: of its last round; None before the first.
        seconds: for which it ran.
    """
    if document is None:
        return f"watched for {span(seconds)}: no round was completed"
    copies, records = sum(flow["copies"] for flow in document["flows"]), document["totals"]["records"]
    result = line_of(document)
    if not records and not copies and result.startswith("proved"):
        result = "there was nothing to compare"
    return f"watched for {span(seconds)}: {records:,} records at the sources, {copies:,} copies; {result}"


def watch(options: argparse.Namespace) -> int:
    """Runs the watch until a signal, or the end of ``--for``.

    Raises:
        LabError: the options cannot be used, or a cluster does not answer at the start.
    """
    repair()
    flows = AnyFlows.given(options, _warn)
    temporary = Path(tempfile.mkdtemp(prefix="mirrorproof-watch-")) if options.state is None else None
    with ExitStack() as stack:
        if temporary:
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        folder = Folder(temporary or options.state)
        folder.check()
        stack.enter_context(folder.locked())
        scope = flows.survey()
        watched = flows.watch(options, scope, folder, _warn)
        metrics = AuditMetrics(options.every, options.canary, with_risks=True)
        if options.metrics:
            token = metrics_token(options.metrics_token_file)
            _warn_of_network(options.metrics[0])
            page = StatusPage(metrics)
            server = stack.enter_context(MetricsServer(metrics, options.metrics, token, {"/": page.answer}))
            _warn(f"status page at http://{_shown(options.metrics[0])}:{server.port}/, metrics at /metrics")
        ending = Ending(as_json=options.json, temporary=temporary)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ending.end())
        if vars(options)["for"] is not None:
            ending.end_after(vars(options)["for"])
        with watched:
            documents = ending.following(metrics.following(watched.updates(ending.ended)))
            display(documents, _FIRST, as_json=options.json)
            ending.summarise()
    return ExitCode.DONE


def _warn_of_network(host: str) -> None:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        _warn(f"warning: --metrics: {host} is not a loopback address; the token crosses the network unencrypted")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
