"""What a mirror's users need, and what is said of a right that was taken away."""

from __future__ import annotations

from typing import Any

import pytest

from loosehanger.acls import AclRule, NeededRight, missing
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.access import listed_rules
from loosehanger.lab.manifests.resources import as_text
from loosehanger.lab.mirrors.access import at_source, at_target, judged_topics, missing_rights, of_workers, user_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import named_topics, selected_topics
from loosehanger.lab.scenario import MIRROR

from .test_scenario_rights import EVENTS, OF_TENANT, flows, topology


def ends(scenario: str, mirror: Mirror) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """A mirror's source, its target, and its source connector's configuration, as its manifest has them."""
    spec = next(
        found.content["spec"]
        for found in topology(scenario).of_kind(MIRROR, mirror.region)
        if found.name == mirror.name
    )
    entry = next(found for found in spec["mirrors"] if found["source"]["alias"] == mirror.source_alias)
    config = {name: as_text(value) for name, value in entry["sourceConnector"]["config"].items()}
    return entry["source"], spec["target"], config


@pytest.mark.parametrize(("scenario", "mirror"), list(flows()))
def test_no_mirror_of_the_kits_lacks_a_right_and_one_that_is_taken_away_is_named(scenario: str, mirror: Mirror) -> None:
    source, target, config = ends(scenario, mirror)
    topics = selected_topics(mirror, [f"{EVENTS}ORDERS", f"{OF_TENANT}ORDERS", *named_topics(mirror)])[:1]
    reads, writes = (end["authentication"]["username"] for end in (source, target))
    needed = at_source(mirror, topics, config)
    given = listed_rules(topology(scenario), mirror.source)
    assert missing(given, reads, needed) == []
    at_the_target = [*of_workers(target, [mirror.connector]), *at_target(mirror, topics, config)]
    assert missing(listed_rules(topology(scenario), mirror.target), writes, at_the_target) == []
    without = [rule for rule in given if rule.operation != "READ"]
    said = missing_rights(mirror.source, reads, missing(without, reads, needed))
    assert said.startswith(f"user {reads} lacks in {mirror.source}: Read on topic {topics[0]}")


def test_what_a_rule_covers() -> None:
    read = NeededRight("TOPIC", "LH.A", "READ")
    allow = AclRule("User:m", "TOPIC", "LH.", prefix=True, operation="READ", allows=True)
    assert missing([allow], "m", [read]) == []
    assert missing([allow], "other", [read]) == [read]
    assert missing([allow], "m", [NeededRight("GROUP", "LH.A", "READ")]) != []
    assert missing([allow._replace(prefix=False)], "m", [read]) == [read]
    assert missing([allow._replace(name="*", prefix=False)], "m", [read]) == []
    assert missing([allow._replace(principal="User:*", operation="ALL")], "m", [read]) == []
    assert missing([allow], "m", [read._replace(operation="DESCRIBE")]) == [], "who may read may describe"
    deny = allow._replace(allows=False, name="LH.A", prefix=False)
    assert missing([allow, deny], "m", [read]) == [read], "what is denied is not allowed"
    assert missing([allow, deny], "m", [read._replace(name="LH.B")]) == []


def test_what_is_said_of_missing_rights() -> None:
    assert missing_rights("europe", "m", []) == ""
    many = [NeededRight("TOPIC", f"T{number}", "DESCRIBE_CONFIGS") for number in range(9)]
    assert missing_rights("europe", "m", many) == (
        "user m lacks in europe: DescribeConfigs on topic T0, DescribeConfigs on topic T1, DescribeConfigs on topic T2 "
        "and 6 more"
    )
    assert NeededRight("TRANSACTIONAL_ID", "x", "WRITE").text == "Write on transactional id x"


def test_a_right_that_was_never_given_is_not_missed() -> None:
    assert judged_topics({"LH.A", "LH.SECRET"}, {"LH.A", "gone"}) == ["LH.A"]
    assert judged_topics({"LH.A", "LH.B"}, set()) == ["LH.A", "LH.B"]


@pytest.mark.parametrize(
    ("jaas", "user"),
    [
        ('org.x.ScramLoginModule required username="mm2-europe" password="${secrets:/x:y}";', "mm2-europe"),
        ("org.x.ScramLoginModule required password='p' username='m';", "m"),
        ("", ""),
    ],
)
def test_the_user_of_a_connector_is_in_its_configuration(jaas: str, user: str) -> None:
    assert user_of({"source.cluster.sasl.jaas.config": jaas}, "source") == user


def test_writers_are_all_who_may_write_any_of_the_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [
        AclRule("User:plain", "TOPIC", "LH.ORDERS", False, "WRITE", True),
        AclRule("User:prefix", "TOPIC", "LH.", True, "ALL", True),
        AclRule("User:every", "TOPIC", "*", False, "WRITE", True),
        AclRule("User:*", "TOPIC", "LH.STOCK", False, "WRITE", True),
        AclRule("User:other", "TOPIC", "LH.ORDERS.MORE", False, "WRITE", True),
        AclRule("User:reader", "TOPIC", "LH.ORDERS", False, "READ", True),
        AclRule("User:alter", "TOPIC", "LH.ORDERS", False, "ALTER", True),
        AclRule("User:group", "GROUP", "LH.ORDERS", False, "ALL", True),
        AclRule("User:denied", "TOPIC", "LH.ORDERS", False, "WRITE", False),
    ]
    monkeypatch.setattr(Cluster, "rules", lambda _: rules)
    looker = Cluster.__new__(Cluster)  # without a cluster, which is asked for its rules only
    assert looker.writers(iter(["LH.ORDERS", "LH.STOCK"])) == ["*", "every", "plain", "prefix"]
    assert looker.writers(["PAYMENTS"]) == ["every"]
