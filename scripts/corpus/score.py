"""Scores answers about the cases of the corpus: the proof's, and those of scripts that people write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from kafka import KafkaConsumer, TopicPartition

from loosehanger.kafka.connection import Connection
from scripts.corpus.cases import COUNTS, PREFIX, Case

_SOURCE, _TARGET = "corpus-source", "corpus-target"
_POLL_MS = 500


@dataclass(frozen=True)
class Answer:
    """What a tool says about a case."""

    verdict: str
    """``proved``, ``disproved``, ``inconclusive``, or empty for no answer."""
    counts: Mapping[str, int] | None = None
    """By the names of ``COUNTS``; None from a tool that does not count differences."""


Answers = Mapping[str, Answer]
"""By the id of the case."""


@dataclass
class Score:
    """How many cases a tool answered right, and which it answered wrong."""

    damage_found: int = 0
    damage: int = 0
    false_alarms: list[str] = field(default_factory=list)
    controls: int = 0
    undecidable_admitted: int = 0
    undecidable: int = 0
    exact_counts: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    """The given answer and the expected one, by the id of the case."""


def score(cases: Sequence[Case], answers: Answers) -> Score:
    """Compares answers with what the cases expect.

    A damaged case is found by the verdict *disproved* alone; a control is passed by *proved* alone.
    """
    found = Score()
    for case in cases:
        answer, right = answers.get(case.id, Answer("")), case.expect["verdict"]
        if right == "disproved":
            found.damage += 1
            found.damage_found += answer.verdict == right
        elif right == "proved":
            found.controls += 1
            found.false_alarms += [case.id] if answer.verdict == "disproved" else []
        else:
            found.undecidable += 1
            found.undecidable_admitted += answer.verdict == right
        # Where the topic itself is missing, the number of missing records does not matter.
        counted = case.copy.get("absent") or right == "inconclusive" or answer.counts == case.counts()
        if answer.verdict != right:
            found.wrong[case.id] = f"{answer.verdict or 'no answer'}, expected {right}"
        elif answer.counts is not None and not counted:
            found.wrong[case.id] = f"{_shown(answer.counts)}, expected {_shown(case.counts())}"
        elif answer.counts is not None:
            found.exact_counts += 1
    return found


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items() if number) or "no differences"


def configuration(cases: Sequence[Case], source: Path, target: Path) -> str:
    """Returns ``mirrorproof``'s configuration for all cases: one flow, and one for each case with names of its own.

    Args:
        cases: the cases.
        source: client properties of the source cluster.
        target: client properties of the target cluster.
    """
    own = [case for case in cases if case.names is not None]
    plain = {
        "name": "cases",
        "source": _SOURCE,
        "target": _TARGET,
        "patterns": [f"{PREFIX.replace('.', chr(92) + '.')}.*"],
        "exclude": [case.topic.replace(".", "\\.") for case in own],
    }
    flows = [
        {"name": case.id, "source": _SOURCE, "target": _TARGET, "topics": [case.topic], "names": dict(case.names or {})}
        for case in own
    ]
    clusters = {_SOURCE: {"file": str(source)}, _TARGET: {"file": str(target)}}
    return yaml.safe_dump({"clusters": clusters, "flows": [plain, *flows]}, sort_keys=False)


def of_the_proof(cases: Sequence[Case], document: Mapping[str, Any]) -> dict[str, Answer]:
    """Returns the answers in the document of ``mirrorproof prove --json``."""
    flows = {flow["topic"]: flow for flow in document["flows"]}
    claims = {claim["mirror"]: claim for claim in document["claims"] if "mirror" in claim}
    answers = {}
    for case in cases:
        claim, flow = claims.get(f"external/{case.id}"), flows.get(case.topic)
        if flow is None and claim is None:
            continue
        verdict = str((claim or flow or {})["verdict"])
        answers[case.id] = Answer(verdict, {name: flow[name] for name in COUNTS} if flow else None)
    return answers


def of_end_offsets(cases: Sequence[Case], source: Connection, target: Connection) -> dict[str, Answer]:
    """Returns the answers of a script that compares end offsets by partition, as from ``kafka-get-offsets``."""
    sides = [_ends(source), _ends(target)]
    return _of_numbers(cases, *sides)


def of_counts(cases: Sequence[Case], source: Connection, target: Connection) -> dict[str, Answer]:
    """Returns the answers of a script that reads every partition on both sides and compares the numbers of records."""
    return _of_numbers(cases, _counted(source), _counted(target))


def _of_numbers(
    cases: Sequence[Case], here: Mapping[str, Mapping[int, int]], there: Mapping[str, Mapping[int, int]]
) -> dict[str, Answer]:
    def verdict(case: Case) -> str:
        if case.topic not in here:
            return ""
        return "proved" if here[case.topic] == there.get(case.copied_topic) else "disproved"

    return {case.id: Answer(verdict(case)) for case in cases}


def _places(consumer: KafkaConsumer) -> list[TopicPartition]:
    return [TopicPartition(name, part) for name in consumer.topics() for part in consumer.partitions_for_topic(name)]


def _ends(connection: Connection) -> dict[str, dict[int, int]]:
    with KafkaConsumer(**connection.kafka_python(), group_id=None) as consumer:
        found: dict[str, dict[int, int]] = {}
        for place, end in consumer.end_offsets(_places(consumer)).items():
            found.setdefault(place.topic, {})[place.partition] = end
        return found


def _counted(connection: Connection) -> dict[str, dict[int, int]]:
    """Returns how many records a consumer that reads committed ones gets from each partition."""
    settings = {**connection.kafka_python(), "group_id": None, "isolation_level": "read_committed"}
    with KafkaConsumer(**settings, max_partition_fetch_bytes=8 * 1024 * 1024) as consumer:
        places = _places(consumer)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: dict[str, dict[int, int]] = {}
        for place in places:
            found.setdefault(place.topic, {})[place.partition] = 0
        left = {place for place, end in ends.items() if consumer.position(place) < end}
        idle = 0
        while left and idle < 20:
            polled = consumer.poll(_POLL_MS)
            idle = 0 if polled else idle + 1
            for place, records in polled.items():
                found[place.topic][place.partition] += len(records)
            left = {place for place in left if consumer.position(place) < ends[place]}
        return found
