"""Creates, grows, empties and deletes topics; a refusal of Kafka's becomes one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition
from kafka.errors import (
    AuthorizationError,
    BrokerResponseError,
    RetriableError,
    SaslAuthenticationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.changes import NotAllowedError
from loosehanger.waiting import wait_for

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

SEEN_S = 5.0
"""Seconds within which a broker should see a change that the controller has made."""
BROKERS_CHOICE = -1
"""For a number of replicas or partitions: the cluster's default."""


@contextmanager
def refusals(where: str, change: str) -> Iterator[None]:
    """Turns a refusal of Kafka's into one sentence; other errors, such as a lost connection, pass.

    Args:
        where: what it is about, for the message.
        change: what was tried, to follow ``to``.

    Raises:
        NotAllowedError: the user lacks the right.
        WrongUseError: Kafka refuses for another reason.
    """
    try:
        yield
    except AuthorizationError as error:
        raise _not_allowed(where, change, error) from error
    except UnknownTopicOrPartitionError as error:
        raise WrongUseError(f"{where}: there is no such topic or partition") from error
    except (RetriableError, SaslAuthenticationFailedError):
        raise
    except BrokerResponseError as error:
        if "AuthorizationFailed" in str(error):  # Of several partitions together.
            raise _not_allowed(where, change, error) from error
        raise WrongUseError(f"{where}: Kafka refuses to {change}: {_reason(error)}") from error


def create_topic(admin: KafkaAdminClient, where: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Creates a topic, with the cluster's default number of replicas.

    Args:
        admin: a client of a user with Create on the topic.
        where: the cluster, for messages.
        topic: its name.
        partitions: how many.
        settings: its overrides.

    Raises:
        WrongUseError: Kafka refuses it, for example because it exists.
        KafkaError: the cluster does not answer.
    """
    wanted = {"num_partitions": partitions, "replication_factor": BROKERS_CHOICE, "configs": dict(settings)}
    with refusals(f"{where}: {topic}", "create the topic"):
        answer = admin.create_topics({topic: wanted}, raise_errors=False)
        _raise(answer["topics"])
    _until(lambda: _partitions(admin, topic) >= partitions)


def add_partitions(admin: KafkaAdminClient, where: str, topic: str, count: int) -> None:
    """Adds partitions to a topic.

    Args:
        admin: a client of a user with Alter on the topic.
        where: the cluster, for messages.
        topic: its name.
        count: how many it must have afterwards.

    Raises:
        WrongUseError: Kafka refuses it, for example because it has so many.
        KafkaError: the cluster does not answer.
    """
    with refusals(f"{where}: {topic}", "add partitions"):
        answer = admin.create_partitions({topic: count}, raise_errors=False)
        _raise(answer.to_dict()["results"])
    _until(lambda: _partitions(admin, topic) >= count)


def delete_topic(admin: KafkaAdminClient, where: str, topic: str) -> None:
    """Deletes a topic with its records.

    Args:
        admin: a client of a user with Delete on the topic.
        where: the cluster, for messages.
        topic: its name.

    Raises:
        WrongUseError: there is no such topic, or Kafka refuses.
        KafkaError: the cluster does not answer.
    """
    with refusals(f"{where}: {topic}", "delete the topic"):
        answer = admin.delete_topics([topic], raise_errors=False)
        _raise(answer["topics"])
    _until(lambda: not _partitions(admin, topic))


def delete_records(admin: KafkaAdminClient, where: str, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Deletes the records before an offset of each partition.

    Args:
        admin: a client of a user with Delete on the topic.
        where: the cluster, for messages.
        topic: its name.
        before: by partition, the first offset that stays.

    Returns:
        The first offset of each of these partitions afterwards.

    Raises:
        WrongUseError: an offset is behind the end, or Kafka refuses.
        KafkaError: the cluster does not answer.
    """
    with refusals(f"{where}: {topic}", "delete records"):
        wanted = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        answer = admin.delete_records(wanted)
    return {place.partition: found["low_watermark"] for place, found in answer.items()}


def _partitions(admin: KafkaAdminClient, topic: str) -> int:
    with suppress(UnknownTopicOrPartitionError):
        (found,) = admin.describe_topics([topic])
        return 0 if found["error_code"] else len(found["partitions"])
    return 0


def _until(seen: Callable[[], bool]) -> None:
    """Waits until a broker sees a change, so that the next page shows it; the change was made in any case."""
    with suppress(LabError):
        wait_for(lambda: None if seen() else "not seen yet", SEEN_S, "a change of a topic")


def _raise(results: list[dict[str, Any]]) -> None:
    for result in results:
        if result["error_code"]:
            raise for_code(result["error_code"])(result.get("error_message") or "")


def _not_allowed(where: str, change: str, error: Exception) -> NotAllowedError:
    return NotAllowedError(
        f"{where}: Kafka does not allow the console's user to {change} ({type(error).__name__}); its KafkaUser lists "
        "the topics and groups that it may change"
    )


def _reason(error: BrokerResponseError) -> str:
    """An error's name and text, without the number that kafka-python puts before them."""
    name = type(error).__name__
    text = next((str(one) for one in error.args if one), "")
    return f"{text} ({name})" if text else name
