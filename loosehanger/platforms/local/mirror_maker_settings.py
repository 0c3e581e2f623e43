"""The settings of a KafkaMirrorMaker2's Connect workers and connectors.

The properties are those that Strimzi's operator generates from the same fields. Passwords stay in their secrets:
workers and connectors hold references, which Kafka's own DirectoryConfigProvider resolves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.kafka.properties import format_properties
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.resources import (
    KafkaMirrorMaker2,
    MirrorConnector,
    MirrorEntry,
    MirrorSource,
    TrustedCertificate,
    as_text,
)
from loosehanger.lab.manifests.sign_ins import SignIn
from loosehanger.platforms.client_properties import jaas_of
from loosehanger.platforms.local import services
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_references import PROVIDER, localized, provider, reference
from loosehanger.platforms.local.secret_store import read_secret
from loosehanger.ports import LOOPBACK

BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension"
"""The package of the plug-in that asks callers of Connect's REST interface for a password."""
_PACKAGE = "org.apache.kafka.connect.mirror"
_CIPHERS, _OF_TLS_1_3 = "listeners.https.ssl.cipher.suites", "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256"
_NEEDS_CIPHERS = "4.2.0"
"""The release whose workers end with a NullPointerException where a REST listener with TLS names no cipher suites."""
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


class MirrorMakerSettings:
    """The settings of a region's KafkaMirrorMaker2.

    Args:
        region: the region.
        resource: the resource.
    """

    def __init__(self, region: LocalRegion, resource: KafkaMirrorMaker2) -> None:
        self.region = region
        self.resource = resource
        self.folder = region.folder / "connect" / resource.metadata.name
        self.rest_secret = f"{resource.metadata.name}-connect"
        """The name of the secret with the password of Connect's REST interface."""

    @property
    def ends(self) -> list[MirrorSource]:
        """The target and the sources."""
        return [self.resource.spec.target, *(mirror.source for mirror in self.resource.spec.mirrors)]

    def worker(self, port: int) -> str:
        """Returns the properties of a worker that listens on a port."""
        target = self.resource.spec.target
        connection = self._connection(target)
        stores = self.region.secrets / f"{self.rest_secret}-certs"
        store_password = f"${{secrets:{self._store_password}:store.password}}"
        properties = {
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "header.converter": _BYTES,
            **{key: as_text(value) for key, value in target.config.items()},
            "bootstrap.servers": services.resolve(self.region, target.bootstrap_servers),
            "group.id": target.group_id,
            "config.storage.topic": target.config_storage_topic,
            "offset.storage.topic": target.offset_storage_topic,
            "status.storage.topic": target.status_storage_topic,
            # Kafka's own plug-ins are all on the class path, so workers need not scan for them.
            "plugin.path": str(self.folder / "plugins"),
            "plugin.discovery": "service_load",
            # A caller of the REST interface can read everything this provider can: so only these few secrets.
            **provider({str(self._store_password), *self._secrets()}),
            **connection,
            **{f"{client}.{k}": v for client in ("producer", "consumer", "admin") for k, v in connection.items()},
            "listeners": f"https://{LOOPBACK}:{port}",
            "rest.advertised.host.name": LOOPBACK,
            "rest.advertised.port": str(port),
            "rest.advertised.listener": "https",
            "rest.extension.classes": f"{BASIC_AUTH}.BasicAuthSecurityRestExtension",
            # The REST server, unlike Kafka's clients, does not support PEM.
            "listeners.https.ssl.keystore.type": "PKCS12",
            "listeners.https.ssl.keystore.location": str(stores / "keystore.p12"),
            "listeners.https.ssl.keystore.password": store_password,
            "listeners.https.ssl.key.password": store_password,
            "listeners.https.ssl.truststore.type": "PKCS12",
            "listeners.https.ssl.truststore.location": str(stores / "truststore.p12"),
            "listeners.https.ssl.truststore.password": store_password,
            "listeners.https.ssl.client.auth": "none",
            **({_CIPHERS: _OF_TLS_1_3} if self.resource.spec.version == _NEEDS_CIPHERS else {}),
        }
        return format_properties(properties)

    def _secrets(self) -> list[str]:
        """The folders of the secrets by which the workers sign in."""
        return [folder for end in self.ends for folder in PROVIDER.findall(" ".join(self._connection(end).values()))]

    def certificates(self) -> list[bytes]:
        """Returns the certificates that the workers show, which they read at their start."""
        pairs = [end.authentication.certificate_and_key for end in self.ends if end.authentication]
        return [read_secret(self.region, pair.secret_name)[pair.certificate] for pair in pairs if pair]

    @property
    def _store_password(self) -> Path:
        """The folder with the password of the REST interface's key store, separate from the key store."""
        return self.region.secrets / f"{self.rest_secret}-store"

    def _connection(self, end: MirrorSource) -> dict[str, str]:
        """How the workers sign in at an end, with references to secrets in place of what is secret."""
        sign_in = sign_ins.of_end(end.content)
        settings = {"security.protocol": sign_in.security_protocol, **self._credentials(end, sign_in)}
        if sign_in.is_encrypted:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trust_file(end))}
        return settings

    def _credentials(self, end: MirrorSource, sign_in: SignIn) -> dict[str, str]:
        authentication = end.authentication
        if authentication is None:
            return {}
        if secret := authentication.password_secret:
            password = reference(self.region, secret.secret_name, secret.password)
            jaas = jaas_of(sign_in.mechanism, authentication.username or "", password)
            return {"sasl.mechanism": sign_in.mechanism, "sasl.jaas.config": jaas}
        if pair := authentication.certificate_and_key:
            return {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": reference(self.region, pair.secret_name, pair.certificate),
                "ssl.keystore.key": reference(self.region, pair.secret_name, pair.key),
            }
        return {key: localized(self.region, as_text(value)) for key, value in authentication.config.items()}

    def connectors(self) -> dict[str, dict[str, str]]:
        """Returns the configuration of each connector, by name."""
        spec = self.resource.spec
        configurations = {}
        for mirror in spec.mirrors:
            ends = {
                f"{end}.cluster.{key}": value
                for end, cluster in (("target", spec.target), ("source", mirror.source))
                for key, value in {
                    "alias": cluster.alias,
                    "bootstrap.servers": services.resolve(self.region, cluster.bootstrap_servers),
                    **{key: as_text(value) for key, value in cluster.config.items()},
                    **self._connection(cluster),
                }.items()
            }
            for name, connector in connectors_of(mirror).items():
                full_name = f"{mirror.source.alias}->{spec.target.alias}.{name}"
                configurations[full_name] = {
                    **ends,
                    **{key: as_text(value) for key, value in connector.config.items()},
                    **patterns(mirror, checkpoint=name == "MirrorCheckpointConnector"),
                    "name": full_name,
                    "connector.class": f"{_PACKAGE}.{name}",
                    "tasks.max": str(connector.tasks_max or 1),
                }
        return configurations

    def states(self) -> dict[str, str]:
        """Returns the desired state of each connector: RUNNING, PAUSED or STOPPED."""
        return {
            f"{mirror.source.alias}->{self.resource.spec.target.alias}.{name}": connector.state.upper()
            for mirror in self.resource.spec.mirrors
            for name, connector in connectors_of(mirror).items()
        }

    def restarts(self) -> dict[str, Any]:
        """Returns how often each connector that restarts automatically may do so, by name."""
        return {
            f"{mirror.source.alias}->{self.resource.spec.target.alias}.{name}": connector.auto_restart.max_restarts
            for mirror in self.resource.spec.mirrors
            for name, connector in connectors_of(mirror).items()
            if connector.auto_restart and connector.auto_restart.enabled
        }

    def write_trust(self) -> list[bytes]:
        """Writes the certificates that each end's are checked with; returns the files' contents."""
        contents = []
        for end in self.ends:
            trusted = end.tls.trusted_certificates if end.tls else ()
            contents.append(b"".join(map(self._trusted, trusted)))
            write_file(self.trust_file(end), contents[-1])
        return contents

    def trust_file(self, end: MirrorSource) -> Path:
        """Returns the file with the certificates that an end's are checked with."""
        return self.folder / f"trust-{end.alias}.pem"

    def _trusted(self, trusted: TrustedCertificate) -> bytes:
        keys = read_secret(self.region, trusted.secret_name)
        pattern = trusted.pattern or trusted.certificate or ""
        chosen = [value for key, value in keys.items() if Path(key).match(pattern)]
        if not chosen:
            raise LabError(
                f"{self.region.name}: {self.resource.reference}: secret '{trusted.secret_name}' has no key '{pattern}'"
            )
        return b"".join(chosen)


def connectors_of(mirror: MirrorEntry) -> dict[str, Any]:
    """Returns the connectors that a mirror declares, by class name; an empty block declares one."""
    declared: dict[str, MirrorConnector | None] = {
        "MirrorSourceConnector": mirror.source_connector,
        "MirrorCheckpointConnector": mirror.checkpoint_connector,
    }
    return {name: connector for name, connector in declared.items() if connector is not None}


def patterns(mirror: MirrorEntry, *, checkpoint: bool) -> dict[str, str]:
    """Returns the connector settings for a mirror's patterns."""
    settings = {"topics": mirror.topics_pattern, "topics.exclude": mirror.topics_exclude_pattern}
    if checkpoint:
        settings |= {"groups": mirror.groups_pattern, "groups.exclude": mirror.groups_exclude_pattern}
    return {key: value for key, value in settings.items() if value is not None}
