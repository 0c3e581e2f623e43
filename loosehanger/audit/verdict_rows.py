"""The audit's verdicts as rows: for a table, a topic, or anything else that takes them."""

from __future__ import annotations

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
