"""The rights of a console's own user in Kafka: to look, and with the switch to change, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jinja2 import Environment, StrictUndefined

from loosehanger.paths import ROOT

DEFAULTS = yaml.safe_load((ROOT / "roles/console/defaults/main.yml").read_text(encoding="utf-8"))
LOOKING = {"Read", "DescribeConfigs", "AlterConfigs"}
GROUP = ("group", "*")


def described(
    *, fenced: tuple[str, ...] = (), **changes: Any
) -> tuple[dict[tuple[str, str], set[str]], dict[str, str]]:
    """The rights of Europe's console, and the environment of the control room."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)  # noqa: S701 - as Ansible has it
    environment.filters |= {"to_json": json.dumps, "bool": lambda value: str(value).lower() in ("true", "yes")}
    region = {"cluster": "europe", "mirrors": [], "place": []}
    lab = {"scenario": "03-broadcast", "control_room": "europe", "topics": ["LH.", "europe.LH."], "fenced": fenced,
           "routes": "", "regions": {"europe": region, "north-america": region}}  # fmt: skip
    given = {**DEFAULTS, "console_control_room_port": 8081, "console_lab_home": "/lab", **changes}
    template = (ROOT / "roles/console/templates/console.yaml.j2").read_text(encoding="utf-8")
    text = environment.from_string(template).render(inventory_hostname="europe", lab=lab, **given)
    documents = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}
    rights = {
        (acl["resource"]["type"], acl["resource"].get("name", "")): set(acl["operations"])
        for acl in documents["KafkaUser", "console-europe"]["spec"]["authorization"]["acls"]
    }
    (container,) = documents["Deployment", "control-room"]["spec"]["template"]["spec"]["containers"]
    return rights, {entry["name"]: entry["value"] for entry in container["env"]}


@pytest.mark.parametrize("value", [False, "false", "no"])
def test_by_default_a_console_may_only_look_and_configure_topics(value: object) -> None:
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
    assert rights["topic", "LH."] == rights["topic", "europe.LH."] == {*LOOKING, "Write", "Delete", "Create", "Alter"}
    assert rights[GROUP] == {"Describe", "Read", "Delete"}
    assert rights["cluster", ""] == rights["transactionalId", "*"] == {"Describe"}
    assert environment["CONSOLE_OPERATOR"] == "true"


def test_on_kubernetes_topics_are_left_to_their_resources() -> None:
    rights, _ = described(console_operator=True, console_lab_home="")
    assert rights["topic", "LH."] == {*LOOKING, "Write", "Delete"}


def test_a_fence_holds_for_the_console_as_well() -> None:
    rights, _ = described(console_operator=True, fenced=("europe",))
    assert "Write" not in rights["topic", "LH."]
    rights, _ = described(console_operator=True, fenced=("north-america",))
    assert "Write" in rights["topic", "LH."]
