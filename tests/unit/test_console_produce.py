"""A record that a viewer writes: only where the lab was set up for it, as it was typed, logged, and bounded."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from html import unescape
from typing import Any

import pytest

from loosehanger.console import producing
from loosehanger.console.operations import MOST_A_MINUTE
from loosehanger.errors import InconclusiveError, WrongUseError
from loosehanger.kafka import produce as module
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.produce import NewRecord, Written
from tests.consoles import HOSTILE, Running, running, settings

PATH = "/api/regions/europe/topics/LH.ORDERS/records"


class Producer:
    """Takes records as Kafka does, or answers as the test says."""

    records: list[NewRecord] = []  # noqa: RUF012 - of all
    answer: Exception | None = None
    hold: threading.Event | None = None

    def __init__(self, _: Connection, where: str, client_id: str) -> None:
        assert (where, client_id) == ("europe", "lab-console")

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def send(self, record: NewRecord) -> Written:
        if self.hold:
            self.hold.wait(60)
        if self.answer:
            raise self.answer
        Producer.records.append(record)
        return Written(record.topic, record.partition or 0, len(Producer.records) - 1, 1_700_000_000_000)


@pytest.fixture(autouse=True)
def producer(monkeypatch: pytest.MonkeyPatch) -> type[Producer]:
    monkeypatch.setattr(module, "RecordProducer", Producer)
    monkeypatch.setattr(Producer, "records", [])
    monkeypatch.setattr(Producer, "answer", None)
    monkeypatch.setattr(Producer, "hold", None)
    return Producer


@pytest.fixture(scope="module")
def console() -> Iterator[Running]:
    with running(settings("europe", "north-america", operator=True)) as found:
        yield found


def fill_in(console: Running, **fields: Any) -> Any:
    browser = console.browser()
    data = {"csrf": browser.token(), "region": "europe", "topic": "LH.ORDERS", **fields}
    # As browsers send a form with a text area.
    return browser, browser.post("/confirm/produce", files={name: (None, value) for name, value in data.items()})


def confirm(browser: Any, page: str) -> Any:
    """Presses the button of the page that asks: its form has all that was typed."""
    html = page.split('action="/produce"')[1]
    assert 'enctype="multipart/form-data"' in html.split(">", 1)[0]
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', html)
    return browser.post("/produce", files={name: (None, unescape(value)) for name, value in fields})


@pytest.mark.parametrize(
    ("fields", "record"),
    [
        ({"key": "Größe", "value": '{"a":\r\n 1}'}, NewRecord("LH.ORDERS", "Größe".encode(), b'{"a":\n 1}')),
        ({"key": "", "value": ""}, NewRecord("LH.ORDERS", b"", b"")),
        ({"key": "k", "tombstone": "true"}, NewRecord("LH.ORDERS", b"k", None)),
        ({"value": "v", "no_key": "true", "partition": " 2 "}, NewRecord("LH.ORDERS", None, b"v", (), 2)),
        (
            {"key": "k", "value": "v", "headers": "a: b: c\r\n\r\nempty:\r\n"},
            NewRecord("LH.ORDERS", b"k", b"v", (("a", b"b: c"), ("empty", b""))),
        ),
        ({"key": "k", "value": '"' * 59_000}, NewRecord("LH.ORDERS", b"k", b'"' * 59_000)),
    ],
)
def test_a_form_becomes_a_record_and_leads_to_it(
    console: Running, producer: type[Producer], fields: dict[str, str], record: NewRecord
) -> None:
    browser, asked = fill_in(console, **fields)
    assert asked.status_code == 200, asked.text
    assert producer.records == [], "to ask writes nothing"
    assert "The mirror mm2 copies it to north-america" in asked.text
    answer = confirm(browser, asked.text)
    assert answer.status_code == 303, answer.text
    assert producer.records == [record]
    place = f"region=europe&topic=LH.ORDERS&partition={record.partition or 0}&offset=0"
    assert answer.headers["location"] == f"/record?{place}"
    assert "written to partition" in browser.get("/topics").text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"no_key": "true", "tombstone": "true"}, "a record needs a key or a value"),
        ({"key": "k", "value": "v", "tombstone": "true"}, "a tombstone has no value"),
        ({"key": "k", "no_key": "true", "value": "v"}, "a record without a key has no text for it"),
        ({"key": "k", "value": "v", "partition": "-1"}, "partition: &#39;-1&#39; is not a number"),
        ({"key": "k", "value": HOSTILE, "headers": "no colon"}, "header: &#39;no colon&#39; is not a header"),
        ({"key": "k", "value": "v", "headers": "a: b\n" * 51}, "51 are too many"),
        ({"key": "k", "value": "v", "topic": "../x"}, "is not a topic&#39;s name"),
        ({"key": "k", "value": "v", "region": "nowhere"}, "this console has no region"),
    ],
)
def test_a_form_that_cannot_be_a_record_comes_back_with_the_reason(
    console: Running, producer: type[Producer], fields: dict[str, str], said: str
) -> None:
    _, answer = fill_in(console, **fields)
    assert answer.status_code == 400
    assert said in answer.text
    assert "<script>document" not in answer.text
    assert producer.records == []
    if "key" in fields:
        assert f">\n{fields['key']}</textarea>" in answer.text, "what was typed is still there"


def test_the_api_writes_the_same_and_the_log_says_where_and_not_what(
    console: Running, producer: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = console.browser()
    typed = {"key": "secret-key", "value": None, "headers": ["a: b"], "partition": 1}
    answer = browser.change("POST", PATH, json=typed)
    assert answer.json() == {
        "region": "europe", "topic": "LH.ORDERS", "partition": 1, "offset": 0, "timestamp": 1_700_000_000_000,
    }  # fmt: skip
    assert producer.records == [NewRecord("LH.ORDERS", b"secret-key", None, (("a", b"b"),), 1)]
    (latest, *_) = browser.get("/api/changes").json()["changes"]
    assert (latest["action"], latest["subject"], latest["region"], latest["done"]) == (
        "produce record", "LH.ORDERS", "europe", True,
    )  # fmt: skip
    assert "secret-key" not in json.dumps(latest)
    for error, status in ((WrongUseError("no topic"), 400), (InconclusiveError("no acknowledgement"), 504)):
        monkeypatch.setattr(producer, "answer", error)
        refused = browser.change("POST", PATH, json=typed)
        assert refused.status_code == status
        assert str(error) in refused.text
        assert browser.get("/api/changes").json()["changes"][0]["done"] is False


def test_without_the_switch_nothing_is_written_and_the_page_says_so(producer: type[Producer]) -> None:
    with running(settings("europe")) as closed:
        browser = closed.browser()
        page = browser.get("/produce").text
        assert "run ./lab setup NAME -e console_operator=true" in page
        assert "<textarea" not in page
        assert "/produce" not in browser.get("/messages").text
        assert browser.change("POST", PATH, json={"key": "k"}).status_code == 403
        _, answer = fill_in(closed, key="k")
        assert answer.status_code == 403
    assert producer.records == []


def test_forged_and_oversized_requests_write_nothing(console: Running, producer: type[Producer]) -> None:
    browser = console.browser()
    assert 'href="/produce"' in browser.get("/messages").text
    form = {"region": "europe", "topic": "LH.ORDERS", "key": "k"}
    elsewhere = {"Origin": "http://evil.example"}
    for path in ("/confirm/produce", "/produce"):
        assert browser.post(path, data=form).status_code == 403
        assert browser.post(path, data={**form, "csrf": console.browser().token()}).status_code == 403
        assert browser.post(path, data={**form, "csrf": browser.token()}, headers=elsewhere).status_code == 403
    assert browser.request("POST", PATH, json={"key": "k"}).status_code == 403
    assert console.browser(signed_in=False).post(PATH, json={"key": "k"}).status_code == 401
    assert browser.change("POST", PATH, json={"key": "k" * 70_000}).status_code == 413
    assert browser.change("POST", PATH, json={"key": "k", "headers": ["a: b"] * 51}).status_code == 422
    assert producer.records == []


def test_records_that_wait_to_be_written_are_bounded(
    console: Running, producer: type[Producer], monkeypatch: pytest.MonkeyPatch
) -> None:
    going = threading.Event()
    monkeypatch.setattr(producer, "hold", going)
    browsers = [console.browser() for _ in range(producing.MOST_WAITING + 3)]
    with ThreadPoolExecutor(len(browsers)) as threads:
        waiting = [threads.submit(one.change, "POST", PATH, json={"key": "k"}, timeout=60) for one in browsers]
        try:
            done = as_completed(waiting, timeout=60)
            refused = [next(done).result() for _ in range(2)]
        finally:
            going.set()
        statuses = sorted(one.result().status_code for one in waiting)
    assert [one.status_code for one in refused] == [503, 503], "while the others wait"
    assert statuses == [200] * (producing.MOST_WAITING + 1) + [503] * 2


def test_records_are_bounded_in_their_rate_like_other_changes(producer: type[Producer]) -> None:
    with running(settings("europe", operator=True)) as console:
        browser = console.browser()
        typed = {"key": "k", "value": "v"}
        statuses = [browser.change("POST", PATH, json=typed).status_code for _ in range(MOST_A_MINUTE + 2)]
        assert statuses == [200] * MOST_A_MINUTE + [429] * 2
        browser, asked = fill_in(console, **typed)
        answer = confirm(browser, asked.text)
        assert answer.status_code == 429
        assert "changes in a minute" in answer.text
        assert ">\nk</textarea>" in answer.text, "what was typed is still there"
        refused = browser.change("POST", "/api/regions/europe/topics", json={"name": "LH.NEW"})
        assert refused.status_code == 429, "one bound for all changes of a console"
        assert len(producer.records) == MOST_A_MINUTE
