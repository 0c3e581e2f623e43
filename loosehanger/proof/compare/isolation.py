"""Data that a region must not have: topics by any name, headers, fields of values, and rights to read it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.internal_topics import CHECKPOINTS, OFFSET_SYNCS
from loosehanger.lab.claims.claims import Forbidden
from loosehanger.lab.mirrors.replication import is_internal

_SYNCS = f"{OFFSET_SYNCS}."
"""The prefix of the topics in which mirrors store offset syncs."""
_CHECKPOINTS = f".{CHECKPOINTS}"
"""The suffix of the topics in which mirrors store groups' checkpoints."""


@dataclass(frozen=True)
class Present:
    """The forbidden data that a region has."""

    topics: tuple[str, ...] = ()
    """Forbidden topics."""
    rights: tuple[dict[str, Any], ...] = ()
    """Users of the region who may read it at its origin: ``user``, ``origin``, ``topic``, ``rule``."""
    records: tuple[dict[str, Any], ...] = ()
    """Records with forbidden names: the columns of ``scan``."""


def named_like(topics: Iterable[str], forbidden: Collection[str]) -> tuple[str, ...]:
    """The topics with the name of a forbidden one, or of its copy through any regions."""
    endings = [re.compile(_ending(name)) for name in forbidden]
    return tuple(sorted(topic for topic in topics if any(ending.match(topic) for ending in endings)))


def to_scan(topics: Iterable[str]) -> list[str]:
    """The topics of a region to scan: those of applications, and the mirrors' topics that contain names."""
    return sorted(
        topic for topic in topics if topic.startswith(_SYNCS) or topic.endswith(_CHECKPOINTS) or not is_internal(topic)
    )


def has_field(text: Column, names: Iterable[str]) -> Column:
    """Whether a text has one of these names as JSON has a field's; JSON within a string of JSON counts as well."""
    any_of_them = "|".join(re.escape(name) for name in names)
    return text.rlike(rf'"(?:{any_of_them})\\*"\s*:')


def scan(records: DataFrame, forbidden: Forbidden) -> DataFrame:
    """Looks for forbidden names.

    A field is found anywhere in a value that is JSON, or looks like it. The mirrors' topics have names in their
    keys: ``OffsetSync`` (a topic) and ``Checkpoint`` (a group, and a topic) of Kafka 4.3.1.

    Args:
        records: of ``RECORD_SCHEMA``, of the topics of ``to_scan``.
        forbidden: the names to find.

    Returns:
        kind, name, topic, records, partition and offset (of the first one).
    """
    text = F.col("value").cast("string")
    is_sync, is_checkpoint = F.col("topic").startswith(_SYNCS), F.col("topic").endswith(_CHECKPOINTS)
    is_note = is_sync | is_checkpoint
    after_first, first = _text_at(F.lit(1))
    _, second = _text_at(after_first)
    named_topic = F.when(is_sync, first).when(is_checkpoint, second)
    named_group = F.when(is_checkpoint, first)
    conditions: list[tuple[str, str, Column]] = [
        *(("header", name, F.array_contains(F.col("headers.key"), name)) for name in forbidden.headers),
        *(("field", name, ~is_note & has_field(text, [name])) for name in forbidden.fields),
        *(("name", name, named_topic.rlike(_ending(name))) for name in forbidden.topics),
        *(("group", name, named_group == name) for name in forbidden.groups),
    ]
    found = [
        records.where(F.coalesce(condition, F.lit(False)))
        .groupBy("topic")
        .agg(F.count("*").alias("records"), F.min(F.struct("partition", "offset")).alias("first"))
        .select(F.lit(kind).alias("kind"), F.lit(name).alias("name"), "topic", "records", "first.*")
        for kind, name, condition in conditions
    ]
    return reduce(DataFrame.unionByName, found)


def _ending(topic: str) -> str:
    """A pattern that matches a topic's name, and that of any copy."""
    return rf"^(?:.*[._-])?{re.escape(topic)}$"


def _text_at(position: Column) -> tuple[Column, Column]:
    """A text within a record's key, in Kafka's protocol: two bytes with its length, then UTF-8.

    Args:
        position: of its length, from 1.

    Returns:
        The position after it, and the text.
    """
    length = F.conv(F.hex(F.substring("key", position, F.lit(2))), 16, 10).cast("int")
    return position + 2 + length, F.substring("key", position + 2, length).cast("string")
