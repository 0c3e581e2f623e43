"""``./lab topic``: shows and changes topics in all regions at once."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, UnknownTopicOrPartitionError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loosehanger.cli.command_line import COMMANDS
from loosehanger.errors import ExitCode, LabError, UnreachableError, WrongUseError
from loosehanger.kafka.clients import PATIENT
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.patches import alter_topic, check_settings, topic_configs
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.lineage import Place, side_by_side
from loosehanger.lab.mirrors.replication import (
    SYNCHRONISED,
    UNSYNCHRONISED,
    selected_topics,
    synchronises,
    target_topic,
)
from loosehanger.lab.record import Lab, Region
from loosehanger.suggestions import instead

PARTITIONS = "partitions"
"""Changed like a setting, although it is not one: partitions can be added, and never removed."""
MIRRORED_SECONDS = 60
_WIDEST = 10_000


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the command line of ``./lab topic``; ``changes`` maps a setting to its value, or None for the default.

    Raises:
        WrongUseError: a setting is invalid.
    """
    options = COMMANDS["topic"].parser().parse_args(arguments)
    options.changes = {}
    for setting in getattr(options, "settings", ()):
        name, equals, value = setting.partition("=")
        if (options.command == "set") != bool(equals) or not name:
            wanted = "NAME=VALUE" if options.command == "set" else "NAME"
            example = f"retention.ms{'=3600000' if equals == '' else ''}"
            raise WrongUseError(f"'{setting}' is not {wanted}, for example {example}")
        options.changes[name] = value if equals else None
    if PARTITIONS in options.changes:
        _check_number(options.changes[PARTITIONS])
    return options


def _check_number(value: str | None) -> None:
    if value is None:
        raise WrongUseError("a topic has no default number of partitions, and none can be removed")
    if not (value.isascii() and value.isdecimal() and int(value)):
        raise WrongUseError(f"'{PARTITIONS}={value}' is not a number of partitions, for example {PARTITIONS}=6")


def run(lab: Lab, options: argparse.Namespace) -> int:
    """Shows or changes topics, as ``parse`` has read."""
    if options.command == "show":
        return _show(lab, options.topic, as_json=options.json)
    return _change(lab, lab.region(options.region), options.topic, options.changes, only_wait=options.only_wait)


def describe(region: Region) -> dict[str, dict[str, Any]]:
    """Every topic of a region except internal ones: partitions and overrides.

    Raises:
        LabError: the region's cluster does not answer.
    """
    with _admin(region) as admin:
        found = [topic for topic in admin.describe_topics() if not topic["is_internal"]]
        names = [topic["name"] for topic in found if not topic["name"].startswith("__")]
        if not names:
            return {}
        configs, errors = topic_configs(admin, names, "modified")
        for name, error in errors.items():
            if not isinstance(error, UnknownTopicOrPartitionError):  # It was deleted in the meantime.
                raise LabError(f"{region.name}: the settings of {name} cannot be read: {error}")
        return {
            topic["name"]: {
                PARTITIONS: len(topic["partitions"]),
                **{key: entry["value"] for key, entry in sorted(configs[topic["name"]].items())},
            }
            for topic in found
            if topic["name"] in configs
        }


def document(lab: Lab, name: str | None = None) -> dict[str, Any]:
    """Returns what ``./lab topic show [NAME] --json`` prints.

    Raises:
        WrongUseError: no region has the topic.
        LabError: a region's cluster does not answer.
    """
    chosen = {
        region: {topic: settings for topic, settings in topics.items() if name in (None, topic)}
        for region, topics in _topics(lab, name).items()
    }
    return {"regions": chosen}


def _topics(lab: Lab, name: str | None) -> dict[str, dict[str, dict[str, Any]]]:
    """Every topic of each region, as ``describe`` has them; refuses a name that no region has."""
    with ThreadPoolExecutor(max_workers=max(len(lab.clusters), 1)) as threads:
        regions = dict(zip(lab.clusters, threads.map(describe, lab.clusters.values()), strict=True))
    names = sorted({topic for topics in regions.values() for topic in topics})
    if name is not None and name not in names:
        raise WrongUseError(f"unknown topic '{name}'{instead(name, names, 'the topics are')}")
    return regions


def _show(lab: Lab, name: str | None, *, as_json: bool = False) -> int:
    if as_json:
        print(json.dumps(document(lab, name), indent=1, ensure_ascii=False))
        return ExitCode.DONE
    regions = _topics(lab, name)
    lines: list[str] = []
    table = Table(title_justify="left")
    for heading in ("Topic", "Setting", *regions):
        table.add_column(heading, overflow="fold")
    places = [Place(region, topic) for region, topics in regions.items() for topic in topics]
    for first, line in side_by_side(lab.mirrors, places):
        if name is not None and name not in (first.topic, *line.values()):
            continue
        there = {region: regions[region].get(topic, {}) for region, topic in line.items()}
        rows = {
            key: [there.get(region, {}).get(key) for region in regions]
            for settings in there.values()
            for key in settings
        }
        lines.append(f"[bold]{escape(first.topic)}[/]")
        if absent := [region for region in regions if line.get(region) not in regions[region]]:
            lines.append(f"  not in {', '.join(absent)}")
        if set(line.values()) != {first.topic}:
            lines += [f"  called {escape(topic)} in {region}" for region, topic in line.items()]
            table.add_row(first.topic, "called", *(line.get(region, "–") for region in regions))
        for index, (setting, values) in enumerate(rows.items()):
            differs = len({settings.get(setting) for settings in there.values()}) > 1
            cells = [("–" if value is None else str(value)) for value in values]
            each = ", ".join(f"{region} {cell}" for region, cell in zip(regions, cells, strict=True) if region in there)
            same = next((cell for region, cell in zip(regions, cells, strict=True) if region in there), "–")
            lines.append(f"  {setting}: {f'[yellow]{escape(each)}[/]' if differs else escape(same)}")
            table.add_row(
                first.topic if index == 0 and set(line.values()) == {first.topic} else "",
                setting,
                *(f"[yellow]{cell}[/]" if differs else cell for cell in cells),
                end_section=index == len(rows) - 1,
            )
    console = Console()
    if not console.is_terminal:
        # Not a terminal: do not wrap or truncate.
        console.width = max(console.width, Console(width=_WIDEST).measure(table).maximum)
    if Console(width=_WIDEST).measure(table).maximum <= console.width:
        console.print(table)
        return ExitCode.DONE
    # The terminal is too narrow for regions side by side.
    console.print("\n".join(lines), highlight=False)
    return ExitCode.DONE


def _change(lab: Lab, region: Region, topic: str, changes: Mapping[str, str | None], *, only_wait: bool) -> int:
    started = time.monotonic()
    if only_wait:
        _wait_for_all([_Copy(region, topic, "does the topic exist there?", changes)], started, lambda _: None)
    else:
        _alter(region, topic, changes)
    applied = ", ".join(key if value is None else f"{key}={value}" for key, value in changes.items())
    print(f"{region.name}: {topic}: {applied} {'unset' if None in changes.values() else 'set'}")
    copies = []
    for mirror in lab.mirrors:
        if mirror.source != region.name or not selected_topics(mirror, [topic]):
            continue
        kept = [name for name in changes if name != PARTITIONS and not synchronises(mirror, name)]
        copied = {name: value for name, value in changes.items() if name not in kept}
        target, name = lab.region(mirror.target), target_topic(mirror, topic)
        if kept:
            off = mirror.synchronisation.get(SYNCHRONISED, "true").strip().lower() == "false"
            why = f"{SYNCHRONISED} is false" if off else UNSYNCHRONISED
            print(f"{target.name}: {name}: {mirror.name} does not copy {', '.join(kept)} ({why})")
        if copied:
            advice = f"is {mirror.name} running (./lab status), and does it synchronise this setting?"
            copies.append(_Copy(target, name, advice, copied))
    _wait_for_all(copies, started, _show_copy)
    return ExitCode.DONE


def _show_copy(copy: _Copy) -> None:
    print(f"{copy.region.name}: {copy.topic}: followed after {copy.seconds:.1f} s", flush=True)


def _alter(region: Region, topic: str, changes: Mapping[str, str | None]) -> None:
    with _admin(region) as admin:
        present = {
            found["name"]: len(found["partitions"]) for found in admin.describe_topics() if not found["is_internal"]
        }
        if topic not in present:
            known = sorted(name for name in present if not name.startswith("__"))
            raise WrongUseError(f"unknown topic '{topic}' in {region.name}{instead(topic, known, 'the topics are')}")
        settings = {name: value for name, value in changes.items() if name != PARTITIONS}
        partitions = int(changes.get(PARTITIONS) or present[topic])
        if partitions < present[topic]:
            raise WrongUseError(
                f"{region.name}: {topic} has {present[topic]} partitions, and partitions cannot be removed"
            )
        if settings:
            check_settings(admin, topic, list(settings), f"{region.name}: {topic}")
            alter_topic(admin, topic, settings, f"{region.name}: {topic}")
        if partitions > present[topic]:
            admin.create_partitions({topic: partitions})


@dataclass
class _Copy:
    """A topic that must receive settings, and how long that took."""

    region: Region
    topic: str
    advice: str
    """Where to look if it does not receive them."""
    changes: Mapping[str, str | None]
    """The expected settings."""
    seconds: float | None = None
    """Seconds until the copy had the settings; None until then."""
    failure: str = ""

    def look(self, started: float) -> None:
        """Checks whether the copy has the settings by now, or the time is up."""
        try:
            there = describe(self.region).get(self.topic, {})
        except LabError as error:
            self.failure = str(error)
            return
        seconds = time.monotonic() - started
        if all(value == (str(there[key]) if key in there else None) for key, value in self.changes.items()):
            self.seconds = seconds
        elif seconds > MIRRORED_SECONDS:
            self.failure = (
                f"{self.region.name}: {self.topic} has not followed within {MIRRORED_SECONDS} s; {self.advice}"
            )


def _wait_for_all(copies: Sequence[_Copy], started: float, report: Callable[[_Copy], None]) -> None:
    """Waits for all at once, so that each has its own time; reports them in their order.

    Raises:
        LabError: some do not have the settings in time.
    """
    pause = 0.1
    shown = 0
    while shown < len(copies):
        for copy in copies[shown:]:
            if copy.seconds is None and not copy.failure:
                copy.look(started)
        while shown < len(copies) and (copies[shown].seconds is not None or copies[shown].failure):
            if not copies[shown].failure:
                report(copies[shown])
            shown += 1
        if shown < len(copies):
            time.sleep(pause)  # between two checks; the loop's condition ends it
            pause = min(pause * 1.5, 1.0)
    if failures := [copy.failure for copy in copies if copy.failure]:
        raise LabError("; ".join(failures))


@contextmanager
def _admin(region: Region) -> Iterator[KafkaAdminClient]:
    with Cluster.of(region, ADMINISTRATOR, PATIENT) as cluster:
        try:
            client = cluster.ask(lambda admin: admin)
        except UnreachableError as error:
            raise LabError(f"{error}; see ./lab status") from error
        try:
            yield client
        except KafkaError as error:
            raise LabError(f"{region.name}: {error}") from error
