"""Makes the tables of ``docs/faults.md`` from the catalogue of faults.

    .lab/venv/bin/python -m scripts.fault_page

What stands above the mark is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from loosehanger.errors import run_command
from loosehanger.faults.fault import Fault, Needs, read_fault
from loosehanger.faults.names import fault_names
from loosehanger.paths import ROOT

PAGE = ROOT / "docs" / "faults.md"
MARK = "<!-- made from loosehanger/faults/catalogue by python -m scripts.fault_page -->"
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
    """Returns the page with its tables made anew.

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
    yield "\n## In the field\n"
    for fault in known:
        links = "; ".join(f"[{report.about}]({report.url})" for report in fault.reports)
        yield f"- **{fault.name}**{_needs(fault.needs)}: {fault.field}{f' ({links})' if links else ''}"


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
    return fault.remedy + (" It heals by itself." if fault.heals_itself else "") + after


def _needs(needs: Needs) -> str:
    found = []
    if needs.mirrors > 1:
        found.append(f"{needs.mirrors} mirrors")
    if needs.exactly_once is not None:
        found.append("exactly-once delivery" if needs.exactly_once else "a mirror without exactly-once delivery")
    if needs.checkpoints:
        found.append("a mirror that translates consumer groups")
    return f" (needs {' and '.join(found)})" if found else ""


def _cell(text: str) -> str:
    return text.strip().replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(run_command(main))
