"""Open transactions: the gap between last stable offset and high watermark, and which transaction causes it.

Consumers that read committed records stop at the last stable offset. A producer that dies in the middle of a
transaction holds it for all records behind its own, until the coordinator aborts the transaction.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka import IsolationLevel, OffsetSpec, TopicPartition
from kafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)

from loosehanger.times import span

WARN_S = 30.0
"""Age of an open transaction from which it is worth a warning."""
_PROBE = "loosehanger-no-such-transaction"
"""A transactional id that no producer has: what the coordinator answers shows whether the user has the right."""
HANGS = "its coordinator does not know this transaction, so it never ends; abort it with kafka-transactions.sh abort"
_TOO_OLD = "the brokers are too old to name the transaction"


@dataclass(frozen=True)
class Holder:
    """The transaction that holds a partition's last stable offset."""

    producer_id: int
    transactional_id: str = ""
    """Empty where it is not known."""
    age_s: float | None = None
    """Seconds since it began; None where that is not known."""
    timeout_s: float | None = None
    """Seconds after which the coordinator aborts it; None where that is not known."""
    hangs: bool = False
    """The coordinator does not know it, so it never ends."""

    def __str__(self) -> str:
        name = f"transaction '{self.transactional_id}'" if self.transactional_id else "a transaction"
        said = f"{name} of producer {self.producer_id}"
        if self.age_s is not None:
            said += f", open for {span(self.age_s)}"
        if self.timeout_s is not None:
            said += f" (timeout {span(self.timeout_s)})"
        return said


@dataclass(frozen=True)
class Held:
    """A partition whose records up to the end are not all readable yet, because of an open transaction."""

    topic: str
    partition: int
    stable: int
    """The last stable offset: the first offset that a consumer of committed records does not get."""
    end: int
    """The high watermark, or the offset that was asked for."""
    holder: Holder | None = None
    unknown: str = ""
    """Why the holder, or a part of what is known of it, is missing."""

    @property
    def offsets(self) -> int:
        """Offsets that are held back, of records and of transaction markers."""
        return self.end - self.stable

    @property
    def age_s(self) -> float | None:
        """How long the transaction is open; None where that is not known."""
        return self.holder.age_s if self.holder else None

    @property
    def overdue(self) -> bool:
        """Whether the transaction is open for too long: 30 s, or longer than its own timeout, or without one."""
        if self.holder is None:
            return False
        age, timeout = self.holder.age_s, self.holder.timeout_s
        return self.holder.hangs or (age is not None and age >= min(WARN_S, WARN_S if timeout is None else timeout))

    @property
    def by(self) -> str:
        """What holds it, in words, as far as that is known."""
        said = f"held by {self.holder}" if self.holder else ""
        return "; ".join(part for part in (said, self.unknown) if part)

    def __str__(self) -> str:
        said = f"{self.topic}-{self.partition}: up to {self.offsets:,} records are behind the last stable offset"
        return f"{said} {self.stable:,}" + (f", {self.by}" if self.by else "")


def held_back(
    client: Any,
    partitions: Collection[TopicPartition],
    user: str | None,
    ends: Mapping[TopicPartition, int] | None = None,
) -> list[Held]:
    """The partitions whose last stable offset is before their end, with the transaction that holds each.

    Args:
        client: an admin client of kafka-python.
        partitions: which.
        user: the name that the client signs in with, for messages; None without a sign-in.
        ends: the offset to reach of each partition; its high watermark where this is left out.

    Raises:
        KafkaError: the cluster does not answer, or refuses to show offsets.
    """
    # The high watermark first: what is written between the two readings must not look like an open transaction.
    wanted = _offsets(client, partitions, IsolationLevel.READ_UNCOMMITTED) if ends is None else ends
    stable = _offsets(client, partitions, IsolationLevel.READ_COMMITTED)
    late = [place for place in partitions if place in stable and stable[place] < wanted[place]]
    found = _holders(client, late, user) if late else {}
    return [Held(place.topic, place.partition, stable[place], wanted[place], *found[place]) for place in sorted(late)]


def _offsets(client: Any, partitions: Iterable[TopicPartition], level: IsolationLevel) -> dict[TopicPartition, int]:
    specs = dict.fromkeys(partitions, OffsetSpec.LATEST)
    found = client.list_partition_offsets(specs, isolation_level=level) if specs else {}
    return {place: answer.offset for place, answer in found.items()}


def _holders(
    client: Any, places: Collection[TopicPartition], user: str | None
) -> dict[TopicPartition, tuple[Holder | None, str]]:
    """Of each partition the transaction that holds it, and why something of it is not known."""
    producers, reasons = _producers(client, places, user)
    found: dict[TopicPartition, tuple[Holder | None, str]] = {place: (None, reasons.get(place, "")) for place in places}
    if not producers:
        return found
    known, why_not = _known(client, set(producers.values()), user)
    for place, producer in producers.items():
        found[place] = known[producer], "" if known[producer].age_s is not None else why_not[producer]
    return found


def _producers(
    client: Any, places: Collection[TopicPartition], user: str | None
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """The id of the producer with the oldest open transaction of each partition; else the reason."""
    try:
        states = client.describe_producers(places)
    except UnsupportedVersionError:
        return {}, dict.fromkeys(places, _TOO_OLD)
    except (KafkaError, OSError) as error:
        topics = {place.topic for place in places}
        if len(topics) == 1:
            (topic,) = topics
            lacks = isinstance(error, TopicAuthorizationFailedError)
            reason = _lacks(user, f"Read on topic {topic}") if lacks else _unnamed(error)
            return {}, dict.fromkeys(places, reason)
        # The client does not say which of them it is about.
        found: dict[TopicPartition, int] = {}
        reasons: dict[TopicPartition, str] = {}
        for topic in topics:
            some = _producers(client, [place for place in places if place.topic == topic], user)
            found, reasons = found | some[0], reasons | some[1]
        return found, reasons
    first: dict[TopicPartition, int] = {}
    for place, state in states.items():
        begun = [one for one in state.active_producers if one.current_transaction_start_offset >= 0]
        if begun:
            first[place] = min(begun, key=lambda one: one.current_transaction_start_offset).producer_id
    return first, {}


def _known(client: Any, producers: set[int], user: str | None) -> tuple[dict[int, Holder], dict[int, str]]:
    """What coordinators know of the transactions of these producers; else the reason."""
    plain = {producer: Holder(producer) for producer in producers}
    try:
        of_brokers = client.list_transactions(producer_id_filters=sorted(producers))
        names = {one.producer_id: one.transactional_id for listed in of_brokers.values() for one in listed}
        details = client.describe_transactions(sorted(set(names.values())))
    except UnsupportedVersionError:
        return plain, dict.fromkeys(producers, _TOO_OLD)
    except (KafkaError, OSError) as error:
        return plain, dict.fromkeys(producers, _unnamed(error))
    now_ms = time.time() * 1000
    found = dict(plain)
    for producer, name in names.items():
        one = details.get(name)
        if one is not None and producer in plain:
            begun = one.transaction_start_time_ms
            age = max(0.0, (now_ms - begun) / 1000) if begun >= 0 else None
            found[producer] = Holder(producer, name, age, one.transaction_timeout_ms / 1000)
    if not (unlisted := producers - names.keys()):
        return found, dict.fromkeys(producers, "")
    # A broker leaves out what the user may not see, without a word.
    reason, hangs = _why_unlisted(client, user)
    found |= {producer: Holder(producer, hangs=hangs) for producer in unlisted}
    return found, dict.fromkeys(producers, "") | dict.fromkeys(unlisted, reason)


def _why_unlisted(client: Any, user: str | None) -> tuple[str, bool]:
    """Why coordinators list no transaction of a producer that has one open; whether none of them knows it."""
    try:
        client.describe_transactions([_PROBE])
    except TransactionalIdAuthorizationFailedError:
        return _lacks(user, "Describe on transactional ids"), False
    except TransactionalIdNotFoundError:
        return HANGS, True
    except (KafkaError, OSError) as error:
        return _unnamed(error), False
    return "", False


def _lacks(user: str | None, right: str) -> str:
    return f"user '{user or 'ANONYMOUS'}' lacks {right}"


def _unnamed(error: Exception) -> str:
    return f"the transaction cannot be named ({type(error).__name__})"
