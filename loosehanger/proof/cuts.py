"""Freezes the cut of each source, and waits until the mirrors have passed it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import wait
from datetime import UTC, datetime

from kafka import TopicPartition

from loosehanger.errors import UnreachableError
from loosehanger.kafka.transactions import Held
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.read.batches import Ranges
from loosehanger.proof.read.external import wait_for_arrival
from loosehanger.proof.read.mirrors import UNKNOWN, MirrorProgress, standing, wait_for_mirror
from loosehanger.proof.run import ProofRun
from loosehanger.proof.snapshot import Cut, settle


class Cuts:
    """The cuts of the sources, and the progress of each mirror by the end of the wait.

    Args:
        run: the proof's run, whose evidence gets the cuts, the mirrors' progress and the findings.
    """

    def __init__(self, run: ProofRun) -> None:
        self._run = run
        self._found = run.evidence

    def freeze(self) -> None:
        """Freezes each source up to its last committed record, once no transaction before that is open."""
        regions = sorted({flow.source for flow in self._found.flows})
        deadline, at = time.monotonic() + self._run.left_s, datetime.now(UTC)
        settling = {region: self._run.threads.submit(self._settle, region, deadline) for region in regions}
        wait(settling.values())
        self._run.left_s = max(0.0, deadline - time.monotonic())
        for region in regions:
            cluster = self._run.clusters[region]
            flows = [flow for flow in self._found.flows if flow.source == region]
            topics = self._run.topics_of(region)
            try:
                ranges, held = settling[region].result()
                for flow in flows:
                    self._found.hold(flow, region, held)
                last_records, unread = cluster.last_records(ranges, self._run.timeout_s)
                configs = cluster.configs(topics)
                self._found.cuts[region] = Cut(at, ranges, last_records, configs)
                for flow in flows:
                    if flow.topic not in configs:
                        lacks = cluster.lacks("DescribeConfigs", flow.topic)
                        reason = f"not compared, because its cleanup policy is unknown: {lacks}"
                        self._found.leave_inconclusive(flow, reason)
                    for partition in sorted(unread):
                        if partition.topic == flow.topic:
                            place = f"partition {partition.partition} at the source"
                            reason = f"the last record of {place} could not be read: {unread[partition]}"
                            self._found.leave_inconclusive(flow, reason)
            except UnreachableError as error:
                for flow in flows:
                    self._found.add("unreachable", flow.mirror, {"reason": str(error)})
                self._found.flows = [flow for flow in self._found.flows if flow.source != region]

    def _settle(self, region: str, deadline: float) -> tuple[Ranges, list[Held]]:
        return settle(self._run.clusters[region], self._run.topics_of(region), deadline, self._run.report)

    def wait_for_mirrors(self) -> None:
        """Waits, within the bound, until each mirror has passed the cut; notes its progress."""
        self._run.deadline = time.monotonic() + self._run.left_s
        waiting = {key: self._run.threads.submit(self._wait_for, mirror) for key, mirror in self._run.mirrors().items()}
        for key, mirror in self._run.mirrors().items():
            try:
                progress = self._found.progress[key] = waiting[key].result()
            except UnreachableError as error:
                self._found.add("unreachable", mirror, {"reason": str(error)})
                progress = self._found.progress[key] = MirrorProgress(UNKNOWN)
                continue
            except Exception as error:
                self._found.add("failed", mirror, {"mirror": mirror.name, "reason": self._run.defect(error)})
                progress = self._found.progress[key] = MirrorProgress(UNKNOWN)
                continue
            last_records = self._last_records(mirror)
            if progress.behind(last_records):
                self._found.add("mirror_behind", mirror, standing(mirror, progress, last_records))

    def _wait_for(self, mirror: Mirror) -> MirrorProgress:
        last_records = self._last_records(mirror)
        if mirror.connect:
            return wait_for_mirror(
                mirror, last_records, self._run.left_s, self._run.report, while_moving=self._run.while_moving
            )
        try:
            return wait_for_arrival(
                mirror,
                self._run.clusters,
                last_records,
                self._run.left_s,
                self._run.report,
                while_moving=self._run.while_moving,
            )
        except UnreachableError as error:
            return self._wait_apart(mirror, last_records, error)

    def _wait_apart(
        self, mirror: Mirror, last_records: Mapping[TopicPartition, int], error: Exception
    ) -> MirrorProgress:
        """Examines the arrived records topic by topic, after an examination of all topics at once has failed.

        Raises:
            UnreachableError: the examination fails for every topic.
        """
        topics = sorted({partition.topic for partition in last_records})
        for region in (mirror.source, mirror.target):
            # Where a cluster does not answer, each topic would wait for it.
            with self._run.cluster_of(region) as alone:
                alone.topics()
        deadline = time.monotonic() + self._run.timeout_s
        positions: dict[TopicPartition, int] = {}
        inconclusive: dict[str, str] = {}
        for topic in topics:
            wanted = {partition: last for partition, last in last_records.items() if partition.topic == topic}
            try:
                if time.monotonic() > deadline:
                    raise error
                positions |= wait_for_arrival(mirror, self._run.clusters, wanted, 0, self._run.report).positions
            except UnreachableError as reason:
                inconclusive[topic] = str(reason)
        if inconclusive.keys() == set(topics):
            raise error
        for flow in self._found.flows:
            if flow.mirror == mirror and flow.topic in inconclusive:
                self._found.leave_inconclusive(flow, inconclusive[flow.topic])
        return MirrorProgress(UNKNOWN, positions)

    def _last_records(self, mirror: Mirror) -> dict[TopicPartition, int]:
        compared = (flow for flow in self._found.flows if flow.id not in self._found.inconclusive)
        windows = {flow.topic: self._found.window_of(flow) for flow in compared if flow.mirror == mirror}
        wanted = {}
        for place, last in self._found.cuts[mirror.source].last_records.items():
            if place.topic in windows:
                window = windows[place.topic]
                end = last + 1 if window is None else min(last + 1, window.get(place.partition, 0))
                if end:
                    wanted[place] = end - 1
        return wanted
