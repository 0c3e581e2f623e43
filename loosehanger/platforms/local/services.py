"""Service names: a table in place of a Kubernetes cluster's DNS.

A region enters names such as ``west-kafka-bootstrap.west.svc:9098``. Within the region a name resolves to the ports of
the service, and in any other region to the ports of the link.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.lab.topology import short_address
from loosehanger.platforms.local.region import LocalRegion

_FILE = "services.json"
_SERVICE = re.compile(r"\b[a-z0-9][a-z0-9-]*\.[a-z0-9][a-z0-9-]*\.svc(?:\.cluster\.local)?:\d+\b")


@dataclass(frozen=True)
class ServiceAddresses:
    """The addresses of a service: in its own region, and from each other region with a link to it."""

    here: list[str]
    elsewhere: dict[str, list[str]] = field(default_factory=dict)

    def addresses(self, region: str) -> list[str]:
        """Returns the addresses as seen from a region."""
        return self.elsewhere.get(region, self.here)


def offer(region: LocalRegion, owner: str, services: dict[str, ServiceAddresses]) -> bool:
    """Enters the services of a resource, by name and port; True when the table changed.

    Args:
        region: the region.
        owner: the prefix of the resource's service names; other names stay.
        services: all services of the resource; empty when it is deleted.
    """
    path = _table(region.home, region.name)
    kept = {name: service for name, service in _read(path).items() if not name.startswith(owner)}
    table = {name: asdict(service) for name, service in (kept | services).items()}
    return write_file(path, json.dumps(table, indent=1, sort_keys=True))


def resolve(region: LocalRegion, text: str) -> str:
    """Replaces every service name in a text by its addresses, as seen from a region.

    Raises:
        LabError: no region has that service.
    """

    def addresses(match: re.Match[str]) -> str:
        name = short_address(match[0])
        offered = offers(region.home)
        if name not in offered:
            known = ", ".join(sorted(offered)) or "none"
            raise LabError(f"{region.name}: no region has the service {name}; the services are: {known}")
        return ",".join(offered[name].addresses(region.name))

    return _SERVICE.sub(addresses, text)


def offers(home: Path) -> dict[str, ServiceAddresses]:
    """Returns the services of all regions."""
    table: dict[str, ServiceAddresses] = {}
    for path in (*(home / "access").glob(f"*/{_FILE}"), *(home / "regions").glob(f"*/{_FILE}")):
        table |= _read(path)
    return table


def remember(region: LocalRegion) -> None:
    """Keeps the service names of a region before its folder is deleted; they still resolve, and nothing answers."""
    if (path := _table(region.home, region.name)).exists():
        write_file(region.home / "access" / region.name / _FILE, path.read_text(encoding="utf-8"))


def _table(home: Path, region: str) -> Path:
    return home / "regions" / region / _FILE


def _read(table: Path) -> dict[str, ServiceAddresses]:
    found = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    return {name: ServiceAddresses(**service) for name, service in found.items()}
