"""What a mirror copies and how far it has come, as MM2 and Connect have it; and what follows for the verdict."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.errors import WrongUseError
from loosehanger.kafka import clients
from loosehanger.kafka.cluster import Config
from loosehanger.kafka.connection import Connection
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import idle_patterns, named_topics, selected_topics, target_topic
from loosehanger.proof.compare.configurations import ConfigDifference, compare_configs
from loosehanger.proof.evidence import latency
from loosehanger.proof.evidence.latency import LatencySampler, percentiles
from loosehanger.proof.read import mirrors
from loosehanger.proof.read.mirrors import Connect, MirrorProgress, describe, standing, wait_for_mirror

CONNECTOR = "europe->north-america.MirrorSourceConnector"
ORDERS = TopicPartition("LH.ORDERS", 0)


def mirror(**changes: Any) -> Mirror:
    """A mirror of the broadcast."""
    settings: dict[str, Any] = {
        "name": "mm2-na",
        "source_alias": "europe",
        "target_alias": "na",
        "source": "europe",
        "target": "north-america",
        "policy": "identity",
        "separator": ".",
        "topics": r"LH\..*",
        "topics_exclude": "",
        "connector": CONNECTOR,
        "connect": {},
    }
    return Mirror(**settings | changes)


class TestSelection:
    """MM2's choice of topics."""

    TOPICS = (
        "LH.ORDERS",
        "LH.STOCK",
        "XLH.ORDERS",
        "heartbeats",
        "__LH.x",
        "LH.a.internal",
        "LH.b.replica",
        "LH.c-internal",
    )

    def test_a_pattern_matches_the_whole_name(self) -> None:
        assert selected_topics(mirror(), self.TOPICS) == ["LH.ORDERS", "LH.STOCK"]

    def test_a_list_of_patterns(self) -> None:
        assert selected_topics(mirror(topics="heart.*, XLH[.]ORDERS"), self.TOPICS) == ["XLH.ORDERS", "heartbeats"]

    def test_own_excludes_replace_the_default_ones(self) -> None:
        assert selected_topics(mirror(topics_exclude=r"LH\.S.*"), self.TOPICS) == ["LH.ORDERS", "LH.b.replica"]

    def test_the_default_policy_does_not_send_topics_back(self) -> None:
        topics = ["na.LH.x", "asia.na.LH.x", "asia.LH.x", "LH.x"]
        assert selected_topics(mirror(topics=".*", policy="default"), topics) == ["LH.x", "asia.LH.x"]
        assert selected_topics(mirror(topics=".*"), topics) == sorted(topics)

    def test_topics_that_are_named(self) -> None:
        names = mirror(topics=r"LH\.ORDERS, payments.v1,LH\..*,a|b,x+")
        assert named_topics(names) == {"LH.ORDERS", "payments.v1"}
        assert named_topics(names, ["LH-ORDERS", "payments-v1"]) == {"LH.ORDERS"}
        assert idle_patterns(names, ["LH.x", "b"]) == ["x+"]

    def test_names_at_the_target(self) -> None:
        assert target_topic(mirror(), "LH.ORDERS") == "LH.ORDERS"
        assert target_topic(mirror(policy="default", separator="_"), "LH.ORDERS") == "europe_LH.ORDERS"

    def test_a_broken_pattern_is_the_users_mistake(self) -> None:
        with pytest.raises(WrongUseError, match="mm2-na"):
            selected_topics(mirror(topics="LH.("), self.TOPICS)


class Answers(ThreadingHTTPServer):
    """A Connect worker's two answers."""

    status: Any = None
    offsets: Any = None
    refuses: int | None = None
    paths: list[str]


class Handler(BaseHTTPRequestHandler):
    """Serves them."""

    server: Answers

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        answer = self.server.status if self.path.endswith("/status") else self.server.offsets
        body = json.dumps(answer or {"error_code": 404}).encode()
        self.send_response(self.server.refuses or (200 if answer else 404))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def worker() -> Iterator[Answers]:
    server = Answers(("127.0.0.1", 0), Handler)
    server.paths = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def watched(worker: Answers, tmp_path: Path) -> Mirror:
    """A mirror whose Connect is the worker."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    connect = {
        "url": f"http://127.0.0.1:{worker.server_port}",
        "username": "prover",
        "password_file": str(password),
        "ca_file": str(password),
    }
    return mirror(connect=connect)


def set_state(worker: Answers, state: str, tasks: list[str], position: int | None) -> None:
    """What the worker answers from now on."""
    worker.status = {"connector": {"state": state}, "tasks": [{"state": task} for task in tasks]}
    offsets = [
        {"partition": {"cluster": "europe", "topic": "LH.ORDERS", "partition": 0}, "offset": {"offset": position}},
        {"partition": {"cluster": "elsewhere", "topic": "LH.ORDERS", "partition": 0}, "offset": {"offset": 99}},
    ]
    worker.offsets = {"offsets": offsets if position is not None else []}


class TestWaiting:
    """The wait for a mirror's position."""

    def test_ends_when_the_position_is_reached(self, worker: Answers, watched: Mirror) -> None:
        set_state(worker, "RUNNING", ["RUNNING"], 7)
        progress = wait_for_mirror(watched, {ORDERS: 7}, 30, lambda _: None)
        assert progress.positions == {ORDERS: 7}
        assert not progress.behind({ORDERS: 7})
        assert worker.paths[0] == "/connectors/europe-%3Enorth-america.MirrorSourceConnector/status"

    def test_says_what_it_waits_for_until_the_bound(self, worker: Answers, watched: Mirror) -> None:
        set_state(worker, "RUNNING", ["RUNNING"], 7)
        lines: list[str] = []
        progress = wait_for_mirror(watched, {ORDERS: 9}, 0.7, lines.append)
        assert progress.behind({ORDERS: 9}) == {ORDERS: 2}
        assert lines == ["waiting: mirror mm2-na is RUNNING, 2 records behind"]

    def test_on_request_it_goes_on_while_the_mirror_comes_closer(
        self, worker: Answers, watched: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The mirror here moves by one each time it is asked, ten times, and then never again."""
        places = iter([*range(1, 11)])
        asked = Connect.progress

        def moving(connect: Connect) -> MirrorProgress:
            set_state(worker, "RUNNING", ["RUNNING"], next(places, 10))
            return asked(connect)

        monkeypatch.setattr(Connect, "progress", moving)
        monkeypatch.setattr(mirrors, "_POLL_S", 0.2)
        assert wait_for_mirror(watched, {ORDERS: 12}, 0.7, lambda _: None, while_moving=True).positions == {ORDERS: 10}
        places = iter([*range(1, 11)])
        assert wait_for_mirror(watched, {ORDERS: 12}, 0.7, lambda _: None).positions[ORDERS] < 8

    def test_a_stopped_mirror_is_not_waited_for(self, worker: Answers, watched: Mirror) -> None:
        set_state(worker, "STOPPED", [], 3)
        progress = wait_for_mirror(watched, {ORDERS: 1236}, 60, lambda _: None)
        assert describe(standing(watched, progress, {ORDERS: 1236})) == "mirror mm2-na is STOPPED, 1,233 records behind"

    def test_a_stopped_mirror_that_has_everything_is_fine(self, worker: Answers, watched: Mirror) -> None:
        set_state(worker, "STOPPED", [], 3)
        assert not wait_for_mirror(watched, {ORDERS: 3}, 60, lambda _: None).behind({ORDERS: 3})

    @pytest.mark.parametrize(
        ("connector", "tasks", "expected"),
        [
            ("RUNNING", ["RUNNING", "FAILED"], "FAILED"),
            ("RUNNING", ["UNASSIGNED"], "UNASSIGNED"),
            ("RUNNING", [], "UNASSIGNED"),
            ("PAUSED", ["PAUSED"], "PAUSED"),
        ],
    )
    def test_tasks_count(
        self, worker: Answers, watched: Mirror, connector: str, tasks: list[str], expected: str
    ) -> None:
        set_state(worker, connector, tasks, None)
        assert Connect(watched).progress().state == expected

    def test_no_connector_and_no_connect(self, worker: Answers, watched: Mirror) -> None:
        absent = Connect(watched).progress()
        assert describe(standing(watched, absent, {ORDERS: 1})) == f"mirror mm2-na: there is no connector {CONNECTOR}"
        for worker.refuses in (401, 403):
            refused = Connect(watched).progress()
            assert describe(standing(watched, refused, {ORDERS: 1})) == "mirror mm2-na: Connect refuses user 'prover'"
        worker.shutdown()
        worker.server_close()
        assert (
            describe(standing(watched, Connect(watched).progress(), {ORDERS: 1}))
            == "mirror mm2-na: Connect does not answer"
        )


class TestConfigs:
    """What MM2 would have synchronised."""

    HERE = Config("1000", override=True, mirrored=True)

    def test_equal_overrides(self) -> None:
        assert compare_configs({"retention.ms": self.HERE}, {"retention.ms": self.HERE}) == []

    def test_another_value(self) -> None:
        there = Config("2000", override=True, mirrored=True)
        assert compare_configs({"retention.ms": self.HERE}, {"retention.ms": there}) == [
            ConfigDifference("retention.ms", "1000", "2000")
        ]

    def test_an_override_of_one_side_only(self) -> None:
        default = Config("1000", override=False, mirrored=False)
        assert compare_configs({"retention.ms": default}, {"retention.ms": self.HERE}) == [
            ConfigDifference("retention.ms", None, "1000")
        ]
        other = Config("7", override=False, mirrored=False)
        assert compare_configs({"retention.ms": self.HERE}, {"retention.ms": other}) == [
            ConfigDifference("retention.ms", "1000", "7")
        ]

    def test_what_mm2_leaves_alone(self) -> None:
        static = Config("4", override=False, mirrored=False)
        assert compare_configs({"x": static, "min.insync.replicas": self.HERE}, {}) == []
        assert compare_configs({}, {"message.timestamp.type": self.HERE}) == []


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentiles(range(1, 201)) == {"p50": 100, "p95": 190, "p99": 198, "max": 200, "samples": 200}
    assert percentiles([7]) == {"p50": 7, "p95": 7, "p99": 7, "max": 7, "samples": 1}
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None, "max": None, "samples": 0}


def test_where_no_copy_is_there_yet_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that seeks in no partition would end the thread with a traceback."""

    class Nothing:
        """A consumer of kafka-python's as far as it gets."""

        def __init__(self, **_: object) -> None:
            pass

        def assign(self, _: object) -> None:
            raise ValueError("No partitions are currently assigned")

        def close(self, **_: object) -> None:
            pass

    monkeypatch.setattr(clients, "KafkaConsumer", Nothing)
    sampler = LatencySampler(Connection(("x:1",)), {})
    sampler.run()
    assert sampler._samples == {}


def test_of_many_partitions_the_first_of_each_topic_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_MOST_PARTITIONS", 3)
    sampler = LatencySampler(Connection(("x:1",)), {"a": 3, "b": 2})
    assert sampler._partitions == [TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("a", 1)]
