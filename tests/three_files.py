"""A scenario of three files, which nothing else in the kit knows."""

from __future__ import annotations

from pathlib import Path

import yaml

from loosehanger.paths import ROOT

NAME = "99-three-files"
SCENARIO = """\
---
title: Three files
teaches: What a scenario of its own takes.
control_room: europe
topics: [LH., europe.LH.]
stages:
  setup: {}
"""
SETUP = """\
---
- name: Two clusters, with their users
  hosts: europe:north-america
  roles: [kafka_cluster, kafka_users]

- name: Events are written in Europe
  hosts: europe
  roles: [kafka_topics, producer]

- name: A mirror beside its target
  hosts: north-america
  roles: [mirror_maker]

- name: Everybody looks
  hosts: europe:north-america
  roles: [console]

- name: Check all of it, and carry it out
  hosts: regions
  any_errors_fatal: true
  roles: [carry_out]
"""


def resources() -> str:
    """A mirror with the default policy, and its users, in one file."""
    found = []
    for path in sorted((ROOT / "molecule" / "carry_out" / "one-mirror" / "manifests").glob("*.yaml")):
        found += list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    kept = [document for document in found if document["metadata"]["name"] != "consumer-northamerica"]
    for document in kept:
        if document["kind"] == "KafkaMirrorMaker2":
            (mirror,) = document["spec"]["mirrors"]
            for connector in ("sourceConnector", "checkpointConnector"):
                mirror.get(connector, {}).get("config", {}).pop("replication.policy.class", None)
        elif document["metadata"]["name"] == "mm2-writes":
            for acl in document["spec"]["authorization"]["acls"]:
                if acl["resource"].get("name") == "LH.":
                    acl["resource"]["name"] = "europe.LH."
    return yaml.safe_dump_all(kept, explicit_start=True, sort_keys=False)


def write_scenario(kit: Path) -> None:
    """Puts the scenario into a copy of the kit."""
    folder = kit / "playbooks" / NAME
    (folder / "manifests").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    (folder / "setup.yaml").write_text(SETUP, encoding="utf-8")
    (folder / "manifests" / "everything.yaml").write_text(resources(), encoding="utf-8")
