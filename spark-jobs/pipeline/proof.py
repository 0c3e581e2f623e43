"""The proof, step by step: freeze a cut, wait for the mirrors to pass it, read both sides, compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kafka import TopicPartition
from pyspark.sql import SparkSession

from lab.access import Lab, Mirror
from pipeline.clusters import Cluster, UnreachableError
from pipeline.comparing import Counts, Cut, Flow, FlowKey, Frozen, MirrorKey, compare, freeze
from pipeline.configurations import Difference, config_differences
from pipeline.external import wait_for_arrival
from pipeline.latency import LatencySampler
from pipeline.mirrors import UNKNOWN, Progress, describe, selected_topics, target_topic, wait_for_mirror
from pipeline.session import ERRORS, cause

_CONFIG_TIMEOUT_S = 15.0
_ATTEMPTS = 3

Report = Callable[[str], None]


@dataclass
class Evidence:
    """Everything found, before it is judged."""

    flows: list[Flow] = field(default_factory=list)
    cuts: dict[str, Cut] = field(default_factory=dict)
    progress: dict[MirrorKey, Progress] = field(default_factory=dict)
    counts: dict[FlowKey, Counts] = field(default_factory=dict)
    configs: dict[FlowKey, list[Difference]] = field(default_factory=dict)
    latencies: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    undecided: list[str] = field(default_factory=list)
    """Why something could not be decided."""


class Proof:
    """One run of the proof over everything that the lab's mirrors copy.

    Args:
        lab: what is set up.
        start_spark: makes the session; it is called in a thread, since starting takes seconds that can be used.
        timeout_s: bound of the wait for the mirrors, in seconds.
        examples: how many differences of each kind and flow to show.
        report: takes a line that says what is being done.
        since: records older than this are left out.
    """

    def __init__(
        self,
        lab: Lab,
        start_spark: Callable[[], SparkSession],
        timeout_s: float,
        examples: int,
        report: Report,
        since: datetime | None = None,
    ) -> None:
        self._lab = lab
        self._since = since
        self._timeout_s = timeout_s
        self._examples = examples
        self._report = report
        self._clusters = {name: Cluster.of(region) for name, region in lab.regions.items()}
        self._samplers: dict[str, LatencySampler] = {}
        self._threads = ThreadPoolExecutor(max_workers=16)
        self._spark: Future[SparkSession] = self._threads.submit(start_spark)
        self._found = Evidence()

    def run(self) -> Evidence:
        """Carries the proof out, in the order of its argument."""
        try:
            self._find_flows()
            self._start_sampling()
            self._freeze_cuts()
            configs = self._start_comparing_configs()
            self._wait_for_mirrors()
            self._compare_with_retries()
            self._collect_configs(configs)
            self._finish_sampling()
        finally:
            for cluster in self._clusters.values():
                cluster.close()
            self._threads.shutdown(wait=False, cancel_futures=True)
        return self._found

    def _find_flows(self) -> None:
        listed: dict[str, dict[str, int] | None] = {}
        for mirror in self._lab.mirrors:
            topics = self._topics(mirror.source, listed)
            if topics is None or self._topics(mirror.target, listed) is None:
                continue
            selected = selected_topics(mirror, topics)
            if not selected:
                self._found.undecided.append(f"{mirror.source} has no topic that mirror {mirror.name} copies")
            self._found.flows += [Flow(mirror, topic, target_topic(mirror, topic)) for topic in selected]

    def _topics(self, region: str, listed: dict[str, dict[str, int] | None]) -> dict[str, int] | None:
        if region not in listed:
            try:
                listed[region] = self._clusters[region].topics()
            except UnreachableError as error:
                self._found.undecided.append(str(error))
                listed[region] = None
        return listed[region]

    def _start_sampling(self) -> None:
        for region in sorted({flow.mirror.target for flow in self._found.flows}):
            wanted = {flow.target_topic for flow in self._found.flows if flow.mirror.target == region}
            there = {name: count for name, count in self._clusters[region].topics().items() if name in wanted}
            self._samplers[region] = LatencySampler(self._clusters[region].connection, there)
            self._samplers[region].start()

    def _freeze_cuts(self) -> None:
        for region in sorted({flow.mirror.source for flow in self._found.flows}):
            cluster = self._clusters[region]
            topics = sorted({flow.topic for flow in self._found.flows if flow.mirror.source == region})
            try:
                at, ranges = datetime.now(UTC), freeze(cluster, topics)
                last_records = cluster.last_records(ranges, self._timeout_s)
                self._found.cuts[region] = Cut(at, ranges, last_records, cluster.configs(topics))
            except UnreachableError as error:
                self._found.undecided.append(str(error))
                self._found.flows = [flow for flow in self._found.flows if flow.mirror.source != region]

    def _wait_for_mirrors(self) -> None:
        waiting = {key: self._threads.submit(self._wait_for, mirror) for key, mirror in self._mirrors().items()}
        for key, mirror in self._mirrors().items():
            last_records = self._last_records(mirror)
            try:
                progress = self._found.progress[key] = waiting[key].result()
            except UnreachableError as error:
                self._found.undecided.append(str(error))
                progress = self._found.progress[key] = Progress(UNKNOWN)
                continue
            if progress.behind(last_records):
                self._found.undecided.append(describe(mirror, progress, last_records))

    def _wait_for(self, mirror: Mirror) -> Progress:
        last_records = self._last_records(mirror)
        if mirror.connect:
            return wait_for_mirror(mirror, last_records, self._timeout_s, self._report)
        return wait_for_arrival(mirror, self._clusters, last_records, self._timeout_s, self._report)

    def _mirrors(self) -> dict[MirrorKey, Mirror]:
        return {flow.mirror_key: flow.mirror for flow in self._found.flows}

    def _last_records(self, mirror: Mirror) -> dict[TopicPartition, int]:
        topics = {flow.topic for flow in self._found.flows if flow.mirror == mirror}
        last_records = self._found.cuts[mirror.source].last_records
        return {partition: last for partition, last in last_records.items() if partition.topic in topics}

    def _compare_with_retries(self) -> None:
        if not any(cut.last_records for cut in self._found.cuts.values()):
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                frozen = Frozen.freeze(self._found.flows, self._clusters, self._since)
                self._report("reading and comparing")
                self._found.counts = compare(
                    self._spark.result(),
                    self._found.flows,
                    self._found.cuts,
                    self._found.progress,
                    frozen,
                    self._examples,
                )
            except UnreachableError as error:
                self._found.undecided.append(str(error))
            except ERRORS as error:
                # A log may lose its beginning while it is read: then everything is read anew, from where it begins now.
                moved = frozen.moved()
                if attempt < _ATTEMPTS and moved:
                    self._report(f"retention removed records of {moved} while they were read; reading again")
                    continue
                self._found.undecided.append(f"the records could not be read: {cause(error)}")
            return

    def _start_comparing_configs(self) -> dict[MirrorKey, Future[dict[str, list[Difference]]]]:
        timeout_s = min(self._timeout_s, _CONFIG_TIMEOUT_S)
        return {
            key: self._threads.submit(self._compare_configs, mirror, timeout_s)
            for key, mirror in self._mirrors().items()
        }

    def _compare_configs(self, mirror: Mirror, timeout_s: float) -> dict[str, list[Difference]]:
        topics = {flow.topic: flow.target_topic for flow in self._found.flows if flow.mirror == mirror}
        # Clients of their own: kafka-python's are for one thread each.
        source, target = (Cluster.of(self._lab.region(name)) for name in (mirror.source, mirror.target))
        try:
            return config_differences(source, target, topics, timeout_s)
        finally:
            source.close()
            target.close()

    def _collect_configs(self, comparing: Mapping[MirrorKey, Future[dict[str, list[Difference]]]]) -> None:
        for key, mirror in self._mirrors().items():
            try:
                for topic, differences in comparing[key].result().items():
                    self._found.configs[mirror.source, mirror.target, topic] = differences
            except UnreachableError as error:
                self._found.undecided.append(str(error))

    def _finish_sampling(self) -> None:
        for region, sampler in self._samplers.items():
            for topic, samples in sampler.finish().items():
                self._found.latencies[region, topic] = samples
