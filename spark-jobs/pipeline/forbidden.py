"""What must not be in a region: topics by any name, headers, fields of values, and the right to read it elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from loosehanger.model.claims import Forbidden
from loosehanger.model.topic_rules import is_internal

OFFSET_SYNCS = "mm2-offset-syncs."
"""What the names of the topics begin with in which mirrors note where each record of a topic went."""


@dataclass(frozen=True)
class Present:
    """What was found of it in a region."""

    topics: tuple[str, ...] = ()
    """Topics that are there."""
    rights: tuple[dict[str, Any], ...] = ()
    """Users whose secrets the region has, and who may read it at home: ``user``, ``origin``, ``topic``, ``rule``."""
    records: tuple[dict[str, Any], ...] = ()
    """Records with it: the columns of ``scan``."""


def named_like(topics: Iterable[str], forbidden: Collection[str]) -> tuple[str, ...]:
    """Those of the topics that are called like a forbidden one, or like its copy by way of any regions."""
    endings = [re.compile(rf"(?:.*[._-])?{re.escape(name)}") for name in forbidden]
    return tuple(sorted(topic for topic in topics if any(ending.fullmatch(topic) for ending in endings)))


def to_scan(topics: Iterable[str]) -> list[str]:
    """The topics of a region that are looked through: what applications see, and the mirrors' notes of names."""
    return sorted(topic for topic in topics if topic.startswith(OFFSET_SYNCS) or not is_internal(topic))


def scan(records: DataFrame, forbidden: Forbidden) -> DataFrame:
    """Looks for forbidden names.

    A field is one of that name anywhere in a value that is JSON, or looks like it.

    Args:
        records: of ``RECORD_SCHEMA``, of the topics of ``to_scan``.
        forbidden: what to look for.

    Returns:
        kind, name, topic, records, partition and offset (of the first one).
    """
    text = F.col("value").cast("string")
    is_note = F.col("topic").startswith(OFFSET_SYNCS)
    conditions: list[tuple[str, str, Column]] = [
        *(("header", name, F.array_contains(F.col("headers.key"), name)) for name in forbidden.headers),
        *(("field", name, ~is_note & text.rlike(rf'"{re.escape(name)}"\s*:')) for name in forbidden.fields),
        *(("name", name, is_note & F.col("key").cast("string").contains(name)) for name in forbidden.topics),
    ]
    found = [
        records.where(F.coalesce(condition, F.lit(False)))
        .groupBy("topic")
        .agg(F.count("*").alias("records"), F.min(F.struct("partition", "offset")).alias("first"))
        .select(F.lit(kind).alias("kind"), F.lit(name).alias("name"), "topic", "records", "first.*")
        for kind, name, condition in conditions
    ]
    return reduce(DataFrame.unionByName, found)
