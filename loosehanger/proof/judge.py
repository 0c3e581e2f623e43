"""Judges claims: from evidence to findings. Each finding belongs to a claim and, where it is about one, to a flow.

Each kind of claim has a function, from evidence to findings. Claims about flows come first, since others rest on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from loosehanger.acls import AclRule
from loosehanger.lab.claims.claims import OF_LEDGERS, Claim, Kind
from loosehanger.lab.mirrors.replication import synchronises_acls
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.configurations import STRUCTURE, ConfigDifference
from loosehanger.proof.compare.retention_gaps import History
from loosehanger.proof.compare.switches import Sets, count
from loosehanger.proof.difference import Difference, keys
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.findings import Finding, Verdict, Weight, verdict_of
from loosehanger.proof.evidence.latency import percentiles
from loosehanger.proof.evidence.switch_evidence import Switch
from loosehanger.proof.flows import Flow, FlowId
from loosehanger.proof.report.record_times import iso
from loosehanger.proof.snapshot import is_compacted

FAULT_KEYS = keys(
    Difference.MISSING,
    Difference.NEVER_MIRRORED,
    Difference.DUPLICATES,
    Difference.REORDERED,
    Difference.UNEXPECTED,
    Difference.ALTERED,
    Difference.MOVED,
)
"""Kinds of difference between records that disprove a copy."""
LOSSES = keys(Difference.MISSING, Difference.NEVER_MIRRORED, Difference.ALTERED, Difference.MOVED)
"""Those that disprove ``contains``, where a topic may have other writers."""
_HIDDEN_AT_SOURCE = keys(Difference.UNEXPECTED)
_ORDER = keys(Difference.REORDERED)
OF_MIRRORS: tuple[Kind, ...] = ("copy", "contains")
"""The kinds of claims about single mirrors, on whose flows other claims rest."""
Judge = Callable[[Claim, Evidence, Mapping[FlowId, Verdict]], Iterator[Finding]]


def findings_of(evidence: Evidence) -> list[Finding]:
    """All findings that follow from the evidence, for every claim."""
    found = list(evidence.findings)
    for claim in evidence.claims:
        if claim.kind in OF_MIRRORS:
            found += _JUDGES[claim.kind](claim, evidence, {})
    if (
        not any(finding.weight != "informs" for finding in found)
        and not any(counts.source_records for counts in evidence.counts.values())
        and not any(claim.kind in OF_LEDGERS for claim in evidence.claims)
    ):
        # With --since there may be records, but none new enough.
        has_records = any(cut.last_records for cut in evidence.cuts.values())
        since = iso(int(evidence.since.timestamp() * 1000)) if evidence.since and has_records else ""
        found.append(Finding("nothing_to_prove", "undecides", details={"since": since}))
    found += _group_offsets(evidence, found)
    verdicts = {flow.id: verdict_of(findings_about(flow, evidence, found)) for flow in evidence.flows}
    for claim in evidence.claims:
        if claim.kind not in OF_MIRRORS:
            found += _JUDGES[claim.kind](claim, evidence, verdicts)
    return found


def findings_about(flow: Flow, evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """The findings that decide a flow's verdict: its own, and those that leave all flows of its claim inconclusive."""
    claim = evidence.claim_of(flow.mirror)
    return [
        finding
        for finding in findings
        if (finding.flow == flow.id and finding.claim == claim)
        or (finding.flow is None and finding.weight == "undecides" and finding.claim in ("", claim))
    ]


def flows_of(claim: Claim, evidence: Evidence) -> list[Flow]:
    """The flows that a claim is about or, for a claim without mirrors, that it rests on."""
    if claim.mirrors:
        own = [flow for flow in evidence.flows if flow.mirror.id in claim.mirrors]
        return [*own, *(hop for flow in own for hop in _hops(flow, evidence))]
    members = _members(claim, evidence) if claim.kind == "whole" else {}
    return [flow for flows in members.values() for flow in flows]


def never_mirrored(flow: Flow, evidence: Evidence) -> int:
    """The number of records that the source deleted before they were mirrored, by sequence numbers and by offsets."""
    counts, history = _numbers(flow, evidence)
    return counts.never_mirrored + history.never_mirrored(counts.beginnings)


def _numbers(flow: Flow, evidence: Evidence) -> tuple[Counts, History]:
    return evidence.counts.get(flow.id, Counts()), evidence.histories.get(flow.id, History())


def _copy(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """The target topics are the source's, exactly, and have no other writer."""
    for flow in flows_of(claim, evidence):
        yield from _faults(claim, flow, evidence, FAULT_KEYS)
        yield from _archive(claim, flow)
        yield from _other_writers(claim, flow, evidence)
        for entry in evidence.configs.get(flow.id, ()):
            if evidence.handling == "judge" or entry.name in STRUCTURE:
                difference = {"name": entry.name, "source": entry.source, "target": entry.target}
                yield Finding("config_difference", "disproves", claim.id, flow.id, details=difference)
        yield from _retention_gaps(claim, flow, evidence)
    if evidence.handling == "report":
        yield from _reported_settings(claim, evidence)


def _reported_settings(claim: Claim, evidence: Evidence) -> Iterator[Finding]:
    """The settings that differ, each with all its topics: a provider's defaults differ for all topics."""
    topics: dict[ConfigDifference, list[str]] = {}
    for flow in flows_of(claim, evidence):
        for entry in evidence.configs.get(flow.id, ()):
            if entry.name not in STRUCTURE:
                topics.setdefault(entry, []).append(flow.topic)
    for entry, those in sorted(topics.items(), key=lambda item: (item[0].name, item[1])):
        difference = {"name": entry.name, "source": entry.source, "target": entry.target, "topics": those}
        yield Finding("settings_differ", "informs", claim.id, details=difference)


def _contains(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """Every record of the source is in the target topic, where others may write too."""
    if claim.window == {}:
        yield Finding("no_snapshot", "undecides", claim.id, details={"mirror": claim.subject["mirror"]})
    for flow in flows_of(claim, evidence):
        if is_compacted(flow, evidence.cuts) and any(getattr(_numbers(flow, evidence)[0], name) for name in LOSSES):
            # The last record of a key may be from another writer, who may write here.
            yield Finding("compacted", "undecides", claim.id, flow.id)
            continue
        yield from _faults(claim, flow, evidence, LOSSES)
        yield from _retention_gaps(claim, flow, evidence)


def _archive(claim: Claim, flow: Flow) -> Iterator[Finding]:
    """Records in a copy from a former source. They are not compared, but reported."""
    if offsets := sum(claim.archives.get(flow.target_topic, {}).values()):
        details = {"target": flow.target, "topic": flow.target_topic}
        yield Finding("archive", "informs", claim.id, flow.id, offsets, details)


def _retention_gaps(claim: Claim, flow: Flow, evidence: Evidence) -> Iterator[Finding]:
    for partition, part in sorted(_numbers(flow, evidence)[1].retention_gaps.items()):
        if part.at_most:
            details = {"partition": partition}
            yield Finding("never_mirrored_at_most", "undecides", claim.id, flow.id, part.at_most, details)


def _faults(claim: Claim, flow: Flow, evidence: Evidence, kinds: Sequence[str]) -> Iterator[Finding]:
    counts, history = _numbers(flow, evidence)
    numbers = {name: getattr(counts, name) for name in kinds} | {"never_mirrored": never_mirrored(flow, evidence)}
    faults = {name: numbers[name] for name in kinds}
    ranges = [
        {"partition": partition, "first": start, "last": end - 1}
        for partition, gap in sorted(history.retention_gaps.items())
        for start, end in gap.ranges
    ]
    more: dict[str, dict[str, Any]] = {
        "missing": {"log_begins": [{"partition": place, "offset": at} for place, at in counts.truncated.items()]},
        "never_mirrored": {"source_offsets": ranges},
    }
    yield from _held(claim, flow, evidence)
    held = evidence.held.get(flow.id, {})
    for kind, number in faults.items():
        if kind in _ORDER and evidence.order != "judge":
            if number and evidence.order == "report":
                yield Finding("order_differs", "informs", claim.id, flow.id, number)
        elif number:
            # Records that an open transaction hides on one side look like a fault on the other.
            hidden = (flow.source in held and kind in _HIDDEN_AT_SOURCE) or (flow.target in held and kind in LOSSES)
            weight: Weight = "undecides" if hidden else "disproves"
            details = {name: value for name, value in more.get(kind, {}).items() if value}
            examples = tuple(example for example in counts.examples if example["kind"] == kind)
            yield Finding(kind, weight, claim.id, flow.id, number, details, examples)
    if counts.untimed:
        yield Finding("untimed", "informs", claim.id, flow.id, counts.untimed)
    if flow.id in evidence.append_time and any(faults.get(kind) for kind in ("missing", "unexpected", "altered")):
        where = {"target": flow.target, "topic": flow.target_topic}
        yield Finding("log_append_time", "disproves", claim.id, flow.id, details=where)
    # Records of an earlier topic of the name cannot be distinguished from records that retention has deleted.
    judged = [number for kind, number in faults.items() if kind not in _ORDER or evidence.order == "judge"]
    weight = "disproves" if any(judged) else "undecides"
    if weight == "disproves" or counts.expired:
        for partition, reason in sorted(history.made_again.items()):
            again = {"partition": partition, "reason": reason}
            yield Finding("topic_made_again", weight, claim.id, flow.id, details=again)


def _held(claim: Claim, flow: Flow, evidence: Evidence) -> Iterator[Finding]:
    """Records on either side of a flow that cannot be read yet."""
    for region, held in sorted(evidence.held.get(flow.id, {}).items()):
        partitions = [
            {
                "partition": one.partition,
                "last_stable_offset": one.stable,
                "high_watermark": one.end,
                "transactional_id": one.holder.transactional_id if one.holder else None,
                "producer_id": one.holder.producer_id if one.holder else None,
                "open_for_s": one.holder.age_s if one.holder else None,
                "holder": one.by,
            }
            for one in held
        ]
        details = {"region": region, "partitions": partitions}
        yield Finding("held_back", "undecides", claim.id, flow.id, sum(one.offsets for one in held), details)


def _other_writers(claim: Claim, flow: Flow, evidence: Evidence) -> Iterator[Finding]:
    """Other mirrors' flows into the same topic. A fenced mirror does not write now, but may have written."""
    for other in evidence.flows:
        is_same_topic = (other.target, other.target_topic) == (flow.target, flow.target_topic)
        # A user's rule that gives two topics one name is not a second writer; neither of them is compared.
        if is_same_topic and other.mirror.id != flow.mirror.id and not other.mirror.hops:
            writes = other.mirror.state == "running"
            details = {"mirror": other.mirror.name, "source": other.source, "topic": other.topic, "writes": writes}
            yield Finding("other_writer", "disproves" if writes else "informs", claim.id, flow.id, details=details)


def _through(claim: Claim, evidence: Evidence, verdicts: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """Each record written at the source of a chain of mirrors is at its target and at each hop, once."""
    if not claim.mirrors:
        yield Finding("no_chain", "undecides", claim.id, details=claim.subject)
    weights: Mapping[Verdict, Weight] = {"disproved": "disproves", "inconclusive": "undecides"}
    for flow in (flow for flow in evidence.flows if flow.mirror.id in claim.mirrors):
        yield from _faults(claim, flow, evidence, FAULT_KEYS)
        hops = _hops(flow, evidence)
        if len(hops) < len(flow.mirror.hops):
            region, topic = (hops[-1].target, hops[-1].target_topic) if hops else (flow.source, flow.topic)
            details = {"region": region, "topic": topic}
            if topic in evidence.topics.get(region, ()):
                yield Finding("ends_early", "disproves", claim.id, flow.id, details=details)
            else:
                yield Finding("not_there_yet", "undecides", claim.id, flow.id, details=details)
        for hop in hops:
            if weight := weights.get(verdicts[hop.id]):
                resting = {"hop": f"{hop.source} → {hop.target}", "verdict": verdicts[hop.id]}
                yield Finding("no_exact_hop", weight, claim.id, flow.id, details=resting)
    if medians := _medians_by_hop(claim, evidence):
        yield Finding("latency_by_hop", "informs", claim.id, details={**claim.subject, "hops": medians})


def _hops(flow: Flow, evidence: Evidence) -> list[Flow]:
    """The flows of a topic through a chain, hop by hop, up to the last one that exists."""
    found: list[Flow] = []
    place = flow.source, flow.topic
    for mirror in flow.mirror.hops:
        hop = next((f for f in evidence.flows if f.mirror.id == mirror and (f.source, f.topic) == place), None)
        if hop is None:
            break
        found.append(hop)
        place = hop.target, hop.target_topic
    return found


def _medians_by_hop(claim: Claim, evidence: Evidence) -> list[dict[str, Any]]:
    """The median time since production of the sampled records in each region of a chain, in milliseconds."""
    samples: dict[str, list[int]] = {}
    for flow in flows_of(claim, evidence):
        if not flow.mirror.hops:
            samples.setdefault(flow.target, []).extend(evidence.latencies.get((flow.target, flow.target_topic), ()))
    return [
        {"region": region, "p50": percentiles(found)["p50"], "samples": len(found)}
        for region, found in samples.items()
        if found
    ]


def _absent(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """A region has none of the named data, and no user there can read it at its origin."""
    found, region = evidence.present.get(claim.id), claim.subject["region"]
    if found is None:
        yield Finding("not_looked_through", "undecides", claim.id, details={"region": region})
        return
    for topic in found.topics:
        yield Finding("topic_present", "disproves", claim.id, details={"topic": topic, "region": region})
    for right in found.rights:
        yield Finding("right_too_many", "disproves", claim.id, details={**right, "region": region})
    for record in found.records:
        details = {**record, "region": region}
        yield Finding(f"{record['kind']}_present", "disproves", claim.id, count=record["records"], details=details)


def _rights(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """A region's cluster has no ACL that the manifests do not list."""
    region = claim.subject["region"]
    if claim.id not in evidence.unlisted:
        yield Finding("rights_unread", "undecides", claim.id, details={"region": region})
    for rule in evidence.unlisted.get(claim.id, ()):
        mirror = next((flow.mirror.name for flow in evidence.flows if _copies(flow, region, rule)), "")
        details = {"region": region, "rule": rule.text, **rule._asdict(), "mirror": mirror}
        yield Finding("right_unlisted", "disproves", claim.id, details=details)


def _copies(flow: Flow, region: str, rule: AclRule) -> bool:
    """Whether the mirror of a flow writes such ACLs."""
    target = flow.target, flow.target_topic, "TOPIC"
    return target == (region, rule.name, rule.kind) and not rule.prefix and synchronises_acls(flow.mirror)


def _whole(claim: Claim, evidence: Evidence, verdicts: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """A region's local and mirrored topics together hold what every region has produced, each record once."""
    region, topic = claim.subject["region"], claim.subject["topic"]
    members = _members(claim, evidence)
    weights: Mapping[Verdict, Weight] = {"disproved": "disproves", "inconclusive": "undecides"}
    for flow in (flow for flows in members.values() for flow in flows):
        if weight := weights.get(verdicts[flow.id]):
            resting = {"region": region, "claim": evidence.claim_of(flow.mirror), "verdict": verdicts[flow.id]}
            yield Finding("no_exact_copy", weight, claim.id, flow.id, details=resting)
    if evidence.away:
        # Their own topics, and which topics are copies of these, are unknown.
        for reason in evidence.away.values():
            yield Finding("unreachable", "undecides", claim.id, details={"reason": reason})
        return
    if not members:
        yield Finding("not_produced", "undecides", claim.id, details={"topic": topic})
    for origin, flows in members.items():
        # Two mirrors into one topic are judged with the copies.
        ways = {flow.target_topic: flow.mirror.name for flow in flows} | ({topic: ""} if origin == region else {})
        details: dict[str, Any] = {"origin": origin, "region": region, "topic": topic}
        if not ways:
            yield Finding("not_covered", "disproves", claim.id, details=details)
        if len(ways) > 1:
            details["ways"] = [{"topic": name, "mirror": by} for name, by in ways.items()]
            yield Finding("covered_twice", "disproves", claim.id, details=details)
    for stray in _strays(claim, evidence, members):
        by = [
            {"mirror": flow.mirror.name, "source": flow.source, "topic": flow.topic}
            for flow in evidence.flows
            if (flow.target, flow.target_topic) == (region, stray)
        ]
        yield Finding("stray_topic", "disproves", claim.id, details={"topic": stray, "region": region, "by": by})


def _members(claim: Claim, evidence: Evidence) -> dict[str, list[Flow]]:
    """The regions with a topic of this name of their own, and the flows of each into the claim's region."""
    region, topic = claim.subject["region"], claim.subject["topic"]
    copies = {(flow.target, flow.target_topic) for flow in evidence.flows}
    origins = [name for name, there in evidence.topics.items() if topic in there and (name, topic) not in copies]
    direct = [flow for flow in evidence.flows if not flow.mirror.hops]
    return {
        origin: [flow for flow in direct if (flow.source, flow.topic, flow.target) == (origin, topic, region)]
        for origin in origins
    }


def _strays(claim: Claim, evidence: Evidence, members: Mapping[str, list[Flow]]) -> list[str]:
    """Topics of the claim's region that a subscription by pattern matches, and that are not copies."""
    region, topic = claim.subject["region"], claim.subject["topic"]
    known = {flow.target_topic for flows in members.values() for flow in flows}
    known |= {topic} if region in members else set()
    separators = tuple({flow.mirror.separator for flow in evidence.flows if flow.target == region} | {"."})
    return [
        name
        for name in sorted(evidence.topics[region])
        if name not in known and (name == topic or name.endswith(tuple(f"{sign}{topic}" for sign in separators)))
    ]


def _kept(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """Every record that the producer's ledger calls acknowledged is in a surviving cluster."""
    if not (switch := evidence.switch) or claim.id in switch.inconclusive:
        yield from _inconclusive(claim, switch)
        return
    found, producer = switch.kept[claim.subject["producer"]], claim.subject["producer"]
    yield Finding("acknowledged", "informs", claim.id, count=found.acknowledged, details={"producer": producer})
    if not found.acknowledged:
        yield Finding("nothing_acknowledged", "undecides", claim.id, details={"producer": producer})
    if lost := sum(map(count, found.lost.values())):
        death, oldest = switch.death_ms, found.oldest_lost_ms
        details = {
            "processed": found.lost_processed,
            "rpo_seconds": None if death is None or oldest is None else max(0, death - oldest) / 1000,
            "records": _ranges(found.lost),
        }
        yield Finding("lost", "disproves", claim.id, count=lost, details=details)
    others = {"given_up": found.given_up, "retired": found.retired, "sent_twice": found.sent_twice}
    for kind, number in others.items():
        if number:
            yield Finding(kind, "informs", claim.id, count=number)
    if recovery := switch.recovery:
        legs = {leg.name: leg.seconds for leg in recovery.legs}
        yield Finding("recovery", "informs", claim.id, details={"begins": recovery.begins, "legs": legs})


def _groups(claim: Claim, evidence: Evidence, _: Mapping[FlowId, Verdict]) -> Iterator[Finding]:
    """A group continued in another cluster: it skipped no record, and read again exactly what was predicted."""
    if not (switch := evidence.switch) or claim.id in switch.inconclusive:
        yield from _inconclusive(claim, switch)
        return
    group = claim.subject["group"]
    found = switch.groups[group]
    if skipped := sum(map(count, found.skipped.values())):
        missed = {"group": group, "records": _ranges(found.skipped)}
        yield Finding("skipped", "disproves", claim.id, count=skipped, details=missed)
    if not found.passed:
        yield Finding("not_passed", "undecides", claim.id, details=claim.subject)
        return
    details = {"group": group, "predicted": found.predicted}
    weight: Weight = "informs" if found.again == found.predicted else "disproves"
    yield Finding("read_again", weight, claim.id, count=found.again, details=details)


def _group_offsets(evidence: Evidence, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Consumer groups that would skip nothing after a switch: where a copy is proved, by the records behind them."""
    judged = evidence.group_handling == "judge"
    disproves: Weight = "disproves" if judged else "informs"
    undecides: Weight = "undecides" if judged else "informs"
    for flow in (flow for flow in evidence.flows if flow.id in evidence.groups):
        claim, about = evidence.claim_of(flow.mirror), findings_about(flow, evidence, list(findings))
        verdict, counts = verdict_of(about), evidence.counts.get(flow.id, Counts())
        for offsets in evidence.groups[flow.id]:
            group = {"group": offsets.group}
            if reason := _not_in_step(flow, evidence, verdict, counts):
                yield Finding("group_not_judged", undecides, claim, flow.id, details={**group, "reason": reason})
                continue
            if skipped := offsets.skipped:
                places = [
                    {"partition": one.partition, "records": one.skipped, "offset": one.target_offset}
                    for one in offsets.positions
                    if one.skipped
                ]
                yield Finding("group_skips", disproves, claim, flow.id, skipped, {**group, "partitions": places})
            if absent := [one.partition for one in offsets.positions if one.is_absent]:
                yield Finding("group_absent", disproves, claim, flow.id, details={**group, "partitions": absent})
            if again := offsets.again:
                yield Finding("group_reads_again", "informs", claim, flow.id, again, group)


def _not_in_step(flow: Flow, evidence: Evidence, verdict: Verdict, counts: Counts) -> str:
    """Why the records behind two offsets of a flow say nothing about each other; empty if they do."""
    if verdict != "proved":
        return f"the copy is {verdict}"
    if counts.reordered:
        return "the copy is in another order"
    return "the topic is compacted" if is_compacted(flow, evidence.cuts) else ""


def _inconclusive(claim: Claim, switch: Switch | None) -> Iterator[Finding]:
    """Why a claim could not be examined; a failure that concerns all claims has its own finding."""
    if switch:
        yield Finding("inconclusive", "undecides", claim.id, details={"reason": switch.inconclusive[claim.id]})


def _ranges(sets: Sets) -> list[dict[str, Any]]:
    return [
        {**key._asdict(), "first": first, "last": last}
        for key, numbers in sorted(sets.items())
        for first, last in numbers
    ]


_JUDGES: Mapping[Kind, Judge] = {
    "copy": _copy,
    "contains": _contains,
    "through": _through,
    "absent": _absent,
    "rights": _rights,
    "whole": _whole,
    "kept": _kept,
    "groups": _groups,
}
