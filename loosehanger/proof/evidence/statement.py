"""Evidence as a document: what was compared, with digests of every partition, and what the proof found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loosehanger.proof.evidence.evidence import Evidence  # needs Spark, and who reads a statement does not

FORMAT = "mirrorproof evidence 1"


def statement(evidence: Evidence, report: Mapping[str, Any], by: str, at: datetime) -> dict[str, Any]:
    """Makes the document.

    Args:
        evidence: the results of the proof's steps, with digests.
        report: the proof, as from ``loosehanger.proof.verdict.judge``.
        by: the program and its version.
        at: when it is made.
    """
    digests = evidence.digests
    partitions = digests.partitions if digests else {}
    return {
        "format": FORMAT,
        "made": {"by": by, "at": at.isoformat(timespec="seconds"), "seconds": report["seconds"]},
        "verdict": report["verdict"],
        "judged": {
            "since": evidence.since.isoformat() if evidence.since else None,
            "order": evidence.order,
            "settings": evidence.handling,
        },
        "clusters": [{"name": name, "id": identity} for name, identity in sorted(evidence.clusters.items())],
        "chunk": digests.size if digests else 0,
        "partitions": [
            {
                "cluster": region,
                "topic": place.topic,
                "partition": place.partition,
                "start": found.start,
                "end": found.end,
                "records": found.records,
                "sha256": found.sha256,
                "chunks": [list(chunk) for chunk in found.chunks],
            }
            for (region, place), found in sorted(partitions.items())
        ],
        "report": dict(report),
    }


def serialized(document: Mapping[str, Any]) -> bytes:
    """Returns the bytes that are written and signed: JSON, with one partition a line."""
    head = {name: value for name, value in document.items() if name != "partitions"}
    lines = [f"  {json.dumps(name)}: {_compact(value)}" for name, value in head.items()]
    partitions = ",\n".join(f"    {_compact(one)}" for one in document["partitions"])
    lines.insert(-1, f'  "partitions": [\n{partitions}\n  ]' if partitions else '  "partitions": []')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
