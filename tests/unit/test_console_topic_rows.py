"""The rows of the table of topics, which are kept while nothing that they show changes."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import Environment

from loosehanger.console.models import Partition, Setting, Topic
from loosehanger.console.topic_rows import TopicRows
from tests.consoles import HOSTILE, MadeUpService, settings


def environment() -> Environment:
    """The templates of a console of two regions, with nothing rendered yet."""
    from loosehanger.console.app import create_app

    given = settings("europe", "north-america")
    found: Environment = create_app(given, MadeUpService(given)).state.context.views._environment
    return found


def topic(name: str = "LH.ORDERS", **changes: Any) -> Topic:
    partition = Partition(number=0, leader=0, replicas=[0], in_sync=[0], first_offset=0, end_offset=9, bytes=1)
    own = [Setting(name="retention.ms", value="1000", source="topic")]
    fields = {
        "region": "europe", "name": name, "partitions": [partition], "bytes": 999, "records_per_s": 1.0,
        "bytes_per_s": 1.0, "mirror": None, "settings": own, "health": "good",
    }  # fmt: skip
    return Topic.model_validate({**fields, **changes})


PARTITIONS = [
    Partition(number=number, leader=0, replicas=[0], in_sync=[0], first_offset=0, end_offset=5, bytes=1)
    for number in (0, 1)
]
CHANGES: tuple[dict[str, Any], ...] = (
    {"region": "north-america"},
    {"name": HOSTILE},
    {"partitions": PARTITIONS},
    {"partitions": PARTITIONS[:1]},
    {"bytes": 2_000_000},
    {"bytes": None},
    {"records_per_s": 7.5},
    {"records_per_s": None},
    {"mirror": "mm2"},
    {"health": "bad"},
    {"explanation": HOSTILE},
    {"settings": []},
    {"settings": [Setting(name="retention.ms", value=HOSTILE, source="topic")]},
    {"settings": [Setting(name="retention.bytes", value="1000", source="topic")]},
)


@pytest.fixture(scope="module")
def templates() -> Environment:
    return environment()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_row_shows_what_has_changed_and_the_others_stay(templates: Environment, change: dict[str, Any]) -> None:
    kept, other = TopicRows(templates), topic("LH.STOCK")
    before = kept([topic(), other])
    after = kept([topic(**change), other])
    assert after != before
    assert after == TopicRows(templates)([topic(**change), other]), "as if nothing had been kept"
    assert kept([other]) == TopicRows(templates)([other]), "a topic that is gone has no row"
    assert "<script>document" not in after


def test_a_row_that_shows_the_same_is_not_rendered_again(templates: Environment) -> None:
    kept = TopicRows(templates)
    kept([topic()])
    (row,) = kept._rows.values()
    kept([topic(records_per_s=1.01, bytes_per_s=3.0)])
    assert next(iter(kept._rows.values())) is row
