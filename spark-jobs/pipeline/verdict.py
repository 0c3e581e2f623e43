"""From what was found to what it means: the document that ``prove.sh --json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from lab.errors import ExitCode
from pipeline.comparing import Counts, Cut, Flow
from pipeline.latency import histogram, percentiles
from pipeline.proof import Evidence

EXIT_CODES = {
    "proved": ExitCode.DONE,
    "disproved": ExitCode.FAILED,
    "inconclusive": ExitCode.INCONCLUSIVE,
}
FAULTS = ("missing", "never_mirrored", "duplicates", "reordered", "unexpected", "altered", "moved")
TOTALS = ("source_records", "target_records", "after_cut", *FAULTS, "expired", "source_gaps")
_ONE = {"duplicates": "duplicate", "configuration differences": "configuration difference"}
_SAID = {
    "never_mirrored": "deleted at the source before they were mirrored",
    "moved": "moved to another partition",
}


def judge(evidence: Evidence, scenario: str, seconds: float) -> dict[str, Any]:
    """Judges the evidence.

    Args:
        evidence: what was found.
        scenario: which scenario it was found in.
        seconds: how long it took.

    Returns:
        The document: ``disproved`` if a difference was found anywhere, else ``inconclusive`` if anything could not be
        decided or there was nothing to prove, else ``proved``.
    """
    disproved: list[str] = []
    undecided = list(evidence.undecided)
    flows = []
    for flow in evidence.flows:
        document = _flow(evidence, flow)
        flows.append(document)
        disproved += _reasons(evidence, flow, document)
    totals = {name: sum(flow[name] for flow in flows) for name in TOTALS}
    totals["config_differences"] = sum(len(flow["config_differences"]) for flow in flows)
    if not totals["source_records"] and not disproved and not undecided:
        undecided.append("nothing to prove: the mirrored topics have no records at the source")
    read = sum(
        next((flow["source_records"] for flow in flows if (flow["source"], flow["topic"]) == topic), 0)
        for topic in {(flow["source"], flow["topic"]) for flow in flows}
    )
    read += totals["target_records"] + totals["after_cut"]
    return {
        "scenario": scenario,
        "verdict": "disproved" if disproved else "inconclusive" if undecided else "proved",
        "reasons": disproved + undecided,
        "cut": {region: _cut(cut) for region, cut in sorted(evidence.cuts.items())},
        "flows": flows,
        "totals": totals,
        "seconds": round(seconds, 3),
        "records_per_second": round(read / seconds) if seconds else None,
    }


def _flow(evidence: Evidence, flow: Flow) -> dict[str, Any]:
    source, target, topic = flow.key
    counts = evidence.counts.get(flow.key, Counts())
    ranges = evidence.cuts[source].ranges if source in evidence.cuts else {}
    differences = evidence.configs.get(flow.key, [])
    samples = evidence.latencies.get((target, flow.target_topic), [])
    return {
        "source": source,
        "target": target,
        "mirror": flow.mirror.name,
        "topic": topic,
        "target_topic": flow.target_topic,
        "partitions": sum(1 for partition in ranges if partition.topic == topic),
        **{name: getattr(counts, name) for name in TOTALS},
        "by_partition": sorted(counts.by_partition, key=itemgetter("partition")),
        "buckets": counts.buckets,
        "opened": counts.opened,
        "config_differences": [
            {"name": entry.name, "source": entry.source, "target": entry.target} for entry in differences
        ],
        "latency_ms": {**percentiles(samples), "histogram": histogram(samples)},
        "examples": counts.examples,
    }


def _reasons(evidence: Evidence, flow: Flow, document: Mapping[str, Any]) -> list[str]:
    """Why the flow disproves the claim."""
    where = f"{flow.topic}, {flow.mirror.source} → {flow.mirror.target}"
    faults: dict[str, int] = {name: document[name] for name in FAULTS if document[name]}
    reasons = [f"{where}: {counted(faults)}"] if faults else []
    if "missing" in faults:
        truncated = evidence.counts[flow.key].truncated
        reasons += [f"{flow.mirror.target}: {partition}, records before it were deleted" for partition in truncated]
    for entry in document["config_differences"]:
        said = (f"{side} {'not set' if entry[side] is None else entry[side]}" for side in ("source", "target"))
        reasons.append(f"{where}: {entry['name']} differs: {', '.join(said)}")
    return reasons


def counted(faults: Mapping[str, int]) -> str:
    """Numbers with what they count, such as ``1 duplicate, 2 missing``."""
    said = {name: _SAID.get(name, name) for name in faults}
    return ", ".join(
        f"{count:,} {_ONE.get(name, said[name]) if count == 1 else said[name]}" for name, count in faults.items()
    )


def _cut(cut: Cut) -> dict[str, Any]:
    offsets: dict[str, dict[str, int]] = {}
    for partition, (_, end) in sorted(cut.ranges.items()):
        offsets.setdefault(partition.topic, {})[str(partition.partition)] = end
    return {"at": cut.at.isoformat(timespec="milliseconds"), "offsets": offsets}
