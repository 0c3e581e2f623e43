"""The proof, step by step: freeze a cut, wait for the mirrors to pass it, read both sides, compare."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from datetime import UTC, datetime

from kafka import TopicPartition
from pyspark.sql import SparkSession

from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.reading import some_of
from loosehanger.kafka.transactions import Held
from loosehanger.lab.access import readers_from
from loosehanger.lab.claims.claims import OF_LEDGERS, Forbidden
from loosehanger.lab.mirrors.chain import begins_with, stations
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import idle_patterns, named_topics, selected_topics, source_topic, target_topic
from loosehanger.lab.record import PROVER, Lab
from loosehanger.paths import lab_home
from loosehanger.proof.compare.comparison import compare
from loosehanger.proof.compare.configurations import Handling, Settings, config_differences, considered
from loosehanger.proof.compare.isolation import Present, named_like, scan, to_scan
from loosehanger.proof.compare.retention_gaps import retention_gaps
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.findings import Finding, Weight
from loosehanger.proof.evidence.latency import LatencySampler
from loosehanger.proof.evidence.switch_evidence import look
from loosehanger.proof.flows import Flow, FlowId, MirrorId
from loosehanger.proof.read.batches import Ranges, read_records
from loosehanger.proof.read.external import EXTERNAL, other_name, wait_for_arrival
from loosehanger.proof.read.mirrors import NOT_ASKED, UNKNOWN, Connect, MirrorProgress, standing, wait_for_mirror
from loosehanger.proof.session import ERRORS, SparkEndedError, cause, ended, fit, is_alive
from loosehanger.proof.snapshot import Cut, OffsetSnapshot, freeze, is_compacted, settle
from loosehanger.proof.spark_progress import reported

_CONFIG_TIMEOUT_S = 15.0
_ATTEMPTS = 3
_LOOK_S = 1.0
_MOST_FAILURES = 20
"""The most attempts to read flows apart that cannot be read together: enough for several such flows among hundreds."""

Report = Callable[[str], None]


class Proof:
    """One run of the proof over all topics that the lab's mirrors copy.

    Args:
        lab: what is set up.
        start_spark: creates the session, given the number of records; called in a thread, since Spark takes seconds
            to start.
        timeout_s: bound of the wait for the mirrors, in seconds.
        examples: the number of differences of each kind and flow to show.
        report: takes a line of progress.
        since: records older than this are left out.
        while_moving: whether the bound restarts whenever a mirror has made progress.
        configs: the effect of differing topic settings; by default they are judged in a lab, and reported between two
            clusters of the user's own, where providers have their own defaults.
        allow_same_cluster: two clusters of the user's own may have the same id.
    """

    def __init__(
        self,
        lab: Lab,
        start_spark: Callable[[int | None], SparkSession],
        timeout_s: float,
        examples: int,
        report: Report,
        since: datetime | None = None,
        *,
        while_moving: bool = False,
        configs: Handling | None = None,
        allow_same_cluster: bool = False,
    ) -> None:
        self._lab = lab
        self._allow_same_cluster = allow_same_cluster
        self._while_moving = while_moving
        self._since = since
        self._timeout_s = timeout_s
        self._left_s = timeout_s
        """The rest of the bound for the mirrors, after the wait for the topics of chains."""
        self._deadline = 0.0
        """The end of the bound by the monotonic clock; set once the cuts are frozen."""
        self._examples = examples
        self._report = report
        self._clusters = {name: Cluster.of(region, PROVER) for name, region in lab.clusters.items()}
        self._samplers: dict[str, LatencySampler] = {}
        self._hidden: set[FlowId] = set()
        """The flows whose target topic may not exist, or may have another name."""
        self._silent: dict[str, str] = {}
        """The regions that did not answer after a reading had failed, with the reason: each is asked once."""
        self._reached: list[Mirror] = []
        """The mirrors whose source and target answered."""
        self._threads = ThreadPoolExecutor(max_workers=16)
        self._start_spark = start_spark
        default: Handling = "report" if lab.platform == EXTERNAL else "judge"
        self._found = Evidence(claims=lab.claims, since=since, handling=configs or default)

    def run(self) -> Evidence:
        """Runs the steps of the proof, in the order of its argument.

        Raises:
            WrongUseError: two clusters of the user's own are one and the same.
        """
        try:
            self._refuse_the_same_cluster()
            self._find_flows()
            self._find_other_names()
            self._spark: Future[SparkSession] = self._threads.submit(self._start_spark, self._records())
            self._start_sampling()
            self._freeze_cuts()
            configs = self._start_comparing_configs()
            self._wait_for_mirrors()
            self._find_what_is_hidden()
            self._find_what_is_only_at_a_target()
            self._compare_all()
            self._check_isolation()
            self._look_at_ledgers()
            self._collect_configs(configs)
            self._finish_sampling()
        except Exception as error:
            if isinstance(error, LabError) and not isinstance(error, UnreachableError):
                raise
            # The results so far remain valid.
            self._found.add("broke_off", None, {"reason": self._defect(error)})
        finally:
            for cluster in self._clusters.values():
                cluster.close()
            self._threads.shutdown(wait=False, cancel_futures=True)
        return self._found

    def _check_isolation(self) -> None:
        """Scans regions for forbidden data, and for users there who could read it elsewhere."""
        for claim in self._lab.claims:
            if claim.forbidden is None:
                continue
            region = claim.subject["region"]
            reason = self._found.away.get(region)
            try:
                if not reason:
                    self._found.present[claim.id] = self._present(claim.id, region, claim.forbidden)
            except (UnreachableError, SparkEndedError) as error:
                reason = str(error)
            except ERRORS as error:
                reason = cause(error)
            if reason:
                self._found.findings.append(Finding("undecided", "undecides", claim.id, details={"reason": reason}))

    def _present(self, claim: str, region: str, forbidden: Forbidden) -> Present:
        cluster = self._clusters[region]
        there = cluster.topics()
        self._report(f"looking for data that must not be in {region}")
        spark = self._spark.result()
        ranges, held = settle(cluster, to_scan(there), self._deadline, self._report)
        if held:
            reason = f"{region} cannot be scanned completely: {held[0]}"
            self._found.findings.append(Finding("undecided", "undecides", claim, details={"reason": reason}))
        fit(spark, sum(end - start for start, end in ranges.values()))
        rows = scan(read_records(spark, cluster.connection, ranges).persist(), forbidden).collect()
        return Present(
            named_like(there, forbidden.topics),
            tuple(
                {"origin": reader.region, "user": reader.user, "rule": reader.rule, "topic": topic}
                for topic in forbidden.topics
                for reader in readers_from(self._lab.topology, region, topic)
            ),
            tuple(row.asDict() for row in rows),
        )

    def _look_at_ledgers(self) -> None:
        """Examines the cost of a switch, for the claims about it."""
        claims = [claim for claim in self._lab.claims if claim.kind in OF_LEDGERS]
        if not claims:
            return
        try:
            spark = self._spark.result()
            self._found.switch = look(self._lab, lab_home(), claims, spark, self._timeout_s, self._report)
        except SparkEndedError as error:
            self._found.add("no_spark", None, {"reason": str(error)})
        except LabError as error:
            for claim in claims:
                self._found.findings.append(Finding("undecided", "undecides", claim.id, details={"reason": str(error)}))

    def _records(self) -> int | None:
        """The approximate number of records to compare; None if a cluster does not answer."""
        regions = sorted({flow.source for flow in self._found.flows})
        try:
            frozen = [freeze(self._clusters[region], self._topics_of(region)) for region in regions]
        except UnreachableError:
            return None  # It has just answered. The next steps report it if it stays silent.
        records = sum(end - start for ranges in frozen for start, end in ranges.values())
        return records * (1 + len(self._mirrors()))

    def _topics_of(self, region: str) -> list[str]:
        return sorted({flow.topic for flow in self._found.flows if flow.source == region})

    def _refuse_the_same_cluster(self) -> None:
        """Refuses to compare topics with themselves, which would prove nothing."""
        for mirror in self._lab.mirrors:
            if mirror.name != EXTERNAL or target_topic(mirror, "x") != "x" or self._allow_same_cluster:
                continue
            try:
                source, target = (self._clusters[name].id() for name in (mirror.source, mirror.target))
            except UnreachableError:
                continue  # The next steps report it.
            if source and source == target:
                raise WrongUseError(
                    f"source and target are the same cluster (id {source}), so each topic would be compared with "
                    "itself; give the client properties of two clusters. --policy default with --source-alias compares "
                    "topics with their copies in one cluster; --allow-same-cluster is for two clusters with equal ids"
                )

    def _find_flows(self) -> None:
        self._found.away |= {name: f"{name} is lost, as the stage wants it" for name in self._lab.lost}
        for name, cluster in self._clusters.items():
            try:
                self._found.topics[name] = cluster.topics()
            except UnreachableError as error:
                self._found.away[name] = str(error)
        self._wait_for_stations()
        for mirror in self._lab.mirrors:
            if not self._found.claim_of(mirror):
                self._found.add("not_claimed", mirror, {"mirror": mirror.name}, "informs")
                continue
            ends = (mirror.source, mirror.target)
            gone = [reason for name, reason in self._found.away.items() if name in ends]
            for reason in gone:
                self._found.add("unreachable", mirror, {"reason": reason})
            if gone:
                continue
            self._reached.append(mirror)
            selected = selected_topics(mirror, self._found.topics[mirror.source])
            if not selected:
                user = self._clusters[mirror.source].connection.username or "anonymous"
                details = {"mirror": mirror.name, "source": mirror.source, "user": user}
                details |= {"pattern": mirror.topics, "exclude": mirror.topics_exclude}
                self._found.add("no_topics", mirror, details)
            self._found.flows += [Flow(mirror, topic, target_topic(mirror, topic)) for topic in selected]
        self._find_chains()

    def _find_other_names(self) -> None:
        """Leaves out topics whose copies have names of another policy or alias."""
        for mirror in (mirror for mirror in self._reached if mirror.name == EXTERNAL):
            there = self._found.topics[mirror.target]
            absent = [flow for flow in self._found.flows if flow.target_topic not in there]
            # Copies of other topics; and under the identity policy every name is that of its source.
            taken = {flow.target_topic for flow in self._found.flows}
            taken |= set(self._found.topics[mirror.source]) if mirror.policy == "identity" else set()
            named = {flow.id: other_name(mirror, flow.topic, set(there) - taken) for flow in absent}
            try:
                hidden = self._clusters[mirror.target].hidden({flow.target_topic for flow in absent if named[flow.id]})
            except UnreachableError:
                continue  # The next steps report it.
            for flow in absent:
                if named[flow.id] and flow.target_topic not in hidden:
                    reason = f"{flow.target} has no topic {flow.target_topic}, but it has {named[flow.id]}"
                    self._found.leave_inconclusive(flow, f"not compared: {reason}")
                    self._hidden.add(flow.id)

    def _wait_for_stations(self) -> None:
        """Waits until the topics of chains exist at each hop.

        A mirror creates a topic some seconds after it was created at the source, and only then can the next mirror
        copy it.
        """
        wanted: dict[str, set[str]] = {}
        for chain in self._lab.chains:
            hops = self._hops(chain)
            if chain.state == "running" and chain.source not in self._found.away:
                for topic in begins_with(self._lab.mirrors, hops, self._found.topics[chain.source]):
                    for place in [*stations(hops, topic)][1 : len(hops)]:
                        wanted.setdefault(place.region, set()).add(place.topic)
        began, reported_line = time.monotonic(), ""
        while absent := self._absent(wanted):
            self._left_s = max(0.0, began + self._timeout_s - time.monotonic())
            if not self._left_s:
                return  # The claims about chains report it.
            if reported_line != (reported_line := f"waiting until {', '.join(absent)}"):
                self._report(reported_line)
            time.sleep(_LOOK_S)

    def _absent(self, wanted: Mapping[str, set[str]]) -> list[str]:
        """The regions that lack topics; notes the topics that exist."""
        absent = []
        for region in sorted(wanted.keys() - self._found.away.keys()):
            cluster = self._clusters[region]
            try:
                there = self._found.topics[region] = cluster.topics()
                hidden = cluster.hidden(wanted[region] - there.keys())
            except UnreachableError as error:
                self._found.away[region] = str(error)
                continue
            if left := wanted[region] - there.keys() - hidden:
                absent.append(f"{region} has {some_of(sorted(left))}")
        return absent

    def _hops(self, chain: Mirror) -> list[Mirror]:
        known = {mirror.id: mirror for mirror in self._lab.mirrors}
        return [known[name] for name in chain.hops]

    def _find_chains(self) -> None:
        """Adds the flows through chains of mirrors, from end to end."""
        for chain in self._lab.chains:
            hops = self._hops(chain)
            regions = dict.fromkeys([chain.source, *(hop.target for hop in hops)])
            gone = [self._found.away[name] for name in regions if name in self._found.away]
            for reason in gone:
                self._found.add("unreachable", chain, {"reason": reason})
            if not gone:
                topics = begins_with(self._lab.mirrors, hops, self._found.topics[chain.source])
                self._found.flows += [Flow(chain, topic, target_topic(chain, topic)) for topic in topics]

    def _start_sampling(self) -> None:
        for region in sorted({flow.target for flow in self._found.flows}):
            wanted = {flow.target_topic for flow in self._found.flows if flow.target == region}
            try:
                there = {name: count for name, count in self._clusters[region].topics().items() if name in wanted}
            except UnreachableError:
                continue  # It has just answered. If it is away for longer, what follows will say so.
            self._samplers[region] = LatencySampler(self._clusters[region].connection, there)
            self._samplers[region].start()

    def _freeze_cuts(self) -> None:
        regions = sorted({flow.source for flow in self._found.flows})
        deadline, at = time.monotonic() + self._left_s, datetime.now(UTC)
        settling = {region: self._threads.submit(self._settle, region, deadline) for region in regions}
        wait(settling.values())
        self._left_s = max(0.0, deadline - time.monotonic())
        for region in regions:
            cluster = self._clusters[region]
            flows = [flow for flow in self._found.flows if flow.source == region]
            topics = self._topics_of(region)
            try:
                ranges, held = settling[region].result()
                for flow in flows:
                    self._found.hold(flow, region, held)
                last_records, unread = cluster.last_records(ranges, self._timeout_s)
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
        return settle(self._clusters[region], self._topics_of(region), deadline, self._report)

    def _find_what_is_hidden(self) -> None:
        """Finds the topics that may exist, but that the user may not see."""
        for mirror in list(self._reached):
            source, target = self._clusters[mirror.source], self._clusters[mirror.target]
            flows = [flow for flow in self._found.flows if flow.mirror == mirror]
            try:
                absent = named_topics(mirror, (flow.topic for flow in flows))
                unseen = {flow.target_topic for flow in flows} - target.topics().keys() if flows else set()
                hidden_here, hidden_there = source.hidden(absent), target.hidden(unseen)
            except UnreachableError as error:
                self._reached.remove(mirror)
                self._found.add("unreachable", mirror, {"reason": str(error)})
                continue
            for topic in sorted(absent):
                if topic in hidden_here:
                    lacks = source.lacks("Describe", topic)
                    self._found.add("right_missing", mirror, {"mirror": mirror.name, "lacks": lacks})
                elif flows:
                    self._report_absent(mirror, topic)
            for pattern in idle_patterns(mirror, self._found.topics[mirror.source]) if flows else ():
                details = {"source": mirror.source, "pattern": pattern, "mirror": mirror.name}
                self._found.add("pattern_matches_nothing", mirror, details, "informs")
            for flow in flows:
                if flow.target_topic in hidden_there:
                    lacks = target.lacks("Describe", flow.target_topic)
                    self._found.leave_inconclusive(flow, f"whether there is a copy is unknown: {lacks}")
                    self._hidden.add(flow.id)

    def _report_absent(self, mirror: Mirror, topic: str) -> None:
        """Reports that a topic which a mirror names explicitly was not compared."""
        details = {"source": mirror.source, "topic": topic, "mirror": mirror.name}
        # Of this topic alone, so that the verdicts of the others are their own.
        flow = Flow(mirror, topic, target_topic(mirror, topic))
        if topic not in self._found.topics[mirror.source]:
            self._found.add("named_topic_absent", flow, details)
        else:
            # A manifest may exclude a topic that it names; a user who names a topic expects an answer.
            weight: Weight = "undecides" if mirror.name == EXTERNAL else "informs"
            self._found.add("named_topic_left_out", flow, details, weight)

    def _find_what_is_only_at_a_target(self) -> None:
        """Finds topics at the targets that a mirror's pattern covers, and whose source is gone."""
        mirrored = {(flow.target, flow.target_topic) for flow in self._found.flows}
        for mirror in self._reached:
            try:
                alone = self._alone(mirror, mirrored)
                hidden = self._clusters[mirror.source].hidden({flow.topic for flow in alone})
            except UnreachableError as error:
                self._found.add("unreachable", mirror, {"reason": str(error)})
                continue
            if not alone:
                continue
            progress = self._found.progress.get(mirror.id)
            if progress is None:
                progress = Connect(mirror).progress() if mirror.connect else MirrorProgress(UNKNOWN)
            copied = {partition.topic for partition in progress.positions}
            for flow in alone:
                certain = flow.topic in copied or flow.target_topic != flow.topic
                if certain or progress.state in NOT_ASKED:
                    self._found.only_at_target.append(flow)
                    lacks = self._clusters[mirror.source].lacks("Describe", flow.topic) if flow.topic in hidden else ""
                    copy = {"topic": flow.target_topic, "source": flow.source, "certain": certain, "lacks": lacks}
                    self._found.add("only_at_target", flow, copy)
                else:
                    details = {"source": flow.source, "target": flow.target, "mirror": mirror.name}
                    self._found.add("own_topic", mirror, details | {"target_topic": flow.target_topic}, "informs")

    def _alone(self, mirror: Mirror, mirrored: set[tuple[str, str]]) -> list[Flow]:
        there = {topic for topic in self._clusters[mirror.target].topics() if (mirror.target, topic) not in mirrored}
        names = {name: topic for topic in there if (name := source_topic(mirror, topic)) is not None}
        covered = selected_topics(mirror, names)
        here = self._clusters[mirror.source].topics() if covered else {}
        return [Flow(mirror, name, names[name]) for name in covered if name not in here]

    def _wait_for_mirrors(self) -> None:
        self._deadline = time.monotonic() + self._left_s
        waiting = {key: self._threads.submit(self._wait_for, mirror) for key, mirror in self._mirrors().items()}
        for key, mirror in self._mirrors().items():
            try:
                progress = self._found.progress[key] = waiting[key].result()
            except UnreachableError as error:
                self._found.add("unreachable", mirror, {"reason": str(error)})
                progress = self._found.progress[key] = MirrorProgress(UNKNOWN)
                continue
            except Exception as error:
                self._found.add("failed", mirror, {"mirror": mirror.name, "reason": self._defect(error)})
                progress = self._found.progress[key] = MirrorProgress(UNKNOWN)
                continue
            last_records = self._last_records(mirror)
            if progress.behind(last_records):
                self._found.add("mirror_behind", mirror, standing(mirror, progress, last_records))

    def _wait_for(self, mirror: Mirror) -> MirrorProgress:
        last_records = self._last_records(mirror)
        if mirror.connect:
            return wait_for_mirror(mirror, last_records, self._left_s, self._report, while_moving=self._while_moving)
        try:
            return wait_for_arrival(
                mirror, self._clusters, last_records, self._left_s, self._report, while_moving=self._while_moving
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
            # A client of its own, for this is a thread. Where a cluster does not answer, each topic would wait for it.
            with closing(Cluster.of(self._lab.region(region), PROVER)) as alone:
                alone.topics()
        deadline = time.monotonic() + self._timeout_s
        positions: dict[TopicPartition, int] = {}
        inconclusive: dict[str, str] = {}
        for topic in topics:
            wanted = {partition: last for partition, last in last_records.items() if partition.topic == topic}
            try:
                if time.monotonic() > deadline:
                    raise error
                positions |= wait_for_arrival(mirror, self._clusters, wanted, 0, self._report).positions
            except UnreachableError as reason:
                inconclusive[topic] = str(reason)
        if inconclusive.keys() == set(topics):
            raise error
        for flow in self._found.flows:
            if flow.mirror == mirror and flow.topic in inconclusive:
                self._found.leave_inconclusive(flow, inconclusive[flow.topic])
        return MirrorProgress(UNKNOWN, positions)

    def _mirrors(self) -> dict[MirrorId, Mirror]:
        return {flow.mirror.id: flow.mirror for flow in self._found.flows}

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

    def _compare_all(self) -> None:
        """Compares all flows at once; if that fails, as many of them as can be compared."""
        flows = [flow for flow in self._found.flows if flow.id not in self._found.inconclusive]
        if not any(cut.last_records for cut in self._found.cuts.values()):
            return
        # Spark is still starting: small regions can be read meanwhile.
        first: Future[OffsetSnapshot] | None = self._threads.submit(self._freeze, flows)
        try:
            spark = self._spark.result()
        except SparkEndedError as error:
            self._found.add("no_spark", None, {"reason": str(error)})
            return
        groups, failures = [flows] if flows else [], 0
        while groups:
            group = groups.pop()
            try:
                reason, first = self._compare_with_retries(spark, group, first), None
            except SparkEndedError as error:
                self._found.add("no_spark", None, {"reason": str(error)})
                return
            if not reason:
                continue
            failures += 1
            if away := self._away(group):
                rest = [flow for flow in group if not away & {flow.source, flow.target}]
                groups += [rest] if rest else []
            elif len(group) == 1 or failures > _MOST_FAILURES:
                for flow in group:
                    self._found.leave_inconclusive(flow, reason)
            else:
                middle = len(group) // 2
                groups += [group[middle:], group[:middle]]

    def _away(self, flows: Sequence[Flow]) -> set[str]:
        """The regions of these flows that do not answer; each gets an inconclusive finding."""
        regions = sorted({name for flow in flows for name in (flow.source, flow.target)})
        for region in (region for region in regions if region not in self._silent):
            try:
                self._clusters[region].topics()
            except UnreachableError as error:
                self._silent[region] = str(error)
        for flow in flows:
            for region in sorted({flow.source, flow.target} & self._silent.keys()):
                self._found.add("unreachable", flow.mirror, {"reason": self._silent[region]})
        return self._silent.keys() & set(regions)

    def _freeze(self, flows: Sequence[Flow]) -> OffsetSnapshot:
        for region in sorted({flow.target for flow in flows}):
            # Records that a mirror committed behind another producer's open transaction cannot be read yet.
            own = [flow for flow in flows if flow.target == region]
            topics = {flow.target_topic for flow in own}
            _, held = settle(self._clusters[region], topics, self._deadline, self._report)
            for flow in own:
                self._found.hold(flow, region, held)
        return OffsetSnapshot.freeze(flows, self._clusters, self._since, self._found.archives()).fetch()

    def _compare_with_retries(
        self, spark: SparkSession, flows: Sequence[Flow], frozen_already: Future[OffsetSnapshot] | None
    ) -> str:
        """Compares these flows; returns the reason if that fails, else an empty text.

        Args:
            spark: the session.
            flows: the flows to compare.
            frozen_already: their offsets for the first attempt; None if they are not frozen yet.

        Raises:
            SparkEndedError: Spark has ended.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                ahead, frozen_already = frozen_already, None
                frozen = ahead.result() if ahead else self._freeze(flows)
                comparing = f"reading and comparing {frozen.records:,} records of {len(flows):,} flows"
                self._report(comparing)
                cuts, progress = self._found.cuts, self._found.progress
                windows = {flow.id: found for flow in flows if (found := self._found.window_of(flow)) is not None}
                with reported(spark, comparing, self._report):
                    self._found.counts |= compare(spark, flows, cuts, progress, frozen, self._examples, windows)
                self._found.append_time |= {flow.id for flow in flows if frozen.has_append_time(flow)}
                self._look_at_offsets(spark, flows, frozen)
            except UnreachableError as error:
                return str(error)
            except Exception as error:
                if not is_alive(spark):
                    raise SparkEndedError(ended(error)) from error
                spark.catalog.clearCache()
                if not isinstance(error, ERRORS):
                    return f"the records could not be compared: {self._defect(error)}"
                reason = f"the records could not be read: {cause(error)}"
                if "TimeoutException" in reason:
                    # Spark has waited for as long as the proof may: what follows must not wait as long again.
                    for region in {name for flow in flows for name in (flow.source, flow.target)}:
                        self._clusters[region].hurry()
                # A log may lose its beginning while it is read: then everything is read anew, from where it begins now.
                if attempt < _ATTEMPTS and not self._away(flows) and (moved := _moved(frozen)):
                    self._report(f"retention removed records of {moved} while they were read; reading again")
                    continue
                return reason
            return ""
        return ""

    def _defect(self, error: Exception) -> str:
        """The text for an unforeseen error; its traceback goes to the progress output."""
        self._report("".join(traceback.format_exception(error)).rstrip())
        return f"{type(error).__name__}: {error}"

    def _look_at_offsets(self, spark: SparkSession, flows: Sequence[Flow], frozen: OffsetSnapshot) -> None:
        """Finds records that neither side has any more, by offsets."""
        # For a chain, records that were deleted before they were copied are judged at its hops.
        ordinary = [flow for flow in flows if not is_compacted(flow, self._found.cuts) and not flow.mirror.hops]
        counts, cuts, progress = self._found.counts, self._found.cuts, self._found.progress
        try:
            self._found.histories |= retention_gaps(spark, ordinary, counts, cuts, progress, frozen)
        except Exception as error:
            # The results of the comparison remain.
            if not is_alive(spark):
                raise
            for flow in ordinary:
                if counts[flow.id].beginnings:
                    self._found.leave_inconclusive(
                        flow, f"deletions at the source could not be examined: {cause(error)}"
                    )

    def _start_comparing_configs(self) -> dict[MirrorId, Future[Settings]]:
        # Settings that are not judged need not become equal.
        timeout_s = min(self._timeout_s, _CONFIG_TIMEOUT_S) if self._found.handling == "judge" else 0.0
        return {
            key: self._threads.submit(self._compare_configs, mirror, timeout_s)
            for key, mirror in self._mirrors().items()
            if not mirror.hops  # equal settings at each hop make equal ends
        }

    def _compare_configs(self, mirror: Mirror, timeout_s: float) -> Settings:
        topics = {flow.topic: flow.target_topic for flow in self._found.flows if flow.mirror == mirror}
        # Clients of their own: kafka-python's are for one thread each.
        source, target = (Cluster.of(self._lab.region(name), PROVER) for name in (mirror.source, mirror.target))
        try:
            return config_differences(source, target, topics, timeout_s)
        finally:
            source.close()
            target.close()

    def _collect_configs(self, comparing: Mapping[MirrorId, Future[Settings]]) -> None:
        for key, mirror in self._mirrors().items():
            if key not in comparing:
                continue
            try:
                different, unknown = comparing[key].result()
            except UnreachableError as error:
                self._found.add("unreachable", mirror, {"reason": str(error)})
                continue
            except Exception as error:
                reason = f"the settings could not be compared: {self._defect(error)}"
                self._found.add("failed", mirror, {"mirror": mirror.name, "reason": reason})
                continue
            for flow in self._found.flows:
                if flow.mirror != mirror:
                    continue
                # Of a topic that cannot be seen, the only difference would be that it is not there.
                if flow.topic in different and flow.id not in self._hidden:
                    self._found.configs[flow.id] = considered(different[flow.topic], self._found.handling)
                if flow.topic in unknown and flow.id not in self._found.inconclusive:
                    self._found.add("settings_unknown", flow, {"lacks": unknown[flow.topic]})

    def _finish_sampling(self) -> None:
        for region, sampler in self._samplers.items():
            for topic, samples in sampler.finish().items():
                self._found.latencies[region, topic] = samples


def _moved(frozen: OffsetSnapshot) -> str:
    try:
        return frozen.moved()
    except UnreachableError:
        return ""
