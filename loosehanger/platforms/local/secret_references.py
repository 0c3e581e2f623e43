"""References to keys of secrets in the settings of nodes and workers, which Kafka's own provider resolves.

So a file of settings holds no password. Manifests refer to secrets in Strimzi's way, which is for its own pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from loosehanger.lab.manifests.sign_ins import REFERENCE
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import secret_file

PROVIDER = re.compile(r"\$\{secrets:([^:}]+):")
"""A reference in settings, with the folder of the secret."""


def provider(folders: Iterable[str]) -> dict[str, str]:
    """Returns the settings of the provider, which may read these folders alone."""
    return {
        "config.providers": "secrets",
        "config.providers.secrets.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.secrets.param.allowed.paths": ",".join(sorted(folders)),
    }


def reference(region: LocalRegion, secret: str, key: str) -> str:
    """Returns a reference to a key of a secret.

    Raises:
        LabError: the secret or the key does not exist.
    """
    return f"${{secrets:{secret_file(region, secret, key).parent}:{key}}}"


def localized(region: LocalRegion, text: str) -> str:
    """Replaces the references of a manifest, ``${strimzisecrets:NAMESPACE/SECRET:KEY}``, by those of this machine.

    Raises:
        LabError: a secret or a key does not exist.
    """
    return REFERENCE.sub(lambda found: reference(region, found["secret"], found["key"]), text)
