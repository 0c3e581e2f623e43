"""Names the records of buckets that differ, beside the rounds: reading them again takes longer than a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy

from kafka import TopicPartition

from loosehanger.audit.balance import EQUAL, AuditBalance, Bucket, Judged, OpenBucket, findings
from loosehanger.errors import UnreachableError

Until = Mapping[str, Mapping[TopicPartition, int]]
"""The offset up to which each partition of each region is in the balance."""
NameRecords = Callable[[AuditBalance, Mapping[Bucket, OpenBucket], Until], None]
"""Reads the records of buckets again, and notes the kinds and examples of their differences in the accounts; raises
UnreachableError where they cannot be read, and LabError where the reader has ended for good."""
EXAMPLES = 5
"""How many examples of each kind and topic are kept."""


class Naming:
    """Names records, one set of buckets after another.

    Args:
        balance: whose buckets they are.
        name_records: reads and names them; it runs in a thread of its own.
        report: takes a line of progress.
    """

    def __init__(self, balance: AuditBalance, name_records: NameRecords, report: Callable[[str], None]) -> None:
        self._balance = balance
        self._name_records = name_records
        self._report = report
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._running: tuple[Mapping[Bucket, OpenBucket], Future[None]] | None = None
        self._waiting = {key[:2] for key, _ in findings(balance.accounts)}
        """The topics with findings whose records are not named yet."""

    def close(self) -> None:
        """Stops; the next watch names these records again."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def name(self, judged: Iterable[Judged], until: Callable[[], Until]) -> list[Judged]:
        """Begins to name the records of these buckets, and of those that were judged meanwhile.

        Returns:
            The buckets whose records have been named since the last round.

        Raises:
            LabError: the reader has ended for good, as Spark may.
        """
        self._waiting |= {entry.key[:2] for entry in judged if entry.verdict != EQUAL}
        named: list[Judged] = []
        if self._running and self._running[1].done():
            found, running = self._running
            self._running = None
            named = self._named(found, running)
        if self._waiting and not self._running:
            # All findings of these topics: a record that is missing in one partition may have appeared in another.
            found = {
                key: deepcopy(account) for key, account in findings(self._balance.accounts) if key[:2] in self._waiting
            }
            self._waiting = set()
            if found:
                self._running = found, self._thread.submit(self._name_records, self._balance, found, until())
        return named

    def _named(self, found: Mapping[Bucket, OpenBucket], running: Future[None]) -> list[Judged]:
        try:
            running.result()
        except UnreachableError as error:
            self._report(f"the records that differ could not be read: {error}; only their number is known")
            return []
        named = []
        for key, copy in found.items():
            account = self._balance.accounts.get(key)
            # A bucket that has changed since is judged and named again.
            if account and account.verdict and account.touched == copy.touched:
                changed = (account.kinds, account.verdict) != (copy.kinds, copy.verdict)
                account.kinds, account.examples, account.by_time = copy.kinds, copy.examples, copy.by_time
                account.verdict = copy.verdict
                if changed:
                    named.append(Judged(key, account.verdict, account))
        return named
