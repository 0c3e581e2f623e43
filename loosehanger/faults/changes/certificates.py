"""Changes to the certificate that a cluster shows to a mirror that runs in another region."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.site import FaultSite
from loosehanger.files import write_file
from loosehanger.kafka.properties import read_properties
from loosehanger.waiting import wait_for

_DAY = datetime.timedelta(days=1)
SHOWN_S = 60
"""Seconds until a node shows the certificate that it was given."""
_ANSWER_S = 5.0
_KEY_STORE = "fault-keystore.pem"
"""The key store of the fault, beside a node's own properties."""


class ReplaceCertificate(Change):
    """Replaces the certificate of the listener by which another region's mirror reaches a cluster, without a restart.

    Names and subject stay. Connections that are open continue: add ``reset_connections``, or wait until they close.
    """

    defect: Literal["expired", "unknown_authority"]
    """``unknown_authority``: a renewed authority with another key, which the mirror was not given. One that was
    announced (the secret ``<cluster>-next-ca``) signs in its place; a mirror that trusts it already does not notice."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the nodes' listener; refuses a mirror both of whose ends are in its own region."""
        mirror = site.mirror
        region = next((end for end in (mirror.source, mirror.target) if end != mirror.region), None)
        cluster = site.lab.region(region).cluster if region else ""
        folder = site.home / "regions" / str(region) / "kafka" / cluster
        nodes = sorted(path.parent for path in folder.glob("*/server.properties")) if cluster else []
        setting = f"listener.name.link-{mirror.region}.ssl.keystore.location"
        if not nodes or any(setting not in read_properties(node / "server.properties") for node in nodes):
            raise WrongUseError(f"{mirror.id}: no other region's cluster on this machine has a listener for it")
        return {"region": region, "setting": setting, "nodes": {node.name: str(node) for node in nodes}}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Writes a key store for each node, and has the node load it."""
        secrets, cluster = site.home / "regions" / undo["region"] / "secrets", _cluster(site, undo)
        announced = secrets / f"{cluster}-next-ca"
        authority = None
        if self.defect == "expired":
            authority = (secrets / f"{cluster}-cluster-ca" / "ca.key").read_bytes()
        elif announced.is_dir():
            authority = (announced / "ca.key").read_bytes() + (announced / "ca.crt").read_bytes()
        wanted = {}
        for node, folder in undo["nodes"].items():
            own = Path(read_properties(Path(folder, "server.properties"))[undo["setting"]]).read_bytes()
            store = Path(folder, _KEY_STORE)
            write_file(store, defective(own, authority, self.defect))
            wanted[node] = str(store)
        _load(site, undo, wanted)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Has each node load its own key store again, and deletes the fault's."""
        _load(site, undo, dict.fromkeys(undo["nodes"]))
        for folder in undo["nodes"].values():
            Path(folder, _KEY_STORE).unlink(missing_ok=True)


def defective(store: bytes, authority: bytes | None, defect: Literal["expired", "unknown_authority"]) -> bytes:
    """Returns a key store for the same names, whose certificate clients refuse.

    Args:
        store: the PEM key store: key, certificate, and the authority's certificate.
        authority: the key that signs, in PEM; with ``unknown_authority`` followed by the certificate of its authority,
            or None for an authority of the same name that is made for this and forgotten.
        defect: ``expired`` for a certificate that ended yesterday.
    """
    key = serialization.load_pem_private_key(store, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    own, issuer = x509.load_pem_x509_certificates(store)
    now = datetime.datetime.now(datetime.UTC)
    end = now - _DAY if defect == "expired" else now + 365 * _DAY
    if authority is None:
        signer = ec.generate_private_key(ec.SECP256R1())
        issuer = _signed(issuer, signer, signer.public_key(), end)
    else:
        loaded = serialization.load_pem_private_key(authority, password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
        if defect == "unknown_authority":
            issuer = x509.load_pem_x509_certificate(authority)
    certificate = _signed(own, signer, key.public_key(), end)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + b"".join(one.public_bytes(serialization.Encoding.PEM) for one in (certificate, issuer))


def _signed(
    like: x509.Certificate,
    signer: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    end: datetime.datetime,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(like.subject)
        .issuer_name(like.issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - 400 * _DAY)
        .not_valid_after(end)
    )
    for extension in like.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(public)
        elif isinstance(value, x509.AuthorityKeyIdentifier):
            value = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        builder = builder.add_extension(value, extension.critical)
    return builder.sign(signer, hashes.SHA256())


def _cluster(site: FaultSite, undo: Undo) -> str:
    return site.lab.region(undo["region"]).cluster


def _load(site: FaultSite, undo: Undo, stores: Mapping[str, str | None]) -> None:
    """Has nodes load key stores by a dynamic setting; None removes the setting, so that the static one holds."""
    with (
        granted(site, undo["region"], "CLUSTER", "kafka-cluster", "ALTER_CONFIGS"),
        site.admin(undo["region"]) as admin,
    ):
        for node, store in stores.items():
            change = (AlterConfigOp.DELETE, None) if store is None else (AlterConfigOp.SET, store)
            resource = ConfigResource(ConfigResourceType.BROKER, node, {undo["setting"]: change})
            result = admin.alter_configs([resource], raise_on_unknown=False)["broker"][node]
            if result != "OK":
                raise LabError(f"{undo['region']}: node {node} does not load the certificate: {result}")
    # A node loads it some time after it has answered; until then clients are shown the one before.
    for node, store in stores.items():
        properties = read_properties(Path(undo["nodes"][node], "server.properties"))
        wanted = x509.load_pem_x509_certificates(Path(store or properties[undo["setting"]]).read_bytes())[0]
        address = _address(properties["listeners"], undo["setting"])
        wait_for(partial(_shows_another, address, wanted), SHOWN_S, f"{undo['region']}: the certificate of node {node}")


def _address(listeners: str, setting: str) -> tuple[str, int]:
    """Returns where the listener of a setting such as ``listener.name.external.ssl.keystore.location`` listens."""
    name = setting.split(".")[2]
    found = next(one for one in listeners.split(",") if one.partition("://")[0].strip().lower() == name)
    host, _, port = found.partition("://")[2].rpartition(":")
    return host, int(port)


def _shows_another(address: tuple[str, int], wanted: x509.Certificate) -> str | None:
    try:
        shown = ssl.get_server_certificate(address, timeout=_ANSWER_S)
    except OSError as error:
        return f"no TLS connection: {error}"
    return None if x509.load_pem_x509_certificate(shown.encode()) == wanted else "it shows another one"
