"""Compares the configuration of mirrored topics with that of their sources, as far as MM2 synchronises it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loosehanger.kafka.cluster import Cluster, Config
from loosehanger.lab.mirrors.replication import NOT_SYNCHRONISED as EXCLUDED

Handling = Literal["judge", "report", "ignore"]
"""The effect of a difference in a topic's settings: it disproves, it is reported, or it is ignored."""
TOPIC, _PARTITIONS = "topic", "partitions"
STRUCTURE = (TOPIC, _PARTITIONS)
"""Compared beside settings: whether the topic exists, and its number of partitions."""
_RECHECK_S = 1.0


@dataclass(frozen=True)
class ConfigDifference:
    """A setting that the target's topic has otherwise than the source's; None where it is not set."""

    name: str
    source: str | None
    target: str | None


Settings = tuple[dict[str, list[ConfigDifference]], dict[str, str]]
"""The differences of each topic that has any, and the missing rights of each topic that cannot be compared."""


def compare_configs(source: Mapping[str, Config], target: Mapping[str, Config]) -> list[ConfigDifference]:
    """The differences between a topic's configurations at the source and at the target.

    What the source sets dynamically the target must have, and what the target overrides the source must have set.
    Values from a broker's own file and MM2's excluded names are not synchronised, so they may differ.
    """
    wanted = {name: config.value for name, config in source.items() if config.mirrored and name not in EXCLUDED}
    overrides = {name: config.value for name, config in target.items() if config.override and name not in EXCLUDED}
    there = {name: target[name].value if name in target else None for name in wanted} | overrides
    return [
        ConfigDifference(name, wanted.get(name), there.get(name))
        for name in sorted(wanted.keys() | overrides.keys())
        if wanted.get(name) != there.get(name) or name not in wanted
    ]


def config_differences(source: Cluster, target: Cluster, topics: Mapping[str, str], timeout_s: float) -> Settings:
    """The differences of each topic that remain after the bound: MM2 synchronises every few seconds.

    Args:
        source: the source's cluster.
        target: the target's cluster.
        topics: each topic's name at the source with its name at the target.
        timeout_s: bound, in seconds.

    Returns:
        The topics with a difference, by their names at the source; and those whose settings cannot be compared, with
        the rights that are missing.

    Raises:
        UnreachableError: a cluster does not answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        differences, unknown = _differences(source, target, topics)
        if not differences or time.monotonic() > deadline:
            return differences, unknown
        time.sleep(_RECHECK_S)


def considered(differences: Sequence[ConfigDifference], handling: Handling) -> list[ConfigDifference]:
    """The differences of a topic that count. A missing topic always counts."""
    return [entry for entry in differences if handling != "ignore" or entry.name == TOPIC]


def _differences(source: Cluster, target: Cluster, topics: Mapping[str, str]) -> Settings:
    partitions_there = target.topics()
    partitions_here = source.topics()
    here = [topic for topic in topics if topic in partitions_here]
    configs_here = source.configs(here)
    configs_there = target.configs(_present(topics.values(), partitions_there))
    differences: dict[str, list[ConfigDifference]] = {}
    unknown: dict[str, str] = {}
    for topic in here:
        mirrored = topics[topic]
        if mirrored not in partitions_there:
            differences[topic] = [ConfigDifference(TOPIC, topic, None)]
            continue
        count, count_there = partitions_here[topic], partitions_there[mirrored]
        lacking = [
            cluster.lacks("DescribeConfigs", name)
            for cluster, name, known in ((source, topic, configs_here), (target, mirrored, configs_there))
            if name not in known
        ]
        if lacking:
            unknown[topic] = " and ".join(lacking)
        found = [] if lacking else compare_configs(configs_here[topic], configs_there[mirrored])
        if count != count_there:
            found.append(ConfigDifference(_PARTITIONS, str(count), str(count_there)))
        if found:
            differences[topic] = found
    return differences, unknown


def _present(topics: Collection[str], there: Mapping[str, int]) -> list[str]:
    return [topic for topic in topics if topic in there]
