"""The corpus of damage between two plain brokers: every case judged in one proof, and what simple scripts would say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.mirrorproof.places import JARS
from loosehanger.paths import lab_home
from scripts.corpus.cases import Case, read_cases
from scripts.corpus.score import Answers, Score, configuration, of_counts, of_end_offsets, of_the_proof, score
from scripts.corpus.write import close, write

from .broker import Broker, running

pytestmark = [pytest.mark.lab, pytest.mark.slow]

CASES = read_cases()
BROKER = {"message.max.bytes": "2000000", "group.initial.rebalance.delay.ms": "0"}
REPORT = "LAB_CORPUS_REPORT"
"""The variable that names a file for the scores."""
KNOWN: dict[str, str] = {}
"""Cases that are answered wrongly, with the answer."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    with (
        running(tmp_path_factory.mktemp("source"), further=BROKER) as source,
        running(tmp_path_factory.mktemp("target"), cluster="Q29ycHVzT2ZEYW1hZ2Uxcg", further=BROKER) as target,
    ):
        base_ms = int(time.time() * 1000) - 3_600_000
        writers = write(CASES, source.connection(), target.connection(), base_ms)
        yield source, target
        close(writers)


def prove(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), JARS: str(lab_home() / "jars" / "spark")}
    command = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", "prove", *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


@pytest.fixture(scope="module")
def answers(clusters: tuple[Broker, Broker], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """By the name of who answers."""
    folder = tmp_path_factory.mktemp("answers")
    source, target = clusters
    path = folder / "corpus.yaml"
    path.write_text(configuration(CASES, source.properties("admin"), target.properties("admin")), encoding="utf-8")
    done = prove(folder, "--config", path, "--timeout", "5", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, Answers] = {
        "end offsets by a script": of_end_offsets(CASES, source.connection(), target.connection()),
        "message counts by a script": of_counts(CASES, source.connection(), target.connection()),
        "mirrorproof": of_the_proof(CASES, json.loads(done.stdout)),
    }
    scores = {name: score(CASES, own) for name, own in found.items()}
    if report := os.environ.get(REPORT):
        lines = [
            line for name, one in scores.items() for line in (_row(name, one), *sorted(map(str, one.wrong.items())))
        ]
        Path(report).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


def _row(name: str, one: Score) -> str:
    return (
        f"| {name} | {one.damage_found} of {one.damage} | {len(one.false_alarms)} of {one.controls} | "
        f"{one.undecidable_admitted} of {one.undecidable} | {one.exact_counts or '–'} |"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_proof_judges_the_case(case: Case, answers: dict[str, Answers]) -> None:
    assert score([case], answers["mirrorproof"]).wrong.get(case.id, "") == KNOWN.get(case.id, ""), case.says


def test_scripts_miss_most_of_it(answers: dict[str, Answers]) -> None:
    for name in ("end offsets by a script", "message counts by a script"):
        found = score(CASES, answers[name])
        assert found.damage_found < found.damage * 0.7
        assert found.undecidable_admitted == 0


def test_nothing_is_proved_of_one_cluster_or_of_no_topics(
    clusters: tuple[Broker, Broker], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two cases that are about the whole run."""
    folder = tmp_path_factory.mktemp("alone")
    source, target = (broker.properties("admin") for broker in clusters)
    same = prove(folder, source, source, "--topics", "case.equal")
    assert (same.returncode, "the same cluster" in same.stderr) == (2, True)
    nothing = prove(folder, source, target, "--topics", "no-such-topic-.*", "--timeout", "1", "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)["verdict"]) == (4, "inconclusive")
