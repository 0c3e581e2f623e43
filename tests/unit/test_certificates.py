"""Certificates are renewed before they expire, and clients need no update."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from loosehanger.errors import LabError
from loosehanger.platforms.local import certificates
from loosehanger.platforms.local.apply import wipe
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret

CLUSTERS = ("europe", "mm2-connect")


@pytest.fixture
def region(tmp_path: Path) -> LocalRegion:
    """A region with two authorities, each with two certificates of a year."""
    region = LocalRegion(tmp_path, tmp_path, "europe", 0)
    for cluster in CLUSTERS:
        assert ensure(region, cluster) == [True, True, True]
    return region


def ensure(region: LocalRegion, cluster: str, validity_days: int = 365) -> list[bool]:
    """What each set-up does; what changed: the authority, and its two certificates."""
    return [
        certificates.ensure_authority(region, cluster, validity_days),
        *(
            certificates.ensure_certificate(region, cluster, f"{cluster}-{n}", cluster, ["europe.svc"], validity_days)
            for n in range(2)
        ),
    ]


def days_left(region: LocalRegion, secret: str, key: str) -> float:
    """How long a certificate is still valid."""
    end = x509.load_pem_x509_certificate(read_secret(region, secret)[key]).not_valid_after_utc
    return (end - datetime.datetime.now(datetime.UTC)) / datetime.timedelta(days=1)


def trusts(authority: bytes, folder: Path) -> bool:
    """Whether a client that knows this authority accepts a server with the key and chain of a secret."""
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    server.load_cert_chain(folder / "keystore.pem")
    client.load_verify_locations(cadata=authority.decode())
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="europe.svc"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return bool(ends[0].version())


def test_an_announced_authority_is_trusted_beside_the_present_one_which_signs_until_then(region: LocalRegion) -> None:
    before = read_secret(region, "europe-cluster-ca-cert")["ca.crt"]
    announced = certificates.announce_authority(region, "europe")
    assert certificates.announce_authority(region, "europe") == announced, "a second time changes nothing"
    both = read_secret(region, "europe-cluster-ca-cert")["ca.crt"]
    present, following = x509.load_pem_x509_certificates(both)
    assert both.startswith(before)
    assert (following, following.subject) == (announced, present.subject)
    assert following.public_key() != present.public_key()
    assert ensure(region, "europe") == [False, False, False], "nothing is issued anew"
    assert trusts(both, region.secrets / "europe-0")
    with pytest.raises(LabError, match="secret 'asia-cluster-ca-cert' does not exist"):
        certificates.announce_authority(region, "asia")
    assert not (region.secrets / "asia-next-ca").exists()


def test_what_lasts_is_left_alone(region: LocalRegion) -> None:
    for cluster in CLUSTERS:
        assert ensure(region, cluster) == [False, False, False]


def test_a_certificate_near_its_end_is_renewed_and_no_other(region: LocalRegion) -> None:
    authority = read_secret(region, "europe-cluster-ca-cert")["ca.crt"]
    for path in (region.secrets / "europe-1").iterdir():
        path.unlink()
    (region.secrets / "europe-1").rmdir()
    certificates.ensure_certificate(region, "europe", "europe-1", "europe", ["europe.svc"], 29)
    assert days_left(region, "europe-1", "tls.crt") < 30
    assert ensure(region, "europe") == [False, False, True]
    assert days_left(region, "europe-1", "tls.crt") > 360
    assert trusts(authority, region.secrets / "europe-1")
    assert ensure(region, "europe") == [False, False, False]


def test_an_authority_near_its_end_is_renewed_and_clients_keep_trusting(region: LocalRegion, tmp_path: Path) -> None:
    before = read_secret(region, "europe-cluster-ca-cert")["ca.crt"]
    (tmp_path / "old").mkdir()
    (region.secrets / "europe-0" / "keystore.pem").rename(tmp_path / "old" / "keystore.pem")
    (region.secrets / "europe-0" / "keystore.pem").write_bytes((tmp_path / "old" / "keystore.pem").read_bytes())

    certificates.issue_authority(region, "europe", certificates.authority_key(region, "europe"), 29)
    assert ensure(region, "europe") == [True, True, True]
    assert ensure(region, "mm2-connect") == [False, False, False]
    assert ensure(region, "europe") == [False, False, False]

    after = read_secret(region, "europe-cluster-ca-cert")["ca.crt"]
    assert after != before
    assert days_left(region, "europe-cluster-ca-cert", "ca.crt") > 360
    for authority in (before, after):
        for folder in (tmp_path / "old", region.secrets / "europe-0", region.secrets / "europe-1"):
            assert trusts(authority, folder)
    assert not trusts(after, region.secrets / "mm2-connect-0")


def test_what_is_short_lived_by_choice_is_not_renewed_each_time(region: LocalRegion) -> None:
    for folder in region.secrets.iterdir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert ensure(region, "europe", validity_days=20) == [True, True, True]
    assert ensure(region, "europe", validity_days=20) == [False, False, False]


def test_an_authority_that_is_not_the_kits_to_make_has_to_be_there_and_is_used_as_it_is(region: LocalRegion) -> None:
    with pytest.raises(LabError, match=r"Kafka/west: .*generateCertificateAuthority is false, .*'west-cluster-ca'"):
        certificates.ensure_authority(region, "west", 365, generate=False)
    before = read_secret(region, "europe-cluster-ca-cert")
    # Not even where it is about to expire: its owner renews it.
    assert not certificates.ensure_authority(region, "europe", 36500, 18000, generate=False)
    assert read_secret(region, "europe-cluster-ca-cert") == before


def test_a_region_that_is_wiped_keeps_what_others_know_it_by(region: LocalRegion) -> None:
    (region.folder / "kafka").mkdir()
    (region.folder / "supervisor.conf").write_text("")
    kept = frozenset({"europe-cluster-ca", "europe-cluster-ca-cert"})
    before = read_secret(region, "europe-cluster-ca")
    for _ in range(2):
        wipe(region, kept, bound=1)
        assert {path.name for path in region.folder.iterdir()} == {"secrets"}
        assert {path.name for path in region.secrets.iterdir()} == kept
    assert read_secret(region, "europe-cluster-ca") == before
