"""Claims about ledgers: what is derived from scenario.yaml, how they are judged, and what people read of it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from loosehanger.errors import WrongUseError
from loosehanger.kafka.transactions import Held, Holder
from loosehanger.lab.claims.claims import OF_LEDGERS, Claim, claims_of, from_record
from loosehanger.lab.plan import plan_stage
from loosehanger.lab.record import Region
from loosehanger.lab.recovery import Leg, Recovery
from loosehanger.lab.scenario import read_scenario
from loosehanger.lab.topology import Topology
from loosehanger.ledger import LedgerEntry
from loosehanger.proof.compare.switches import Key, MovedGroup, Retained, SequenceRange
from loosehanger.proof.evidence import switch_evidence
from loosehanger.proof.evidence.evidence import Evidence
from loosehanger.proof.evidence.switch_evidence import Switch
from loosehanger.proof.report.junit import junit
from loosehanger.proof.report.page import render
from loosehanger.proof.report.tables import show_proof
from loosehanger.proof.verdict import judge

from ..topologies import mirror, program, user, with_users

DECLARED = from_record(
    [
        {"kept": "producer", "at": ["failover"]},
        {"groups": "consumer-x", "by": "mm2", "at": ["failover"]},
        {"copy": "mm2", "at": ["setup"]},
    ]
)
MIRRORS = Topology(with_users(mirror("mm2", "b", "b", "a"), regions=["a", "b"])).mirrors
CLAIMS = claims_of(MIRRORS, DECLARED, "failover")
KEY = Key("a-run", "LH.ORDERS", 2)
ALL_WELL = Switch(
    {"producer": Retained(acknowledged=1000)},
    {"consumer-x": MovedGroup(predicted=12, again=12, skipped={}, passed=True)},
    Recovery("the death of a", (Leg("mirror held", 2.25), Leg("consumer's first record", None))),
    death_ms=100_000,
)


NONE: Any = (None, 0.0, print)
"""No Spark, no time, and where to report."""


def proof(switch: Switch | None) -> dict[str, Any]:
    return judge(Evidence(claims=CLAIMS, switch=switch), "a-scenario", 1.5)


def shown(document: dict[str, Any]) -> str:
    output = io.StringIO()
    show_proof(document, Console(file=output, width=300, soft_wrap=True))
    return output.getvalue()


def test_they_are_claimed_in_the_stages_that_say_so() -> None:
    assert [claim.id for claim in CLAIMS] == ["kept:producer", "groups:consumer-x:b"]
    assert [claim.kind for claim in claims_of(MIRRORS, DECLARED, "setup")] == ["copy"]


def test_where_nothing_is_lost_or_skipped_all_is_proved_and_the_numbers_are_told() -> None:
    document = proof(ALL_WELL)
    assert document["verdict"] == "proved"
    text = shown(document)
    assert "1,000 records of producer were acknowledged" in text
    assert "consumer-x read 12 records again; 12 were predicted" in text
    assert "seconds from the death of a: mirror held 2.2, consumer's first record not yet" in text
    assert "2 of 2 claims hold" in text


def test_lost_records_disprove_and_are_listed_with_the_recovery_point() -> None:
    kept = Retained(acknowledged=1000, lost={KEY: [(90, 99)]}, lost_processed=4, oldest_lost_ms=97_500)
    document = proof(replace(ALL_WELL, kept={"producer": kept}))
    assert document["verdict"] == "disproved"
    assert [claim["verdict"] for claim in document["claims"]] == ["disproved", "proved"]
    (lost,) = (one for one in document["claims"][0]["findings"] if one["kind"] == "lost")
    assert (lost["count"], lost["details"]["rpo_seconds"]) == (10, 2.5)
    assert lost["details"]["records"] == [
        {"run": "a-run", "topic": "LH.ORDERS", "partition": 2, "first": 90, "last": 99}
    ]
    assert (
        "10 acknowledged records are in no surviving cluster, 4 of them had been processed; the oldest was "
        "acknowledged 2.5 s before (the recovery point): LH.ORDERS-2 lh-seq 90 to 99"
    ) in shown(document)


@pytest.mark.parametrize(
    ("moved", "verdict", "said"),
    [
        (MovedGroup(12, 30, {}, passed=True), "disproved", "consumer-x read 30 records again; 12 were predicted"),
        (
            MovedGroup(12, 12, {KEY: [(5, 7)]}, passed=True),
            "disproved",
            "consumer-x skipped 3 records: LH.ORDERS-2 lh-seq 5",
        ),
        (
            MovedGroup(12, 3, {}, passed=False),
            "inconclusive",
            "consumer-x has not yet read all that was in b when it moved there",
        ),
    ],
)
def test_a_group_that_went_on_otherwise_is_told(moved: MovedGroup, verdict: str, said: str) -> None:
    document = proof(replace(ALL_WELL, groups={"consumer-x": moved}))
    assert document["verdict"] == verdict
    assert said in shown(document)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_what_one_claim_lacks_leaves_the_others_decided(claim: Claim) -> None:
    document = proof(replace(ALL_WELL, inconclusive={claim.id: "no snapshot has it"}))
    verdicts = {found["id"]: found["verdict"] for found in document["claims"]}
    assert verdicts == dict.fromkeys((one.id for one in CLAIMS), "proved") | {claim.id: "inconclusive"}
    assert "no snapshot has it" in shown(document)


def test_of_each_claim_it_is_told_apart_what_it_lacks(tmp_path: Path) -> None:
    declared: list[dict[str, Any]] = [
        {"kept": "producer"},
        {"kept": "producer-x", "in": ["a"]},
        {"kept": "stranger"},
        {"groups": "consumer-y", "to": "b"},
    ]
    claims = claims_of(MIRRORS, from_record(declared), "failover")
    apps = Region("c", "", {}, {}, (), ledgers={"producer": tmp_path, "producer-x": tmp_path})
    lab: Any = SimpleNamespace(stage="failover", unfinished="", regions={"c": apps}, clusters={}, mirrors=())
    claims = tuple(claim for claim in claims if claim.kind in OF_LEDGERS)
    found = switch_evidence.look(lab, tmp_path, claims, *NONE)
    assert found.inconclusive == {
        "kept:producer-x": "a has no surviving cluster, although the claim names it",
        "kept:stranger": "'stranger' keeps no ledger that can be read from here",
        "groups:consumer-y:b": (
            "no snapshot has the offsets of consumer-y from when its offsets were set; run the stage again"
        ),
    }
    assert found.kept.keys() == {"producer"}


@pytest.mark.parametrize(
    ("partition", "inconclusive"),
    [
        (
            2,
            {
                "kept:producer": "9 acknowledged records cannot be read anywhere, and may be in a: LH.ORDERS-2: up to "
                "1,005 records are behind the last stable offset 1, held by a transaction of producer 5"
            },
        ),
        (3, {}),
    ],
    ids=["there", "elsewhere"],
)
def test_records_behind_an_open_transaction_are_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: int, inconclusive: dict[str, str]
) -> None:
    claims = claims_of(MIRRORS, from_record([{"kept": "producer"}]), "failover")
    apps = Region("c", "", {}, {}, (), ledgers={"producer": tmp_path})
    lab: Any = SimpleNamespace(
        stage="failover", unfinished="", regions={"c": apps}, clusters={"a": apps}, mirrors=(), region=lambda _: apps
    )
    entry = LedgerEntry("acked", KEY.run, "c1", KEY.topic, KEY.partition, 0, 9, 1000, 2000)
    held = Held("LH.ORDERS", partition, 1, 1006, Holder(5))
    read = switch_evidence._Read("c1", [SequenceRange(KEY, 0, 0)], {}, {}, (held,))
    monkeypatch.setattr(switch_evidence, "read_entries", lambda _: [entry])
    monkeypatch.setattr(switch_evidence, "_read", lambda *_: read)
    monkeypatch.setattr("loosehanger.proof.evidence.switch_evidence.Cluster.of", lambda *_: None)
    found = switch_evidence.look(lab, tmp_path, [claim for claim in claims if claim.kind in OF_LEDGERS], *NONE)
    assert found.inconclusive == inconclusive
    assert found.kept["producer"].lost == {KEY: [(1, 9)]}


def test_every_document_is_made_of_it() -> None:
    kept = Retained(acknowledged=1, lost={KEY: [(0, 0)]})
    for document in (proof(ALL_WELL), proof(replace(ALL_WELL, kept={"producer": kept}))):
        assert "every record of producer that was acknowledged" in render(document, {})
        assert "consumer-x continued in b" in junit(document)


def test_what_speaks_of_nothing_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "99-test"
    (folder / "manifests").mkdir(parents=True)
    (folder / "setup.yaml").touch()
    (folder / "manifests" / "mm2.yaml").write_text(yaml.safe_dump(mirror("mm2", "b", "b", "a")))
    resources = with_users(mirror("mm2", "b", "b", "a"), user("a", "writer"), program("c", "a"), regions=["a", "b"])
    described = {region: [d for d in resources if d.namespace == region] for region in ("a", "b", "c")}
    for claim, message in (
        ("{kept: program}", r"scenario.yaml:4: claims\[0\].kept: 'program' is not a program with a ledger"),
        ("{groups: g, by: mm3}", r"scenario.yaml:4: claims\[0\].by: manifests/ has no mirror 'mm3'; it has: mm2"),
    ):
        text = f"title: A test\nteaches: It.\ntopics: [LH.]\nclaims: [{claim}]\nstages: {{setup: {{}}}}\n"
        (folder / "scenario.yaml").write_text(text)
        with pytest.raises(WrongUseError, match=message):
            plan_stage(described, {}, read_scenario("99-test", tmp_path), "setup")
