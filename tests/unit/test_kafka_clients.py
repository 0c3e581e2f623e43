"""How kafka-python's clients are opened."""

from __future__ import annotations

import ast

import pytest

from loosehanger.kafka import clients
from loosehanger.kafka.clients import HURRIED, connect_admin, connect_consumer
from loosehanger.kafka.connection import Connection
from loosehanger.paths import ROOT

CONNECTION = Connection(("kafka:9092",))
CLASSES = {"KafkaAdminClient", "KafkaConsumer", "KafkaProducer"}


def test_every_client_is_opened_by_one_module() -> None:
    package = ROOT / "loosehanger"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES
    }
    assert found == {"kafka/clients.py"}


def test_an_admin_client_waits_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KafkaAdminClient", dict)
    assert connect_admin(CONNECTION, HURRIED, client_id="x") == {
        **CONNECTION.kafka_python(),
        "bootstrap_timeout_ms": 5000,
        "request_timeout_ms": 5000,
        "client_id": "x",
    }


def test_a_consumer_reads_committed_records_and_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "KafkaConsumer", dict)
    settings = connect_consumer(CONNECTION, auto_offset_reset="none")
    assert settings["isolation_level"] == "read_committed"
    assert settings["group_id"] is None
    assert settings["enable_auto_commit"] is False
    assert settings["auto_offset_reset"] == "none"
    assert (settings["bootstrap_timeout_ms"], settings["request_timeout_ms"]) == (10_000, 15_000)
