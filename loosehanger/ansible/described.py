"""The resources that roles have described so far: kept as facts of each host, and read back as documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import context

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.manifests.metrics import with_metrics
from loosehanger.lab.manifests.older_api import refuse_older_api
from loosehanger.lab.manifests.views import USER
from loosehanger.lab.plan import Plan, plan_stage
from loosehanger.lab.record import recorded_documents
from loosehanger.lab.scenario import FILE, MIRROR, Scenario, read_scenario

FACT = "lab_described"
"""A list: files, each with ``source`` and ``content``, and kinds of the scenario's manifests, each as ``kind``; with
``metrics`` where Kafka's own metrics are added to them."""
_BESIDE = {MIRROR: ("ConfigMap",), USER: ("Secret",)}
"""What else a role describes: a mirror's settings of metrics and logs, and what users show to an identity provider."""
Variables = Mapping[str, Any]


def scenario_of(variables: Variables) -> tuple[Scenario | None, str]:
    """The scenario whose playbook is running, and its stage, which has the playbook's name; None for other playbooks.

    Raises:
        WrongUseError: its ``scenario.yaml`` cannot be used, or has no such stage.
    """
    folder = Path(variables["playbook_dir"])
    if not (folder / FILE).is_file():
        return None, ""
    scenario = read_scenario(folder.name, folder.parent)
    stage = Path(context.CLIARGS["args"][0]).stem
    scenario.stage(stage)
    return scenario, stage


def described(variables: Variables, scenario: Scenario | None, stage: str) -> dict[str, list[Document]]:
    """The resources that the roles have described, by region.

    Raises:
        WrongUseError: a file cannot be used, or holds a resource of another region.
    """
    manifests = scenario.manifests(stage) if scenario else []
    return {
        str(host): list(_documents(str(host), facts[FACT], manifests))
        for host, of_host in variables["hostvars"].items()
        if FACT in (facts := of_host.get("ansible_facts") or {})
    }


def _documents(host: str, entries: list[dict[str, Any]], manifests: list[Document]) -> Iterator[Document]:
    measured: list[Document] = []
    for entry in entries:
        found = _of_entry(host, entry, manifests)
        if entry.get("metrics"):
            measured += found
        else:
            yield from found
    # Together: mirrors of several files share one ConfigMap.
    yield from with_metrics(measured)


def _of_entry(host: str, entry: Mapping[str, Any], manifests: list[Document]) -> Iterator[Document]:
    if "content" not in entry:
        kinds = (entry["kind"], *_BESIDE.get(entry["kind"], ()))
        yield from (m for m in manifests if m.kind in kinds and m.namespace == host)
        return
    for document in read_resources(entry["source"], entry["content"]):
        refuse_older_api(document)
        if document.namespace != host:
            raise WrongUseError(
                f"{document.where('metadata', 'namespace')}: '{document.namespace}' is not the region's namespace "
                f"'{host}'"
            )
        yield document


def plans(variables: Variables, home: Path, *, fits: bool = True) -> dict[str, Plan]:
    """The plan of each region.

    Args:
        variables: the task's.
        home: the lab's home, with the record of each region.
        fits: whether the resources must fit together.

    Raises:
        WrongUseError: what was described cannot be used, or does not fit together.
    """
    scenario, stage = scenario_of(variables)
    recorded = {str(host): recorded_documents(home, host) for host in variables["hostvars"]}
    return plan_stage(described(variables, scenario, stage), recorded, scenario, stage, fits=fits)
