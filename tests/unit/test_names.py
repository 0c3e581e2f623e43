"""Only inventories, playbooks, tests and documentation know the name of a region or of a scenario."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from loosehanger.faults.measured import MEASURED
from loosehanger.lab.scenario import scenario_names
from loosehanger.paths import ROOT

FOLDERS = ("loosehanger", "consumers", "producer", "spark-jobs", "scripts", "roles")
SHORTCUT = "consumer-*.sh"
"""Its name says which region it is for."""
STILL = {
    "setup-03-broadcast.sh": "the shortcut for this scenario",
    "loosehanger/console/api.py": "examples of names in the interface's description",
    "scripts/sandbox.py": "sets up the scenario that labs and benchmarks have in common",
    "scripts/bench/checkouts.py": "measures the broadcast, and the disaster of active/passive",
    "scripts/bench/common.py": "measures the broadcast",
    "scripts/bench/console.py": "measures the broadcast",
    "scripts/bench/scrape.py": "measures the broadcast",
    "scripts/bench/silences.py": "measures the broadcast",
    "scripts/bench/disaster.py": "measures the disaster of active/passive",
    "scripts/bench/endurance.py": "measures the broadcast",
    "scripts/bench/latency.py": "measures the broadcast",
    "scripts/bench/ledger.py": "measures the broadcast",
    "scripts/bench/lifecycle.py": "measures the broadcast",
    "scripts/bench/mirroring.py": "measures the broadcast",
    "scripts/bench/many_topics.py": "the page of a scenario needs one",
    "scripts/bench/pages.py": "measures the broadcast",
    "scripts/bench/proof.py": "measures the broadcast",
    "scripts/bench/rest.py": "measures the broadcast",
    "scripts/bench/watching.py": "measures the broadcast",
}
"""What still knows one, and why. Nothing stands here for longer than it is true."""


@cache
def names() -> re.Pattern[str]:
    """A region's name or alias in any spelling (North America, northamerica), or a scenario's folder."""
    regions = yaml.safe_load((ROOT / "inventories" / "regions.yaml").read_text(encoding="utf-8"))["regions"]["hosts"]
    words = {re.escape(name).replace(r"\-", "[- _]?") for name in regions}
    words |= {re.escape(facts["region_alias"]) for facts in regions.values()}
    words |= {re.escape(name) for name in scenario_names()}
    return re.compile(rf"(?<![a-z0-9])({'|'.join(sorted(words))})(?![a-z0-9])", re.IGNORECASE)


def looked_at() -> Iterator[Path]:
    """Python, roles, templates and scripts: whatever is not documentation."""
    command = ["git", "ls-files", *FOLDERS, "*.sh"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path = Path(line)
        elsewhere = path.parts[0] in ("playbooks", "tests", "docs", "molecule", "inventories")
        elsewhere |= MEASURED in (ROOT / path).parents  # It has what was seen, and says where.
        if not elsewhere and path.suffix not in (".md", ".svg", ".png", ".woff2") and (ROOT / path).is_file():
            yield path


FILES = [path for path in looked_at() if not path.match(SHORTCUT)]


def found_in(path: Path) -> list[str]:
    """The lines of a file with such a name."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return [f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if names().search(line)]


def test_nothing_else_knows_a_region_or_a_scenario() -> None:
    assert [line for path in FILES if str(path) not in STILL for line in found_in(path)] == []


@pytest.mark.parametrize("path", STILL)
def test_what_still_knows_one_is_listed_no_longer_than_it_does(path: str) -> None:
    assert (ROOT / path).exists()
    assert found_in(Path(path))


@pytest.mark.parametrize(
    ("text", "knows"),
    [
        ("hosts: europe", True),
        ("Europe's clusters", True),
        ("north-america-kafka-bootstrap", True),
        ("NORTH_AMERICA", True),
        ("southamerica", True),
        ("playbooks/03-broadcast/setup.yaml", True),
        ("F.broadcast(cuts)", False),
        ("european", False),
        ("west, east", False),
    ],
)
def test_what_counts_as_such_a_name(text: str, knows: bool) -> None:
    assert bool(names().search(text)) == knows
