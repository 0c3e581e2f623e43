"""Other people's clients and Kafka's own tools on a real lab, and the logs of what runs there."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from scripts.sandbox import Kit

pytestmark = pytest.mark.lab

REGION = "north-america"
FIRST = ("--partition", "0", "--offset", "earliest", "--max-messages", "1")
"""Reads one record without a group."""


def client_file(kit: Kit, *arguments: str) -> Path:
    """The file that ``./lab client`` writes."""
    done = kit.run("client", REGION, *arguments)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_librdkafka_signs_in(kit: Kit) -> None:
    settings: dict[str, Any] = {}
    for line in client_file(kit, "--librdkafka").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            settings[name] = value
    assert "LH.ORDERS" in AdminClient(settings).list_topics(timeout=60).topics


def test_kafka_python_signs_in(kit: Kit) -> None:
    settings = runpy.run_path(str(client_file(kit, "--python")))["SETTINGS"]
    client = KafkaAdminClient(**settings)
    try:
        assert "LH.ORDERS" in client.list_topics()
    finally:
        client.close()


def test_a_shell_has_the_settings(kit: Kit) -> None:
    file = client_file(kit, "--env", "--user", "prover")
    command = f'. "{file}"; echo "$KAFKA_USERNAME $KAFKA_SASL_MECHANISM"; test -r "$KAFKA_CA_FILE"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "prover SCRAM-SHA-512\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["topics", "--list"], "LH.ORDERS\n"),
        (["configs", "--describe", "--entity-type", "topics", "--entity-name", "LH.ORDERS"], "configs for topic"),
        (["consumer-groups", "--list"], ""),
        (["groups", "--list"], "GROUP"),
        (["get-offsets", "--topic", "LH.ORDERS"], "LH.ORDERS:0:"),
        (["acls", "--list"], "ResourcePattern"),
        (["transactions", "list"], "TransactionalId"),
        (["log-dirs", "--describe"], '"brokers"'),
        (["broker-api-versions"], "Produce(0)"),
        (["--user", "prover", "console-consumer", "--topic", "LH.ORDERS", *FIRST], "{"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_kafkas_own_tools_sign_in(kit: Kit, arguments: list[str], expected: str) -> None:
    done = kit.run("kafka", REGION, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout


def test_a_record_is_written_with_kafkas_producer_and_read_again(kit: Kit) -> None:
    topic = "BY_HAND"
    assert kit.run("kafka", "europe", "topics", "--create", "--topic", topic).returncode == 0
    try:
        command = [sys.executable, "-P", "-m", "loosehanger.cli", "kafka", "europe", "console-producer"]
        written = subprocess.run(
            [*command, "--topic", topic],
            cwd=kit.root,
            env=kit.variables(),
            input="written by hand\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert written.returncode == 0, written.stderr
        options = ("console-consumer", "--topic", topic, *FIRST)
        assert kit.run("kafka", "europe", *options).stdout == "written by hand\n"
    finally:
        kit.run("kafka", "europe", "topics", "--delete", "--topic", topic)


def test_a_tools_failure_is_its_own(kit: Kit) -> None:
    assert kit.run("kafka", REGION, "topics", "--describe", "--topic", "none-such").returncode == 1


def test_logs_of_a_mirror_are_shown(kit: Kit) -> None:
    assert f"{REGION}/" in kit.run("logs").stdout
    names = [line.split()[0] for line in kit.run("logs").stdout.splitlines() if line.startswith(f"{REGION}/")]
    mirror = next(name for name in names if "mm2" in name and "links" not in name)
    assert "Mirror" in kit.run("logs", mirror, "-n", "5000").stdout
