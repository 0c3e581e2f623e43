"""Faults in one of six flows, under prefixed names: each is told of that flow, and of what rests on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import Kit, copy_kit

from .conftest import wait_until
from .faults import FAULTS, RECORDS, SPOILT, count, create, prove, some_records, spoil, write

pytestmark = pytest.mark.lab

TOPICS = [f"LH.{name}" for name in SPOILT]
SOURCES = ("europe", "south-america")
PREFIXES = {"europe": "europe.", "south-america": "southamerica."}

READS = """\
      - resource:
          type: topic
          name: LH.
          patternType: prefix
        operations: [Read, DescribeConfigs]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The shared aggregate, in which North America also fetches South America's copies of Europe's topics."""
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
    try:
        done = kit.run("setup", "04-shared-aggregate")
        assert done.returncode == 0, done.stdout + done.stderr
        yield kit
    finally:
        done = kit.run("cleanup")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def disproof(shared: Kit) -> dict[str, Any]:
    """What the proof says after North America's copies of Europe's topics were spoilt."""
    originals = some_records()
    for source in SOURCES:
        create(shared, source, TOPICS)
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
    spoil(shared, "north-america", "europe.", originals)
    write(shared, "north-america", "europe.LH.ORDERS", [(b"nobody", b"sold this in Europe", originals[0][2])])
    code, document = prove(shared)
    assert (code, document["verdict"]) == (1, "disproved"), document["reasons"]
    return document


def flow(document: dict[str, Any], source: str, topic: str) -> dict[str, Any]:
    """The flow of a topic into North America."""
    (found,) = (
        flow
        for flow in document["flows"]
        if (flow["source"], flow["topic"], flow["target"]) == (source, topic, "north-america")
    )
    return dict(found)


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


def test_claims_that_do_not_rest_on_the_spoilt_flow_stand(disproof: dict[str, Any]) -> None:
    spoilt = flow(disproof, "europe", "LH.ORDERS")["id"]
    resting = {claim["id"] for claim in disproof["claims"] if spoilt in claim["flows"]}
    assert len(disproof["claims"]) == 9
    assert len(resting) == 2
    assert "whole:LH.ORDERS:north-america" in resting
    assert {claim["id"]: claim["verdict"] for claim in disproof["claims"]} == {
        claim["id"]: "disproved" if claim["id"] in resting else "proved" for claim in disproof["claims"]
    }


def test_a_copy_that_was_mirrored_on_is_named(disproof: dict[str, Any]) -> None:
    assert [reason for reason in disproof["reasons"] if "southamerica.europe.LH.ORDERS" in reason], disproof["reasons"]
