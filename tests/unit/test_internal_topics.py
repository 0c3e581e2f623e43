"""Records of MM2's and Connect's internal topics, as Kafka 4.3.1 wrote them, and others that it did not."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from loosehanger.console.records import Arrived
from loosehanger.events.render import Line, to_json
from loosehanger.internal_topics import (
    CHECKPOINT,
    CONNECT_CONFIG,
    CONNECT_OFFSET,
    CONNECT_STATUS,
    HEARTBEAT,
    OFFSET_SYNC,
    decode,
    kind_of,
)
from tests.odd_records import ODD_VALUES

SYNCS, CHECKPOINTS, HEARTBEATS = (
    "mm2-offset-syncs.northamerica.internal",
    "northamerica.checkpoints.internal",
    "heartbeats",
)
SOURCE = "northamerica->europe.MirrorSourceConnector"
# Read from a lab of 05-active-passive.
SYNC = "000a4c482e53454e534f525300000001", "00000000000000110000000000000016"
OF_GROUP = (
    "0015636f6e73756d65722d736f757468616d6572696361000a4c482e53454e534f525300000001",
    "00000000000000000014000000000000001b0000",
)
# As org.apache.kafka.connect.mirror.Heartbeat and Checkpoint serialise them.
BEAT = "00066575726f7065000c6e6f727468616d6572696361", "0000000001a21abf23a3"
WITH_METADATA = (
    "000662757965727300094c482e4f524445525300000002",
    "00000000011f71fb04cb000000000000002a00076772c3b6c39f65",
)


def record(topic: str, key: bytes | None, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord(
        topic, 0, 0, 7, 1_795_745_063_843, 0, key, value, [], None, len(key or b""), len(value or b""), 0
    )


def of(topic: str, pair: tuple[str, str]) -> ConsumerRecord:
    return record(topic, *map(bytes.fromhex, pair))


@pytest.mark.parametrize(
    ("topic", "pair", "subject", "text", "document"),
    [
        (
            SYNCS, SYNC, "LH.SENSORS/1", "offset 17 at the source is offset 22 at the target",
            {"kind": OFFSET_SYNC, "topic": "LH.SENSORS", "partition": 1, "upstreamOffset": 17, "downstreamOffset": 22},
        ),
        (
            CHECKPOINTS, OF_GROUP, "consumer-southamerica LH.SENSORS/1",
            "group at offset 20 at the source continues at offset 27 at the target",
            {"kind": CHECKPOINT, "group": "consumer-southamerica", "topic": "LH.SENSORS", "partition": 1,
             "upstreamOffset": 20, "downstreamOffset": 27, "metadata": ""},
        ),
        (
            CHECKPOINTS, WITH_METADATA, "buyers LH.ORDERS/2",
            "group at offset 1234567890123 at the source continues at offset 42 at the target",
            {"kind": CHECKPOINT, "group": "buyers", "topic": "LH.ORDERS", "partition": 2,
             "upstreamOffset": 1234567890123, "downstreamOffset": 42, "metadata": "größe"},
        ),
        (
            HEARTBEATS, BEAT, "europe->northamerica", "heartbeat at 2026-11-27T02:04:23.843+00:00",
            {"kind": HEARTBEAT, "sourceClusterAlias": "europe", "targetClusterAlias": "northamerica",
             "timestamp": 1795745063843},
        ),
    ],
)  # fmt: skip
def test_what_mm2_wrote(topic: str, pair: tuple[str, str], subject: str, text: str, document: dict[str, Any]) -> None:
    one = of(topic, pair)
    found = decode(topic, one.key, one.value)
    assert found is not None
    assert (found.subject, found.text, found.document) == (subject, text, document)
    line = Line.of(one, decoded=True)
    assert (line.key, line.text) == (subject, f"{document['kind']}: {text}")
    assert json.loads(to_json(one, decoded=True))["decoded"] == document
    shown = Arrived("europe", one, 0).message
    assert (shown.key, shown.summary) == (subject, f"{document['kind']}: {text}")
    assert shown.raw == one.value.hex(" "), "the bytes stay"


@pytest.mark.parametrize(
    ("topic", "key", "value", "subject", "text"),
    [
        (
            "__mm2_offsets",
            f'["{SOURCE}",{{"cluster":"northamerica","partition":1,"topic":"LH.SENSORS"}}]',
            '{"offset":9}',
            f"{SOURCE} northamerica LH.SENSORS/1",
            "read up to offset 9",
        ),
        ("connect-offsets", '["files",{"filename":"a"}]', '{"position":3}', 'files {"filename":"a"}',
         'read up to {"position":3}'),
        ("__mm2_offsets", '["files",{"filename":"a"}]', None, 'files {"filename":"a"}',
         "deleted: the connector starts from the beginning"),
        (
            "__mm2_status",
            f"status-connector-{SOURCE}",
            '{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:19150","generation":3,"version":"4.3.1"}',
            SOURCE,
            "RUNNING on 127.0.0.1:19150, generation 3",
        ),
        (
            "mm2-status.europe.internal",
            f"status-task-{SOURCE}-0",
            '{"state":"FAILED","trace":"java.lang.Boom: no\\n\\tat x","worker_id":"w","generation":5}',
            f"{SOURCE} task 0",
            "FAILED on w, generation 5: java.lang.Boom: no",
        ),
        ("__mm2_status", f"status-topic-LH.ORDERS:connector-{SOURCE}", '{"topic":{"name":"LH.ORDERS"}}',
         f"{SOURCE} LH.ORDERS", "the connector uses this topic"),
        ("__mm2_configs", f"commit-{SOURCE}", '{"tasks":1}', f"commit {SOURCE}", "tasks 1"),
        ("__mm2_configs", f"tasks-fencing-{SOURCE}", '{"task-count":1}', f"tasks-fencing {SOURCE}", "task-count 1"),
        ("__mm2_configs", f"target-state-{SOURCE}", '{"state":"PAUSED","state.v2":"STOPPED"}', f"target-state {SOURCE}",
         "state PAUSED, state.v2 STOPPED"),
        ("__mm2_configs", f"task-{SOURCE}-0", '{"properties":{"connector.class":"a.b.MirrorSourceConnector","x":"y"}}',
         f"task {SOURCE} task 0", "2 settings, MirrorSourceConnector"),
        ("__mm2_configs", f"connector-{SOURCE}", None, f"connector {SOURCE}", "deleted"),
    ],
)  # fmt: skip
def test_what_connect_wrote(topic: str, key: str, value: str | None, subject: str, text: str) -> None:
    found = decode(topic, key.encode(), None if value is None else value.encode())
    assert found is not None
    assert (found.error, found.subject, found.text) == ("", subject, text)


def test_the_session_key_is_not_repeated() -> None:
    value = b'{"key":"ivJJRKY+DcGIvuGRcGTJ2pmA","algorithm":"HmacSHA256","creation-timestamp":1795745063843}'
    found = decode("__mm2_configs", b"session-key", value)
    assert found is not None
    assert found.kind == CONNECT_CONFIG
    assert "ivJJ" not in str(found)
    assert found.fields["algorithm"] == "HmacSHA256"


@pytest.mark.parametrize(("topic", "pair"), [(SYNCS, SYNC), (CHECKPOINTS, OF_GROUP), (HEARTBEATS, BEAT)])
def test_whatever_is_cut_is_shown_as_bytes_with_the_reason(topic: str, pair: tuple[str, str]) -> None:
    key, value = map(bytes.fromhex, pair)
    for cut_key, cut_value in [
        *((key[:length], value) for length in range(len(key))),
        *((key, value[:length]) for length in range(len(value))),
        (key + b"\0", value),
        (key, value + b"\0"),
    ]:
        found = decode(topic, cut_key, cut_value)
        assert found is not None
        assert found.error
        assert not found.text
        line = Line.of(record(topic, cut_key, cut_value), decoded=True)
        assert f"no valid {found.kind}: {found.error}; value: {len(cut_value)} bytes 0x{cut_value.hex()}" == line.text


@pytest.mark.parametrize(("topic", "pair"), [(CHECKPOINTS, OF_GROUP), (HEARTBEATS, BEAT)])
@pytest.mark.parametrize("version", [-1, 1, 300])
def test_an_unknown_version_is_named(topic: str, pair: tuple[str, str], version: int) -> None:
    key, value = map(bytes.fromhex, pair)
    found = decode(topic, key, struct.pack(">h", version) + value[2:])
    assert found is not None
    assert found.document == {"kind": found.kind, "error": f"version {version} is unknown; version 0 is known"}


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"", "it has no key"),
        (b"\xff\xff\x00\x00\x00\x00", bytes(16), "the key's topic has a negative length, -1"),
        (b"\x00\x01\xff\x00\x00\x00\x00", bytes(16), "the key's topic is not UTF-8"),
    ],
)
def test_what_is_wrong_is_named(key: bytes | None, value: bytes, error: str) -> None:
    found = decode(SYNCS, key, value)
    assert found is not None
    assert found.error == error


def test_a_value_that_was_read_in_part_is_not_half_decoded() -> None:
    found = decode("__mm2_configs", b"commit-x", b'{"tasks"', 11)
    assert found is not None
    assert found.error == "only 8 of its 11 bytes were read"


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("mm2-offset-syncs.b.internal", OFFSET_SYNC),
        ("mm2-offset-syncs_b_internal", OFFSET_SYNC),
        ("a.checkpoints.internal", CHECKPOINT),
        ("heartbeats", HEARTBEAT),
        ("europe.heartbeats", HEARTBEAT),
        ("__mm2_na_offsets", CONNECT_OFFSET),
        ("connect-status", CONNECT_STATUS),
        ("mirrormaker2-cluster-configs", CONNECT_CONFIG),
        ("mm2-offsets.europe.internal", CONNECT_OFFSET),
        ("LH.ORDERS", ""),
        ("__consumer_offsets_not", ""),
        ("mm2-other.internal", ""),
    ],
)
def test_the_name_decides_on_the_format(topic: str, kind: str) -> None:
    assert kind_of(topic) == kind


def test_a_topic_of_an_application_that_is_called_so_is_shown_as_always() -> None:
    one = record("payment-status", b"17", b'{"paid":true}')
    assert Arrived("europe", one, 0).message.summary == '{"paid":true}'
    assert "no valid connect-status" in Line.of(one, decoded=True).text, "who asks to decode it learns why not"
    assert json.loads(to_json(record("LH.STOCK", b"17", b"{}"), decoded=True))["decoded"] is None
    assert "decoded" not in json.loads(to_json(of(SYNCS, SYNC)))
    assert "Read" not in Line.of(of(SYNCS, SYNC)).text


@given(
    topic=st.sampled_from([SYNCS, CHECKPOINTS, HEARTBEATS, "__mm2_offsets", "__mm2_status", "__mm2_configs"]),
    key=st.one_of(
        st.none(),
        st.binary(max_size=40),
        st.sampled_from([*ODD_VALUES, b"session-key", b"status-task-a-1", b'["a",{}]']),
    ),
    value=st.one_of(st.none(), st.binary(max_size=40), st.sampled_from(ODD_VALUES)),
)
def test_whatever_a_record_is_it_can_be_shown(topic: str, key: bytes | None, value: bytes | None) -> None:
    one = record(topic, key, value)
    assert Line.of(one, decoded=True).plain().isprintable()
    json.loads(to_json(one, decoded=True))
    assert Arrived("europe", one, 0).json
