"""An experiment on a real lab: it finds what the texts claim, and leaves the lab as it was."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from loosehanger.experiments import mirror_location
from loosehanger.experiments.mirror_location import KIT, SOURCE, TARGET
from loosehanger.experiments.progress import SweepProgress
from loosehanger.experiments.site import choose, prepared
from loosehanger.platforms import registry
from scripts.sandbox import Kit

from .conftest import admin

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LINK = ("europe", "north-america")


def settings(kit: Kit) -> list[dict[str, Any]]:
    """What is set of the link, by direction."""
    (reported,) = json.loads(kit.run("link", *LINK, "--json").stdout)["links"]
    return [{name: way[name] for name in ("delay", "jitter", "rate", "silent")} for way in reported["directions"]]


def own_topics(kit: Kit) -> list[str]:
    """What experiments have left, in every region."""
    found: list[str] = []
    for region in (*LINK, "south-america"):
        client = admin(kit, region)
        try:
            found += [topic for topic in client.list_topics() if "xperiment" in topic.lower()]
        finally:
            client.close()
    return found


def own_rights(kit: Kit) -> list[str]:
    """The rights at the target that speak of experiments."""
    client = admin(kit, LINK[1])
    try:
        any_rule = ACLFilter(
            None, None, ACLOperation.ANY, ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.TRANSACTIONAL_ID, None, ACLResourcePatternType.ANY),
        )  # fmt: skip
        rules, _ = client.describe_acls(any_rule)
        return [name for rule in rules if "xperiment" in (name := str(rule.resource_pattern.resource_name))]
    finally:
        client.close()


def test_who_reads_directly_pays_for_each_reader_and_for_rewinding(kit: Kit, tmp_path: Path) -> None:
    kit.run("link", *LINK, "--delay", "7ms", "--jitter", "1ms", "--one-way")
    before = settings(kit)
    try:
        done = kit.run("experiment", "read-where", "--quick", "--json", "--output", str(tmp_path), timeout=400)
        assert done.returncode == 0, done.stderr
        assert settings(kit) == before
    finally:
        kit.run("link", *LINK, "--delay", "0ms", "--jitter", "0ms")
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "read-where.json").read_text(encoding="utf-8")) == found
    assert found["finding"] in (tmp_path / "read-where.html").read_text(encoding="utf-8")

    def ocean(mode: str, consumers: int, what: str = "ocean_bytes") -> float:
        of_steps = [s[what] for s in found["steps"] if (s["mode"], s["consumers"]) == (mode, consumers)]
        return float(median(of_steps))

    of_one = ocean("direct", 1)
    assert 4 < ocean("direct", 5) / of_one < 6
    assert 4 < ocean("direct", 5, "again_ocean_bytes") / ocean("direct", 1, "again_ocean_bytes") < 6
    for consumers in (1, 5):
        assert ocean("mirrored", consumers) == pytest.approx(of_one, rel=0.5)
        assert ocean("mirrored", consumers, "again_ocean_bytes") < 0.2 * of_one
    # What the readers of the step before say as they end arrives late.
    assert all(step["readers"] < 2000 for step in found["steps"] if step["mode"] == "mirrored")
    assert own_topics(kit) == []


def test_a_mirror_beside_its_source_copies_less_and_later(kit: Kit) -> None:
    before = settings(kit)
    chosen = choose(kit.lab, kit.home, registry.addresses_from, *LINK)
    steps = [(0, place, KIT, 0.08) for place in (TARGET, SOURCE)]
    progress = SweepProgress("mirror-where", len(steps), 20, 20)
    with prepared(chosen), closing(mirror_location.run(chosen, steps, progress)) as coming:
        beside_target = next(coming)
        assert own_rights(kit)
        (beside_source,) = coming
    assert beside_target.records_per_s > 2 * beside_source.records_per_s > 0
    assert beside_target.p50_ms < beside_source.p50_ms
    assert settings(kit) == before
    assert own_topics(kit) == []
    assert own_rights(kit) == []
