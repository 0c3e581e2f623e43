"""The proof as a JUnit report."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema

from loosehanger.proof.report.junit import junit
from tests import samples

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))


def _read(document: dict[str, Any]) -> ElementTree.Element:
    text = junit(document)
    SCHEMA.validate(text)
    return ElementTree.fromstring(text)  # noqa: S314 - the project's own


def _outcomes(suite: ElementTree.Element) -> dict[tuple[str, str], list[str]]:
    return {
        (case.attrib["classname"], case.attrib["name"]): [element.tag for element in case]
        for case in suite.iter("testcase")
    }


def test_a_proof_passes() -> None:
    flows = samples.flow(), samples.flow(target="south-america")
    suite = _read(samples.proof(*flows, claims=(samples.claim(),)))
    assert _outcomes(suite) == {
        ("claims", "north-america has an exact copy of all that mirror mm2-north-america takes from europe"): [],
        ("europe → north-america", "LH.ORDERS"): [],
        ("europe → south-america", "LH.ORDERS"): [],
        ("prove", "verdict"): [],
    }
    assert suite.tag == "testsuite"
    assert suite.attrib == {
        "name": "prove",
        "timestamp": "2026-01-01T00:00:00",
        "hostname": "localhost",
        "tests": "4",
        "failures": "0",
        "errors": "0",
        "time": "12.346",
    }
    assert (suite.findtext("system-out") or "").startswith("1,000 records of 1 topic are in north-america and south")


def test_faults_fail_and_doubts_are_errors() -> None:
    document = samples.broken_proof()
    suite = _read(document)
    assert list(_outcomes(suite).values()) == [
        ["failure"],
        ["error"],
        ["failure"],
        [],
        ["error"],
        ["error"],
        ["failure"],
    ]
    assert (suite.attrib["tests"], suite.attrib["failures"], suite.attrib["errors"]) == ("7", "3", "3")
    claim, flow, verdict = suite.findall("testcase/failure")
    for failure in (claim, flow):
        assert failure.attrib == {"type": "disproved", "message": document["reasons"][0]}
        assert (failure.text or "").splitlines() == document["reasons"][:3]
    assert (verdict.text or "").splitlines() == document["reasons"]


def test_inconclusive_is_an_error() -> None:
    suite = _read(samples.proof(verdict="inconclusive", reasons=("europe: the cluster does not answer (x)",)))
    assert _outcomes(suite) == {("prove", "verdict"): ["error"]}


def test_two_mirrors_of_one_topic_are_told_apart() -> None:
    flows = [samples.flow(), samples.flow(mirror="another", id="another")]
    assert ("europe → north-america", "LH.ORDERS by another") in _outcomes(_read(samples.proof(*flows)))


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\ud800", "\ufffe", "]]>", "<!--"])
def test_whatever_a_setting_holds_it_is_xml(character: str) -> None:
    reason = f"LH.ORDERS, europe → north-america: x differs: source {character}, target not set"
    entry = {"name": "x", "source": character, "target": None}
    flow = samples.flow(verdict="disproved", reasons=[reason], config_differences=[entry])
    suite = _read(samples.proof(flow, verdict="disproved", reasons=(reason,)))
    assert list(_outcomes(suite).values()) == [["failure"], ["failure"]]
