"""The results of a proof's steps, before they are judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka import TopicPartition

from loosehanger.acls import AclRule
from loosehanger.kafka.transactions import Held
from loosehanger.lab.claims.claims import Claim
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.configurations import ConfigDifference, Handling
from loosehanger.proof.compare.digests import Digests
from loosehanger.proof.compare.isolation import Present
from loosehanger.proof.compare.retention_gaps import History
from loosehanger.proof.evidence.findings import Finding, Weight
from loosehanger.proof.evidence.group_offsets import GroupOffsets
from loosehanger.proof.evidence.switch_evidence import Switch
from loosehanger.proof.flows import Flow, FlowId, MirrorId
from loosehanger.proof.read.mirrors import MirrorProgress
from loosehanger.proof.snapshot import Cut


@dataclass
class Evidence:
    """The results, before they are judged."""

    claims: tuple[Claim, ...] = ()
    """The claims to judge."""
    since: datetime | None = None
    """Records older than this are left out."""
    flows: list[Flow] = field(default_factory=list)
    topics: dict[str, Collection[str]] = field(default_factory=dict)
    """The topics of each region that answers, if the user may see them."""
    away: dict[str, str] = field(default_factory=dict)
    """The regions that did not list their topics, and why."""
    cuts: dict[str, Cut] = field(default_factory=dict)
    progress: dict[MirrorId, MirrorProgress] = field(default_factory=dict)
    counts: dict[FlowId, Counts] = field(default_factory=dict)
    configs: dict[FlowId, list[ConfigDifference]] = field(default_factory=dict)
    append_time: set[FlowId] = field(default_factory=set)
    """The flows whose target gives each record the time of its arrival."""
    handling: Handling = "judge"
    """The effect of a difference in settings."""
    order: Handling = "judge"
    """The effect of records in another order."""
    groups: dict[FlowId, list[GroupOffsets]] = field(default_factory=dict)
    """Consumer groups that must continue at a flow's target."""
    group_handling: Handling = "judge"
    """The effect of records that such a group would skip."""
    latencies: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    histories: dict[FlowId, History] = field(default_factory=dict)
    """Results about records that neither side has, from offsets."""
    inconclusive: set[FlowId] = field(default_factory=set)
    """The flows that were not compared, each for a reason of its own."""
    hidden: set[FlowId] = field(default_factory=set)
    """The flows whose target topic may not exist, or may have another name."""
    held: dict[FlowId, dict[str, list[Held]]] = field(default_factory=dict)
    """The flows with records that an open transaction holds back, by region: they cannot be read."""
    only_at_target: list[Flow] = field(default_factory=list)
    """Topics that a mirror copied, or may have, and that are not at its source."""
    present: dict[str, Present] = field(default_factory=dict)
    """The forbidden data that was found, by claim."""
    unlisted: dict[str, tuple[AclRule, ...]] = field(default_factory=dict)
    """The ACLs that no manifest lists, by the claim about them."""
    switch: Switch | None = None
    """Results from ledgers; None without claims about them, or if they could not be read."""
    digests: Digests | None = None
    """The digests of what was compared; None if they are not wanted."""
    clusters: dict[str, str] = field(default_factory=dict)
    """The ids of the clusters, by region, where digests are wanted."""
    findings: list[Finding] = field(default_factory=list)
    """Findings of the steps themselves: what is inconclusive, and why; and notes for the reader."""

    def claim_of(self, mirror: Mirror) -> str:
        """The id of the claim that a mirror's flows belong to; empty for none."""
        return next((claim.id for claim in self.claims if mirror.id in claim.mirrors), "")

    def window_of(self, flow: Flow) -> Mapping[int, int] | None:
        """The end of each partition of a flow's source, where its claim is about a part of it only."""
        window = next((claim.window for claim in self.claims if flow.mirror.id in claim.mirrors), None)
        return None if window is None else window.get(flow.topic, {})

    def hold(self, flow: Flow, region: str, held: Collection[Held]) -> None:
        """Notes what open transactions hold back in a region of a flow, in place of what was noted there before."""
        topic = flow.topic if region == flow.source else flow.target_topic
        window = self.window_of(flow) if region == flow.source else None
        # A claim about a part of the source ends somewhere; what is held back behind that does not matter.
        own = [
            one for one in held if one.topic == topic and (window is None or window.get(one.partition, 0) > one.stable)
        ]
        regions = self.held.setdefault(flow.id, {})
        regions.pop(region, None)
        if own:
            regions[region] = own

    def archives(self) -> dict[str, dict[TopicPartition, int]]:
        """By region, where partitions begin to be copies of what their mirror's source has."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for flow in self.flows:
            for claim in self.claims:
                for partition, offset in claim.archives.get(flow.target_topic, {}).items():
                    if flow.mirror.id in claim.mirrors:
                        found.setdefault(flow.target, {})[TopicPartition(flow.target_topic, partition)] = offset
        return found

    def add(
        self, kind: str, about: Flow | Mirror | None, details: Mapping[str, Any], weight: Weight = "undecides"
    ) -> None:
        """Adds a finding, once.

        Args:
            kind: its kind.
            about: the flow or the mirror that it is about; None for the proof as a whole.
            details: for its sentence.
            weight: its effect on the verdict.
        """
        mirror = about.mirror if isinstance(about, Flow) else about
        claim = self.claim_of(mirror) if mirror else ""
        flow = about.id if isinstance(about, Flow) else None
        finding = Finding(kind, weight, claim, flow, details=details)
        if finding not in self.findings:
            self.findings.append(finding)

    def leave_inconclusive(self, flow: Flow, reason: str) -> None:
        """Leaves a single flow inconclusive."""
        if flow.id not in self.inconclusive:
            self.inconclusive.add(flow.id)
            self.add("not_compared", flow, {"reason": reason})
