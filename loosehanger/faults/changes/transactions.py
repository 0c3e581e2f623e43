"""Transactions that stay open, as a producer leaves them that dies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.changes.topics import TOPIC_S, copied, write
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.clients import connect_producer

TIMEOUT_S = 900
"""How long the coordinator waits for a transaction's end; the brokers' own limit."""


class OpenTransaction(Change):
    """Begins a transaction at the source, writes into it, and does not end it. Other records follow it.

    Kafka aborts it after a quarter of an hour.
    """

    topic: str
    records: int = 5
    behind: int = 100
    """Records outside the transaction, which no consumer of committed records sees while it is open."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the transaction's id; refuses a topic that the mirror does not copy."""
        return {**copied(site, self.topic), "transactional_id": f"{self.topic}-open"}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Writes into the transaction, leaves it, and writes the others."""
        with _producer(site, undo) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(self.records):
                producer.send(self.topic, f"open {number}".encode(), b"fault", partition=0)
            producer.flush(TOPIC_S)
        write(site, site.mirror.source, self.topic, self.behind, what="behind")

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Begins anew with the same id, at which the coordinator aborts what is open."""
        with _producer(site, undo) as producer:
            producer.init_transactions()


@contextlib.contextmanager
def _producer(site: FaultSite, undo: Undo) -> Iterator[Any]:
    """Opens a producer of transactions, which is closed without ending the one that is open."""
    source, name = site.mirror.source, undo["transactional_id"]
    with granted(site, source, "TRANSACTIONAL_ID", name, "WRITE"):
        connection, timeout_ms = site.connection(source), TIMEOUT_S * 1000
        producer = connect_producer(connection, transactional_id=name, transaction_timeout_ms=timeout_ms)
        try:
            yield producer
        finally:
            producer.close(0)
