"""A consumer stays a member of its group, and reads, whatever happens to topics and to the other members."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from itertools import permutations

import pytest
from kafka import KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.structs import MemberState

from loosehanger.events.reader import Reader, Selection, Start
from loosehanger.kafka.patches import prepare

from .broker import Broker, running
from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]
GROUP = "readers"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as found:
        yield found


class _Member:
    """A reader on a thread of its own that polls while it is let."""

    def __init__(self, broker: Broker) -> None:
        selection = Selection((), re.compile(r"^LH\..*"))
        self.reader = Reader(
            broker.connection(), selection, group=GROUP, start=Start(end="earliest"), follow=True,
            client_log=prepare(lambda _: None), report=lambda _: None,
        )  # fmt: skip
        self.seen: set[tuple[str, int]] = set()
        self.polls = 0
        self._go = threading.Event()
        self._go.set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._go.set()

    @property
    def state(self) -> MemberState:
        return self.reader._consumer.group_metadata().state

    def topics(self) -> set[str]:
        return {partition.topic for partition in self.reader._consumer.assignment()}

    def close(self) -> None:
        self._ended.set()
        self._go.set()
        self._thread.join(30)
        self.reader.close()

    def _read(self) -> None:
        for batch in self.reader.batches(None, self._ended.is_set):
            self.polls += 1
            self.seen |= {(record.topic, record.partition) for record in batch}
            self._go.wait()


def _create(broker: Broker, topic: str) -> None:
    admin = broker.admin()
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    admin.close()


def _members(broker: Broker) -> int:
    admin = broker.admin()
    try:
        return len(admin.describe_groups([GROUP])[GROUP]["members"])
    except KafkaError:
        return 0  # The first member has the coordinator's topic made.
    finally:
        admin.close()


def _new_topic_while_one_is_busy(broker: Broker, busy: _Member, other: _Member, topic: str) -> None:
    busy.pause()
    _create(broker, topic)
    # The other one's request to join stays unanswered for several of its polls.
    wait_until(lambda: other.state is MemberState.REBALANCING, 60, "the other one's request")
    polls = other.polls
    wait_until(lambda: other.polls > polls + 3, 60, "its polls")
    busy.resume()
    wait_until(lambda: topic in busy.topics() & other.topics(), 20, "each member's share")


def test_a_member_whose_group_takes_long_to_gather_still_joins(broker: Broker) -> None:
    """Topics come after the members, each of which joins again. Either is the busy one once: one of them leads."""
    members = [_Member(broker), _Member(broker)]
    try:
        wait_until(lambda: _members(broker) == len(members), 60, "both members")
        topics: list[str] = []
        for busy, other in permutations(members):
            topics.append(f"LH.TOPIC-{len(topics)}")
            _new_topic_while_one_is_busy(broker, busy, other, topics[-1])
        sent = {(topic, partition) for topic in topics for partition in range(len(members))}
        producer = KafkaProducer(**broker.connection().kafka_python())
        for topic, partition in sent:
            producer.send(topic, b"sold", partition=partition)
        producer.close()
        wait_until(lambda: members[0].seen | members[1].seen == sent, 30, "every record")
    finally:
        for member in members:
            member.close()
