"""Faults in one of six flows, under prefixed names: each is reported for that flow, and for what rests on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.sandbox import Kit, copy_kit

from .conftest import wait_until
from .faults import FAULTS, RECORDS, SPOILT, count, create, prove, some_records, spoil, write
from .test_watch import TOPIC, UNTIL_SHOWN_S, Watching, topics

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TOPICS = [f"LH.{name}" for name in SPOILT]
SOURCES = ("europe", "south-america")
PREFIXES = {"europe": "europe.", "south-america": "southamerica."}
TWICE = "LH.AGAIN"
"""A topic that no manifest declares, so that no set-up can see that two patterns take it."""

READS = """\
      - resource:
          type: topic
          name: LH.
          patternType: prefix
        operations: [Read, DescribeConfigs]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The shared aggregate, in which North America also fetches South America's copies of Europe's topics.

    A second mirror there copies one of Europe's topics into the same copy as the first.
    """
    kit = copy_kit(tmp_path_factory.mktemp("shared"), port_base=28000)
    manifests = kit.root / "playbooks" / "04-shared-aggregate" / "manifests"
    for name, *changes in (
        ("mm2-na.yaml", ("alias: southamerica\n", "topicsPattern: LH", "topicsPattern: (LH|europe\\.LH)")),
        (
            "users-south-america.yaml",
            ("name: mm2-southamerica-reader\n", READS, READS + READS.replace("LH.", "europe.LH.")),
        ),
        ("users-north-america.yaml", ("name: mm2-northamerica\n", "name: southamerica.LH.\n", "name: southamerica.\n")),
    ):
        text = (manifests / name).read_text(encoding="utf-8")
        for after, old, new in changes:
            begin, end = text.split(after, 1)
            assert old in end
            text = begin + after + end.replace(old, new, 1)
        (manifests / name).write_text(text, encoding="utf-8")
    add_mirror(manifests)
    try:
        done = kit.run("setup", "04-shared-aggregate")
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


def add_mirror(manifests: Path) -> None:
    """Adds ``mm2-again``, beside ``mm2-na`` and with its user, for Europe's ``TWICE``."""
    mirror = yaml.safe_load((manifests / "mm2-na.yaml").read_text(encoding="utf-8"))
    mirror["metadata"]["name"] = mirror["spec"]["target"]["groupId"] = "mm2-again"
    for kind in ("config", "offset", "status"):
        mirror["spec"]["target"][f"{kind}StorageTopic"] = f"__mm2_na_again_{kind}"
    mirror["spec"]["mirrors"] = [mirror["spec"]["mirrors"][0] | {"topicsPattern": TWICE}]
    (manifests / "mm2-again.yaml").write_text(yaml.safe_dump(mirror), encoding="utf-8")
    users = manifests / "users-north-america.yaml"
    documents = list(yaml.safe_load_all(users.read_text(encoding="utf-8")))
    (writer,) = (found for found in documents if found["metadata"]["name"] == "mm2-northamerica")
    for kind, name, operations in (
        ("group", "mm2-again", ["Read"]),
        ("transactionalId", "connect-cluster-mm2-again", ["Describe", "Write"]),
        ("transactionalId", "mm2-again-", ["Describe", "Write"]),
    ):
        resource = {"type": kind, "name": name, "patternType": "prefix"}
        writer["spec"]["authorization"]["acls"].append({"resource": resource, "operations": operations})
    users.write_text(yaml.safe_dump_all(documents), encoding="utf-8")


@pytest.fixture(scope="module")
def disproof(shared: Kit) -> dict[str, Any]:
    """What the proof says after North America's copies of Europe's topics were spoilt."""
    originals = some_records()
    for source in SOURCES:
        create(shared, source, TOPICS)
    create(shared, "europe", [TWICE])
    write(shared, "europe", TWICE, originals)
    for source in SOURCES:
        for topic in TOPICS:
            write(shared, source, topic, originals)
    for source, prefix in PREFIXES.items():
        for topic in TOPICS:
            wait_until(
                lambda c=prefix + topic: count(shared, "north-america", c) == RECORDS,  # type: ignore[misc]
                60,
                f"{source}'s {topic} in North America",
            )
    wait_until(
        lambda: count(shared, "north-america", f"europe.{TWICE}") == 2 * RECORDS,
        60,
        "both mirrors' copies of one topic",
    )
    spoil(shared, "north-america", "europe.", originals)
    write(shared, "north-america", "europe.LH.ORDERS", [(b"nobody", b"sold this in Europe", originals[0][2])])
    code, document = prove(shared)
    assert (code, document["verdict"]) == (1, "disproved"), document["reasons"]
    return document


def flows(document: dict[str, Any], source: str, topic: str) -> list[dict[str, Any]]:
    """The flows of a topic into North America."""
    return [
        found
        for found in document["flows"]
        if (found["source"], found["topic"], found["target"]) == (source, topic, "north-america")
    ]


def flow(document: dict[str, Any], source: str, topic: str) -> dict[str, Any]:
    """The only flow of a topic into North America."""
    (found,) = flows(document, source, topic)
    return found


@pytest.mark.parametrize(("name", "fault"), SPOILT.items())
def test_a_fault_is_told_of_its_flow_only(disproof: dict[str, Any], name: str, fault: str) -> None:
    spoilt = flow(disproof, "europe", f"LH.{name}")
    assert spoilt["target_topic"] == f"europe.LH.{name}"
    assert {kind: spoilt[kind] for kind in FAULTS} == {kind: int(kind == fault) for kind in FAULTS}
    other = flow(disproof, "south-america", f"LH.{name}")
    assert other["target_topic"] == f"southamerica.LH.{name}"
    assert {kind: other[kind] for kind in FAULTS} == dict.fromkeys(FAULTS, 0)


def test_a_local_record_under_a_prefixed_name_is_unexpected(disproof: dict[str, Any]) -> None:
    assert flow(disproof, "europe", "LH.ORDERS")["unexpected"] == 1


def test_an_event_that_two_mirrors_copy_is_told_of_both(disproof: dict[str, Any]) -> None:
    found = {one["mirror"]: one["duplicates"] for one in flows(disproof, "europe", TWICE)}
    assert found == {"mm2-na": RECORDS, "mm2-again": RECORDS}
    for mirror, other in (("mm2-na", "mm2-again"), ("mm2-again", "mm2-na")):
        assert (
            f"{TWICE}, europe → north-america by {mirror}: mirror {other} writes into the same topic, from europe's "
            f"{TWICE}"
        ) in disproof["reasons"]


def test_claims_that_do_not_rest_on_a_spoilt_flow_stand(disproof: dict[str, Any]) -> None:
    spoilt = {one["id"] for topic in ("LH.ORDERS", TWICE) for one in flows(disproof, "europe", topic)}
    resting = {claim["id"] for claim in disproof["claims"] if spoilt & set(claim["flows"])}
    assert len(disproof["claims"]) == 10
    assert len(resting) == 3
    assert "whole:LH.ORDERS:north-america" in resting
    assert {claim["id"]: claim["verdict"] for claim in disproof["claims"]} == {
        claim["id"]: "disproved" if claim["id"] in resting else "proved" for claim in disproof["claims"]
    }


def test_a_copy_that_was_mirrored_on_is_named(disproof: dict[str, Any]) -> None:
    assert [reason for reason in disproof["reasons"] if "southamerica.europe.LH.ORDERS" in reason], disproof["reasons"]


def test_the_watch_tells_a_fault_of_its_flow_only(shared: Kit, tmp_path: Path) -> None:
    target = "north-america"
    watching = Watching(shared, tmp_path / "watch.json")
    try:
        wait_until(lambda: watching.document, UNTIL_SHOWN_S, "the first document")
        # What is older than the watch is not judged.
        originals = some_records()
        for source in SOURCES:
            create(shared, source, [TOPIC])
            write(shared, source, TOPIC, originals)
        copies = {f"{PREFIXES[source]}{TOPIC}" for source in SOURCES}
        wait_until(lambda: copies <= topics(shared, target), 90, f"{copies} in {target}")
        for source in SOURCES:
            watching.wait_for(target, {"records": RECORDS, "copies": RECORDS}, source=source)
        write(shared, target, f"europe.{TOPIC}", [(b"nobody", b"wrote this in Europe", originals[0][2])])
        watching.wait_for(target, {"records": RECORDS, "copies": RECORDS + 1, "unexpected": 1})
        assert watching.counts(target, source="south-america") == {"records": RECORDS, "copies": RECORDS}
        assert watching.counts("south-america") == {"records": RECORDS, "copies": RECORDS}
    finally:
        assert watching.end() == 0, watching.errors
