"""What a user can get wrong ends in one clear line and exit code 2, and changes nothing."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.sandbox import Kit, copy_kit

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """A kit in which nothing is set up, and in which nothing ever gets set up."""
    return copy_kit(tmp_path_factory.mktemp("fresh"), port_base=29000)


@pytest.fixture
def na(fresh: Kit) -> Iterator[Path]:
    """North America's mirror, put back afterwards."""
    file = fresh.manifest("mm2-na.yaml")
    text = file.read_text()
    yield file
    file.write_text(text)


def refused(kit: Kit, *arguments: str) -> str:
    """Runs the set-up and returns its last line, having checked that it refused and changed nothing."""
    done = kit.setup(*arguments)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (kit.home / "regions").exists()
    assert not (kit.home / "access").exists()
    assert lines[-1].startswith("error: ")
    return lines[-1].removeprefix("error: ")


# Each kind of mistake is named by the unit tests of the manifests; these go all the way.
EDITS = {
    "not YAML": ("  replicas: 1", "  replicas: [1", ["mm2-na.yaml:", "not YAML"]),
    "unknown field": (
        "  replicas: 1",
        "  replica: 1\n  replicas: 1",
        ["mm2-na.yaml:18", "KafkaMirrorMaker2/mm2-na", "spec.replica", "unknown field"],
    ),
    "another mirror's group": ("mm2-na", "mm2-sa", ["groupId", "mm2-sa"]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_manifest_with_a_mistake_is_refused(fresh: Kit, na: Path, edit: str) -> None:
    before, after, expected = EDITS[edit]
    text = na.read_text()
    assert before in text
    if edit == "another mirror's group":
        text = text.replace("north-america-", "south-america-").replace(".north-america.", ".south-america.")
        text = text.replace("groupId: mm2-na", "groupId: mm2-sa")
    else:
        text = text.replace(before, after, 1)
    na.write_text(text)
    message = refused(fresh)
    assert "mm2-na.yaml" in message
    for part in expected:
        assert part in message


def test_a_loop_of_identity_mirrors_is_refused(fresh: Kit) -> None:
    back = fresh.manifest("mm2-back.yaml")
    text = fresh.manifest("mm2-na.yaml").read_text()

    def other(found: re.Match[str]) -> str:
        if found[0] != "europe":
            return "europe"
        return "northamerica" if text[: found.start()].endswith(("alias: ", "mm2-")) else "north-america"

    swapped = re.sub(r"north-?america|europe", other, text)
    back.write_text(swapped.replace("mm2-na", "mm2-eu").replace("__mm2_na_", "__mm2_eu_"))
    playbook = fresh.root / "playbooks" / "03-broadcast" / "setup.yaml"
    before = playbook.read_text()
    playbook.write_text(before.replace("hosts: north-america:south-america", "hosts: regions"))
    try:
        message = refused(fresh)
    finally:
        back.unlink()
        playbook.write_text(before)
    assert "mm2-back.yaml" in message
    assert "loop" in message


def test_two_mirrors_that_would_write_one_topic_are_refused(fresh: Kit) -> None:
    second = fresh.manifest("mm2-second.yaml")
    text = fresh.manifest("mm2-na.yaml").read_text()
    second.write_text(text.replace(" mm2-na\n", " mm2-second\n").replace("__mm2_na_", "__mm2_second_"))
    try:
        message = refused(fresh)
    finally:
        second.unlink()
    assert "mm2-second.yaml" in message
    assert re.search(r" into (LH\.\w+) in north-america, .* copies europe's \1, so ", message)
    assert "neither is an exact copy" in message


@pytest.mark.parametrize("offset", [200, 171], ids=["a broker's", "the control room's"])
def test_a_port_in_use_is_named_with_the_variable_to_change(fresh: Kit, offset: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", fresh.port_base + offset))
        other.listen()
        message = refused(fresh)
    assert str(fresh.port_base + offset) in message
    assert "LAB_PORT_BASE" in message


@pytest.mark.parametrize(
    ("variable", "word"), [("platform_local_memory_mb", "memory"), ("platform_local_disk_mb", "disk")]
)
def test_too_little_memory_or_disk_is_said_before_anything_starts(fresh: Kit, variable: str, word: str) -> None:
    message = refused(fresh, "-e", f"{variable}=100000000")
    assert word in message
    assert variable in message


def test_unknown_region_is_refused(fresh: Kit) -> None:
    assert "--limit leaves us with no hosts" in refused(fresh, "--limit", "asia")


def test_unknown_inventory_is_refused(fresh: Kit) -> None:
    assert "inventories/none" in refused(fresh, "-i", "inventories/none")


def test_unknown_option_is_refused(fresh: Kit) -> None:
    assert "--no-such-option" in refused(fresh, "--no-such-option")


@pytest.mark.parametrize("command", ["status", "stage", "topic", "consume", "prove", "aggregate", "watch"])
def test_nothing_set_up_is_exit_code_3(fresh: Kit, command: str) -> None:
    arguments = {"topic": ["show"], "consume": ["europe"]}.get(command, [])
    done = fresh.run(command, *arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1] == "error: nothing is set up; ./lab scenarios shows what there is"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["set", "asia", "LH.ORDERS", "retention.ms=1"], "unknown region 'asia'; the regions are: europe"),
        (["set", "europe", "LH.NONE", "retention.ms=1"], "unknown topic 'LH.NONE'"),
        (["set", "europe", "LH.ORDERS", "retention.ms"], "'retention.ms' is not NAME=VALUE"),
        (["set", "europe", "LH.ORDERS", "retention.ms=soon"], "retention.ms"),
        (["set", "europe", "LH.ORDERS", "retention.milliseconds=1"], "retention.milliseconds"),
        (["show", "LH.NONE"], "unknown topic 'LH.NONE'; the topics are: LH.CANCELLATIONS"),
    ],
)
def test_wrong_use_of_topic(kit: Kit, arguments: list[str], expected: str) -> None:
    before = kit.run("topic", "show").stdout
    done = kit.run("topic", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert kit.run("topic", "show").stdout == before
