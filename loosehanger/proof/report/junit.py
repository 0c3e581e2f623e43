"""The proof as a JUnit report, for CI systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from loosehanger.proof.difference import printable
from loosehanger.proof.report.tables import summary

_ELEMENTS = {"disproved": "failure", "inconclusive": "error"}


def junit(document: Mapping[str, Any]) -> str:
    """Makes the report: one suite with a test case for each claim, one for each flow, and one for the verdict.

    Args:
        document: the proof, as from ``loosehanger.proof.verdict.judge``.

    Returns:
        XML in the schema of Ant's JUnit reports, which is the strictest in use. A disproved case has a failure, an
        inconclusive one has an error.
    """
    seconds = f"{document['seconds']:.3f}"
    # Claims and flows have no times of their own: all are compared at once.
    cases = [_case("claims", claim["says"], "0", claim["verdict"], claim["reasons"]) for claim in document["claims"]]
    cases += [
        _case(f"{flow['source']} → {flow['target']}", flow["name"], "0", flow["verdict"], flow["reasons"])
        for flow in _named(document["flows"])
    ]
    cases.append(_case("prove", "verdict", seconds, document["verdict"], document["reasons"]))
    # Ant's times have no time zone.
    moments = [datetime.fromisoformat(cut["at"]) for cut in document["cut"].values()]
    at = min(moments, default=datetime.now(UTC)).astimezone(UTC).replace(tzinfo=None)
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": "prove",
            "timestamp": at.isoformat(timespec="seconds"),
            "hostname": "localhost",
            "tests": str(len(cases)),
            "failures": str(sum(case.find("failure") is not None for case in cases)),
            "errors": str(sum(case.find("error") is not None for case in cases)),
            "time": seconds,
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("scenario", "verdict", "records_per_second"):
        if document[name] is not None:
            ElementTree.SubElement(properties, "property", {"name": name, "value": printable(str(document[name]))})
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = printable(summary(document))
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _named(flows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The flows with unique names: with the mirror's name where two mirrors copy the same topic the same way."""
    alike = Counter((flow["source"], flow["target"], flow["topic"]) for flow in flows)
    return [
        {
            **flow,
            "name": f"{flow['topic']} by {flow['mirror']}"
            if alike[flow["source"], flow["target"], flow["topic"]] > 1
            else flow["topic"],
        }
        for flow in flows
    ]


def _case(classname: str, name: str, seconds: str, verdict: str, reasons: list[str]) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", {"classname": printable(classname), "name": printable(name), "time": seconds}
    )
    if verdict in _ELEMENTS:
        found = ElementTree.SubElement(case, _ELEMENTS[verdict], {"type": verdict, "message": printable(reasons[0])})
        found.text = "\n".join(printable(reason) for reason in reasons)
    return case
