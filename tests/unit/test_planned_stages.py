"""What every stage of every scenario plans, against a stored file: a change of the planner must not change it unseen.

``LH_WRITE_GOLDEN=1 pytest tests/unit/test_planned_stages.py`` writes the file anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from loosehanger.lab.access import listed_rules
from loosehanger.lab.actions import (
    CopySecrets,
    Decommission,
    Delete,
    DeleteCopies,
    DrainMirrors,
    Kill,
    ResetMirrorOffsets,
    SalvageRecords,
    SeedGroupOffsets,
    SnapshotMirrors,
    Wipe,
)
from loosehanger.lab.claims.claims import rights_judged
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.plan import Plan, Step, plan_stage, steps
from loosehanger.lab.scenario import MIRROR, Scenario, read_scenario, scenario_names
from loosehanger.lab.topology import Topology
from loosehanger.paths import ROOT

from ..topologies import documents, program

GOLDEN = Path(__file__).parent / "golden" / "stages.json"
REGIONS = ("europe", "north-america", "south-america", "asia-pacific")
Plans = Mapping[str, Plan]


@pytest.mark.parametrize("name", scenario_names())
def test_every_stage_plans_what_is_stored(name: str) -> None:
    planned = sorted(line for line in lines(read_scenario(name)))
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("LH_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(dict(sorted({**stored, name: planned}.items())), indent=0) + "\n")
    else:
        assert planned == stored.get(name), f"{name} plans something else; is it meant? See this file's description"


def test_the_prover_may_read_the_acls_that_a_claim_covers_and_no_others() -> None:
    scenario = read_scenario("12-hybrid")

    def clusters_of(region: str) -> set[str]:
        own = listed_rules(Topology(of_role({"role": "kafka_cluster"}, region, scenario, [])), region)
        return {rule.text for rule in own if (rule.principal, rule.kind) == ("User:prover", "CLUSTER")}

    assert clusters_of("europe") == {"Allow Describe on cluster kafka-cluster for User:prover"}
    assert clusters_of("north-america") == set()


def lines(scenario: Scenario) -> Iterator[str]:
    """Each stage after each stage that it may follow, and run a second time: one line for each fact of its plan."""
    seen: set[str] = set()
    for before, name, new, planned in walked(scenario):
        yield from (f"{name} after {before}: {fact}" for fact in facts(planned))
        if name not in seen:
            seen.add(name)
            yield from (f"{name} again: {fact}" for fact in facts(plan_stage(new, recorded(planned), scenario, name)))


def walked(scenario: Scenario) -> Iterator[tuple[str, str, dict[str, list[Document]], Plans]]:
    """Each stage after each stage that it may follow: the one before, its name, what is described, and its plans."""
    # A stage goes on from the first way that leads to the one before it.
    reached: dict[str, Plans] = {"nothing": {}}
    ways = [(before, name) for name, stage in scenario.stages.items() for before in stage.after or ("nothing",)]
    while ways:
        before, name = next(way for way in ways if way[0] in reached)
        ways.remove((before, name))
        new = described(scenario, name)
        planned = plan_stage(new, recorded(reached[before]), scenario, name)
        yield before, name, new, planned
        reached.setdefault(name, planned)


def recorded(plans: Plans) -> dict[str, tuple[Document, ...]]:
    """What the record has of each region of the inventory once a stage is reached."""
    return {region: plans[region].documents if region in plans else () for region in REGIONS}


def facts(plans: Plans) -> Iterator[str]:
    """What the plans of a stage come to."""
    yield f"steps: {' '.join(steps(plans))}"
    for region, plan in plans.items():
        yield f"{region}: steps: {' '.join(step for step in Step if plan.has(step))}"
        for step in Step:
            deletions = [action for action in plan.actions[step] if isinstance(action, Delete)]
            deleted = [document for action in deletions for document in action.documents]
            for verb, documents_ in (("apply", plan.applied(step)), ("delete", deleted)):
                if documents_:
                    yield f"{region}: {step}: {verb}: {' '.join(shown(document) for document in documents_)}"
        copies = [copy for action in plan.every(CopySecrets) for copy in action.copies]
        wipes, seeds = plan.every(Wipe), plan.every(SeedGroupOffsets)
        named = {
            "drain": [name for action in plan.every(DrainMirrors) for name in action.drains],
            "settle": [name for action in plan.every(DrainMirrors) for name in action.settles],
            "snapshot": [mirror.id for action in plan.every(SnapshotMirrors) for mirror in action.mirrors],
            "reset": [mirror.id for action in plan.every(ResetMirrorOffsets) for mirror in action.mirrors],
            "rescue": [mirror.id for action in plan.every(SalvageRecords) for mirror in action.mirrors],
            "seed": [f"{one.group}@{one.cluster_region}" for action in seeds for one in action.starts],
            "stay": [f"{one.group}@{one.cluster_region}" for action in seeds for one in action.stays],
            "copy": [f"{copy.origin}/{copy.name}={copy.as_name}" for copy in copies],
            "return": [f"{copy.origin}/{copy.name}={copy.as_name}" for action in wipes for copy in action.returns],
            "leftover": [name for action in plan.every(DeleteCopies) for name in action.names],
            "kept": [name for action in wipes for name in action.kept],
            "is": [
                *(word for word, kind in KINDS.items() if plan.every(kind)),
                *("deleted" for action in plan.every(Kill) if action.deletes_data),
            ],
        }
        yield from (f"{region}: {what}: {' '.join(sorted(of))}" for what, of in named.items() if of)


KINDS = {"lost": Kill, "wiped": Wipe, "gone": Decommission}


def shown(document: Document) -> str:
    """A resource, with what a stage changes of one."""
    spec = document.content.get("spec") or {}
    if document.kind == MIRROR:
        states = [mirror.get(part, {}).get("state", "running")[0] for mirror in spec["mirrors"] for part in CONNECTORS]
        return f"{document.reference}({''.join(states)})"
    return f"{document.reference}({spec['replicas']})" if "replicas" in spec else document.reference


CONNECTORS = ("sourceConnector", "checkpointConnector")


def described(scenario: Scenario, stage: str) -> dict[str, list[Document]]:
    """What the roles of a stage's playbook describe, by region."""
    manifests = scenario.manifests(stage)
    found: dict[str, list[Document]] = {region: [] for region in REGIONS}
    for play in variables(scenario.folder / f"{stage}.yaml"):
        words = play["hosts"].split(":")
        for region in REGIONS if words == ["regions"] else words:
            for role in play.get("roles", ()):
                found[region] += of_role(
                    role if isinstance(role, dict) else {"role": role}, region, scenario, manifests
                )
    return {region: of_region for region, of_region in found.items() if of_region}


def of_role(role: Mapping[str, Any], region: str, scenario: Scenario, manifests: list[Document]) -> list[Document]:
    """What one role describes in a region."""
    name = role["role"]
    kinds = {"kafka_users": ("KafkaUser",), "mirror_maker": (MIRROR, "ConfigMap"), "carry_out": ()}
    if name in kinds:
        return [document for document in manifests if document.kind in kinds[name] and document.namespace == region]
    if name == "console":
        # Its template asks for what has been described before it.
        made = program(region, region, f"{region}-cluster-ca-cert", name="console")
        made["spec"]["template"]["spec"]["containers"][0]["env"] += [{"name": "CONSOLE_NAME", "value": "console"}]
        return documents(made)
    folder = ROOT / "roles" / name
    known = {**variables(folder / "defaults" / "main.yml"), "inventory_hostname": region}
    judges_rights = sorted(rights_judged(scenario.claims))
    known["lab"] = {
        "control_room": scenario.control_room, "topics": scenario.topics, "judges_rights": judges_rights,
    }  # fmt: skip
    of_regions = variables(ROOT / "inventories" / "local" / "regions.yaml")["regions"]
    known |= {**of_regions["vars"], **of_regions["hosts"][region]}
    known |= {key: value for key, value in role.items() if key != "role"}
    (template,) = (folder / "templates").iterdir()
    templar = Templar(loader=DataLoader(), variables=known)
    overrides = {"trim_blocks": True}
    text = templar.template(trust_as_template(template.read_text()), escape_backslashes=False, overrides=overrides)
    return read_resources(template.name, str(text))


@cache
def variables(path: Path) -> Any:
    """The content of a file of variables, or of a playbook, whose templates are trusted."""
    found: Any = DataLoader().load_from_file(str(path), trusted_as_template=True)
    return found
