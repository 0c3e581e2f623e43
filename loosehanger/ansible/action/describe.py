"""Ansible action plugin: describes resources of a region. It applies nothing; ``carry_out`` does.

Options:
    template: a template of the role. Besides Ansible's variables it gets ``lab``: see ``_lab``.
    kind: which of the scenario's manifests, those of this region.
    files: files to read in place of the scenario's manifests.
    metrics: whether Kafka's own metrics are added to the Kafka and KafkaMirrorMaker2 among them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from ansible.template import trust_as_template

from loosehanger.ansible.described import FACT, described, scenario_of
from loosehanger.ansible.kit_action import KitAction
from loosehanger.lab.claims.claims import rights_judged
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import read_file
from loosehanger.lab.mirrors.mirror import routes_text
from loosehanger.lab.token_sign_ins import region_tokens
from loosehanger.lab.topology import Topology


class ActionModule(KitAction):
    """See the file's description."""

    options: ClassVar[Mapping[str, Any]] = {
        "template": {"type": "str"},
        "kind": {"type": "str"},
        "files": {"type": "list", "elements": "path", "default": []},
        "metrics": {"type": "bool", "default": False},
    }

    def act(self, parameters: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Describes."""
        new = list(self._entries(parameters, variables))
        if parameters["metrics"]:
            new = [{**entry, "metrics": True} for entry in new]
        present = (variables.get("ansible_facts") or {}).get(FACT) or []
        return {"changed": False, "ansible_facts": {FACT: [*present, *new]}}

    def _entries(self, parameters: Mapping[str, Any], variables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if name := parameters["template"]:
            yield {
                "source": f"roles/{self._task._role.get_name()}/templates/{name}",
                "content": self._render(name, variables),
            }
        for file in parameters["files"]:
            yield {"source": os.path.relpath(file), "content": read_file(Path(file))}
        if parameters["kind"] and not parameters["files"]:
            yield {"kind": parameters["kind"]}

    def _render(self, name: str, variables: Mapping[str, Any]) -> str:
        path = self._find_needle("templates", name)
        text = trust_as_template(self._loader.get_text_file_contents(path))
        known = {**variables, "lab": _lab(variables, with_regions=bool(_OF_REGIONS.search(text)))}
        templar = self._templar.copy_with_new_env(searchpath=[str(Path(path).parent)], available_variables=known)
        return str(templar.template(text, escape_backslashes=False, overrides={"trim_blocks": True}))


_OF_REGIONS = re.compile(r"\blab(\.(routes|regions)\b|\[)")
"""Finds a template that uses what was described before: reading all of that takes longer than the template."""


def _lab(variables: Mapping[str, Any], *, with_regions: bool) -> dict[str, Any]:
    """The variables that templates have of the scenario, and of the resources described before them.

    ``scenario`` (its name), ``control_room`` (a region), ``topics`` (what their names begin with), ``fenced`` (the
    regions that any stage fences), ``judges_rights`` (the regions whose ACLs a claim covers), ``routes`` (where
    mirrors take topics, as text), and ``regions``: those with a cluster, and for each its cluster's name, the type of
    the users that sign in there (empty for rights only), the mirrors that run there, and its place on the map.
    """
    scenario, stage = scenario_of(variables)
    known = {
        "scenario": scenario.name if scenario else "",
        "control_room": scenario.control_room if scenario else "",
        "topics": list(scenario.topics) if scenario else [],
        "fenced": sorted({region for one in scenario.stages.values() for region in one.fenced}) if scenario else [],
        "judges_rights": sorted(rights_judged(scenario.claims)) if scenario else [],
    }
    if not with_regions:
        return known
    documents = described(variables, scenario, stage)
    topology = Topology(document for region in documents.values() for document in region)
    return known | {
        "routes": routes_text(topology.mirrors),
        "regions": {
            region: {
                "cluster": topology.clusters(region)[0],
                "user_type": sign_ins.type_for(topology.first_listener(region), region_tokens(topology, region)),
                "mirrors": list(dict.fromkeys(mirror.name for mirror in topology.mirrors if mirror.region == region)),
                "place": variables["hostvars"].get(region, {}).get("region_place") or [],
            }
            for region in topology.regions
            if topology.clusters(region)
        },
    }
