"""Changes to resources and pods on Kubernetes, which its operators carry out, as far as a namespace's account can."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Literal

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.connectors import mistyped
from loosehanger.faults.changes.ends import End, end_region, end_user, worker_group
from loosehanger.faults.site import FaultSite
from loosehanger.lab.manifests.views import MIRROR
from loosehanger.lab.record import Region

USER = "KafkaUser"
Part = Literal["resource", "mirror", "source", "checkpoint"]
"""A part of a KafkaMirrorMaker2: its ``spec``, the entry of the site's source, or a connector of that entry."""
_CONNECTORS = {"source": "sourceConnector", "checkpoint": "checkpointConnector"}


class EditMirror(Change):
    """Changes fields of the mirror's resource."""

    part: Part = "source"
    fields: Mapping[str, Any]
    """A JSON merge patch (RFC 7386) for the part."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the patch that undoes this one; refuses a mirror without the part, or one that is so already."""
        spec = site.platforms.read_resource(_region(site), MIRROR, site.mirror.name)["spec"]
        before = _part(site, spec, self.part)
        if merged(before, self.fields) == before:
            raise WrongUseError(f"{site.mirror.id}: its resource has {dict(self.fields)} already")
        return {"made": dict(self.fields), "before": opposite(before, self.fields)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Changes them, and waits until the operator has observed it."""
        _edit(site, self.part, undo["made"])

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restores them, and waits until the mirror is ready."""
        _edit(site, self.part, undo["before"])
        site.platforms.await_resource(_region(site), MIRROR, site.mirror.name)


class MistypeDeclaredPattern(Change):
    """Changes one character of the topic pattern in the mirror's resource, so that it misses the site's topic."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the pattern, and the mistyped one."""
        spec = site.platforms.read_resource(_region(site), MIRROR, site.mirror.name)["spec"]
        pattern = str(_part(site, spec, "mirror").get("topicsPattern", ""))
        return {"before": pattern, "topics": mistyped(site, pattern)}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Writes the mistyped pattern."""
        _edit(site, "mirror", {"topicsPattern": undo["topics"]})

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Restores the pattern."""
        _edit(site, "mirror", {"topicsPattern": undo["before"]})
        site.platforms.await_resource(_region(site), MIRROR, site.mirror.name)


class DenyUser(Change):
    """Takes a right from the mirror's user, by a rule in its KafkaUser that denies it.

    The User Operator would delete a rule that is made in Kafka alone.
    """

    end: End = "source"
    resource: Literal["topic", "worker_group", "transactional_id"] = "topic"
    operation: Literal["All", "Read", "Write", "AlterConfigs", "DescribeConfigs"] = "All"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the rule and the user; refuses where the user has the rule already, or no rules at all."""
        region, user = end_region(site, self.end), end_user(site, self.end)
        rule = {"type": "deny", "resource": self._resource(site), "operations": [self.operation], "host": "*"}
        if rule in _rules(site, site.lab.region(region), user):
            raise WrongUseError(f"{region}: {USER}/{user} has the rule that denies {self.operation} already")
        return {"region": region, "user": user, "rule": rule}

    def _resource(self, site: FaultSite) -> dict[str, str]:
        if self.resource == "topic":
            name = site.topic if self.end == "source" else site.copy
            return {"type": "topic", "name": name, "patternType": "literal"}
        if self.resource == "worker_group":
            return {"type": "group", "name": worker_group(site), "patternType": "literal"}
        name = f"{worker_group(site)}-{site.mirror.connector}-"
        return {"type": "transactionalId", "name": name, "patternType": "prefix"}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Adds the rule, and waits until the operator has observed it."""
        self._write(site, undo, present=True)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Removes the rule, and waits until the user is ready."""
        self._write(site, undo, present=False)
        site.platforms.await_resource(site.lab.region(undo["region"]), USER, undo["user"])

    @staticmethod
    def _write(site: FaultSite, undo: Undo, *, present: bool) -> None:
        region = site.lab.region(undo["region"])
        rules = [rule for rule in _rules(site, region, undo["user"]) if rule != undo["rule"]]
        wanted = [*rules, undo["rule"]] if present else rules
        site.platforms.merge_resource(region, USER, undo["user"], {"spec": {"authorization": {"acls": wanted}}})


class DeletePod(Change):
    """Deletes a pod at once: a mirror's worker, or a broker at one end."""

    of: Literal["worker", "source-broker", "target-broker"] = "worker"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the first pod; refuses where the account may delete none."""
        region, kind, name = self._resource(site)
        pods = site.platforms.pods_of_resource(site.lab.region(region), kind, name)
        return {"region": region, "kind": kind, "name": name, "pod": pods[0]}

    def _resource(self, site: FaultSite) -> tuple[str, str, str]:
        if self.of == "worker":
            return site.mirror.region, MIRROR, site.mirror.name
        region = site.mirror.source if self.of == "source-broker" else site.mirror.target
        return region, "Kafka", site.lab.region(region).cluster

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes it."""
        site.platforms.delete_pod(site.lab.region(undo["region"]), undo["kind"], undo["name"], undo["pod"])

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Waits until the resource is ready."""
        site.platforms.await_resource(site.lab.region(undo["region"]), undo["kind"], undo["name"])


def merged(value: Any, patch: Any) -> Any:
    """Returns a value after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(value) if isinstance(value, Mapping) else {}
    for name, change in patch.items():
        if change is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), change)
    return found


def opposite(value: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON merge patch that undoes another one.

    Args:
        value: what the other one is applied to.
        patch: the other one.
    """
    here = value if isinstance(value, Mapping) else {}
    return {
        name: opposite(here[name], change)
        if isinstance(change, Mapping) and isinstance(here.get(name), Mapping)
        else here.get(name)
        for name, change in patch.items()
    }


def _edit(site: FaultSite, part: Part, fields: Mapping[str, Any]) -> None:
    """Changes a part of the mirror's resource; the list of sources is written whole, as a merge patch must."""
    region = _region(site)
    if part == "resource":
        site.platforms.merge_resource(region, MIRROR, site.mirror.name, {"spec": fields})
        return
    spec = copy.deepcopy(site.platforms.read_resource(region, MIRROR, site.mirror.name)["spec"])
    entry = _entry(site, spec)
    if part in _CONNECTORS:
        entry[_CONNECTORS[part]] = merged(entry.get(_CONNECTORS[part]), fields)
    else:
        entry.update(merged(entry, fields))
    site.platforms.merge_resource(region, MIRROR, site.mirror.name, {"spec": {"mirrors": spec["mirrors"]}})


def _part(site: FaultSite, spec: Mapping[str, Any], part: Part) -> Mapping[str, Any]:
    """Returns a part of a mirror's resource.

    Raises:
        WrongUseError: it has none.
    """
    if part == "resource":
        return spec
    entry = _entry(site, spec)
    if part in _CONNECTORS and _CONNECTORS[part] not in entry:
        raise WrongUseError(f"{site.mirror.id}: its resource has no {_CONNECTORS[part]}")
    found: Mapping[str, Any] = entry[_CONNECTORS[part]] if part in _CONNECTORS else entry
    return found


def _entry(site: FaultSite, spec: Mapping[str, Any]) -> dict[str, Any]:
    for entry in spec.get("mirrors") or ():
        if entry["source"]["alias"] == site.mirror.source_alias:
            found: dict[str, Any] = entry
            return found
    raise WrongUseError(f"{site.mirror.id}: its resource has no source '{site.mirror.source_alias}'")


def _rules(site: FaultSite, region: Region, user: str) -> list[dict[str, Any]]:
    """Returns the rules of a user's resource.

    Raises:
        WrongUseError: it has none: such a user may do everything, or nothing that a rule would change.
    """
    authorization = site.platforms.read_resource(region, USER, user)["spec"].get("authorization") or {}
    if not authorization.get("acls"):
        raise WrongUseError(f"{region.name}: {USER}/{user} has no rules")
    return list(authorization["acls"])


def _region(site: FaultSite) -> Region:
    return site.lab.region(site.mirror.region)
