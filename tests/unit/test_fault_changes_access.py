"""Changes to rights, passwords, certificates and links: what they do, and that healing undoes just that."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from kafka.admin import ACL, AlterConfigOp, ConfigResource, UserScramCredentialUpsertion

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.certificates import ReplaceCertificate
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.credentials import ChangePassword
from loosehanger.faults.changes.links import DisturbLink, ResetConnections
from loosehanger.faults.changes.rights import RevokeRight
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.links import ask, link_state
from loosehanger.lab.record import Lab, Region
from loosehanger.platforms import registry
from loosehanger.platforms.local import certificates
from loosehanger.platforms.local.region import LocalRegion

from .test_relay import Link
from .test_scenario_rights import topology

MIRROR = next(mirror for mirror in topology("03-broadcast").mirrors if mirror.target == "north-america")
TOPIC = "LH.ORDERS"


class Cluster:
    """The part of a cluster that these changes touch, with kafka-python's methods."""

    def __init__(self) -> None:
        self.rules: list[ACL] = []
        self.passwords: dict[str, UserScramCredentialUpsertion] = {}
        self.settings: dict[str, dict[str, str]] = {}

    def describe_acls(self, wanted: ACL) -> tuple[list[ACL], object]:
        return [rule for rule in self.rules if rule == wanted], None

    def create_acls(self, rules: Sequence[ACL]) -> dict[str, list[object]]:
        self.rules.extend(rules)
        return {"succeeded": [*rules], "failed": []}

    def delete_acls(self, wanted: Sequence[ACL]) -> None:
        self.rules = [rule for rule in self.rules if rule not in wanted]

    def alter_user_scram_credentials(self, changes: Sequence[UserScramCredentialUpsertion]) -> dict[str, object]:
        self.passwords |= {change.user: change for change in changes}
        return {change.user: None for change in changes}

    def alter_configs(self, resources: Sequence[ConfigResource], raise_on_unknown: bool) -> dict[str, dict[str, str]]:
        assert not raise_on_unknown
        # The administrator has this right only as long as a change needs it.
        assert [(rule.principal, rule.operation.name) for rule in self.rules] == [("User:admin", "ALTER_CONFIGS")]
        for resource in resources:
            settings = self.settings.setdefault(resource.name, {})
            for name, (operation, value) in resource.configs.items():
                if operation is AlterConfigOp.SET:
                    settings[name] = value
                else:
                    settings.pop(name, None)
        return {"broker": {resource.name: "OK" for resource in resources}}


class Site(FaultSite):
    """The broadcast's mirror to North America, with clusters that are not real."""

    clusters: dict[str, Cluster]

    @contextlib.contextmanager
    def admin(self, region: str) -> Iterator[Any]:
        yield self.clusters[region]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Its users have the password ``right``."""
    regions = {}
    for name in ("europe", "north-america", "south-america"):
        clients = {}
        for user in topology("03-broadcast").users(name):
            clients[user] = tmp_path / f"{name}-{user}.properties"
            clients[user].write_text(
                "bootstrap.servers=127.0.0.1:9\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{user}" password="right";\n'
            )
        regions[name] = Region(name, name, clients, {}, ())
    lab = Lab("03-broadcast", "local", "", regions, topology=topology("03-broadcast"))
    made = Site(lab, tmp_path, MIRROR, TOPIC, registry)
    object.__setattr__(made, "clusters", {name: Cluster() for name in regions})
    return made


def injected(change: Change, site: FaultSite) -> Undo:
    """Prepares and injects a change; returns what healing needs."""
    undo = change.prepare(site)
    change.inject(site, undo)
    return undo


@pytest.mark.parametrize(
    ("settings", "region", "principal", "kind", "name", "pattern", "operation"),
    [
        ({}, "europe", "User:mm2-europe", "TOPIC", TOPIC, "LITERAL", "ALL"),
        (
            {"end": "target", "operation": "write"},
            *("north-america", "User:mm2-northamerica", "TOPIC", TOPIC, "LITERAL", "WRITE"),
        ),
        (
            {"end": "target", "resource": "worker_group"},
            *("north-america", "User:mm2-northamerica", "GROUP", "mm2-na", "LITERAL", "ALL"),
        ),
        (
            {"end": "target", "resource": "transactional_id"},
            *("north-america", "User:mm2-northamerica", "TRANSACTIONAL_ID"),
            *("mm2-na-europe->northamerica.MirrorSourceConnector-", "PREFIXED", "ALL"),
        ),
    ],
)
def test_a_right_is_denied_by_one_rule_and_given_back(
    site: Site,
    settings: dict[str, Any],
    region: str,
    principal: str,
    kind: str,
    name: str,
    pattern: str,
    operation: str,
) -> None:
    change = RevokeRight.model_validate(settings)
    undo = change.prepare(site)
    assert not site.clusters[region].rules  # preparing changes nothing
    change.heal(site, undo)  # and one that was never injected is healed
    change.inject(site, undo)
    (rule,) = site.clusters[region].rules
    resource = rule.resource_pattern
    assert (rule.principal, rule.permission_type.name, rule.operation.name) == (principal, "DENY", operation)
    assert (resource.resource_type.name, resource.resource_name, resource.pattern_type.name) == (kind, name, pattern)
    with pytest.raises(WrongUseError, match="denied"):
        change.prepare(site)
    for _ in range(2):
        change.heal(site, undo)
        assert not site.clusters[region].rules


def test_a_right_that_the_mirror_does_not_use_cannot_be_taken_away(site: Site) -> None:
    with pytest.raises(WrongUseError, match="does not use its worker group at its source"):
        RevokeRight(resource="worker_group").prepare(site)


def opens(credential: UserScramCredentialUpsertion, password: str) -> bool:
    """Whether a password is the one that a cluster was given the salted form of."""
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), credential.salt, credential.iterations)
    return bool(salted == credential.salted_password)


@pytest.mark.parametrize(
    ("end", "region", "user"), [("source", "europe", "mm2-europe"), ("target", "north-america", "mm2-northamerica")]
)
def test_a_password_is_changed_in_the_cluster_only(site: Site, end: str, region: str, user: str) -> None:
    change = ChangePassword.model_validate({"end": end})
    undo = injected(change, site)
    assert "right" not in str(undo)
    assert not opens(site.clusters[region].passwords[user], "right")
    change.heal(site, undo)
    assert opens(site.clusters[region].passwords[user], "right")


def test_a_user_without_scram_has_no_password_to_change(site: Site) -> None:
    path = site.lab.region("europe").clients["mm2-europe"]
    path.write_text(path.read_text().replace("SCRAM-SHA-512", "PLAIN").replace("scram.Scram", "plain.Plain"))
    with pytest.raises(WrongUseError, match="mm2-europe does not sign in with SCRAM-SHA-512"):
        ChangePassword().prepare(site)


@pytest.fixture
def node(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Writes the folder of Europe's node, with a certificate and the listener for North America.

    Returns:
        The stores that the node has shown; it shows a new one at the second look only.
    """
    region = LocalRegion(site.home, site.home, "europe", 0)
    certificates.ensure_authority(region, "europe", 365)
    certificates.ensure_certificate(region, "europe", "europe-kafka-0", "europe-kafka", ["europe-kafka-bootstrap"], 365)
    folder = region.folder / "kafka" / "europe" / "0"
    folder.mkdir(parents=True)
    store = region.secrets / "europe-kafka-0" / "keystore.pem"
    setting = "listener.name.link-north-america.ssl.keystore.location"
    listeners = "TLS-9098://127.0.0.1:1,LINK-NORTH-AMERICA://127.0.0.1:9199"
    (folder / "server.properties").write_text(f"{setting}={store}\nlisteners={listeners}\n")
    loading, shown = [str(store)], []

    def look(address: tuple[str, int], timeout: float) -> str:
        assert address == ("127.0.0.1", 9199)
        assert timeout
        shown.append(loading[-1])
        loading.append(site.clusters["europe"].settings["0"].get(setting, str(store)))
        return x509.load_pem_x509_certificates(Path(shown[-1]).read_bytes())[0].public_bytes(Encoding.PEM).decode()

    monkeypatch.setattr("ssl.get_server_certificate", look)
    return shown


@pytest.mark.parametrize("defect", ["expired", "unknown_authority"])
def test_a_node_loads_another_certificate_and_its_own_again(site: Site, node: list[str], defect: str) -> None:
    change = ReplaceCertificate.model_validate({"defect": defect})
    undo = change.prepare(site)
    change.heal(site, undo)
    change.inject(site, undo)
    assert node[-2:] == [node[0], str(Path(undo["nodes"]["0"], "fault-keystore.pem"))], "it waits until it is shown"
    ((setting, store),) = site.clusters["europe"].settings["0"].items()
    assert setting == "listener.name.link-north-america.ssl.keystore.location"
    secrets = site.home / "regions" / "europe" / "secrets"
    own, _ = x509.load_pem_x509_certificates((secrets / "europe-kafka-0" / "keystore.pem").read_bytes())
    shown, authority = x509.load_pem_x509_certificates(Path(store).read_bytes())
    assert Path(store).stat().st_mode & 0o077 == 0
    assert (shown.subject, shown.public_key()) == (own.subject, own.public_key())
    names = x509.SubjectAlternativeName
    assert shown.extensions.get_extension_for_class(names) == own.extensions.get_extension_for_class(names)
    shown.verify_directly_issued_by(authority)
    trusted = x509.load_pem_x509_certificate((secrets / "europe-cluster-ca-cert" / "ca.crt").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    if defect == "expired":
        shown.verify_directly_issued_by(trusted)
        assert shown.not_valid_after_utc < now
    else:
        assert authority.subject == trusted.subject
        assert authority.public_key() != trusted.public_key()
        assert shown.not_valid_before_utc < now < shown.not_valid_after_utc
    for _ in range(2):
        change.heal(site, undo)
        assert site.clusters["europe"].settings["0"] == {}
        assert site.clusters["europe"].rules == []
        assert not Path(store).exists()


def test_who_trusts_an_announced_authority_does_not_notice_its_change(site: Site, node: list[str]) -> None:
    region = LocalRegion(site.home, site.home, "europe", 0)
    announced = certificates.announce_authority(region, "europe")
    change = ReplaceCertificate(defect="unknown_authority")
    change.inject(site, change.prepare(site))
    assert node
    ((_, store),) = site.clusters["europe"].settings["0"].items()
    shown, authority = x509.load_pem_x509_certificates(Path(store).read_bytes())
    assert authority == announced
    shown.verify_directly_issued_by(announced)
    expired = ReplaceCertificate(defect="expired")
    expired.inject(site, expired.prepare(site))
    shown, authority = x509.load_pem_x509_certificates(Path(store).read_bytes())
    shown.verify_directly_issued_by(authority)
    assert authority != announced


def test_a_mirror_without_a_listener_of_another_region_keeps_its_certificate(site: Site) -> None:
    with pytest.raises(WrongUseError, match="no other region's cluster on this machine"):
        ReplaceCertificate(defect="expired").prepare(site)


@pytest.fixture
def link(site: Site) -> Iterator[Link]:
    """A real relay between the mirror's ends, with a delay of its own one way."""
    folder = site.home / "regions" / "europe" / "links" / "north-america"
    folder.mkdir(parents=True)
    start = {"europe>north-america": {"delay": 0.04, "jitter": 0.01, "rate": 0.0, "silent": False}}
    made = Link(folder, 9, start, ("europe", "north-america"))
    try:
        yield made
    finally:
        made.close()


def ways(folder: Path) -> dict[str, tuple[float, float, float, bool]]:
    """Delay, jitter, rate and silence of each direction, by where it leads."""
    return {way["to"]: (way["delay"], way["jitter"], way["rate"], way["silent"]) for way in ask(folder)["directions"]}


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize(
    ("settings", "state", "expected"),
    [
        ({"delay": 0.3}, "open", {"north-america": (0.3, 0.01, 0, False), "europe": (0.3, 0, 0, False)}),
        ({"rate": 20000}, "open", {"north-america": (0.04, 0.01, 20000, False), "europe": (0, 0, 20000, False)}),
        ({"action": "cut"}, "cut", {"north-america": (0.04, 0.01, 0, False), "europe": (0, 0, 0, False)}),
        ({"action": "silent"}, "silent", {"north-america": (0.04, 0.01, 0, True), "europe": (0, 0, 0, True)}),
        (
            {"action": "silent", "towards": "target"},
            "silent to north-america",
            {"north-america": (0.04, 0.01, 0, True), "europe": (0, 0, 0, False)},
        ),
        (
            {"action": "silent", "towards": "source"},
            "silent to europe",
            {"north-america": (0.04, 0.01, 0, False), "europe": (0, 0, 0, True)},
        ),
    ],
)
def test_a_link_is_disturbed_and_restored(
    site: Site, settings: dict[str, Any], state: str, expected: dict[str, tuple[float, float, float, bool]]
) -> None:
    folder = site.relay()
    change = DisturbLink.model_validate(settings)
    before = ways(folder)
    undo = change.prepare(site)
    change.heal(site, undo)
    assert ways(folder) == before
    change.inject(site, undo)
    assert (link_state(ask(folder)), ways(folder)) == (state, expected)
    if state != "open":
        for refused in (change, ResetConnections()):
            with pytest.raises(WrongUseError, match=r"already; run \./lab link"):
                refused.prepare(site)
    for _ in range(2):
        change.heal(site, undo)
        assert (link_state(ask(folder)), ways(folder)) == ("open", before)


@pytest.mark.usefixtures("link")
def test_what_a_link_cannot_be_is_refused_before_anything_changes(site: Site) -> None:
    with pytest.raises(WrongUseError, match="jitter"):
        DisturbLink(delay=0.001).prepare(site)


def test_without_a_link_there_is_nothing_to_disturb(site: Site) -> None:
    with pytest.raises(WrongUseError, match="no link between europe and north-america"):
        DisturbLink(action="cut").prepare(site)


@pytest.mark.usefixtures("link")
def test_connections_are_reset_and_the_link_stays_open(site: Site) -> None:
    change = ResetConnections()
    undo = change.prepare(site)
    before = ways(site.relay())
    change.inject(site, undo)
    change.heal(site, undo)
    assert (link_state(ask(site.relay())), ways(site.relay())) == ("open", before)
