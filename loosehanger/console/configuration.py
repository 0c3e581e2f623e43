"""A connector's configuration beside the defaults of its plugin, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from loosehanger.console.operation_models import ConnectorConfiguration, ConnectorSetting
from loosehanger.console.region_views import UnknownError
from loosehanger.console.service import Service
from loosehanger.errors import UnreachableError

if TYPE_CHECKING:
    from loosehanger.kafka.connect import ConnectClient

SECRET = re.compile(r"password|secret|jaas|token|credential|api\.?key|private", re.IGNORECASE)
"""Names of settings whose values are secret, whatever their plugin says of them."""
PLUGIN_SETTINGS = frozenset({"name", "connector.class"})
"""Settings that say which connector it is, and have no meaningful default."""


async def configuration_of(service: Service, region: str, mirror: str, connector: str) -> ConnectorConfiguration:
    """A connector's configuration, those settings first that differ from MirrorMaker 2's defaults.

    Raises:
        UnknownError: there is no such region, mirror or connector.
        UnreachableError: Connect does not answer.
    """
    mirrors = service.region(region).mirrors
    if mirror not in mirrors:
        raise UnknownError(f"{region} has no mirror '{mirror}'; it has: {', '.join(mirrors) or 'none'}")
    if closed := service.closed(region, mirror):
        raise UnreachableError(closed)

    def ask(rest: ConnectClient) -> tuple[dict[str, str], list[dict[str, Any]]]:
        found = rest.connectors()
        if connector not in found:
            raise UnknownError(f"{region}: {mirror} has no connector '{connector}'; it has: {', '.join(found)}")
        config: dict[str, str] = found[connector]["info"]["config"]
        return config, rest.described_settings(config.get("connector.class", ""))

    config, described = await mirrors[mirror].ask(ask)
    return ConnectorConfiguration(
        region=region,
        mirror=mirror,
        connector=connector,
        kind=config.get("connector.class", "").rpartition(".")[2],
        settings=beside_defaults(config, described),
    )


def beside_defaults(config: Mapping[str, str], described: Iterable[Mapping[str, Any]]) -> list[ConnectorSetting]:
    """The settings of a connector, and those that it leaves to their defaults.

    Args:
        config: what is set.
        described: the settings that its plugin describes, as Connect's REST interface returns them.
    """
    known = {str(one["name"]): one for one in described}
    settings = []
    for name in {*config, *known}:
        of = known.get(name, {})
        secret = of.get("type") == "PASSWORD" or SECRET.search(name) is not None
        default = None if secret or of.get("default_value") is None else str(of["default_value"])
        value = config.get(name, default)
        settings.append(
            ConnectorSetting(
                name=name,
                value=None if secret else value,
                default=default,
                known=bool(of),
                differs=name in config and name not in PLUGIN_SETTINGS and not _equal(config[name], default),
                documentation=str(of.get("documentation") or ""),
            )
        )
    return sorted(settings, key=lambda one: (not one.differs, not one.known, one.name))


def _equal(value: str, default: str | None) -> bool:
    """Whether a value is the default: lists may have blanks after their commas."""
    return default is not None and [word.strip() for word in value.split(",")] == [
        word.strip() for word in default.split(",")
    ]
