"""A mirror from a region with PLAIN to one with client certificates: right sign-ins copy, wrong ones are named soon."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import TopicPartition
from kafka.admin import NewTopic

from loosehanger.errors import LabError
from loosehanger.files import write_file
from loosehanger.kafka.clients import connect_admin
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.manifests.loader import check_document, read_manifests
from loosehanger.lab.program_sign_ins import with_sign_ins
from loosehanger.lab.topology import Topology
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.local.access import record
from loosehanger.platforms.local.apply import apply, delete_region
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import copy_secrets
from loosehanger.ports import free_ports
from tests.certificates import AUTHORITY, certificate_pem
from tests.identity_provider import CLIENT, SCOPE, SECRET, Client, IdentityProvider, providing
from tests.sign_in_scenario import alias, clusters, end, resources, rule, user

from .conftest import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SOURCE, TARGET = "north-america", "south-america"
BOUND_S = 30.0
"""A worker starts in about half of it."""


def documents(region: str) -> str:
    """The resources of a region, but for its mirror."""
    every = [*clusters(), *resources(), user(SOURCE, "admin", []), user(TARGET, "admin", [])]
    own = [one for one in every if one["metadata"]["namespace"] == region and one["kind"] != "KafkaMirrorMaker2"]
    for one in own:
        if one["kind"] == "Kafka":
            admin = "CN=admin" if region == TARGET else "admin"
            one["spec"]["kafka"]["authorization"]["superUsers"] = [admin]
            one["spec"]["kafka"]["config"] = {
                f"{what}.replication.factor": 1 for what in ("offsets.topic", "transaction.state.log")
            } | {"default.replication.factor": 1, "transaction.state.log.min.isr": 1}
    pool = {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaNodePool",
        "metadata": {"name": "nodes", "namespace": region, "labels": {"strimzi.io/cluster": region}},
        "spec": {"replicas": 1, "roles": ["controller", "broker"], "storage": {"type": "ephemeral"}},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": region}}
    return yaml.safe_dump_all([namespace, pool, *own])


MIRROR = yaml.safe_dump(next(one for one in resources() if one["metadata"]["name"] == f"mm2-{TARGET}"))


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalRegion, LocalRegion]]:
    """The two regions, with their clusters, users and secrets."""
    home = tmp_path_factory.mktemp("mirror-sign-ins")
    for name in ("venv", "jars", "java"):
        (home / name).symlink_to((lab_home() / name).resolve())
    base = min(free_ports(3)) // 100 * 100 - 200
    found = tuple(LocalRegion(home, ROOT, name, base + 100 * index) for index, name in enumerate((SOURCE, TARGET)))
    source, target = found
    try:
        for region in found:
            text = documents(region.name)
            apply(region, read_manifests("file.yaml", text), ready_seconds=90)
            read = read_resources("file.yaml", text)
            record(region, read, Topology(read))
        copies(source, target)
        yield source, target
    finally:
        for region in found:
            delete_region(region, 30)


def copies(source: LocalRegion, target: LocalRegion) -> None:
    """Copies the secrets of the mirror's source."""
    text = "---\n".join([documents(SOURCE), documents(TARGET), MIRROR])
    every = Topology(read_resources("file.yaml", text)).secret_copies()
    copy_secrets(source, target, [one for one in every if one.region == TARGET])


def properties_of(region: LocalRegion) -> Path:
    """The client properties of the user who may do everything in a region."""
    clients = json.loads((region.home / "access" / f"{region.name}.json").read_text(encoding="utf-8"))["clients"]
    return Path(clients["admin"])


def administrator(region: LocalRegion) -> Connection:
    """That user's way into the cluster."""
    return Connection.from_properties(properties_of(region))


def set_up(target: LocalRegion) -> None:
    """Applies the mirror, and waits until it is ready."""
    apply(target, read_manifests("mm2.yaml", MIRROR), ready_seconds=90)


@pytest.fixture
def no_mirror(regions: tuple[LocalRegion, LocalRegion]) -> Iterator[None]:
    """Deletes the mirror afterwards, and brings the copied secrets back."""
    source, target = regions
    yield
    (manifest,) = read_manifests("mm2.yaml", MIRROR)
    LocalMirrorMaker(target, manifest.resource).delete()  # type: ignore[arg-type]
    target.forget("KafkaMirrorMaker2", manifest.resource.metadata.name)
    copies(source, target)


@pytest.mark.usefixtures("no_mirror")
def test_programs_mirror_and_proof_sign_in_as_each_region_asks(
    regions: tuple[LocalRegion, LocalRegion], tmp_path: Path
) -> None:
    source, target = regions
    with closing(connect_admin(administrator(source))) as admin:
        admin.create_topics([NewTopic("LH.ORDERS", 1, 1)])
    run(source, "producer", "producer", PRODUCER_TOPICS="ORDERS", PRODUCER_RATE="50")
    set_up(target)
    consumer = f"consumer-{alias(TARGET)}"
    copy = f"{alias(SOURCE)}.LH.ORDERS"
    with closing(connect_admin(administrator(target))) as admin:
        wait_until(lambda: copy in admin.list_topics(), 60, "the copied topic")
        run(target, consumer, "consumers", CONSUMER_GROUP=consumer, CONSUMER_PATTERN=f"^{copy}$")
        wait_until(lambda: admin.list_group_offsets({consumer: None})[consumer], 60, "offsets of the consumer")
    again = apply(target, read_manifests("mm2.yaml", MIRROR), ready_seconds=90)
    assert again.changed == []
    files = [properties_of(region) for region in regions]
    program = [sys.executable, "-P", "-m", "loosehanger.mirrorproof.command_line", "prove", *map(str, files), "--json"]
    done = subprocess.run(
        [*program, "--topics", r"LH\.ORDERS", "--policy", "default", "--source-alias", alias(SOURCE)],
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["totals"]["source_records"] > 0


def run(region: LocalRegion, name: str, module: str, text: str = "", **variables: str) -> None:
    """Runs one of the shop's programs in a region, with the environment that its Deployment is given.

    Args:
        region: where it runs.
        name: of its Deployment, and of its user.
        module: the program.
        text: the region's resources; empty for those of ``documents``.
        variables: of its environment.
    """
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": f"{region.name}-kafka-bootstrap.{region.name}.svc:9098",
        "KAFKA_USERNAME": name,
        "KAFKA_PASSWORD_FILE": "/etc/kafka/user/password",
        "KAFKA_CA_FILE": "/etc/kafka/ca/ca.crt",
        **variables,
    }
    secrets = {"user": name, "ca": f"{region.name}-cluster-ca-cert"}
    container = {
        "name": name,
        "image": "none",
        "command": ["python", "-P", "-m", module],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [{"name": volume, "mountPath": f"/etc/kafka/{volume}"} for volume in secrets],
    }
    volumes = [{"name": volume, "secret": {"secretName": secret}} for volume, secret in secrets.items()]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": region.name},
        "spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}},
    }
    every = read_resources("file.yaml", (text or documents(region.name)) + "---\n" + yaml.safe_dump(deployment))
    completed = [one for one in with_sign_ins({region.name: every}, {})[region.name] if one.kind == "Deployment"]
    apply(region, [check_document(one) for one in completed], ready_seconds=90)


@pytest.mark.usefixtures("no_mirror")
def test_mirror_producer_and_consumer_sign_in_by_client_credentials(
    regions: tuple[LocalRegion, LocalRegion], tmp_path: Path
) -> None:
    _, target = regions
    source = LocalRegion(target.home, ROOT, "europe", target.port_base + 100)
    with providing(tmp_path, Client(CLIENT, SECRET)) as provider:
        every = list(yaml.safe_load_all(documents("europe")))
        (kafka,) = [one for one in every if one["kind"] == "Kafka"]
        kafka["spec"]["kafka"]["listeners"][0]["authentication"] = provider.listener("SCRAM-SHA-512")
        kafka["spec"]["kafka"]["jvmOptions"] = allowing(provider.keys.as_uri())
        reads = [rule("topic", "LH.", "Read", "Write", "DescribeConfigs"), rule("group", "readers", "Read")]
        client, admin = user("europe", CLIENT, reads), user("europe", "admin", [])
        admin["spec"]["authentication"] = {"type": "scram-sha-512"}
        # In the secret of the user: what the identity provider knows it by, and whom its own certificate is from.
        own = {"password": SECRET, "identity.crt": provider.authority.read_text(encoding="utf-8")}
        named = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": CLIENT, "namespace": "europe"}}
        others = [one for one in every if one["metadata"]["name"] != "admin"]
        text = yaml.safe_dump_all([*others, {**named, "stringData": own}, client, admin])
        try:
            apply(source, read_manifests("file.yaml", text), ready_seconds=90)
            read = read_resources("file.yaml", text)
            record(source, read, Topology(read))
            with closing(connect_admin(administrator(source))) as connected:
                connected.create_topics([NewTopic("LH.STOCK", 1, 1)])
            mirror = with_client_credentials(provider)
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "oauth-client", "namespace": TARGET},
                "stringData": {"clientSecret": SECRET},
            }
            both = read_resources("mm2.yaml", yaml.safe_dump_all([secret, mirror]))
            topology = Topology([*read, *read_resources("file.yaml", documents(TARGET)), *both])
            topology.check()
            copy_secrets(source, target, [one for one in topology.secret_copies() if one.region == TARGET])
            apply(target, read_manifests("mm2.yaml", yaml.safe_dump_all([secret, mirror])), ready_seconds=90)
            with closing(connect_admin(administrator(target))) as connected:
                wait_until(lambda: "northamerica.LH.STOCK" in connected.list_topics(), 60, "the copied topic")
            tokens = {"KAFKA_TOKEN_ENDPOINT": provider.endpoint, "KAFKA_TOKEN_CA_FILE": "/etc/kafka/user/identity.crt"}
            tokens["KAFKA_TOKEN_SCOPE"] = SCOPE
            run(source, CLIENT, "producer", text, **tokens, PRODUCER_TOPICS="STOCK", PRODUCER_RATE="50")
            stock = TopicPartition("LH.STOCK", 0)
            with Cluster("europe", administrator(source)) as cluster:
                wait_until(lambda: cluster.end_offsets([stock])[stock], 60, "records by a token")
                reading = {"CONSUMER_GROUP": "readers", "CONSUMER_PATTERN": r"^LH\.STOCK$"}
                run(source, CLIENT, "consumers", text, **tokens, **reading)
                wait_until(lambda: cluster.committed("readers", ["LH.STOCK"]), 60, "offsets by a token")
            worker = (target.folder / "connect" / f"mm2-{TARGET}" / "worker-0.properties").read_text(encoding="utf-8")
            assert SECRET not in worker
        finally:
            delete_region(source, 30)


def allowing(*urls: str) -> dict[str, object]:
    """The options of a Java that may ask an identity provider."""
    return {"javaSystemProperties": [{"name": ALLOWED_URLS, "value": ",".join(urls)}]}


def with_client_credentials(provider: IdentityProvider) -> dict[str, Any]:
    """The mirror with a source in Europe, where it signs in with a token."""
    mirror: dict[str, Any] = yaml.safe_load(MIRROR)
    secret = f"${{strimzisecrets:{TARGET}/oauth-client:clientSecret}}"
    mirror["spec"]["mirrors"][0]["source"] = {
        **end("europe", CLIENT),
        "authentication": provider.mirror(CLIENT, secret),
    }
    mirror["spec"]["jvmOptions"] = allowing(provider.endpoint)
    # Of the copies, the user may write those of North America alone.
    mirror["spec"]["mirrors"][0]["source"]["alias"] = "northamerica"
    return mirror


@pytest.mark.usefixtures("no_mirror")
@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        (
            f"secrets/mm2-reads-{SOURCE}/password",
            "wrong",
            "no task, because .* fails: a user name or a password of the mirror is refused",
        ),
        (f"secrets/{SOURCE}-cluster-ca-cert/ca.crt", certificate_pem(AUTHORITY), "authority"),
        (f"secrets/{TARGET}-cluster-ca-cert/ca.crt", certificate_pem(AUTHORITY), "authority"),
    ],
)
def test_a_wrong_sign_in_of_a_mirror_is_named_soon(
    regions: tuple[LocalRegion, LocalRegion], file: str, content: str, sentence: str
) -> None:
    _, target = regions
    path = target.folder / file
    before = path.read_text(encoding="utf-8")
    write_file(path, content)
    began = time.monotonic()
    try:
        with pytest.raises(LabError) as error:
            set_up(target)
    finally:
        took = time.monotonic() - began
        write_file(path, before)
    assert re.search(sentence, str(error.value)), str(error.value)
    print(took, error.value)
    assert took < BOUND_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), (took, str(error.value))
