"""Generates the tables of ``docs/faults.md`` from the catalogue of faults.

    .lab/venv/bin/python -m scripts.fault_page

The text above the mark is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from loosehanger.errors import run_command
from loosehanger.faults.fault import Fault, Needs, read_fault
from loosehanger.faults.measured import METRICS, PlainFacts, read_measured
from loosehanger.faults.names import fault_names
from loosehanger.paths import ROOT

PAGE = ROOT / "docs" / "faults.md"
MARK = "<!-- made from loosehanger/faults/catalogue by python -m scripts.fault_page -->"
HEALTHY = "RUNNING, tasks: RUNNING"
FACTOR = 5
"""The factor by which a lag or a latency must grow to count as changed; both vary without a fault, too."""
_LEVELS = {
    1: "Level 1: a tool names it",
    2: "Level 2: one must compare",
    3: "Level 3: nothing plain shows it",
}


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def page(text: str) -> str:
    """Returns the page with its tables regenerated.

    Args:
        text: the page as it is.
    """
    faults = [read_fault(name) for name in fault_names()]
    return "\n".join([text.partition(MARK)[0] + MARK, *_lines(faults)]) + "\n"


def _lines(faults: Iterable[Fault]) -> Iterator[str]:
    known = list(faults)
    yield f"\n{len(known)} faults."
    for level, title in _LEVELS.items():
        yield f"\n## {title}\n"
        yield "| fault | the kit's tools | Kafka's and Strimzi's tools | MirrorMaker 2 | what to do |"
        yield "|---|---|---|---|---|"
        for fault in known:
            if fault.level == level:
                cells = (_name(fault), _tools(fault), _plain(fault), fault.mirror_does, _remedy(fault))
                yield f"| {' | '.join(map(_cell, cells))} |"
    yield from _measured(known)
    yield "\n## In the field\n"
    for fault in known:
        links = "; ".join(f"[{report.about}]({report.url})" for report in fault.reports)
        where = f"{_needs(fault.needs)}{_kubernetes(fault)}"
        yield f"- **{fault.name}**{where}: {fault.field}{f' ({links})' if links else ''}"


def _measured(faults: Iterable[Fault]) -> Iterator[str]:
    found = {fault.name: read_measured(fault.name) for fault in faults}
    measured = [facts for facts in found.values() if facts]
    yield "\n## What Connect's interface and Kafka's metrics showed\n"
    yield (
        f"Measured for {len(measured)} faults in a lab with `-e jmx_metrics=true`: Connect's REST interface was asked "
        "every two seconds\nfor ten seconds, and the JMX exporter of the mirror's workers at their beginning and end, "
        "before the fault and while it was there. A dash is a\nmetric without a series, or a worker that did not "
        "answer. The last column names what differs. No operator runs here, so no resource's\nstatus was measured. "
        "Faults of a scenario shared a lab, which shared two cores with another lab: that can cause a latency of some\n"
        "seconds.\n"
    )
    columns = ("fault", "scenario", "after", "Connect", *METRICS.values(), "differs")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for facts in measured:
        pairs = (
            f"{_number(pair.before)} → {_number(pair.during)}" for name in METRICS if (pair := facts.metrics[name])
        )
        states = "; ".join(f"{name}: {states}" if name else states for name, states in facts.connect.items())
        cells = (f"**{facts.fault}**", facts.scenario, f"{facts.seconds:.0f} s", states, *pairs, _differing(facts))
        yield f"| {' | '.join(map(_cell, cells))} |"
    if missing := [name for name, facts in found.items() if facts is None]:
        yield f"\nNot measured yet: {', '.join(missing)}."


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _differing(facts: PlainFacts) -> str:
    """Returns what an operator with nothing else would have seen of a fault."""
    found = []
    if any(states != HEALTHY for states in facts.connect.values()) or not facts.connect:
        found.append("Connect")
    copied = facts.metrics["records_copied"]
    if not copied.during and copied.before:
        found.append("no record is copied")
    for name in ("failed_tasks", "series"):
        if facts.metrics[name].before != facts.metrics[name].during:
            found.append(METRICS[name])
    for name, least in (("consumer_lag", 100.0), ("latency_ms", 1000.0)):
        before, during = facts.metrics[name].before or 0.0, facts.metrics[name].during
        if during is not None and during >= max(least, before * FACTOR):
            found.append(METRICS[name])
    return ", ".join(found) or "nothing"


def _name(fault: Fault) -> str:
    return f"**{fault.name}**: {fault.title}"


def _tools(fault: Fault) -> str:
    noticed = fault.noticed
    found = [
        f"{what} “{notice.says}” within {notice.within} s"
        for what, notice in (("`status`", noticed.status), ("`watch`", noticed.watch), ("alert", noticed.alert))
        if notice
    ]
    if noticed.proof:
        found.append(f"`prove`: {noticed.proof.verdict}" + (f", “{noticed.proof.says}”" if noticed.proof.says else ""))
    if noticed.nothing:
        found.append(f"nothing: {noticed.nothing}")
    return "; ".join(found)


def _plain(fault: Fault) -> str:
    return f"resource: {fault.plain.resource}; Connect: {fault.plain.connect}; metrics: {fault.plain.metrics}"


def _remedy(fault: Fault) -> str:
    after = "" if fault.after == "proved" else " The proof stays disproved: what is lost is lost."
    return fault.remedy + (" It heals automatically." if fault.heals_itself else "") + after


def _needs(needs: Needs) -> str:
    found = []
    if needs.mirrors > 1:
        found.append(f"{needs.mirrors} mirrors")
    if needs.sources > 1:
        found.append(f"a mirror of {needs.sources} sources")
    if needs.exactly_once is not None:
        found.append("exactly-once delivery" if needs.exactly_once else "a mirror without exactly-once delivery")
    if needs.checkpoints:
        found.append("a mirror that translates consumer groups")
    return f" (needs {' and '.join(found)})" if found else ""


def _kubernetes(fault: Fault) -> str:
    return " (on Kubernetes, too)" if fault.on_kubernetes else ""


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(run_command(main))
