"""The settings of the nodes' listeners by which clients sign in, the same as Strimzi's for the same manifest."""

from __future__ import annotations

from pathlib import Path

from loosehanger.kafka.properties import (
    OAUTH_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    LoginModule,
    format_jaas,
)
from loosehanger.lab.manifests import sign_ins
from loosehanger.lab.manifests.resources import CertificateAuthority, Listener, as_text
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_references import PROVIDER, localized, reference
from loosehanger.platforms.local.secret_store import read_secret

_MODULES = {sign_ins.PLAIN: PLAIN_LOGIN_MODULE, sign_ins.OAUTH: OAUTH_LOGIN_MODULE}


class ListenerSettings:
    """How the clients of a region's cluster sign in.

    Args:
        region: the region.
        cluster: the name of the cluster.
        listener: its listener.
    """

    def __init__(self, region: LocalRegion, cluster: str, listener: Listener) -> None:
        self._region = region
        self._cluster = cluster
        self._listener = listener
        self.content = listener.content
        """The listener in its manifest's form, for ``sign_ins``."""

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self._listener.tls

    @property
    def asks_certificates(self) -> bool:
        """Whether clients show certificates of their own."""
        return sign_ins.asks_certificate(self.content)

    @property
    def security_protocol(self) -> str:
        """As in Kafka."""
        return sign_ins.security_protocol(self.content)

    def ensure_authority(self, settings: CertificateAuthority) -> bool:
        """Creates or renews the authority of users with certificates, where there are any; True when it did.

        Raises:
            LabError: it does not exist, and the manifest does not let the kit create it.
        """
        from loosehanger.platforms.local import certificates  # slow to import

        generate = settings.generate_certificate_authority
        days = settings.validity_days, settings.renewal_days
        return self.asks_certificates and certificates.ensure_authority(
            self._region, self._cluster, *days, generate=generate, of="clients"
        )

    def offers(self, mechanism: str) -> bool:
        """Whether clients may sign in by a SASL mechanism."""
        return mechanism in sign_ins.mechanisms(self.content)

    def settings(self) -> dict[str, str]:
        """Returns the settings of SASL, without the prefix of a listener; none where it is not used.

        Raises:
            LabError: they refer to a secret that does not exist.
        """
        offered = sign_ins.mechanisms(self.content)
        if not offered:
            return {}
        settings = {sign_ins.ENABLED: ",".join(offered)}
        for mechanism in offered:
            module = LoginModule(_MODULES.get(mechanism, SCRAM_LOGIN_MODULE), {})
            if mechanism == sign_ins.PLAIN:
                users = {f"user_{name}": reference(self._region, name, "password") for name in self.plain_users()}
                module = LoginModule(PLAIN_LOGIN_MODULE, users)
            settings[f"{mechanism.lower()}.sasl.jaas.config"] = format_jaas(module)
        return settings | {key: localized(self._region, value) for key, value in self._own.items()}

    def plain_users(self) -> list[str]:
        """Returns the users whose passwords are in the nodes' settings: Kafka keeps those of PLAIN nowhere else."""
        if not self.offers(sign_ins.PLAIN) or sign_ins.PLAIN_USERS in self._own:
            return []
        return [
            user["metadata"]["name"]
            for user in self._region.resources("KafkaUser")
            if user["metadata"]["labels"]["strimzi.io/cluster"] == self._cluster and not sign_ins.user_type(user)
        ]

    def secrets(self) -> set[str]:
        """Returns the folders of the secrets that the settings refer to."""
        return set(PROVIDER.findall(" ".join(self.settings().values())))

    def credentials(self) -> list[bytes]:
        """Returns what is in these secrets, which nodes read once, at their start."""
        return [
            value
            for folder in sorted(self.secrets())
            for value in read_secret(self._region, Path(folder).name).values()
        ]

    @property
    def _own(self) -> dict[str, str]:
        authentication = self._listener.authentication
        return {key: as_text(value) for key, value in authentication.listener_config.items()} if authentication else {}
