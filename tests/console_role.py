"""The role console rendered without Ansible: the rights of a console's own user, and its settings."""

from __future__ import annotations

import json
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from loosehanger.paths import ROOT

DEFAULTS = yaml.safe_load((ROOT / "roles/console/defaults/main.yml").read_text(encoding="utf-8"))


def text(*, fenced: tuple[str, ...] = (), **changes: Any) -> str:
    """What the role describes in Europe, which has the control room."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)  # noqa: S701 - as Ansible has it
    environment.filters |= {"to_json": json.dumps, "bool": lambda value: str(value).lower() in ("true", "yes")}
    region = {"cluster": "europe", "user_type": "scram-sha-512", "mirrors": [], "place": []}
    lab = {"scenario": "03-broadcast", "control_room": "europe", "topics": ["LH.", "europe.LH."], "fenced": fenced,
           "routes": "", "regions": {"europe": region, "north-america": region}}  # fmt: skip
    hosts = {"europe": {"console_port": 8080}, "north-america": {"console_port": 8090}}
    given = {**DEFAULTS, "hostvars": hosts, "console_control_room_port": 8081, "console_lab_home": "/lab", **changes}
    template = (ROOT / "roles/console/templates/console.yaml.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(inventory_hostname="europe", lab=lab, **given)


def described(
    *, fenced: tuple[str, ...] = (), **changes: Any
) -> tuple[dict[tuple[str, str], set[str]], dict[str, str]]:
    """The rights of Europe's console, and the environment of the control room."""
    found = yaml.safe_load_all(text(fenced=fenced, **changes))
    documents = {(one["kind"], one["metadata"]["name"]): one for one in found}
    rights = {
        (acl["resource"]["type"], acl["resource"].get("name", "")): set(acl["operations"])
        for acl in documents["KafkaUser", "console-europe"]["spec"]["authorization"]["acls"]
    }
    (container,) = documents["Deployment", "control-room"]["spec"]["template"]["spec"]["containers"]
    return rights, {entry["name"]: entry["value"] for entry in container["env"]}
