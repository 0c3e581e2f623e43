"""Links of a real lab: no client goes round them, they distinguish clients, and a relay that is killed comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.sandbox import Kit

from .conftest import processes, wait_until
from .crossings import crossings

pytestmark = pytest.mark.lab

RELAY = "local.relay"


def link(kit: Kit, *words: str) -> dict[str, Any]:
    """What a link says of itself, after a change if there is one."""
    done = kit.run("link", "europe", "north-america", *words, "--json")
    assert done.returncode == 0, done.stderr
    (reported,) = json.loads(done.stdout)["links"]
    return dict(reported)


def carried(kit: Kit) -> dict[str, int]:
    """Bytes that flowed from Europe to North America, by client."""
    return {client["client"]: client["bytes"] for client in link(kit)["directions"][0]["clients"]}


def test_no_foreign_client_goes_round_its_link(kit: Kit) -> None:
    found = list(crossings(kit))
    assert [crossing for crossing in found if not crossing.is_right] == []
    abroad = {(c.region, c.to) for c in found if c.region != c.to and not c.is_relay}
    # The mirrors; whose consoles ask which region depends on who is looking.
    assert {("north-america", "europe"), ("south-america", "europe")} <= abroad


def test_a_link_tells_the_mirror_from_the_proof(kit: Kit) -> None:
    before = carried(kit)
    assert before["KafkaMirrorMaker2/mm2-na"] > 0
    done = kit.run("prove", "--json", "--timeout", "90")
    assert done.returncode == 0, done.stdout
    back = {client["client"]: client["bytes"] for client in link(kit)["directions"][1]["clients"]}
    assert back["prove"] > 100_000
    wait_until(lambda: carried(kit)["KafkaMirrorMaker2/mm2-na"] > before["KafkaMirrorMaker2/mm2-na"], 20, "more events")


def test_a_killed_relay_comes_back_as_it_was(kit: Kit) -> None:
    link(kit, "--delay", "5ms", "--jitter", "1ms")
    try:
        (before,) = [process for process in processes(kit, "europe", RELAY) if process.cwd().endswith("north-america")]
        before.kill()
        wait_until(lambda: kit.run("link").returncode == 0, 20, "the relay")
        reported = link(kit)
        assert [(way["delay"], way["jitter"]) for way in reported["directions"]] == [(0.005, 0.001)] * 2
        wait_until(lambda: "KafkaMirrorMaker2/mm2-na" in carried(kit), 60, "the mirror's connections")
        wait_until(lambda: kit.run("status").returncode == 0, 60, "a healthy lab")
        # A set-up changes nothing of it.
        done = kit.setup()
        assert done.returncode == 0, done.stdout
        assert link(kit)["directions"][0]["delay"] == 0.005
    finally:
        link(kit, "--delay", "0ms", "--jitter", "0ms")


def test_status_names_a_link_that_is_cut_and_what_heals_it(kit: Kit) -> None:
    link(kit, "--silent", "--one-way")
    try:
        done = kit.run("status", "--json")
        assert done.returncode == 1
        found = [r for r in json.loads(done.stdout)["regions"]["europe"] if r["kind"] == "Link" and not r["healthy"]]
        assert [(r["name"], r["state"]) for r in found] == [("europe-north-america", "Silent to north-america")]
        assert "./lab link europe north-america --heal" in found[0]["detail"]
    finally:
        link(kit, "--heal")
