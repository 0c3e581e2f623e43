"""Service names: what DNS does in a Kubernetes cluster, a table does here.

A name such as ``europe-kafka-bootstrap.europe.svc:9098`` is entered by the region that offers it and resolved for the
region that asks for it. All regions are on one machine, so the answer is the same for everybody.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from .errors import PlatformError
from .region import Region, write_file

_SERVICE = re.compile(r"\b[a-z0-9][a-z0-9-]*\.[a-z0-9][a-z0-9-]*\.svc(?:\.cluster\.local)?:\d+\b")


def offer(region: Region, owner: str, services: dict[str, list[str]]) -> bool:
    """Enters the services of a resource: name with port → addresses. True when the table changed.

    Args:
        region: where they are.
        owner: what the names of the resource's services begin with; others' stay.
        services: all that it offers; empty when it is deleted.
    """
    path = _table(region.home, region.name)
    present: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {name: addresses for name, addresses in present.items() if not name.startswith(owner)}
    return write_file(path, json.dumps(kept | services, indent=1, sort_keys=True))


def resolve(region: Region, text: str) -> str:
    """Replaces every service name in a text by its addresses, as seen from a region.

    Raises:
        PlatformError: nobody offers that service.
    """

    def addresses(match: re.Match[str]) -> str:
        name = match[0].replace(".svc.cluster.local:", ".svc:")
        offered = offers(region.home)
        if name not in offered:
            known = ", ".join(sorted(offered)) or "none"
            raise PlatformError(f"{region.name}: nobody offers the service {name}; offered are: {known}")
        return ",".join(offered[name])

    return _SERVICE.sub(addresses, text)


def offers(home: Path) -> dict[str, list[str]]:
    """Every service that any region offers."""
    table: dict[str, list[str]] = {}
    for path in (home / "regions").glob("*/services.json"):
        table |= json.loads(path.read_text(encoding="utf-8"))
    return table


def _table(home: Path, region: str) -> Path:
    return home / "regions" / region / "services.json"
