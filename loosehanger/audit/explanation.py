"""Whether records that were read again explain the difference of a bucket, also after one side has deleted some.

A copy of a record that the source has deleted since has no partner any more. It looks like a copy of nothing, and which
of the copies without a partner it is, the records do not show. Their number does: the account knows how many records
the source had. A difference is named only so far as numbers leave no other explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loosehanger.audit.balance import DIFFERENT, MISSING, NEVER_MIRRORED, OpenBucket
from loosehanger.proof.difference import Difference

_MISSING, _UNEXPECTED = Difference.MISSING.value, Difference.UNEXPECTED.value
_ALTERED, _NEVER_MIRRORED = Difference.ALTERED.value, Difference.NEVER_MIRRORED.value


@dataclass(frozen=True)
class RereadRecords:
    """What was read of a bucket's records again.

    Attributes:
        kinds: the number of records of each kind of difference, by the records that are still there.
        sources: the records that the account counts and the sources still have.
        copies: the records that the account counts and the target still has.
        arrived: copies of records that moved here from another partition, where they are counted.
    """

    kinds: Mapping[str, int]
    sources: int
    copies: int
    arrived: int = 0


@dataclass(frozen=True)
class Explanation:
    """The difference of a bucket by its records.

    Attributes:
        kinds: the number of records of each kind.
        verdict: the verdict that follows from them.
        known: the kinds whose records are known one by one.
    """

    kinds: dict[str, int]
    verdict: str
    known: frozenset[str]


def explanation(account: OpenBucket, found: RereadRecords) -> Explanation | None:
    """Explains the difference of a judged bucket.

    Args:
        account: the bucket's.
        found: the records that the account counts, read again.

    Returns:
        None if they explain it no better than what the account has: the target has deleted copies, the records that
        would explain it are deleted, or they were named while they were still there.
    """
    deleted, kinds = account.records - found.sources, dict(found.kinds)
    if deleted and (altered := kinds.pop(_ALTERED, 0)):
        # A copy of the same key and time may as well be that of a deleted record.
        kinds |= {kind: kinds.get(kind, 0) + altered for kind in (_MISSING, _UNEXPECTED)}
    if deleted < 0 or found.copies != account.copies or (deleted and account.examples):
        return None
    copied = min(deleted, kinds.get(_UNEXPECTED, 0))
    lost = _NEVER_MIRRORED if account.verdict == NEVER_MIRRORED else _MISSING
    known = frozenset(kinds) - ({_UNEXPECTED} if copied else set())
    if copied:
        kinds[_UNEXPECTED] -= copied
    if deleted > copied:
        kinds[lost] = kinds.get(lost, 0) + deleted - copied
    kinds = {kind: count for kind, count in kinds.items() if count}
    if not kinds and not found.arrived:
        return None
    return Explanation(kinds, _verdict(account, kinds), known)


def _verdict(account: OpenBucket, kinds: Mapping[str, int]) -> str:
    """Not that a source deleted records early, if it turns out that the deleted ones had been copied."""
    if account.verdict != NEVER_MIRRORED or _NEVER_MIRRORED in kinds:
        return account.verdict
    return MISSING if _MISSING in kinds else DIFFERENT
