"""The audit's verdicts: as rows for a table, a topic, or anything else, and that of a whole round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loosehanger.audit.balance import KINDS, AuditBalance, Judged
from loosehanger.proof.read.buckets import BUCKET_MS
from loosehanger.times import minute_of

VerdictRow = dict[str, Any]
"""A verdict on a bucket of a target's partition; times in epoch milliseconds."""


def verdict_row(entry: Judged, balance: AuditBalance, now_ms: int) -> VerdictRow:
    """Returns a verdict as a row.

    Args:
        entry: the verdict.
        balance: which it is of.
        now_ms: when it was reached, in epoch milliseconds.
    """
    key, account = entry.key, entry.account
    return {
        "minute": minute_of(now_ms),
        "judged": now_ms,
        "sources": ",".join(sorted({flow.source for flow in balance.sources(key[:2])})),
        "target": key.region,
        "topic": key.topic,
        "partition": key.partition,
        "bucket": key.bucket * BUCKET_MS,
        "verdict": entry.verdict,
        "records": account.records,
        "copies": account.copies,
        **{kind: account.kinds.get(kind, 0) for kind in KINDS},
    }


def verdict_of(document: Mapping[str, Any]) -> str:
    """The verdict of a round about the records that it judges.

    Args:
        document: as from ``Watch.document``.

    Returns:
        ``disproved`` with a difference, ``inconclusive`` while a region could not be read or a record is late, else
        ``proved``.
    """
    if document["findings"]:
        return "disproved"
    return "inconclusive" if document["problems"] or document["totals"]["late"] else "proved"
