"""The two ends of a mirror, from its manifest: regions, users and worker group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from loosehanger.errors import WrongUseError
from loosehanger.faults.site import FaultSite
from loosehanger.lab.manifests.views import MIRROR, MirrorMaker
from loosehanger.lab.mirrors.mirror import Mirror

End = Literal["source", "target"]
"""An end of a mirror."""


def end_region(site: FaultSite, end: End) -> str:
    """Returns the region of the cluster at an end."""
    return site.mirror.source if end == "source" else site.mirror.target


def end_user(site: FaultSite, end: End) -> str:
    """Returns the user that the mirror signs in as at an end.

    Raises:
        WrongUseError: its manifest names none.
    """
    manifest = _manifest(site, site.mirror)
    if end == "target":
        found: Mapping[str, Any] = manifest.target
    else:
        sources = (entry.get("source") or {} for entry in manifest.mirrors)
        found = next((source for source in sources if source.get("alias") == site.mirror.source_alias), {})
    if user := (found.get("authentication") or {}).get("username"):
        return str(user)
    raise WrongUseError(f"{site.mirror.id}: its manifest names no user for its {end}")


def worker_group(site: FaultSite) -> str:
    """Returns the ``group.id`` of the mirror's workers."""
    return str(_manifest(site, site.mirror).target["groupId"])


def offsets_topic(site: FaultSite, mirror: Mirror) -> str:
    """Returns the topic at a mirror's target in which Connect keeps its positions."""
    return str(_manifest(site, mirror).target["offsetStorageTopic"])


def _manifest(site: FaultSite, mirror: Mirror) -> MirrorMaker:
    documents = site.lab.topology.of_kind(MIRROR, mirror.region)
    return MirrorMaker(next(one.content for one in documents if one.name == mirror.name))
