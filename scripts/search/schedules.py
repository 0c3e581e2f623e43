"""Schedules of faults: made from a seed, and read and written as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from loosehanger.errors import WrongUseError
from loosehanger.faults.choosing import fitting_mirrors
from loosehanger.faults.fault import Fault
from loosehanger.lab.manifests.documents import read_documents
from loosehanger.lab.manifests.validation import Entry
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.progress import LOCAL
from loosehanger.lab.record import Lab, Region
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.scenario_index import SETUP
from loosehanger.lab.topology import Topology
from scripts.search.effects import depth, excludes, is_near

FEWEST, MOST = 2, 4
"""How many faults a schedule has."""
PAUSES_S = (0, 1, 3, 6)
"""Seconds from one fault to the next; one of these is chosen at random."""


class Placed(Entry):
    """A fault at a mirror."""

    fault: str
    region: str
    """Where the mirror runs."""
    mirror: str
    """The mirror's name."""
    source: str
    target: str
    pause: float = 0
    """Seconds to wait after the previous fault."""

    def is_at(self, mirror: Mirror) -> bool:
        """Whether the fault is at this mirror."""
        return (self.region, self.mirror, self.source, self.target) == (
            mirror.region, mirror.name, mirror.source, mirror.target,
        )  # fmt: skip

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of ``./lab fault inject``."""
        place = ("--mirror", f"{self.region}/{self.mirror}", "--source", self.source, "--target", self.target)
        return (self.fault, *place)


class Schedule(Entry):
    """Faults of one lab, one after the other, and how they are healed."""

    seed: int
    number: int
    scenario: str
    faults: tuple[Placed, ...]
    heal: Literal["all", "each"] = "all"
    """With one command, or one by one; either way the last fault first."""


def described(scenario: str) -> Lab:
    """Returns a scenario's lab as its manifests describe it, with a cluster in each region that has users."""
    manifests = read_scenario(scenario).manifests(SETUP)
    clusters = sorted({document.namespace for document in manifests if document.kind == "KafkaUser"})
    text = yaml.safe_dump_all([_cluster(region) for region in clusters])
    found = Topology([*read_documents("clusters", text), *manifests])
    regions = {
        name: Region(
            name, name if name in clusters else "", {}, {}, tuple(one for one in found.mirrors if one.region == name)
        )
        for name in found.regions
    }
    return Lab(scenario, LOCAL, "", regions, topology=found)


def _cluster(region: str) -> dict[str, Any]:
    """Returns a cluster with the listener of the kit's role, to which mirrors connect."""
    listeners = [{"name": "internal", "port": 9098, "type": "internal", "tls": True}]
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": {"name": region, "namespace": region},
        "spec": {"kafka": {"listeners": listeners}},
    }


def candidates(lab: Lab, faults: Sequence[Fault]) -> list[tuple[Fault, Mirror]]:
    """Returns every fault with each mirror that it can be injected into."""
    found = []
    for fault in faults:
        try:
            found += [(fault, mirror) for mirror in fitting_mirrors(lab, fault)]
        except WrongUseError:
            continue
    return found


def scenario_of(scenarios: Sequence[str], number: int, block: int) -> str:
    """Returns the scenario of a schedule: ``block`` schedules in a row share one, and so a lab."""
    return scenarios[number // block % len(scenarios)]


def make_schedule(seed: int, number: int, lab: Lab, faults: Sequence[Fault]) -> Schedule:
    """Makes a schedule, the same one for the same arguments.

    Args:
        seed: of the search.
        number: of the schedule, from 0 on.
        lab: the scenario, as its manifests describe it.
        faults: the catalogue.

    Raises:
        WrongUseError: fewer than two of them fit the scenario together.
    """
    chance = random.Random(f"{seed}/{number}/{lab.scenario}")  # noqa: S311 - no secret
    found = candidates(lab, faults)
    chance.shuffle(found)
    count = chance.randint(FEWEST, MOST)
    chosen: list[tuple[Fault, Mirror]] = []
    for one in found:
        if len(chosen) < count and not any(excludes(one, other) for other in chosen):
            chosen.append(one)
    if len(chosen) < FEWEST:
        raise WrongUseError(f"fewer than {FEWEST} faults fit {lab.scenario} together; choose others by --scenarios")
    placed = tuple(
        Placed(
            fault=fault.name, region=mirror.region, mirror=mirror.name, source=mirror.source, target=mirror.target,
            pause=chance.choice(PAUSES_S),
        )
        for fault, mirror in in_order(chosen, lab.mirrors)
    )  # fmt: skip
    heal: Literal["all", "each"] = "each" if chance.random() < 0.5 else "all"
    return Schedule(seed=seed, number=number, scenario=lab.scenario, faults=placed, heal=heal)


def in_order(chosen: Sequence[tuple[Fault, Mirror]], mirrors: Sequence[Mirror]) -> list[tuple[Fault, Mirror]]:
    """Returns faults in an order in which none needs what an earlier one takes away, such as a worker to pause."""
    left, ordered = list(chosen), []
    while left:
        first = next(
            one
            for one in left
            if not any(other is not one and is_near(one, other, mirrors) and depth(other[0]) < depth(one[0])
                       for other in left)
        )  # fmt: skip
        left.remove(first)
        ordered.append(first)
    return ordered


def placed_faults(schedule: Schedule, lab: Lab, faults: Mapping[str, Fault]) -> list[tuple[Fault, Mirror]]:
    """Returns a schedule's faults with their mirrors.

    Raises:
        WrongUseError: the catalogue no longer has one of the faults, or the scenario no longer has its mirror.
    """
    return list(_placed(schedule, lab, faults))


def _placed(schedule: Schedule, lab: Lab, faults: Mapping[str, Fault]) -> Iterator[tuple[Fault, Mirror]]:
    for placed in schedule.faults:
        mirror = next((one for one in lab.mirrors if placed.is_at(one)), None)
        if placed.fault not in faults or mirror is None:
            what = f"{placed.fault} at {placed.region}/{placed.mirror}"
            raise WrongUseError(f"schedule {schedule.number}: {lab.scenario} has no {what}; make a new schedule")
        yield faults[placed.fault], mirror


def read_schedule(path: Path) -> Schedule:
    """Reads a schedule, or that of a finding.

    Raises:
        WrongUseError: it cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Schedule.model_validate(found.get("schedule", found))
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise WrongUseError(f"{path}: is not a schedule that can be replayed: {error}") from error
