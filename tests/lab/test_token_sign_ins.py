"""A lab whose listeners take tokens alone: programs, mirror, consoles, tools, audit and proof follow one setting."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from loosehanger.files import write_file
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from scripts.sandbox import Kit, copy_kit
from tests.identity_provider import Client, IdentityProvider, providing
from tests.token_scenario import NAME, SOURCE, TARGET, USERS, write_scenario

from .conftest import assert_settled, set_up, wait_until
from .test_console import signed_in
from .test_watch import Watching

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SECRETS = {name: f"s3cret:of/the={name}" for names in USERS.values() for name in names}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    """An identity provider that knows every user, and nothing else gives tokens."""
    folder = tmp_path_factory.mktemp("identity")
    clients = [Client(name, secret) for name, secret in SECRETS.items()]
    with providing(folder, *clients) as found:
        yield found


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Kit]:
    """A copy of the kit in which the scenario is set up."""
    found = copy_kit(tmp_path_factory.mktemp("tokens"), port_base=30000)
    write_scenario(found.root, provider, SECRETS)
    with set_up(found, NAME):
        yield found


def test_every_region_is_healthy_and_a_second_setup_changes_nothing(kit: Kit) -> None:
    assert_settled(kit, NAME)


def test_the_mirror_is_proved_by_tokens(kit: Kit) -> None:
    def is_proved() -> bool:
        done = kit.run("prove", "--json")
        assert not any(secret in done.stdout + done.stderr for secret in SECRETS.values())
        document = json.loads(done.stdout)
        topics = {(flow["target"], flow["target_topic"]) for flow in document["flows"]}
        return document["verdict"] == "proved" and (TARGET, f"{SOURCE}.LH.ORDERS") in topics

    wait_until(is_proved, 200, "a proof of the mirror")


def test_the_audit_counts_by_tokens(kit: Kit, tmp_path: Path) -> None:
    watching = Watching(kit, tmp_path / "watch.json")

    def is_counted() -> bool:
        flow = watching.flow(TARGET, "LH.ORDERS")
        return bool(flow.get("records") and flow.get("copies") and not watching.document["problems"])

    try:
        wait_until(is_counted, 240, "both regions, which the audit counts")
    finally:
        assert watching.end() == 0, watching.errors


@pytest.mark.parametrize("region", [SOURCE, TARGET])
def test_clients_and_tools_sign_in_by_tokens(kit: Kit, region: str, provider: IdentityProvider) -> None:
    shown = dict(line.partition("=")[::2] for line in kit.run("client", region, "--show").stdout.splitlines())
    assert (shown["security.protocol"], shown["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    assert shown["sasl.oauthbearer.token.endpoint.url"] == provider.endpoint
    path = Path(kit.run("client", region).stdout.strip())
    assert path.stat().st_mode & 0o777 == 0o600
    asked = len(provider.asked)
    topics = kit.run("kafka", region, "topics", "--list")
    assert topics.returncode == 0, topics.stdout + topics.stderr
    expected = "LH.ORDERS" if region == SOURCE else f"{SOURCE}.LH.ORDERS"
    assert expected in topics.stdout.split()
    # The check before the tool, and the tool's own.
    assert len(provider.asked) >= asked + 2


def test_records_are_read_and_written_by_tokens(kit: Kit) -> None:
    read = kit.run("consume", TARGET, "--max", "3")
    assert read.returncode == 0, read.stdout + read.stderr
    written = kit.run("produce", SOURCE, "--topic", "LH.STOCK", "--value", "1")
    assert written.returncode == 0, written.stdout + written.stderr


def test_a_program_of_ones_own_signs_in_by_the_environment(kit: Kit, tmp_path: Path) -> None:
    file = kit.run("client", SOURCE, "--env")
    assert file.returncode == 0, file.stdout + file.stderr
    lines = Path(file.stdout.strip()).read_text(encoding="utf-8").splitlines()
    variables = dict(shlex.split(line)[1].partition("=")[::2] for line in lines)
    password = tmp_path / "password"
    write_file(password, variables["KAFKA_PASSWORD"])
    connection = Connection.from_environment(variables | {"KAFKA_PASSWORD_FILE": str(password)})
    assert connection.credentials
    with Cluster(SOURCE, connection) as cluster:
        assert "LH.ORDERS" in cluster.topics()


def test_the_consoles_show_every_region(kit: Kit) -> None:
    room = signed_in(kit, "control-room")
    assert {(flow["source"], flow["target"]) for flow in room.get("/api/flows").json()["flows"]} >= {(SOURCE, TARGET)}
    for region, topic in ((SOURCE, "LH.ORDERS"), (TARGET, f"{SOURCE}.LH.ORDERS")):
        console = signed_in(kit, region)
        topics = {one["name"] for one in console.get("/api/topics").json()["topics"]}
        assert topic in topics, (region, topics)


def test_a_wrong_secret_of_a_client_is_named(kit: Kit) -> None:
    manifest = kit.root / "playbooks" / NAME / "manifests" / "everything.yaml"
    right = manifest.read_text(encoding="utf-8")
    manifest.write_text(right.replace("s3cret:of/the=admin", "s3cret:of/another"), encoding="utf-8")
    try:
        assert kit.run("setup", NAME).returncode == 0
        refused = kit.run("kafka", SOURCE, "topics", "--list")
        assert refused.returncode == 1, refused.stdout + refused.stderr
        assert "refuses client 'admin': invalid_client" in refused.stderr
        assert "s3cret" not in refused.stderr
    finally:
        manifest.write_text(right, encoding="utf-8")
        assert kit.run("setup", NAME).returncode == 0
