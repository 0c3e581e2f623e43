"""The rights of a console's own user in Kafka: to look, and with the switch to change, and no more."""

from __future__ import annotations

import pytest

from tests.console_role import described

LOOKING = {"Read", "DescribeConfigs"}
CHANGING = LOOKING | {"Write", "Delete"}
GROUP = ("group", "*")


@pytest.mark.parametrize("value", [False, "false", "no"])
def test_by_default_a_console_may_only_look(value: object) -> None:
    rights, environment = described(console_operator=value)
    assert rights == {
        ("topic", "LH."): LOOKING,
        ("topic", "europe.LH."): LOOKING,
        GROUP: {"Describe"},
        ("transactionalId", "*"): {"Describe"},
        ("cluster", ""): {"Describe"},
    }
    assert "CONSOLE_OPERATOR" not in environment


@pytest.mark.parametrize("value", [True, "true"])
def test_the_switch_widens_the_rights_on_the_scenarios_topics_and_on_groups_only(value: object) -> None:
    rights, environment = described(console_operator=value)
    assert rights["topic", "LH."] == rights["topic", "europe.LH."] == {*CHANGING, "AlterConfigs", "Create", "Alter"}
    assert rights[GROUP] == {"Describe", "Read", "Delete"}
    assert rights["cluster", ""] == rights["transactionalId", "*"] == {"Describe"}
    assert environment["CONSOLE_OPERATOR"] == "true"


def test_on_kubernetes_topics_are_left_to_their_resources() -> None:
    rights, _ = described(console_operator=True, console_lab_home="")
    assert rights["topic", "LH."] == CHANGING


def test_a_fence_holds_for_the_console_as_well() -> None:
    rights, _ = described(console_operator=True, fenced=("europe",))
    assert "Write" not in rights["topic", "LH."]
    rights, _ = described(console_operator=True, fenced=("north-america",))
    assert "Write" in rights["topic", "LH."]


def test_where_each_console_has_a_port_they_know_of_each_other() -> None:
    _, variables = described(console_lab_home="")
    assert variables["CONSOLE_NEIGHBOURS"] == "europe=http://127.0.0.1:8080,north-america=http://127.0.0.1:8090"
    _, variables = described(console_lab_home="", console_certificate_secret="tls")
    assert variables["CONSOLE_NEIGHBOURS"].startswith("europe=https://")
    for elsewhere in ({"console_lab_home": "/lab"}, {"console_lab_home": "", "console_hosts": ["room.example.org"]}):
        _, variables = described(**elsewhere)
        assert "CONSOLE_NEIGHBOURS" not in variables
