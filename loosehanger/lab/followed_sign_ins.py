"""Users and mirrors that sign in as the cluster's listener asks, whatever their manifests say.

The manifests of a scenario have the kit's usual sign-in. Where a variable replaces a cluster by one with another, such
as the old cluster of a migration, they follow it: one text describes both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MIRROR, USER, MirrorMaker
from loosehanger.lab.topology import Topology

_TYPES = {sign_ins.SCRAM_256: "scram-sha-256", sign_ins.PLAIN: "plain"}
"""The type of a mirror's end that signs in as a user with rights only, by its mechanism."""


class Following:
    """What follows the sign-in of some regions' clusters.

    Args:
        regions: the regions.
        resources: those that are described, and those that were applied before; of two clusters with one name the first
            counts.
    """

    def __init__(self, regions: Collection[str], resources: Iterable[Iterable[Document]]) -> None:
        clusters: dict[tuple[str, str], Document] = {}
        for document in (one for some in resources for one in some):
            if document.kind == "Kafka" and document.namespace in regions:
                clusters.setdefault((document.namespace, document.name), document)
        self._topology = Topology(clusters.values())
        self._types = {region: _type_at(self._topology.first_listener(region)) for region in regions}

    def of(self, documents: Iterable[Document]) -> list[Document]:
        """Returns resources, with the users and the mirrors' ends at these clusters changed to follow them."""
        return [self._followed(document) if any(self._types.values()) else document for document in documents]

    def _followed(self, document: Document) -> Document:
        content = deepcopy(document.content)
        if document.kind == USER and self._types.get(document.namespace):
            if sign_ins.user_type(content) == "scram-sha-512":
                # Rights only: its credentials are for what the listener offers.
                content = {**content, "spec": {k: v for k, v in content["spec"].items() if k != "authentication"}}
        elif document.kind == MIRROR:
            for end, _ in MirrorMaker(content).ends:
                _follow(end, self._topology.listener(str(end.get("bootstrapServers", ""))) or {})
        return document if content == document.content else replace(document, content=content)


def _type_at(listener: Mapping[str, Any]) -> str:
    """Returns the type of a mirror's end at a listener that has no SCRAM-SHA-512, and another password; else empty."""
    offered = sign_ins.mechanisms(listener)
    if sign_ins.SCRAM_512 in offered:
        return ""
    return next((kind for mechanism, kind in _TYPES.items() if mechanism in offered), "")


def _follow(end: Any, listener: Mapping[str, Any]) -> None:
    """Changes an end of a mirror to sign in as a listener asks."""
    authentication, kind = end.get("authentication") or {}, _type_at(listener)
    if kind and authentication.get("type") == "scram-sha-512":
        end["authentication"] = {**authentication, "type": kind}
        if not listener.get("tls"):
            end.pop("tls", None)
