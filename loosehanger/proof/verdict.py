"""From evidence to verdicts: the document that ``./lab prove --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from loosehanger.errors import ExitCode
from loosehanger.lab.claims.claims import Claim
from loosehanger.proof.compare.comparison import Counts
from loosehanger.proof.compare.retention_gaps import History
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.findings import Finding, verdict_of
from loosehanger.proof.evidence.latency import histogram, percentiles
from loosehanger.proof.flows import Flow
from loosehanger.proof.judge import FAULT_KEYS, findings_about, findings_of, flows_of, never_mirrored
from loosehanger.proof.report.messages import says, sentences
from loosehanger.proof.snapshot import Cut

EXIT_CODES = {
    "proved": ExitCode.DONE,
    "disproved": ExitCode.FAILED,
    "inconclusive": ExitCode.INCONCLUSIVE,
}
TOTALS = ("source_records", "target_records", "after_cut", *FAULT_KEYS, "expired", "source_gaps")


def judge(evidence: Evidence, scenario: str, seconds: float) -> dict[str, Any]:
    """Judges the evidence.

    Args:
        evidence: the results of the proof's steps.
        scenario: the scenario that was proved.
        seconds: how long it took.

    Returns:
        The document: ``disproved`` if any difference was found, else ``inconclusive`` if anything could not be decided
        or there was nothing to prove, else ``proved``. Each claim and each flow has its own verdict, too.
    """
    findings = findings_of(evidence)
    known = [*evidence.flows, *evidence.only_at_target]
    flows = [_flow(evidence, flow, findings, known) for flow in evidence.flows]
    # The flows' numbers only, and of chains the hops' only, so that nothing counts twice.
    counted = [found for flow, found in zip(evidence.flows, flows, strict=True) if not flow.mirror.hops]
    totals = {name: sum(flow[name] for flow in counted) for name in TOTALS}
    totals["config_differences"] = sum(len(flow["config_differences"]) for flow in counted)
    judged = {(flow["source"], flow["topic"]): flow["source_records"] for flow in reversed(flows)}
    read = sum(judged.values()) + totals["target_records"] + totals["after_cut"]
    return {
        "scenario": scenario,
        "verdict": verdict_of(findings),
        "reasons": _reasons(findings, known),
        "claims": [_claim(claim, evidence, findings, known) for claim in evidence.claims],
        "cut": {region: _cut(cut) for region, cut in sorted(evidence.cuts.items())},
        "flows": flows,
        "only_at_target": [
            {
                "source": flow.source,
                "target": flow.target,
                "mirror": flow.mirror.name,
                "topic": flow.topic,
                "target_topic": flow.target_topic,
            }
            for flow in evidence.only_at_target
        ],
        "notes": sentences([finding for finding in findings if finding.weight == "informs"], known),
        "totals": totals,
        "seconds": round(seconds, 3),
        "records_per_second": round(read / seconds) if seconds else None,
    }


def _reasons(findings: Sequence[Finding], flows: Sequence[Flow]) -> list[str]:
    """Why something is not proved: first what disproves it."""
    weights = ("disproves", "undecides")
    in_order = [finding for weight in weights for finding in findings if finding.weight == weight]
    return sentences(in_order, flows)


def _claim(claim: Claim, evidence: Evidence, findings: Sequence[Finding], known: Sequence[Flow]) -> dict[str, Any]:
    own = [finding for finding in findings if finding.concerns(claim.id)]
    return {
        "id": claim.id,
        "kind": claim.kind,
        "says": says(claim),
        **claim.subject,
        "verdict": verdict_of(own),
        "reasons": _reasons(own, known),
        "flows": [flow.id for flow in flows_of(claim, evidence)],
        "findings": [
            {
                "kind": finding.kind,
                "weight": finding.weight,
                "flow": finding.flow,
                "count": finding.count,
                "details": finding.details,
                "examples": list(finding.examples),
            }
            for finding in own
        ],
    }


def _flow(evidence: Evidence, flow: Flow, findings: list[Finding], known: Sequence[Flow]) -> dict[str, Any]:
    own = findings_about(flow, evidence, findings)
    history = evidence.histories.get(flow.id, History())
    counts = evidence.counts.get(flow.id, Counts())
    ranges = evidence.cuts[flow.source].ranges if flow.source in evidence.cuts else {}
    differences = evidence.configs.get(flow.id, [])
    samples = evidence.latencies.get((flow.target, flow.target_topic), [])
    return {
        "id": flow.id,
        "verdict": verdict_of(own),
        "reasons": _reasons(own, known),
        "source": flow.source,
        "target": flow.target,
        "mirror": flow.mirror.name,
        "topic": flow.topic,
        "target_topic": flow.target_topic,
        "partitions": sum(1 for partition in ranges if partition.topic == flow.topic),
        **{name: getattr(counts, name) for name in TOTALS},
        "never_mirrored": never_mirrored(flow, evidence),
        "never_mirrored_at_most": sum(part.at_most for part in history.retention_gaps.values()),
        "by_partition": sorted(counts.by_partition, key=itemgetter("partition")),
        "groups": [
            {
                "group": offsets.group,
                "skipped": offsets.skipped,
                "read_again": offsets.again,
                "without_offset": [one.partition for one in offsets.positions if one.is_absent],
            }
            for offsets in evidence.groups.get(flow.id, ())
        ],
        "buckets": counts.buckets,
        "opened": counts.opened,
        "config_differences": [
            {"name": entry.name, "source": entry.source, "target": entry.target} for entry in differences
        ],
        "latency_ms": {**percentiles(samples), "histogram": histogram(samples)},
        "examples": counts.examples,
    }


def _cut(cut: Cut) -> dict[str, Any]:
    offsets: dict[str, dict[str, int]] = {}
    for partition, (_, end) in sorted(cut.ranges.items()):
        offsets.setdefault(partition.topic, {})[str(partition.partition)] = end
    return {"at": cut.at.isoformat(timespec="milliseconds"), "offsets": offsets}
