"""MirrorMaker 2 in its dedicated mode, from the lab's own manifests, beside the lab's mirrors."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.sandbox import Kit

from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "RETURNS.EUROPE"
READS = """\
      - resource: {type: topic, name: RETURNS., patternType: prefix}
        operations: [Read, DescribeConfigs]
"""
WRITES = """\
      - resource: {type: topic, name: RETURNS., patternType: prefix}
        operations: [Create, Write, Alter, AlterConfigs]
      - resource: {type: topic, name: mm2-, patternType: prefix}
        operations: [Create, Describe, DescribeConfigs, Read, Write]
      - resource: {type: topic, name: heartbeats, patternType: literal}
        operations: [Create, Describe, DescribeConfigs, Write]
      - resource: {type: group, name: dedicated-europe-mm2, patternType: literal}
        operations: [Read]
      - resource: {type: transactionalId, name: connect-cluster-dedicated-europe-mm2, patternType: literal}
        operations: [Describe, Write]
      - resource: {type: transactionalId, name: dedicated-europe-mm2-, patternType: prefix}
        operations: [Describe, Write]
"""


def permit(kit: Kit, region: str, user: str, rights: str) -> None:
    """Adds rights to those of a user in its manifest."""
    path = kit.manifest(f"users-{region}.yaml")
    head, tail = path.read_text(encoding="utf-8").split(f"name: {user}\n", 1)
    path.write_text(
        f"{head}name: {user}\n{tail.replace('acls:', f'acls:{chr(10)}{rights.rstrip()}', 1)}", encoding="utf-8"
    )


@contextmanager
def running(kit: Kit, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The dedicated mirror, until Ctrl-C."""
    command = ["mirror-properties", "north-america/mm2-na", "--topics", r"RETURNS\..*", "--run"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loosehanger.cli", *command],
            cwd=kit.root, env=kit.variables(), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_a_dedicated_mirror_copies_another_topic_beside_the_labs_own(bare_kit: Kit, tmp_path: Path) -> None:
    kit = bare_kit
    permit(kit, "europe", "mm2-europe", READS)
    permit(kit, "north-america", "mm2-northamerica", WRITES)
    done = kit.setup()
    assert done.returncode == 0, done.stderr
    created = kit.run("kafka", "europe", "topics", "--create", "--topic", TOPIC, "--partitions", "2")
    assert created.returncode == 0, created.stdout + created.stderr
    sent = kit.run("produce", "europe", "--topic", TOPIC, "--key", "order-1", "--value", '"too small"')
    assert sent.returncode == 0, sent.stderr

    log = tmp_path / "log"
    with running(kit, log) as mirror:

        def arrived() -> bool:
            assert mirror.poll() is None, log.read_text(encoding="utf-8")[-3000:]
            arguments = ("--no-follow", "--json", "--topic", TOPIC, "--user", "admin")
            done = kit.run("consume", "north-america", *arguments, timeout=60)
            return done.returncode == 0 and any('"too small"' in line for line in done.stdout.splitlines())

        wait_until(arrived, 180, f"{TOPIC} in North America")
        wait_until(
            lambda: "heartbeats" in kit.run("kafka", "north-america", "topics", "--list").stdout, 60, "heartbeats"
        )
        status = json.loads(kit.run("status", "--json").stdout)
        assert status["problems"] == [], "the lab's own mirrors are not disturbed"
    # The manifest has no checkpoint connector, and MirrorMaker 2 says so of its own.
    errors = [line for line in log.read_text(encoding="utf-8").splitlines() if " ERROR " in line]
    assert len(errors) == 1
    assert "Failed to configure MirrorCheckpointConnector" in errors[0]

    shown = kit.run("mirror-properties")
    path = Path(shown.stdout.strip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "sasl.jaas.config" in path.read_text(encoding="utf-8")
    proved = kit.run("prove")
    assert proved.returncode == 0, proved.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["north-america/mm2"], "there is no mirror 'north-america/mm2'; did you mean north-america/mm2-na?"),
    ],
)
def test_a_mirror_that_is_not_there_is_named(kit: Kit, arguments: list[str], expected: str) -> None:
    done = kit.run("mirror-properties", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
