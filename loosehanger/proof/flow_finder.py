"""Finds the flows to compare, and the topics that cannot be compared and why."""

from __future__ import annotations

import time
from collections.abc import Mapping

from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka.reading import some_of
from loosehanger.lab.mirrors.chain import begins_with, stations
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    changes_every_name,
    idle_patterns,
    named_topics,
    selected_topics,
    source_topic,
    target_topic,
)
from loosehanger.proof.evidence.findings import Weight
from loosehanger.proof.flows import Flow, MirrorId
from loosehanger.proof.read.external import EXTERNAL, is_external, other_name
from loosehanger.proof.read.mirrors import NOT_ASKED, UNKNOWN, Connect, MirrorProgress
from loosehanger.proof.run import ProofRun

_LOOK_S = 1.0


class FlowFinder:
    """The flows of a proof: what each mirror and each chain copies, by the topics that the clusters have.

    Args:
        run: the proof's run, whose evidence gets the flows and the findings.
    """

    def __init__(self, run: ProofRun) -> None:
        self._run = run
        self._found = run.evidence
        self._reached: list[Mirror] = []
        """The mirrors whose source and target answered."""

    def refuse_the_same_cluster(self) -> None:
        """Refuses to compare topics with themselves, which would prove nothing.

        Raises:
            WrongUseError: two clusters of the user's own are one and the same.
        """
        for mirror in self._run.lab.mirrors:
            if not is_external(mirror.name) or changes_every_name(mirror) or self._run.allow_same_cluster:
                continue
            try:
                source, target = (self._run.clusters[name].id() for name in (mirror.source, mirror.target))
            except UnreachableError:
                continue  # The next steps report it.
            if source and source == target:
                sides = "source and target" if mirror.name == EXTERNAL else f"{mirror.source} and {mirror.target}"
                raise WrongUseError(
                    f"{sides} are the same cluster (id {source}), so each topic would be compared with "
                    "itself; give the client properties of two clusters. --policy default with --source-alias compares "
                    "topics with their copies in one cluster; --allow-same-cluster is for two clusters with equal ids"
                )

    def find_flows(self) -> None:
        """Lists the topics of each region, and adds the flows of the mirrors and chains whose regions answer."""
        self._found.away |= {name: f"{name} is lost, as the stage wants it" for name in self._run.lab.lost}
        for name, cluster in self._run.clusters.items():
            try:
                self._found.topics[name] = cluster.topics()
            except UnreachableError as error:
                self._found.away[name] = str(error)
        self._wait_for_stations()
        for mirror in self._run.lab.mirrors:
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
                user = self._run.clusters[mirror.source].connection.username or "anonymous"
                details = {"mirror": mirror.name, "source": mirror.source, "user": user}
                details |= {"pattern": mirror.topics, "exclude": mirror.topics_exclude}
                self._found.add("no_topics", mirror, details)
            self._found.flows += [Flow(mirror, topic, target_topic(mirror, topic)) for topic in selected]
        self._find_chains()

    def leave_out_other_names(self) -> None:
        """Leaves out topics whose copies have names of another policy or alias, or the same name as others."""
        self._leave_out_equal_names()
        for mirror in (mirror for mirror in self._reached if is_external(mirror.name)):
            there = self._found.topics[mirror.target]
            absent = [flow for flow in self._found.flows if flow.target_topic not in there]
            # Copies of other topics; and under the identity policy every name is that of its source.
            taken = {flow.target_topic for flow in self._found.flows}
            taken |= set(self._found.topics[mirror.source]) if mirror.policy == "identity" else set()
            named = {flow.id: other_name(mirror, flow.topic, set(there) - taken) for flow in absent}
            try:
                hidden = self._run.clusters[mirror.target].hidden(
                    {flow.target_topic for flow in absent if named[flow.id]}
                )
            except UnreachableError:
                continue  # The next steps report it.
            for flow in absent:
                if named[flow.id] and flow.target_topic not in hidden:
                    reason = f"{flow.target} has no topic {flow.target_topic}, but it has {named[flow.id]}"
                    self._found.leave_inconclusive(flow, f"not compared: {reason}")
                    self._found.hidden.add(flow.id)

    def _leave_out_equal_names(self) -> None:
        """Leaves out topics whose copies a rule would give one and the same name."""
        sources: dict[tuple[MirrorId, str], list[Flow]] = {}
        for flow in self._found.flows:
            if flow.mirror.renaming:
                sources.setdefault((flow.mirror.id, flow.target_topic), []).append(flow)
        for same in (flows for flows in sources.values() if len(flows) > 1):
            names = some_of([flow.topic for flow in same])
            for flow in same:
                reason = f"'names' gives the copies of {names} the same name {flow.target_topic}"
                self._found.leave_inconclusive(flow, f"not compared: {reason}")
                self._found.hidden.add(flow.id)

    def _wait_for_stations(self) -> None:
        """Waits until the topics of chains exist at each hop.

        A mirror creates a topic some seconds after it was created at the source, and only then can the next mirror
        copy it.
        """
        wanted: dict[str, set[str]] = {}
        for chain in self._run.lab.chains:
            hops = self._hops(chain)
            if chain.state == "running" and chain.source not in self._found.away:
                for topic in begins_with(self._run.lab.mirrors, hops, self._found.topics[chain.source]):
                    for place in [*stations(hops, topic)][1 : len(hops)]:
                        wanted.setdefault(place.region, set()).add(place.topic)
        began, reported_line = time.monotonic(), ""
        while absent := self._absent(wanted):
            self._run.left_s = max(0.0, began + self._run.timeout_s - time.monotonic())
            if not self._run.left_s:
                return  # The claims about chains report it.
            if reported_line != (reported_line := f"waiting until {', '.join(absent)}"):
                self._run.report(reported_line)
            time.sleep(_LOOK_S)

    def _absent(self, wanted: Mapping[str, set[str]]) -> list[str]:
        """The regions that lack topics; notes the topics that exist."""
        absent = []
        for region in sorted(wanted.keys() - self._found.away.keys()):
            cluster = self._run.clusters[region]
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
        known = {mirror.id: mirror for mirror in self._run.lab.mirrors}
        return [known[name] for name in chain.hops]

    def _find_chains(self) -> None:
        """Adds the flows through chains of mirrors, from end to end."""
        for chain in self._run.lab.chains:
            hops = self._hops(chain)
            regions = dict.fromkeys([chain.source, *(hop.target for hop in hops)])
            gone = [self._found.away[name] for name in regions if name in self._found.away]
            for reason in gone:
                self._found.add("unreachable", chain, {"reason": reason})
            if not gone:
                topics = begins_with(self._run.lab.mirrors, hops, self._found.topics[chain.source])
                self._found.flows += [Flow(chain, topic, target_topic(chain, topic)) for topic in topics]

    def find_hidden_topics(self) -> None:
        """Finds the topics that may exist, but that the user may not see."""
        for mirror in list(self._reached):
            source, target = self._run.clusters[mirror.source], self._run.clusters[mirror.target]
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
                    self._found.hidden.add(flow.id)

    def _report_absent(self, mirror: Mirror, topic: str) -> None:
        """Reports that a topic which a mirror names explicitly was not compared."""
        details = {"source": mirror.source, "topic": topic, "mirror": mirror.name}
        # Of this topic alone, so that the verdicts of the others are their own.
        flow = Flow(mirror, topic, target_topic(mirror, topic))
        if topic not in self._found.topics[mirror.source]:
            self._found.add("named_topic_absent", flow, details)
        else:
            # A manifest may exclude a topic that it names; a user who names a topic expects an answer.
            weight: Weight = "undecides" if is_external(mirror.name) else "informs"
            self._found.add("named_topic_left_out", flow, details, weight)

    def find_topics_only_at_a_target(self) -> None:
        """Finds topics at the targets that a mirror's pattern covers, and whose source is gone."""
        mirrored = {(flow.target, flow.target_topic) for flow in self._found.flows}
        for mirror in self._reached:
            try:
                alone = self._alone(mirror, mirrored)
                hidden = self._run.clusters[mirror.source].hidden({flow.topic for flow in alone})
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
                    lacks = (
                        self._run.clusters[mirror.source].lacks("Describe", flow.topic) if flow.topic in hidden else ""
                    )
                    copy = {"topic": flow.target_topic, "source": flow.source, "certain": certain, "lacks": lacks}
                    self._found.add("only_at_target", flow, copy)
                else:
                    details = {"source": flow.source, "target": flow.target, "mirror": mirror.name}
                    self._found.add("own_topic", mirror, details | {"target_topic": flow.target_topic}, "informs")

    def _alone(self, mirror: Mirror, mirrored: set[tuple[str, str]]) -> list[Flow]:
        there = {
            topic for topic in self._run.clusters[mirror.target].topics() if (mirror.target, topic) not in mirrored
        }
        names = {name: topic for topic in there if (name := source_topic(mirror, topic)) is not None}
        covered = selected_topics(mirror, names)
        here = self._run.clusters[mirror.source].topics() if covered else {}
        return [Flow(mirror, name, names[name]) for name in covered if name not in here]
