"""Showing and changing topics in all regions at once: what ``topic.sh`` does."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError
from rich.console import Console
from rich.table import Table

from lab.access import Lab, Mirror, Region
from lab.errors import ExitCode, LabError, WrongUseError

ADMIN = "admin"
MIRRORED_SECONDS = 60


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line of ``topic.sh``; its changes as ``changes``: setting → value, None for the default.

    Raises:
        WrongUseError: a setting is none.
    """
    parser = argparse.ArgumentParser(
        prog="topic.sh",
        description="Shows topics side by side in all regions, and changes their configuration.",
        epilog="Exit codes: 0 done, 1 the change did not arrive, 2 wrong use, 3 nothing is set up.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="one topic, or all, in every region")
    show.add_argument("topic", nargs="?", help="as in LH.ORDERS; all topics if left out")
    change = commands.add_parser("set", help="change settings of a topic, and wait until the mirrors have followed")
    change.add_argument("region")
    change.add_argument("topic")
    change.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="as in retention.ms=3600000")
    unset = commands.add_parser("unset", help="give settings of a topic their defaults again, and wait likewise")
    unset.add_argument("region")
    unset.add_argument("topic")
    unset.add_argument("settings", nargs="+", metavar="NAME")
    for command in (change, unset):
        command.add_argument("--only-wait", action="store_true", help="only wait until region and mirrors have it")
    options = parser.parse_args(arguments)
    options.changes = {}
    for setting in getattr(options, "settings", ()):
        name, equals, value = setting.partition("=")
        if (options.command == "set") != bool(equals) or not name:
            wanted = "NAME=VALUE" if options.command == "set" else "NAME"
            raise WrongUseError(f"'{setting}' is not {wanted}, as in retention.ms{'=3600000' if equals == '' else ''}")
        options.changes[name] = value if equals else None
    return options


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Does what ``parse`` has read."""
    if options.command == "show":
        return _show(lab, options.topic)
    return _change(lab, lab.region(options.region), options.topic, options.changes, only_wait=options.only_wait)


def describe(region: Region) -> dict[str, dict[str, Any]]:
    """Every topic of a region, internal ones left out: partitions, and the settings made on the topic itself.

    Raises:
        LabError: the region's cluster does not answer.
    """
    with _admin(region) as admin:
        found = [topic for topic in admin.describe_topics() if not topic["is_internal"]]
        names = [topic["name"] for topic in found if not topic["name"].startswith("__")]
        if not names:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        configs = admin.describe_configs(resources, config_filter="modified")["topic"]
        return {
            topic["name"]: {
                "partitions": len(topic["partitions"]),
                **{key: entry["value"] for key, entry in sorted(configs[topic["name"]].items())},
            }
            for topic in found
            if topic["name"] in configs
        }


def _show(lab: Lab, name: str | None) -> int:
    regions = {region.name: describe(region) for region in lab.regions.values()}
    names = sorted({topic for topics in regions.values() for topic in topics})
    if name is not None and name not in names:
        raise WrongUseError(f"unknown topic '{name}'; the topics are: {', '.join(names) or 'none'}")
    table = Table(title_justify="left")
    table.add_column("Topic", no_wrap=True)
    table.add_column("Setting", no_wrap=True)
    for region in regions:
        table.add_column(region, no_wrap=True)
    for topic in [name] if name else names:
        settings = dict.fromkeys(key for topics in regions.values() for key in topics.get(topic, {}))
        for index, setting in enumerate(settings):
            values = [topics.get(topic, {}).get(setting) for topics in regions.values()]
            differs = len(set(values)) > 1
            cells = [("–" if value is None else str(value)) for value in values]
            table.add_row(
                topic if index == 0 else "",
                setting,
                *(f"[yellow]{cell}[/]" if differs else cell for cell in cells),
                end_section=index == len(settings) - 1,
            )
    Console().print(table)
    return ExitCode.DONE


def _change(lab: Lab, region: Region, topic: str, changes: Mapping[str, str | None], *, only_wait: bool) -> int:
    started = time.monotonic()
    if only_wait:
        _wait_until_there(region, topic, changes, started, "does it have such a topic?")
    else:
        _alter(region, topic, changes)
    said = ", ".join(key if value is None else f"{key}={value}" for key, value in changes.items())
    print(f"{region.name}: {topic}: {said} {'unset' if None in changes.values() else 'set'}")
    for mirror in lab.mirrors:
        if mirror.source == region.name and _mirrors(mirror, topic):
            target = lab.region(mirror.target)
            name = topic if mirror.policy == "identity" else f"{mirror.source_alias}{mirror.separator}{topic}"
            advice = f"is {mirror.name} running (./status.sh), and does it synchronise this setting?"
            _wait_until_there(target, name, changes, started, advice)
            print(f"{target.name}: {name}: followed after {time.monotonic() - started:.1f} s")
    return ExitCode.DONE


def _alter(region: Region, topic: str, changes: Mapping[str, str | None]) -> None:
    with _admin(region) as admin:
        present = [found["name"] for found in admin.describe_topics() if not found["is_internal"]]
        if topic not in present:
            known = ", ".join(sorted(name for name in present if not name.startswith("__")))
            raise WrongUseError(f"unknown topic '{topic}' in {region.name}; the topics are: {known or 'none'}")
        wanted = {
            key: (AlterConfigOp.DELETE, None) if value is None else (AlterConfigOp.SET, value)
            for key, value in changes.items()
        }
        answer = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wanted)], raise_on_unknown=False)
    if (result := answer["topic"][topic]) != "OK":
        raise WrongUseError(f"{region.name}: {topic}: Kafka refuses the change: {result}")


def _wait_until_there(
    region: Region, topic: str, changes: Mapping[str, str | None], started: float, advice: str
) -> None:
    pause = 0.1
    while True:
        there = describe(region).get(topic, {})
        if all(there.get(key) == value for key, value in changes.items()):
            return
        if time.monotonic() - started > MIRRORED_SECONDS:
            raise LabError(f"{region.name}: {topic} has not followed within {MIRRORED_SECONDS} s; {advice}")
        time.sleep(pause)  # between two looks; the condition above decides when it ends
        pause = min(pause * 1.5, 1.0)


def _mirrors(mirror: Mirror, topic: str) -> bool:
    def matches(patterns: str) -> bool:
        return any(re.fullmatch(pattern.strip(), topic) for pattern in patterns.split(",") if pattern.strip())

    return matches(mirror.topics) and not matches(mirror.topics_exclude)


@contextmanager
def _admin(region: Region) -> Iterator[KafkaAdminClient]:
    try:
        client = KafkaAdminClient(**region.connection(ADMIN).kafka_python(), bootstrap_timeout_ms=10000)
    except (KafkaError, OSError) as error:
        raise LabError(
            f"{region.name}: the cluster does not answer ({type(error).__name__}); see ./status.sh"
        ) from error
    try:
        yield client
    except KafkaError as error:
        raise LabError(f"{region.name}: {error}") from error
    finally:
        client.close()
