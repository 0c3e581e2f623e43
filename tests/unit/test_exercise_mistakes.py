"""Usual mistakes in the labs whose states were not recorded: each is answered by a sentence that names it.

The manifests are the labs' own, changed as a learner changes them, and compared by what ``./lab diff`` runs with the
record that the plans of the stages leave. The claims of a proof are those of the stage. What running clusters would say
(topics, links, verdicts) is written down here, in the form of the commands' documents.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.lab.claims.claims import claims_of
from loosehanger.lab.manifest_diff import compare_manifests
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.loader import check_document
from loosehanger.lab.scenario import Scenario, read_scenario
from loosehanger.lab.scenario_index import PLAYBOOKS
from loosehanger.lab.topology import Topology
from loosehanger.learn.exercise import LabExercise, find_exercise, lab_names, usual_mistakes
from loosehanger.learn.judging import ConditionResult, judge

from ..learners import EXERCISES, begins_at, looks
from .test_planned_stages import recorded, walked

CONNECTOR = "      sourceConnector:\n"
SOUTH_AMERICA = 1
"""The place of South America's connector in a manifest with two."""
PATTERN_OF_09 = r"LH\.STOCK, LH\.SENSORS, LH\.CANCELLATIONS, LH\.ORDERS\.CLEARED"
HOUR = {"retention.ms": "3600000"}
REGIONS = ("europe", "north-america", "south-america", "asia-pacific")


@dataclass(frozen=True)
class Edit:
    """A change of a manifest: a text that takes the place of another, at its nth occurrence."""

    file: str
    old: str
    new: str
    nth: int = 0

    def make(self, folder: Path) -> None:
        """Changes the file."""
        path = folder / "manifests" / self.file
        parts = path.read_text(encoding="utf-8").split(self.old)
        assert len(parts) > self.nth + 1, f"{self.file} has no '{self.old}'"
        path.write_text(
            self.old.join(parts[: self.nth + 1]) + self.new + self.old.join(parts[self.nth + 1 :]), encoding="utf-8"
        )


def to_be(state: str, file: str, nth: int = 0) -> Edit:
    """Gives a connector a state."""
    return Edit(file, CONNECTOR, f"{CONNECTOR}        state: {state}\n", nth)


def workers(file: str, count: int) -> Edit:
    """Gives a mirror so many workers."""
    return Edit(file, "  replicas: 1\n", f"  replicas: {count}\n")


@dataclass(frozen=True)
class Made:
    """What a learner has made of a lab."""

    applied: Sequence[Edit] = ()
    """Changes of manifests that a set-up has applied."""
    saved: Sequence[Edit] = ()
    """Further changes, which no set-up has applied."""
    topics: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    """Settings by region and topic."""
    status: Mapping[str, Any] = field(default_factory=dict)
    mirrors: str = "Running"
    """The state of every mirror."""
    links: Mapping[tuple[str, str], tuple[str, Sequence[bool]]] = field(default_factory=dict)
    """State, and whether each direction is silent, of links that are not open."""
    crossing: Mapping[str, Any] = field(default_factory=dict)
    """What differs in every direction of every link."""
    inwards: Mapping[str, Any] = field(default_factory=dict)
    """What differs in every direction towards the first region of a link."""
    proof: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What differs of the claims of a kind."""
    faults: Sequence[Mapping[str, Any]] = ()


def scenario(lab: str, place: Path, edits: Sequence[Edit]) -> Scenario:
    """A lab's scenario with changed manifests."""
    if not edits:
        return read_scenario(lab)
    shutil.copytree(PLAYBOOKS / lab, place / lab)
    for edit in edits:
        edit.make(place / lab)
    return read_scenario(lab, place)


@cache
def reached(lab: str) -> dict[str, dict[str, tuple[Document, ...]]]:
    """What the record of a lab has of each region, by the stage that was reached."""
    found: dict[str, dict[str, tuple[Document, ...]]] = {}
    for _, stage, _, plans in walked(read_scenario(lab)):
        found.setdefault(stage, recorded(plans))
    return found


def claims(lab: str, stage: str, made: Made) -> list[dict[str, Any]]:
    """The claims of a stage, which are proved but for what the learner has made of them."""
    mirrors = Topology(one for of_region in reached(lab)[stage].values() for one in of_region).mirrors
    kinds = [claim.kind for claim in claims_of(mirrors, read_scenario(lab).claims, stage)]
    proved = {"verdict": "proved", "reasons": [], "findings": []}
    return [{"kind": kind, **proved, **made.claims.get(kind, {})} for kind in kinds]


def proof(lab: str, stage: str, made: Made) -> dict[str, Any]:
    """The document of a proof, with the verdict that follows from its claims."""
    found = claims(lab, stage, made)
    verdicts = {str(claim["verdict"]) for claim in found}
    verdict = next((one for one in ("disproved", "inconclusive") if one in verdicts), "proved")
    reasons = [reason for claim in found for reason in claim["reasons"]]
    totals = {"missing": 0, "duplicates": 0, "unexpected": 0}
    return {"verdict": verdict, "reasons": reasons, "claims": found, "flows": [], "totals": totals, **made.proof}


def links(made: Made, regions: Sequence[str]) -> list[dict[str, Any]]:
    """Every link between regions."""
    pairs = [(one, other) for at, one in enumerate(regions) for other in regions[at + 1 :]]
    found = []
    for one, other in pairs:
        state, silent = made.links.get((one, other), ("open", (False, False)))
        there, back = silent or (False, False)
        counted = {"refuses": False, "turned_away": 0, "connections": 0, "delay": 0.0, **made.crossing}
        directions = [
            {"from": one, "to": other, "silent": there, **counted},
            {"from": other, "to": one, "silent": back, **counted, **made.inwards},
        ]
        found.append({"between": [one, other], "state": state, "directions": directions})
    return found


_KNOWN: dict[str, dict[str, Any]] = {}
"""Documents by lab and what was made of it."""


def documents(lab: str, made: Made, place: Path) -> dict[str, Any]:
    """What the commands of ``./lab`` say of a lab."""
    key = f"{lab} {made}"
    if key not in _KNOWN:
        _KNOWN[key] = json.loads(json.dumps(_documents(lab, made, place)))
    return _KNOWN[key]


def _documents(lab: str, made: Made, place: Path) -> dict[str, Any]:
    stage = str(made.status.get("stage", "setup"))
    now = scenario(lab, place / "now", [*made.applied, *made.saved])
    applied = scenario(lab, place / "applied", made.applied).manifests(stage) if made.applied else ()

    def record(region: str) -> Sequence[Document]:
        changed = {(one.kind, one.name): one for one in applied if one.namespace == region}
        return [changed.get((one.kind, one.name), one) for one in reached(lab)[stage].get(region, ())]

    found, errors = compare_manifests(now, stage, record, check_document, REGIONS)
    mirrors: dict[str, list[dict[str, str]]] = {}
    for one in found:
        if one.kind == "KafkaMirrorMaker2":
            mirrors.setdefault(one.region, []).append({"name": one.name, "state": made.mirrors})
    healthy = {"healthy": True, "problems": [], "unfinished": "", "stage": stage, "regions": mirrors}
    return {
        "status": {**healthy, **made.status},
        "diff": {"errors": errors, "resources": [asdict(one) for one in found]},
        "topics": {"regions": {region: dict(made.topics.get(region, {})) for region in REGIONS[:3]}},
        "links": {"links": links(made, REGIONS)},
        "proof": proof(lab, stage, made),
        "faults": {"faults": list(made.faults)},
    }


def judged(
    exercise_id: str, made: Made, place: Path, met: Sequence[str] = (), before: Made | None = None
) -> list[ConditionResult]:
    """Judges an exercise."""
    lab, _, number = exercise_id.partition("/")
    exercise, there = find_exercise(lab, number), documents(lab, made, place)
    start = documents(lab, before, place / "before") if before else None
    return judge(
        exercise, lambda names: {name: there[name] for name in names}, usual=usual_mistakes(), met=met, before=start
    )[0]


INTERRUPTED = Made(status={"unfinished": "setup"})
ILL = Made(status={"healthy": False, "problems": [{"cause": "the broker of europe is down"}]})
BEHIND: dict[str, Any] = {"verdict": "inconclusive", "reasons": ["mirror mm2 is 9 records behind"]}
SKIPPED: dict[str, Any] = {"verdict": "disproved", "reasons": ["3 skipped"]}
LOST: dict[str, Any] = {"verdict": "disproved", "reasons": ["5 acknowledged records are in no surviving cluster"]}


def set_at(region: str, topic: str) -> Made:
    """An hour's retention, somewhere."""
    return Made(topics={region: {topic: HOUR}})


def at_stage(stage: str, **more: Any) -> Made:
    """A lab that has reached a stage."""
    return Made(status={"stage": stage, **more})


def one_hop(file: str) -> Edit:
    """A pattern that misses what the hop before has made."""
    return Edit(file, r"topicsPattern: (.+\.)?LH", "topicsPattern: LH")


KEEPS_NAMES = [
    Edit(file, "DefaultReplicationPolicy", "IdentityReplicationPolicy") for file in ("mm2-eu.yaml", "mm2-na.yaml")
]
"""Two mirrors that form a loop."""
INTERVAL = "sync.topic.configs.interval.seconds:"
"""The setting that exercise 3 of 03 changes."""
EVERYTHING = Edit("mm2-na.yaml", PATTERN_OF_09, r"LH\..*")
CUSTOMERS_TOO = Edit("rotated/mm2-out.yaml", r"LH\.STOCK, LH\.SENSORS", r"LH\.STOCK, LH\.CUSTOMERS")
NOT_EXACT = Edit("mm2-na.yaml", "exactly.once.source.support: enabled", "exactly.once.source.support: disabled")
CLEARED = "europe.LH.ORDERS.CLEARED"
A_RIGHT: dict[str, Any] = {
    "verdict": "disproved",
    "reasons": ["north-america has the password of europe's user mm2-europe, who may read LH.CUSTOMERS there"],
    "findings": [{"kind": "right_too_many", "details": {"topic": "LH.CUSTOMERS", "rule": "LH.*"}}],
}


def doubled(count: int) -> dict[str, Any]:
    """A proof that has found duplicates."""
    return {"verdict": "disproved", "totals": {"missing": 0, "duplicates": count, "unexpected": 0}}


def by_hand(region: str, topic: str, count: int) -> dict[str, Any]:
    """A proof that has found records too many in a copy."""
    flow = {"target": region, "topic": topic, "unexpected": count, "duplicates": 0}
    return {"verdict": "disproved", "flows": [flow], "totals": {"missing": 0, "duplicates": 0, "unexpected": count}}


def kept_copies(*names: str) -> Made:
    """Topics that have left Europe."""
    return Made(topics={"north-america": {name: {} for name in (CLEARED, *names)}})


def found_in(topic: str, *kinds: str) -> dict[str, Any]:
    """What an isolation claim has found in the records of a topic."""
    found = [{"kind": f"{kind}_present", "details": {"topic": topic, "name": "customerid"}} for kind in kinds]
    return {
        "verdict": "disproved",
        "reasons": [f"records of {topic} have a {kind}" for kind in kinds],
        "findings": found,
    }


def retired(applied: Sequence[Edit] = (), saved: Sequence[Edit] = ()) -> Made:
    """The hybrid lab after its key was replaced."""
    return Made(applied, saved, status={"stage": "retire-key"})


def broken(fault: str | None, guesses: int = 0) -> Made:
    """A fault that was injected, and is named where it was found."""
    problems = [{"cause": "mirror mm2-sa was paused by hand"}]
    return Made(status={"healthy": False, "problems": problems}, faults=[{"fault": fault, "guesses": guesses}])


def started(first: int, second: int, *faults: str) -> Made:
    """Two workers, by the seconds after the beginning of the exercise at which they were started."""
    of_region = {"mm2-na-0": 1_000_000 + first, "mm2-na-1": 1_000_000 + second}
    return Made(status={"started": {"north-america": of_region}}, faults=[{"fault": one} for one in faults])


COPIES = [f"{region}.LH.ORDERS" for region in ("europe", "northamerica", "southamerica")]
STARTED = {
    "europe": {"europe-kafka-0": 1},
    "north-america": {"north-america-kafka-0": 1, "mm2-na-0": 1},
    "south-america": {"south-america-kafka-0": 1, "mm2-sa-0": 1},
}
IN_EVERY_REGION = {region: {"LH.ORDERS": HOUR} for region in REGIONS[:3]}
BEGINNINGS: dict[str, Made] = {
    "03-broadcast/3": Made(topics=IN_EVERY_REGION),
    "12-hybrid/1": Made(inwards={"refuses": True}),
    "13-rolling/1": started(0, 0),
}
"""Those of the exercises that compare with their beginning."""
MISTAKES: list[tuple[str, Made, str]] = [
    ("01-aggregate-central/1", ILL, "Something is not healthy|The lab is not healthy: the broker"),
    ("01-aggregate-central/3", Made(), "retention.ms of LH.ORDERS is unset, and of its copy in europe unset; an hour"),
    ("01-aggregate-central/3", set_at("europe", "northamerica.LH.ORDERS"), "set at the copy, in the wrong region"),
    ("01-aggregate-central/3", set_at("south-america", "LH.ORDERS"), "set in South America, the wrong one of the two"),
    ("01-aggregate-central/3", set_at("north-america", "LH.STOCK"), "Another topic of North America has this setting"),
    ("01-aggregate-central/3", INTERRUPTED, "'setup' was begun and has not finished, as after Ctrl-C"),
    ("01-aggregate-central/5", Made(), "North America's connector running and South America's running"),
    ("01-aggregate-central/5", Made(saved=[to_be("stopped", "mm2.yaml", 1)]), "mm2.yaml was saved, and the lab"),
    ("01-aggregate-central/5", Made([to_be("stopped", "mm2.yaml")]), "North America's connector is stopped, the wrong"),
    ("01-aggregate-central/5", Made([to_be("paused", "mm2.yaml", 1)]), "South America's connector is paused"),
    ("01-aggregate-central/5", Made([workers("mm2.yaml", 0)]), "replicas is 0, which ends the worker that both flows"),
    (
        "01-aggregate-central/5",
        Made([to_be("stopped", "mm2.yaml", 1), to_be("stopped", "mm2.yaml")]),
        "Both connectors are stopped",
    ),
    ("01-aggregate-central/5", Made(saved=[to_be("stoped", "mm2.yaml", 1)]), "A manifest has a mistake.*stoped"),
    ("02-aggregate-distributed/1", ILL, "Something is not healthy|The lab is not healthy: the broker"),
    ("02-aggregate-distributed/2", Made(), "retention.ms of LH.STOCK is unset"),
    ("02-aggregate-distributed/2", set_at("europe", "southamerica.LH.STOCK"), "set at the copy, in the wrong region"),
    ("02-aggregate-distributed/2", set_at("north-america", "LH.STOCK"), "set in North America, the wrong one"),
    ("02-aggregate-distributed/2", set_at("south-america", "LH.ORDERS"), "Another topic of South America"),
    ("02-aggregate-distributed/3", INTERRUPTED, "'setup' was begun and has not finished"),
    ("02-aggregate-distributed/3", Made(saved=[workers("mm2-na.yaml", 0)]), "mm2-na.yaml was saved"),
    ("02-aggregate-distributed/3", Made([workers("mm2-sa.yaml", 0)]), "mm2-sa has no worker, the wrong one"),
    (
        "02-aggregate-distributed/3",
        Made([workers("mm2-na.yaml", 0), workers("mm2-sa.yaml", 0)]),
        "Both mirrors have no worker",
    ),
    ("02-aggregate-distributed/3", Made([to_be("stopped", "mm2-na.yaml")]), "The connector of mm2-na is stopped"),
    (
        "02-aggregate-distributed/3",
        Made(saved=[Edit("mm2-na.yaml", "  replicas: 1", "  replicass: 0")]),
        "A manifest has a mistake",
    ),
    ("04-shared-aggregate/2", set_at("north-america", "europe.LH.ORDERS"), "set at a copy, in the wrong region"),
    ("04-shared-aggregate/2", set_at("north-america", "LH.ORDERS"), "An America's own LH.ORDERS has the setting"),
    ("04-shared-aggregate/2", set_at("europe", "northamerica.LH.ORDERS"), "Another topic of Europe has this setting"),
    ("04-shared-aggregate/6", Made(saved=[to_be("stopped", "mm2-eu.yaml", 1)]), "mm2-eu.yaml was saved"),
    ("04-shared-aggregate/6", Made([to_be("stopped", "mm2-eu.yaml")]), "of North America is stopped, the wrong"),
    ("04-shared-aggregate/6", Made([to_be("stopped", "mm2-sa.yaml")]), "of another region's mirror is stopped"),
    ("04-shared-aggregate/6", Made([to_be("paused", "mm2-eu.yaml", 1)]), "South America's connector is paused"),
    ("04-shared-aggregate/6", Made([workers("mm2-eu.yaml", 0)]), "ends the worker that both flows into Europe share"),
    ("04-shared-aggregate/6", INTERRUPTED, "'setup' was begun and has not finished"),
    ("06-backup-restore/1", at_stage("restore"), "at its stage 'restore': this section comes before all others"),
    ("06-backup-restore/2", at_stage("setup"), "at its stage 'setup'. ./lab stage lists the stages"),
    ("06-backup-restore/2", at_stage("restore"), "North America is restored already"),
    ("06-backup-restore/3", at_stage("setup"), "One step is left out, the loss"),
    ("06-backup-restore/4", at_stage("lose-region"), "One step is left out, the restore"),
    ("06-backup-restore/4", at_stage("restore", unfinished="resume"), "'resume' was begun and has not finished"),
    ("06-backup-restore/5", at_stage("restore"), "One step is left out, back to work"),
    ("07-migration/1", at_stage("setup"), "at its stage 'setup'. ./lab stage lists the stages"),
    ("07-migration/2", at_stage("setup"), "One step is left out, the mirror"),
    ("07-migration/3", at_stage("mirror"), "One step is left out, to move them"),
    ("07-migration/4", at_stage("move-consumers"), "One step is left out, the fence"),
    ("07-migration/5", at_stage("fence"), "One step is left out, the drain"),
    ("07-migration/5", at_stage("drain", unfinished="move-producers"), "'move-producers' was begun and has not"),
    ("07-migration/7", at_stage("drain"), "The producers have not moved yet"),
    ("08-active-active/1", at_stage("failover"), "this section comes before all others"),
    ("08-active-active/2", Made(), "The manifests form no loop at this moment"),
    ("08-active-active/2", Made(saved=KEEPS_NAMES[:1] * 2), "Only mm2-eu keeps names"),
    (
        "08-active-active/2",
        Made(saved=[Edit("mm2-eu.yaml", "tasksMax: 1", "tasksMax: 7")]),
        "mm2-eu.yaml was saved, and the lab does not have the change yet",
    ),
    (
        "08-active-active/2",
        Made(saved=[Edit("mm2-eu.yaml", "DefaultReplicationPolicy", "IdentityReplicationPolice")]),
        "A policy is mistyped.*IdentityReplicationPolice",
    ),
    ("08-active-active/4", at_stage("setup"), "at its stage 'setup'. ./lab stage lists the stages"),
    ("08-active-active/4", at_stage("resume"), "North America runs again already"),
    ("08-active-active/5", at_stage("resume"), "One step is left out, the return"),
    ("08-active-active/5", at_stage("rebuild"), "North America was wiped and rebuilt"),
    ("08-active-active/5", at_stage("failover", unfinished="return"), "'return' was begun and has not finished"),
    ("07-migration/6", at_stage("reverse"), "One step is left out, the planned switch"),
    ("07-migration/6", at_stage("finish"), "The old cluster is gone, one step further"),
    ("08-active-active/3", Made(proof=by_hand("europe", "LH.ORDERS", 2)), "the command was run more than once"),
    ("08-active-active/3", Made(proof=by_hand("north-america", "LH.ORDERS", 1)), "in the wrong region"),
    ("08-active-active/3", Made(proof=by_hand("europe", "LH.STOCK", 1)), "in another topic, LH.STOCK"),
    ("08-active-active/6", at_stage("resume"), "came back with its data, which is section 5"),
    ("08-active-active/6", at_stage("failover"), "One step is left out: to rebuild it"),
    ("10-forwarding/1", Made(), "Every pattern takes what the hop before has made"),
    ("10-forwarding/1", Made(saved=[one_hop("mm2-ap.yaml")]), "Another hop has the pattern, in the wrong region"),
    ("10-forwarding/1", Made(saved=[one_hop("mm2-na.yaml")]), "mm2-na makes the first hop"),
    ("10-forwarding/3", Made(), "is open. A silent one swallows data and refuses nothing"),
    (
        "10-forwarding/3",
        Made(links={("europe", "north-america"): ("silent", (True, True))}),
        "between europe and north-america is silent, the wrong one",
    ),
    ("10-forwarding/3", Made(links={("north-america", "south-america"): ("cut", (False, False))}), "The link is cut"),
    (
        "10-forwarding/3",
        Made(links={("north-america", "south-america"): ("silent", (True, False))}),
        "Only one direction is silent",
    ),
    ("10-forwarding/3", INTERRUPTED, "'setup' was begun and has not finished"),
    ("10-forwarding/4", at_stage("setup"), "at its stage 'setup'. ./lab stage lists the stages"),
    ("03-broadcast/2", set_at("north-america", "LH.ORDERS"), "set at a copy, in the wrong region"),
    ("03-broadcast/2", INTERRUPTED, "'setup' was begun and has not finished"),
    ("03-broadcast/3", Made(saved=[Edit("mm2-na.yaml", INTERVAL, "#")]), "mm2-na.yaml was saved, and the lab"),
    (
        "03-broadcast/3",
        Made([Edit("mm2-sa.yaml", f"{INTERVAL} 5", f"{INTERVAL} 30")]),
        "mm2-sa has the 30 seconds: that is the wrong region",
    ),
    ("03-broadcast/4", Made(saved=[to_be("stoped", "mm2-sa.yaml")]), "A manifest has a mistake.*stoped"),
    ("03-broadcast/4", Made(proof=doubled(10_000)), "mm2-sa is Running"),
    ("03-broadcast/7", Made(proof=by_hand("north-america", "LH.ORDERS", 2)), "the command was run more than once"),
    ("03-broadcast/7", Made(proof=by_hand("south-america", "LH.ORDERS", 1)), "in South America, in the wrong region"),
    ("03-broadcast/7", Made(proof=by_hand("north-america", "LH.STOCK", 1)), "in another topic, LH.STOCK"),
    (
        "04-shared-aggregate/6",
        Made([to_be("stopped", "mm2-eu.yaml", 1), to_be("stopped", "mm2-eu.yaml")]),
        "the edit was made twice",
    ),
    ("05-active-passive/1", at_stage("switchover"), "this section comes before all others"),
    ("05-active-passive/3", at_stage("failover"), "the disaster of section 4, the wrong stage"),
    ("05-active-passive/3", at_stage("setup", unfinished="switchover"), "'switchover' was begun and has not finished"),
    ("05-active-passive/4", at_stage("switchover"), "a disaster can only befall the cluster that works"),
    (
        "05-active-passive/4",
        Made(saved=[Edit("mm2.yaml", "tasksMax:", "taskMax:")]),
        "A manifest has a mistake.*taskMax",
    ),
    (
        "05-active-passive/4",
        Made(saved=[Edit("mm2.yaml", "source.consumer.max.poll.records", "source.consumer.fetch.min.byte")]),
        "A manifest has a mistake.*did you mean 'source.consumer.fetch.min.bytes'",
    ),
    ("05-active-passive/5", at_stage("swap"), "The naive way doubles what both had"),
    ("05-active-passive/5", at_stage("rebuild"), "One step is left out, the planned switch back"),
    ("09-data-isolation/1", kept_copies("europe.LH.DOORS"), "North America has europe.LH.DOORS, from a later section"),
    ("09-data-isolation/2", INTERRUPTED, "'setup' was begun and has not finished"),
    ("09-data-isolation/2", Made(), r"mm2-na takes LH..STOCK, LH"),
    ("09-data-isolation/2", Made(saved=[EVERYTHING]), "mm2-na.yaml was saved, and the lab"),
    ("09-data-isolation/2", Made([EVERYTHING], claims={"absent": A_RIGHT}), "The rights are wider, too: .* password"),
    ("09-data-isolation/2", Made(saved=[Edit("mm2-na.yaml", "topicsPattern:", "topicPattern:")]), "has a mistake"),
    ("09-data-isolation/3", Made(), "no user in North America may read more"),
    ("09-data-isolation/3", Made([EVERYTHING]), "The pattern of section 2 is still in the mirror"),
    (
        "09-data-isolation/3",
        Made(saved=[Edit("users-north-america.yaml", "name: europe.LH.\n", "name: LH.\n")]),
        "users-north-america.yaml was changed, in the wrong region",
    ),
    ("09-data-isolation/4", Made(), "The pattern still holds, so nothing more has left"),
    ("09-data-isolation/4", Made([EVERYTHING]), "the rights still hold. One of the two layers was left in place"),
    ("09-data-isolation/5", Made(), "finds no header in europe.LH.ORDERS.CLEARED"),
    ("09-data-isolation/5", Made(claims={"absent": found_in(CLEARED, "field")}), "A field has left, and no header"),
    ("09-data-isolation/5", Made(claims={"absent": found_in(CLEARED, "header")}), "finds a header .*, and no field"),
    ("09-data-isolation/6", Made(), "mm2-na has no checkpoint connector"),
    ("09-data-isolation/6", Made([EVERYTHING]), "The pattern is wider than it was"),
    ("11-silent-faults/1", Made(), "No fault is injected"),
    ("11-silent-faults/1", broken(None), "The fault is there, and nothing names it yet"),
    ("11-silent-faults/1", broken(None, 2), "2 guesses were wrong, and the fault is still there"),
    ("11-silent-faults/1", broken("acl-removed"), "Another fault is injected, acl-removed"),
    ("11-silent-faults/1", broken("connector-paused"), "It is named, and still there"),
    ("11-silent-faults/2", INTERRUPTED, "'setup' was begun and has not finished"),
    ("11-silent-faults/3", Made(saved=[to_be("stoped", "mm2-na.yaml")]), "A manifest has a mistake.*stoped"),
    ("12-hybrid/1", Made(), "The link has refused 0 connections since"),
    ("12-hybrid/1", Made(inwards={"connections": 1}), "none was refused: one step is left out"),
    ("12-hybrid/1", Made(inwards={"turned_away": 1}), "No connection came in"),
    (
        "12-hybrid/1",
        Made(inwards={"turned_away": 1, "connections": 1}),
        "Europe still lets connections in. The option .* has an opposite",
    ),
    ("12-hybrid/1", Made(links={("europe", "north-america"): ("cut", (False, False))}), "The link is cut, for both"),
    ("12-hybrid/5", at_stage("rotate-key"), "Both keys are valid now"),
    ("12-hybrid/7", Made(), "this exercise begins after the key was replaced"),
    ("12-hybrid/7", at_stage("retire-key"), r"mm2-out copies LH..STOCK, LH..SENSORS"),
    ("12-hybrid/7", retired([CUSTOMERS_TOO]), "What may leave is named twice"),
    (
        "12-hybrid/7",
        retired(saved=[Edit("users-north-america.yaml", "name: tenant7.LH.", "name: LH.", 1)]),
        "users-north-america.yaml was changed, in the wrong region",
    ),
    ("12-hybrid/7", retired(saved=[Edit("rotated/mm2-out.yaml", "topicsPattern:", "topicPattern:")]), "has a mistake"),
    ("12-hybrid/5", INTERRUPTED, "'setup' was begun and has not finished"),
    ("13-rolling/1", started(0, 0), "The first worker of mm2-na has run since before"),
    ("13-rolling/1", started(60, 60), "The second worker was restarted as well"),
    ("13-rolling/1", started(60, 0, "worker-killed"), "still counts as injected. One step is left: to heal it"),
    ("13-rolling/1", started(0, 0, "connector-paused"), "connector-paused is injected, and this exercise"),
    ("13-rolling/2", Made(), "at its stage 'setup', with workers of 4.2.0"),
    ("13-rolling/2", at_stage("setup", unfinished="upgrade"), "'upgrade' was begun and has not finished"),
    ("13-rolling/2", at_stage("downgrade"), "no check has seen the newer one"),
    ("13-rolling/4", at_stage("downgrade"), "The workers still have exactly.once.source.support enabled"),
    ("13-rolling/4", Made([NOT_EXACT]), "the connector still requires it"),
    (
        "13-rolling/2",
        Made(saved=[Edit("mm2-na.yaml", "version: 4.2.0", "version: 4.2.00")]),
        "The manifest names a release that the kit does not have|A manifest has a mistake",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "made", "says"), MISTAKES, ids=[f"{one[0]}-{one[2][:30]}" for one in MISTAKES])
def test_a_mistake_is_named(exercise: str, made: Made, says: str, tmp_path: Path) -> None:
    found = judged(exercise, made, tmp_path, before=BEGINNINGS.get(exercise))
    messages = [one.message for one in found if one.message]
    assert messages
    assert re.search(says, messages[0]), messages
    assert all("{{" not in one for one in messages)


def test_every_lab_has_five_mistakes() -> None:
    counts: dict[str, int] = {}
    for exercise, _, _ in MISTAKES:
        lab = exercise.partition("/")[0]
        counts[lab] = counts.get(lab, 0) + 1
    assert sorted(counts) == lab_names()
    assert min(counts.values()) >= 5


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_an_exercise_is_not_done_at_its_beginning(exercise: LabExercise, tmp_path: Path) -> None:
    """But for those that only look: they are done once a lab is set up."""
    names = (CLEARED,) if exercise.lab == "09-data-isolation" else ("LH.ORDERS", *COPIES)
    topics = {region: {name: dict[str, str]() for name in names} for region in REGIONS[:3]}
    start = BEGINNINGS.get(exercise.id, Made(status={"stage": begins_at(exercise)}, topics=topics))
    if exercise.id in ("03-broadcast/5", "03-broadcast/8"):
        start = replace(start, status={"started": STARTED}, proof=doubled(0))
    found = judged(exercise.id, start, tmp_path, before=start)
    assert all(one.holds for one in found) == looks(exercise), [one.condition.description for one in found if one.holds]
    # What is enough once would count before anything was done.
    assert [one.condition.description for one in found if one.holds and one.condition.once] == []


STATES: list[tuple[str, Made]] = [
    (
        "01-aggregate-central/3",
        Made(topics={"north-america": {"LH.ORDERS": HOUR}, "europe": {"northamerica.LH.ORDERS": HOUR}}),
    ),
    ("01-aggregate-central/5", Made([to_be("stopped", "mm2.yaml", SOUTH_AMERICA)])),
    (
        "02-aggregate-distributed/2",
        Made(topics={"south-america": {"LH.STOCK": HOUR}, "europe": {"southamerica.LH.STOCK": HOUR}}),
    ),
    ("02-aggregate-distributed/3", Made([workers("mm2-na.yaml", 0)])),
    (
        "04-shared-aggregate/2",
        Made(
            topics={
                "europe": {"LH.ORDERS": HOUR},
                "north-america": {"europe.LH.ORDERS": HOUR},
                "south-america": {"europe.LH.ORDERS": HOUR},
            }
        ),
    ),
    ("04-shared-aggregate/6", Made([to_be("stopped", "mm2-eu.yaml", SOUTH_AMERICA)])),
    ("10-forwarding/3", Made(links={("north-america", "south-america"): ("silent", (True, True))})),
]
"""States on the way."""


@pytest.mark.parametrize(("exercise", "made"), STATES, ids=[one[0] for one in STATES])
def test_a_state_on_the_way_counts_and_the_end_is_the_lab_as_it_came(exercise: str, made: Made, tmp_path: Path) -> None:
    found = judged(exercise, made, tmp_path / "way")
    assert [at for at, one in enumerate(found) if one.holds and one.condition.once] == [0]
    assert not all(one.holds for one in found)
    names = [one.condition.description for one in found if one.condition.once]
    assert all(one.holds for one in judged(exercise, Made(), tmp_path / "end", names))


REACHED = {
    "05-active-passive": {1: "setup", 3: "switchover", 4: "failover", 5: "failback"},
    "06-backup-restore": {1: "setup", 2: "lose-region", 3: "restore", 4: "resume", 5: "backup-again"},
    "07-migration": {
        6: "return",
        1: "mirror",
        2: "move-consumers",
        3: "fence",
        4: "drain",
        5: "move-producers",
        7: "finish",
    },
    "08-active-active": {1: "setup", 4: "failover", 5: "return"},
    "10-forwarding": {4: "circle"},
    "12-hybrid": {5: "retire-key"},
}
AFTER_A_DEATH = {"05-active-passive/4", "06-backup-restore/2", "08-active-active/4"}
"""Exercises that show a loss, which disproves."""


@pytest.mark.parametrize(("lab", "number"), [(lab, number) for lab, found in REACHED.items() for number in found])
def test_a_stage_that_is_reached_does_an_exercise_if_its_proof_holds(lab: str, number: int, tmp_path: Path) -> None:
    stage, exercise = REACHED[lab][number], f"{lab}/{number}"
    assert all(one.holds for one in judged(exercise, at_stage(stage), tmp_path / "well"))
    conditions = find_exercise(lab, str(number)).content.conditions
    if not any("proof." in text for condition in conditions for text in condition.that):
        return
    kinds = {claim["kind"]: claim["verdict"] for claim in claims(lab, stage, Made())}
    assert kinds
    undecided = Made(status={"stage": stage}, claims=dict.fromkeys(kinds, BEHIND))
    assert not all(one.holds for one in judged(exercise, undecided, tmp_path / "undecided"))
    if "groups" in kinds:
        skipped = Made(status={"stage": stage}, claims={"groups": SKIPPED})
        assert not all(one.holds for one in judged(exercise, skipped, tmp_path / "skipped"))
    lost = Made(status={"stage": stage}, claims=dict.fromkeys({"kept"} & {*kinds} or {*kinds}, LOST))
    assert all(one.holds for one in judged(exercise, lost, tmp_path / "lost")) == (exercise in AFTER_A_DEATH)


@pytest.mark.parametrize("exercise", ["01-aggregate-central/5", "02-aggregate-distributed/3", "04-shared-aggregate/6"])
def test_a_solution_edits_what_its_condition_looks_at_and_undoes_it(exercise: str, tmp_path: Path) -> None:
    lab, _, number = exercise.partition("/")
    found = find_exercise(lab, number)
    (play,) = yaml.safe_load((found.folder / "solve.yaml").read_text(encoding="utf-8"))
    edits = [task["ansible.builtin.replace"] for task in play["tasks"] if "ansible.builtin.replace" in task]
    path = PLAYBOOKS / lab / "manifests" / Path(edits[0]["path"]).name
    before = path.read_text(encoding="utf-8")
    changed, count = re.subn(edits[0]["regexp"], edits[0]["replace"], before, flags=re.MULTILINE)
    assert count == 1
    whole = Edit(path.name, before, changed)
    assert judged(exercise, Made([whole]), tmp_path)[0].holds
    assert re.sub(edits[1]["regexp"], edits[1]["replace"], changed, flags=re.MULTILINE) == before
