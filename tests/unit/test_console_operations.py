"""Changes of topics, records and groups in a console: what they do, and what an intruder gets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from loosehanger.console.configuration import beside_defaults
from loosehanger.console.operations import MOST_A_MINUTE, read_target
from loosehanger.console.settings import OPERATOR_OFF
from loosehanger.errors import WrongUseError
from loosehanger.kafka import group_changes
from loosehanger.kafka.changes import Counted
from tests.consoles import HOSTILE, Browser, Running, running, settings
from tests.made_up_admin import MadeUpAdmin

ORDERS = "LH.ORDERS"
HERE = "/api/regions/europe"
GROUP = "consumer-europe"


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Europe's console, which may change."""
    monkeypatch.setattr(group_changes, "count", lambda _, moves: Counted(sum(len(one.again) for one in moves) // 2, 0))
    with running(settings("europe", operator=True, lab_home=tmp_path)) as found:
        found.service.regions["europe"].cluster.admin = MadeUpAdmin(
            {ORDERS: [(0, 9), (3, 20)], "mm2-offsets": [(0, 5)]},
            {GROUP: {TopicPartition(ORDERS, 0): 9, TopicPartition(ORDERS, 1): 20}, "mm2": {}, HOSTILE: {}},
            kinds={"mm2": "connect"},
        )
        yield found


@pytest.fixture
def admin(console: Running) -> MadeUpAdmin:
    """Its cluster's."""
    found: MadeUpAdmin = console.service.regions["europe"].cluster.admin
    return found


def moves(to: int, committed: int = 9) -> dict[str, Any]:
    """A reset of a partition."""
    return {"group": GROUP, "moves": [{"topic": ORDERS, "partition": 0, "committed": committed, "to": to}]}


CHANGES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "topics", {"name": "LH.NEW", "partitions": 2}),
    ("DELETE", f"topics/{ORDERS}", None),
    ("PUT", f"topics/{ORDERS}/partitions", {"partitions": 5}),
    ("POST", f"topics/{ORDERS}/deletion", {"before": {"0": 5}}),
    ("POST", "reset", moves(2)),
    ("DELETE", f"groups?group={GROUP}", None),
)
FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    ("create-topic", {"name": "LH.NEW", "partitions": "2"}),
    ("delete-topic", {"topic": ORDERS}),
    ("add-partitions", {"topic": ORDERS, "partitions": "5"}),
    ("delete-records", {"topic": ORDERS, "before": "0:5"}),
    ("reset", {"group": GROUP, "moves": f"{ORDERS} 0 9 2"}),
    ("delete-group", {"group": GROUP}),
)


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_each_change_is_made_once_and_a_repetition_does_no_more(
    console: Running, admin: MadeUpAdmin, method: str, path: str, body: Any
) -> None:
    browser = console.browser()
    first = browser.change(method, f"{HERE}/{path}", json=body)
    assert first.status_code == 200, first.text
    assert first.json()["said"].startswith("europe: ")
    state = repr((admin.topics, admin.groups))
    again = browser.change(method, f"{HERE}/{path}", json=body)
    assert again.status_code == (409 if path == "reset" else 200 if "deletion" in path else 400), again.text
    assert repr((admin.topics, admin.groups)) == state
    log = browser.get("/api/changes").json()["changes"]
    assert [one["done"] for one in log] == [again.status_code == 200, True]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_each_form_asks_once_without_scripts_and_then_makes_the_change(
    console: Running, admin: MadeUpAdmin, name: str, form: dict[str, str]
) -> None:
    browser = console.browser()
    asked = {"partition": "0", "before": "5"} if name == "delete-records" else {"to": "value", "value": "2"}
    kept = {key: value for key, value in form.items() if key not in ("moves", "before")}
    path = "/groups/reset" if name == "reset" else f"/confirm/{name}"
    page = browser.get(path, params={"region": "europe", **kept, **asked})
    assert page.status_code == 200
    assert admin.changes == [], "to ask changes nothing"
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.text.split("/operate/")[1]))
    if name == "reset":
        assert fields["moves"].splitlines() == [f"{ORDERS} 0 9 2", f"{ORDERS} 1 20 3"], (
            "an offset is kept within its ends"
        )
    answer = browser.post(f"/operate/{name}", data=fields)
    assert answer.status_code == 303, answer.text
    assert admin.changes
    after = browser.get(answer.headers["location"] if name != "create-topic" else "/groups").text
    assert 'class="note good"' in after


@pytest.mark.parametrize("made", ["api", "form"])
def test_a_forged_change_is_refused(console: Running, admin: MadeUpAdmin, made: str) -> None:
    browser = console.browser()
    foreign = console.browser().token()
    for token in ("", "wrong", foreign, browser.token()[:-1]):
        for method, path, body in CHANGES if made == "api" else ():
            answer = browser.request(method, f"{HERE}/{path}", json=body, headers={"X-CSRF-Token": token})
            assert answer.status_code == 403, path
        for name, form in FORMS if made == "form" else ():
            answer = browser.post(f"/operate/{name}", data={"csrf": token, "region": "europe", **form})
            assert answer.status_code == 403, name
    for name, form in FORMS:
        answer = browser.post(
            f"/operate/{name}", data={"csrf": browser.token(), "region": "europe", **form},
            headers={"Origin": "https://evil.example"},
        )  # fmt: skip
        assert answer.status_code == 403, name
        assert browser.get(f"/operate/{name}", params={"csrf": browser.token(), **form}).status_code in (404, 405)
    assert admin.changes == []
    assert browser.get("/api/changes").json()["changes"] == []


def test_without_the_switch_nothing_is_changed_nor_asked(tmp_path: Path) -> None:
    with running(settings("europe", lab_home=tmp_path)) as console:
        cluster = console.service.regions["europe"].cluster
        cluster.admin = MadeUpAdmin({ORDERS: [(0, 9)]}, {GROUP: {TopicPartition(ORDERS, 0): 9}})
        browser = console.browser()
        for method, path, body in CHANGES:
            answer = browser.change(method, f"{HERE}/{path}", json=body)
            assert (answer.status_code, answer.json()["detail"]) == (403, OPERATOR_OFF), path
        for name, form in FORMS:
            data = {"csrf": browser.token(), "region": "europe", **form}
            assert browser.post(f"/operate/{name}", data=data).status_code == 403, name
            if name != "reset":
                assert browser.get(f"/confirm/{name}", params={"region": "europe", **form}).status_code == 403, name
        preview = browser.get("/groups/reset", params={"region": "europe", "group": GROUP, "to": "earliest"}).text
        assert "/operate/" not in preview
        assert "-e console_operator=true" in preview
        for path in ("/topics", f"/topics/{ORDERS}"):
            assert "-e console_operator=true" in browser.get(path).text
        assert cluster.admin.changes == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "topics", {"name": "LH.NEW", "partitions": 101}, 422),
        ("POST", "topics", {"name": "LH.NEW", "partitions": 0}, 422),
        ("POST", "topics", {"name": "../../etc"}, 422),
        ("POST", "topics", {"name": "x" * 250}, 422),
        ("POST", "topics", {"name": "LH.NEW", "settings": {f"a.{n}": "1" for n in range(31)}}, 422),
        ("POST", "topics", {"name": "LH.NEW", "replicas": 9}, 422),
        ("POST", "topics", {"name": ".."}, 400),
        ("POST", "topics", {"name": "__consumer_offsets"}, 400),
        ("DELETE", "topics/mm2-offsets", None, 400),
        ("DELETE", "topics/europe.checkpoints.internal", None, 400),
        ("PUT", f"topics/{ORDERS}/partitions", {"partitions": 10**9}, 422),
        ("PUT", f"topics/{ORDERS}/partitions", {"partitions": 2}, 400),
        ("POST", f"topics/{ORDERS}/deletion", {"before": {}}, 422),
        ("POST", f"topics/{ORDERS}/deletion", {"before": {"0": -1}}, 422),
        ("POST", f"topics/{ORDERS}/deletion", {"before": {"0": 10}}, 400),
        ("POST", f"topics/{ORDERS}/deletion", {"before": {"7": 1}}, 400),
        ("POST", f"topics/{ORDERS}/deletion", {"before": {str(n): 0 for n in range(1001)}}, 422),
        ("POST", "reset", {**moves(2), "moves": []}, 422),
        ("POST", "reset", {"group": "x" * 256, "moves": moves(2)["moves"]}, 422),
        ("POST", "reset", moves(10), 400),
        ("POST", "reset", moves(2, committed=8), 409),
        ("POST", "reset", {**moves(2), "group": "unknown"}, 400),
        ("POST", "reset", {**moves(2), "group": "mm2"}, 400),
        ("DELETE", "groups?group=mm2", None, 400),
        ("DELETE", "groups?group=unknown", None, 400),
        ("POST", "topics", {"name": "LH.NEW", "settings": {"a": "x" * 70_000}}, 413),
    ],
)
def test_an_oversized_odd_or_late_request_changes_nothing(
    console: Running, admin: MadeUpAdmin, method: str, path: str, body: Any, status: int
) -> None:
    before = repr((admin.topics, admin.groups))
    answer = console.browser().change(method, f"{HERE}/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert repr((admin.topics, admin.groups)) == before


def test_a_region_that_is_not_here_is_not_changed(console: Running, admin: MadeUpAdmin) -> None:
    browser = console.browser()
    for method, path, body in CHANGES:
        answer = browser.change(method, f"/api/regions/north-america/{path}", json=body)
        assert answer.status_code == 404, path
    assert admin.changes == []


@pytest.mark.parametrize("name", ["reset", "delete-records", "add-partitions", "create-topic"])
def test_odd_fields_of_a_form_are_explained(console: Running, admin: MadeUpAdmin, name: str) -> None:
    browser = console.browser()
    field = {"reset": "moves", "delete-records": "before", "add-partitions": "partitions", "create-topic": "partitions"}
    form = {"csrf": browser.token(), "region": "europe", "group": GROUP, "topic": ORDERS, "name": "LH.NEW"}
    for text in ("x", "0:1:2", "LH.ORDERS 0 9", f"{ORDERS} 0 9 1e3", HOSTILE, "0:-5", "-1"):
        answer = browser.post(f"/operate/{name}", data={**form, field[name]: text})
        assert answer.status_code in (400, 422), text
        assert "<script>document" not in answer.text
    assert browser.post(f"/operate/{name}", data={**form, field[name]: "x" * 41_000}).status_code == 422
    assert admin.changes == []


def test_a_group_with_members_is_neither_reset_nor_deleted(console: Running, admin: MadeUpAdmin) -> None:
    admin.members[GROUP] = 2
    browser = console.browser()
    preview = browser.get(f"{HERE}/reset", params={"group": GROUP, "to": "earliest"}).json()
    assert preview["refused"] == "europe: consumer-europe has 2 members and is stable; stop its consumers first"
    for method, path, body in (CHANGES[4], CHANGES[5]):
        answer = browser.change(method, f"{HERE}/{path}", json=body)
        assert answer.status_code == 400
        assert "stop its consumers first" in answer.json()["detail"]
    assert admin.changes == []
    page = browser.get("/groups/reset", params={"region": "europe", "group": GROUP, "to": "earliest"}).text
    assert "stop its consumers first" in page
    assert "/operate/reset" not in page


@pytest.mark.parametrize(
    ("to", "more", "expected"),
    [
        ("earliest", {}, [(0, 9, 0, 9, 0), (1, 20, 3, 17, 0)]),
        ("latest", {}, [(0, 9, 9, 0, 0), (1, 20, 20, 0, 0)]),
        ("5", {}, [(0, 9, 5, 4, 0), (1, 20, 5, 15, 0)]),
        ("10m", {}, [(0, 9, 7, 2, 0), (1, 20, 7, 13, 0)]),
        ("2026-01-31T12:00Z", {"partition": "1"}, [(1, 20, 7, 13, 0)]),
    ],
)
def test_a_preview_names_each_offset(
    console: Running, admin: MadeUpAdmin, to: str, more: dict[str, str], expected: list[tuple[int, ...]]
) -> None:
    admin.at_time = 7
    found = console.browser().get(f"{HERE}/reset", params={"group": GROUP, "to": to, **more}).json()
    names = ("partition", "committed", "to", "again", "skipped")
    assert [tuple(one[name] for name in names) for one in found["moves"]] == expected
    assert found["again"] == sum(row[3] for row in expected)
    assert found["records_again"] == found["again"] // 2
    assert admin.changes == []


def test_a_preview_forward_says_what_is_skipped_and_what_retention_took_does_not_count(
    console: Running, admin: MadeUpAdmin
) -> None:
    admin.groups[GROUP] = {TopicPartition(ORDERS, 1): 1, TopicPartition("LH.GONE", 0): 5}
    browser = console.browser()
    (move,) = browser.get(f"{HERE}/reset", params={"group": GROUP, "to": "latest"}).json()["moves"]
    assert (move["committed"], move["again"], move["skipped"]) == (1, 0, 17), "offsets 1 and 2 were deleted before"
    first, _ = browser.get(f"{HERE}/reset", params={"group": GROUP, "to": "earliest", "topic": ORDERS}).json()["moves"]
    assert (first["committed"], first["to"], first["again"]) == (None, 0, 0), "it has read nothing of it"


@pytest.mark.parametrize(
    "to", ["", "soon", "-5", "10x", "2026-13-01", "99999999999999999999", "9999999d", HOSTILE[:40]]
)
def test_where_a_group_cannot_continue_is_explained(console: Running, to: str) -> None:
    answer = console.browser().get(f"{HERE}/reset", params={"group": GROUP, "to": to})
    assert answer.status_code == 400
    assert "is not where a group can continue" in answer.json()["detail"]
    with pytest.raises(WrongUseError):
        read_target(to)


def test_changes_are_bounded_in_their_rate(console: Running, admin: MadeUpAdmin) -> None:
    browser = console.browser()
    token = browser.token()

    def create(number: int) -> int:
        body = {"name": f"LH.{number}"}
        return browser.post(f"{HERE}/topics", json=body, headers={"X-CSRF-Token": token}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(create, range(MOST_A_MINUTE + 10)))
    assert (statuses.count(200), statuses.count(429)) == (MOST_A_MINUTE, 10)
    assert len(admin.changes) == MOST_A_MINUTE
    assert browser.get("/topics").status_code == 200, "who only looks is not kept waiting"


def test_a_refusal_of_kafkas_names_the_users_rights(console: Running, admin: MadeUpAdmin) -> None:
    admin.forbidden = True
    browser = console.browser()
    for method, path, body in CHANGES:
        answer = browser.change(method, f"{HERE}/{path}", json=body)
        assert answer.status_code == 403, path
        assert "Kafka does not allow the console's user to" in answer.json()["detail"]
    assert {one["done"] for one in browser.get("/api/changes").json()["changes"]} == {False}


def test_on_kubernetes_topics_are_left_to_their_resources() -> None:
    with running(settings("europe", operator=True)) as console:
        admin = console.service.regions["europe"].cluster.admin = MadeUpAdmin({ORDERS: [(0, 9)]})
        browser = console.browser()
        for method, path, body in CHANGES[:3]:
            answer = browser.change(method, f"{HERE}/{path}", json=body)
            assert answer.status_code == 400, path
            assert "kubectl -n europe edit kafkatopic" in answer.json()["detail"]
        assert admin.changes == []
        method, path, body = CHANGES[3]
        assert browser.change(method, f"{HERE}/{path}", json=body).status_code == 200, "records belong to no resource"
        assert "KafkaTopic" in browser.get("/topics").text
        assert "/confirm/delete-topic" not in browser.get(f"/topics/{ORDERS}").text


def test_users_are_shown_with_their_rights(console: Running) -> None:
    browser = console.browser()
    users = {one["name"]: one for one in browser.get("/api/users").json()["users"]}
    acl = {"kind": "TOPIC", "name": "LH.*", "operations": ["DescribeConfigs", "Read"], "allows": True}
    assert users["console-europe"]["acls"] == [acl]
    assert (users["operator"]["acls"], users["operator"]["mechanisms"]) == ([], ["SCRAM-SHA-512"])
    page = browser.get("/users").text
    assert "gone&lt;b&gt;" in page
    assert "not Write" in page


def test_a_topics_page_names_who_reads_it(console: Running) -> None:
    page = console.browser().get(f"/topics/{ORDERS}").text
    assert "Consumers in europe" in page
    assert re.search(r'<td>stable</td><td class="number">1</td><td class="number">5</td>', page)
    assert "<script>document" not in page


def test_a_configuration_names_what_differs_and_hides_secrets() -> None:
    described: list[dict[str, Any]] = [
        {
            "name": "refresh.topics.interval.seconds",
            "type": "LONG",
            "default_value": "600",
            "documentation": "How often",
        },
        {"name": "topics.exclude", "type": "LIST", "default_value": "a.*,b.*", "documentation": ""},
        {"name": "emit.heartbeats.enabled", "type": "BOOLEAN", "default_value": "true"},
        {"name": "hidden", "type": "PASSWORD", "default_value": None},
    ]
    config = {
        "name": "x", "connector.class": "Y", "refresh.topics.interval.seconds": "5", "topics.exclude": "a.*, b.*",
        "hidden": "ABC", "source.cluster.sasl.jaas.config": "password=ABC", "producer.override.linger.ms": "100",
    }  # fmt: skip
    found = beside_defaults(config, described)
    assert [one.name for one in found if one.differs and one.known] == ["hidden", "refresh.topics.interval.seconds"]
    assert [one.name for one in found if one.differs and not one.known] == [
        "producer.override.linger.ms", "source.cluster.sasl.jaas.config",
    ]  # fmt: skip
    by_name = {one.name: one for one in found}
    assert (by_name["emit.heartbeats.enabled"].value, by_name["topics.exclude"].differs) == ("true", False)
    assert "ABC" not in repr(found)


def test_a_preview_is_open_to_a_script_that_only_reads(console: Running) -> None:
    reader: Browser = console.browser()
    assert reader.get(f"{HERE}/topics/{ORDERS}/deletion", params={"before": "5"}).json() == [
        {"partition": 0, "first": 0, "end": 9, "before": 5, "offsets": 5}
    ]
    for wrong in ({"before": "x"}, {"partition": "9"}, {"partition": "-1"}):
        assert reader.get(f"{HERE}/topics/{ORDERS}/deletion", params=wrong).status_code == 400
    assert reader.get(f"{HERE}/topics/LH.NONE/deletion").status_code == 400
