"""The results of a watch as a document: for the terminal, JSON lines, metrics and pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from kafka import TopicPartition

from loosehanger.audit.balance import KINDS, AuditBalance, Bucket, OpenBucket, findings
from loosehanger.audit.canary import Canary, standing
from loosehanger.audit.scope import Scope
from loosehanger.kafka.retention_risk import PartitionRisk, by_topic
from loosehanger.proof.flows import Flow, MirrorId
from loosehanger.proof.read.buckets import BUCKET_MS
from loosehanger.proof.report.record_times import iso

NUMBERS = ("in_flight", "late", *KINDS, "equal_buckets", "open_buckets")
"""The counts of each target's topic."""
_SHOWN_FINDINGS = 50
Positions = Mapping[MirrorId, Mapping[TopicPartition, int]]


def numbers_of(
    balance: AuditBalance, topics: Iterable[tuple[str, str]], positions: Positions, at_ms: int, late_after_s: float
) -> dict[tuple[str, str], dict[str, int]]:
    """Counts the records of targets' topics that are in flight, late, or differ.

    Args:
        balance: which knows them.
        topics: of targets, each with its region.
        positions: of the mirrors.
        at_ms: the time, in epoch milliseconds.
        late_after_s: seconds after which a record that is not copied counts as late.
    """
    found = {topic: dict.fromkeys(NUMBERS, 0) | {"equal_buckets": balance.equal.get(topic, 0)} for topic in topics}
    for key, account in balance.accounts.items():
        counts = found.get(key[:2])
        if counts is None:
            continue
        counts["open_buckets"] += 1
        if account.verdict:
            for kind, count in account.kinds.items():
                counts[kind] += count
        elif not account.balanced:
            old = at_ms - account.opened_ms > late_after_s * 1000
            late = old and balance.behind(key, account, positions)
            counts["late" if late else "in_flight"] += max(account.records - account.copies, 0)
    return found


def results(
    scope: Scope,
    balance: AuditBalance,
    numbers: Mapping[tuple[str, str], Mapping[str, int]],
    risks: Mapping[MirrorId, list[PartitionRisk]],
    warn_s: float,
    canary: Canary | None,
) -> dict[str, Any]:
    """Returns what the audit has found: flows, totals, findings, what is not judged, and canaries.

    Args:
        scope: what is watched.
        balance: which knows the records.
        numbers: as from ``numbers_of``.
        risks: the records of each mirror that are not copied yet.
        warn_s: a loss that can come within this time is a danger.
        canary: sends canaries; None for none.
    """
    exposed = {
        f"{mirror}/{topic}": asdict(danger)
        for mirror, found in risks.items()
        for topic, danger in by_topic(found, warn_s).items()
    }
    flows = [
        {
            **_ends(flow),
            "target_topic": flow.target_topic,
            "records": balance.records.get((flow.source, flow.topic), 0),
            "copies": balance.records.get((flow.target, flow.target_topic), 0),
            "older": balance.older.get((flow.source, flow.topic), 0),
            **numbers[flow.target, flow.target_topic],
            "loss": exposed.get(flow.id),
        }
        for flow in scope.flows
    ]
    totals = {name: sum(found[name] for found in numbers.values()) for name in NUMBERS}
    return {
        "flows": flows,
        "totals": {"records": sum(flow["records"] for flow in flows), **totals},
        "findings": [_finding(balance, *found) for found in list(findings(balance.accounts))[:_SHOWN_FINDINGS]],
        "not_judged": [{**_ends(flow), "why": reason} for flow, reason in scope.excused.values()],
        "canaries": [
            standing(
                flow,
                numbers[flow.target, flow.target_topic],
                balance.records.get((flow.source, flow.topic), 0),
                canary.arrivals.newest.get(flow.id),
            )
            for flow in scope.flows
            if canary and flow.topic == canary.topic
        ],
    }


def _ends(flow: Flow) -> dict[str, str]:
    return {"source": flow.source, "target": flow.target, "mirror": flow.mirror.name, "topic": flow.topic}


def _finding(balance: AuditBalance, key: Bucket, account: OpenBucket) -> dict[str, Any]:
    return {
        "sources": sorted({flow.source for flow in balance.sources(key[:2])}),
        "target": key.region,
        "topic": key.topic,
        "partition": key.partition,
        "bucket": iso(key.bucket * BUCKET_MS),
        "verdict": account.verdict,
        "records": account.records,
        "copies": account.copies,
        **{kind: account.kinds.get(kind, 0) for kind in KINDS},
        "examples": account.examples,
    }
