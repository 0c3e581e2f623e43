"""The rights that a proof needs on a topic, and those that a user lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

READ = "Read"
"""The right without which nothing is compared; without DescribeConfigs, settings are not."""
NEEDED = {"READ": READ, "DESCRIBE_CONFIGS": "DescribeConfigs"}
"""Operations and their rights, besides Describe, without which a topic is not listed."""
Operations = dict[str, Collection[str] | None]
"""What the user may do with each topic; None where the brokers do not say, as before Kafka 2.3."""


def operations_of(described: Iterable[Mapping[str, Any]]) -> Operations:
    """Returns what the user may do with topics, which kafka-python has described."""
    return {topic["name"]: topic.get("authorized_operations") or None for topic in described}


def lacking(operations: Collection[str] | None) -> list[str]:
    """Returns the rights that are missing on a topic."""
    return [] if operations is None else [right for needed, right in NEEDED.items() if needed not in operations]
