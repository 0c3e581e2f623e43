"""``./lab produce``: what it writes, at which pace, and what it says."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from loosehanger.cli import produce
from loosehanger.cli.command_line import COMMANDS
from loosehanger.errors import InconclusiveError, WrongUseError
from loosehanger.kafka.produce import NewRecord, Written
from loosehanger.lab.record import Lab, Region

TOPIC = ("europe", "--topic", "LH.ORDERS")


class Cluster:
    """Stands in for a producer: keeps what it is given, and fails from the record ``fails`` on."""

    def __init__(self) -> None:
        self.written: list[NewRecord] = []
        self.fails: int | None = None
        self.error: Exception = InconclusiveError("no acknowledgement")

    def post(self, record: NewRecord) -> Callable[[], Written]:
        self.written.append(record)
        number = len(self.written) - 1

        def outcome() -> Written:
            if number == self.fails:
                raise self.error
            return Written(record.topic, record.partition or 0, number, 1000 + number)

        return outcome

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster of the region ``europe``, whose user ``admin`` may write."""
    found = Cluster()
    file = tmp_path / "admin.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nsecurity.protocol=PLAINTEXT\n", encoding="utf-8")
    monkeypatch.setattr(produce, "RecordProducer", lambda *_: found)
    monkeypatch.setattr(produce, "prepare", lambda _: None)
    monkeypatch.setattr(Cluster, "client", SimpleNamespace(admin=file), raising=False)
    return found


def run(cluster: Any, *arguments: str) -> int:
    """Runs the command in a lab with that region."""
    lab = Lab("s", "local", "i", {"europe": Region("europe", "europe", {"admin": cluster.client.admin}, {}, ())})
    return produce.run(lab, COMMANDS["produce"].parse(arguments))


def test_a_record_is_written_with_key_headers_and_partition(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--key", "k", "--value", "v=1", "--header", "a=b=c", "--header", "d=", "--partition", "2")
    assert run(cluster, *TOPIC, *more) == 0
    assert cluster.written == [NewRecord("LH.ORDERS", b"k", b"v=1", (("a", b"b=c"), ("d", b"")), 2)]
    assert capsys.readouterr() == ("LH.ORDERS: partition 2, offset 0\n", "")


def test_a_tombstone_has_no_value(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, *TOPIC, "--key", "k", "--null", "--json") == 0
    assert cluster.written[0].value is None
    assert json.loads(capsys.readouterr().out) == {
        "topic": "LH.ORDERS", "partition": 0, "offset": 0, "timestamp": 1000
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "values"),
    [
        (("--value", "x", "--count", "3"), [b"x"] * 3),
        (("--value", "", "--count", "1"), [b""]),
        (("--value", "x", "--rate", "10000", "--count", "2"), [b"x"] * 2),
        (("--value", "x", "--rate", "1", "--seconds", "0.5"), [b"x"]),
    ],
)
def test_how_many_are_written_is_bounded(cluster: Cluster, more: tuple[str, ...], values: list[bytes]) -> None:
    assert run(cluster, *TOPIC, *more) == 0
    assert [record.value for record in cluster.written] == values


def test_a_rate_without_a_value_numbers_its_records(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cluster, *TOPIC, "--rate", "10000", "--count", "3") == 0
    assert [json.loads(record.value or b"")["number"] for record in cluster.written] == [1, 2, 3]
    assert capsys.readouterr().err == "3 records written to LH.ORDERS in europe\n"


@pytest.mark.parametrize("file", ["-", "orders"])
def test_each_line_of_a_file_is_a_record(
    cluster: Cluster, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"one\n\n\xff three\r\nlast"
    (tmp_path / "orders").write_bytes(content)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    monkeypatch.setenv("LAB_CALLED_FROM", str(tmp_path))
    assert run(cluster, *TOPIC, "--key", "k", "--file", file) == 0
    assert [record.value for record in cluster.written] == [b"one", b"", b"\xff three", b"last"]
    cluster.written.clear()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert run(cluster, *TOPIC, "--file", file, "--count", "2") == 0
    assert len(cluster.written) == 2


def test_what_was_written_before_a_failure_is_named(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.fails = 2
    with pytest.raises(InconclusiveError):
        run(cluster, *TOPIC, "--value", "x", "--count", "5")
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err == "2 records were written before this:\n"


def test_a_mistyped_topic_gets_a_suggestion(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.fails = 0
    cluster.error = WrongUseError("europe: no topic 'LH.ORDER'")
    cluster.error.__cause__ = KafkaTimeoutError()
    admin = SimpleNamespace(list_topics=lambda: ["LH.ORDERS"], close=lambda: None)
    monkeypatch.setattr(produce, "connect_admin", lambda *_: admin)
    with pytest.raises(WrongUseError, match=r"no topic 'LH\.ORDER'; did you mean 'LH\.ORDERS'\?"):
        run(cluster, "europe", "--topic", "LH.ORDER", "--value", "x")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (TOPIC, "name what to write: --value, --null, --file or --rate"),
        ((*TOPIC, "--null"), "--null needs --key"),
        ((*TOPIC, "--value", "x", "--file", "y"), "not allowed with argument"),
        ((*TOPIC, "--value", "x", "--header", "nope"), "'nope' is not NAME=VALUE"),
        ((*TOPIC, "--value", "x", "--partition", "-1"), "'-1' is not a whole number"),
        ((*TOPIC, "--rate", "0"), "'0' is not a number of records above 0"),
        ((*TOPIC, "--value", "x", "--count", "0"), "'0' is not a whole number from 1 on"),
        ((*TOPIC, "--file", "/nowhere/at/all"), "--file /nowhere/at/all: cannot be read (No such file or directory)"),
        ((*TOPIC, "--value", "x", "--user", "admn"), "europe has no user 'admn'; did you mean 'admin'?"),
        (("europ", "--topic", "t", "--value", "x"), "unknown region 'europ'; did you mean 'europe'?"),
        (("europe", "--topic", "a b", "--value", "x"), "'a b' is not a topic's name"),
        (("europe", "--value", "x"), "--topic"),
    ],
)
def test_wrong_use_is_refused_and_writes_nothing(cluster: Cluster, arguments: tuple[str, ...], expected: str) -> None:
    with pytest.raises(WrongUseError) as refused:
        run(cluster, *arguments)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)
    assert cluster.written == []
