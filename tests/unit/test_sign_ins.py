"""How clients sign in, as the manifests have it: the possible is carried out, and all else is refused by its field."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ClientCredentials
from loosehanger.lab.manifests.documents import read_resources
from loosehanger.lab.manifests.loader import read_manifests
from loosehanger.lab.manifests.resources import KafkaUser
from loosehanger.lab.manifests.sign_ins import USUAL, SignIn, of_end, of_user, type_for, why_refused
from loosehanger.lab.manifests.views import Program
from loosehanger.lab.mirrors.access import user_of
from loosehanger.lab.plan import plan_stage
from loosehanger.lab.program_sign_ins import with_sign_ins
from loosehanger.lab.topology import Topology
from loosehanger.platforms.client_properties import client_properties

from ..certificates import AUTHORITY, certificate_pem, key_pem
from ..sign_in_scenario import LISTENERS, clusters, resources, user
from ..topologies import program

KAFKA = """\
apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata:
  name: europe
  namespace: europe
spec:
  kafka:
    authorization: {type: simple}
    listeners:
      - name: internal
        port: 9098
        type: internal
        tls: true
"""
MM2_OF_EUROPE = ("mm2-writes", "europe")
USER = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: reader
  namespace: europe
  labels: {strimzi.io/cluster: europe}
spec:
  authentication:
"""


def topology(*resources_: dict[str, Any]) -> Topology:
    """The topology of some resources in one file."""
    return Topology(read_resources("file.yaml", yaml.safe_dump_all(resources_, sort_keys=False)))


@pytest.mark.parametrize(
    ("authentication", "message"),
    [
        ("{type: custom}", "sasl: must be true here: client certificates are the type tls"),
        ("{type: custom, sasl: true}", "listenerConfig: needs sasl.enabled.mechanisms; the possible"),
        (
            "{type: custom, sasl: true, listenerConfig: {sasl.enabled.mechanisms: GSSAPI}}",
            "listenerConfig.sasl.enabled.mechanisms: 'GSSAPI' is not possible; expected SCRAM-SHA-512",
        ),
        ("{type: tls, sasl: true}", "sasl: is for the type custom, and not for tls"),
        ("{type: oauth}", "type: 'oauth' is not possible here"),
        (
            "{type: custom, sasl: true, listenerConfig: {sasl.enabled.mechanisms: PLAIN, ssl.client.auth: none}}",
            "listenerConfig.ssl.client.auth: 'ssl.client.auth' is set by the platform",
        ),
    ],
)
def test_a_listener_that_cannot_be_is_refused(authentication: str, message: str) -> None:
    with pytest.raises(WrongUseError) as error:
        read_manifests("file.yaml", f"{KAFKA}        authentication: {authentication}\n")
    assert f"Kafka/europe: spec.kafka.listeners[0].authentication.{message}" in str(error.value)
    assert str(error.value).startswith("file.yaml:14: ")


def test_client_certificates_need_tls_and_listeners_are_alike() -> None:
    plain = KAFKA.replace("tls: true", "tls: false") + "        authentication: {type: tls}\n"
    with pytest.raises(WrongUseError, match=r"listeners\[0\]\.authentication\.type: tls needs a listener with 'tls"):
        read_manifests("file.yaml", plain)
    second = "      - {name: other, port: 9099, type: internal, tls: true, authentication: {type: tls}}\n"
    with pytest.raises(WrongUseError, match=r"file\.yaml:14: .*listeners\[1\]\.authentication: differs from listener"):
        read_manifests("file.yaml", KAFKA + second)


@pytest.mark.parametrize(
    ("authentication", "message"),
    [
        ("type: plain", "type: 'plain' is not possible here; expected 'scram-sha-512', 'tls' or 'tls-external'"),
        (
            "type: tls\n    password: {valueFrom: {secretKeyRef: {name: a, key: b}}}",
            "password: is for the type scram-sha-512, and not for tls",
        ),
        ("type: scram-sha-512\n    validityDays: 3", "validityDays: is for the type tls, and not for scram-sha-512"),
        ("type: tls\n    validityDays: 3", "validityDays: validityDays and renewalDays need each other"),
        ("type: tls\n    validityDays: 3\n    renewalDays: 3", "renewalDays: must be less than validityDays"),
    ],
)
def test_a_user_that_cannot_be_is_refused(authentication: str, message: str) -> None:
    with pytest.raises(WrongUseError) as error:
        read_manifests("file.yaml", f"{USER}    {authentication}\n")
    assert f"KafkaUser/reader: spec.authentication.{message}" in str(error.value)


@pytest.mark.parametrize(("kind", "principal"), [("tls", "User:CN=reader"), ("scram-sha-512", "User:reader")])
def test_acls_are_for_the_name_that_the_cluster_sees(kind: str, principal: str) -> None:
    (manifest,) = read_manifests("file.yaml", f"{USER}    type: {kind}\n")
    assert isinstance(manifest.resource, KafkaUser)
    assert manifest.resource.principal == principal


def test_every_end_signs_in_as_its_listener_asks() -> None:
    topology(*clusters(), *resources()).check()
    for one in resources():
        read_manifests("file.yaml", yaml.safe_dump(one))


@pytest.mark.parametrize(
    ("region", "change", "message"),
    [
        ("europe", {"type": "scram-sha-512"}, "authentication.type: europe would refuse it: the listener 'internal'"),
        ("north-america", {"type": "scram-sha-256"}, "offers PLAIN, and not SCRAM-SHA-256 over TLS"),
        ("south-america", {"type": "plain"}, "asks for a client certificate (type tls)"),
        ("europe", {"type": "tls"}, "offers SCRAM-SHA-256, and not a client certificate over TLS"),
    ],
)
def test_a_mirror_that_its_cluster_would_refuse_is_refused(region: str, change: dict[str, str], message: str) -> None:
    changed = copy.deepcopy(resources())
    (mirror,) = [
        one for one in changed if one["kind"] == "KafkaMirrorMaker2" and one["metadata"]["namespace"] == region
    ]
    mirror["spec"]["target"]["authentication"] |= change
    with pytest.raises(WrongUseError) as error:
        topology(*clusters(), *changed).check()
    assert f"KafkaMirrorMaker2/mm2-{region}: spec.target.authentication.type: {region} would refuse it" in str(
        error.value
    )
    assert message in str(error.value)


def test_a_mirror_without_tls_or_with_the_wrong_kind_of_user_is_refused() -> None:
    changed = copy.deepcopy(resources())
    (mirror,) = [one for one in changed if one["metadata"]["name"] == "mm2-europe"]
    del mirror["spec"]["target"]["tls"]
    with pytest.raises(WrongUseError, match=r"spec\.target\.tls: europe would refuse it: .* speaks TLS"):
        topology(*clusters(), *changed).check()
    changed = copy.deepcopy(resources())
    for one in changed:
        if (one["kind"], one["metadata"]["name"], one["metadata"]["namespace"]) == (
            "KafkaUser",
            "mm2-writes",
            "europe",
        ):
            one["spec"]["authentication"] = {"type": "scram-sha-512"}
    with pytest.raises(WrongUseError, match="KafkaUser/mm2-writes has a password for SCRAM-SHA-512 alone"):
        topology(*clusters(), *changed).check()
    changed = copy.deepcopy(resources())
    (mirror,) = [one for one in changed if one["metadata"]["name"] == "mm2-europe"]
    mirror["spec"]["target"]["authentication"]["username"] = "producer"
    with pytest.raises(WrongUseError, match=r"passwordSecret\.secretName: is the password of KafkaUser/mm2-writes"):
        topology(*clusters(), *changed).check()


def test_secrets_of_certificates_and_of_references_are_copied() -> None:
    copies = topology(*clusters(), *resources()).secret_copies()
    assert ("south-america", "mm2-reads-south-america", "europe") in {(c.origin, c.name, c.region) for c in copies}
    changed = copy.deepcopy(resources())
    (mirror,) = [one for one in changed if one["metadata"]["name"] == "mm2-north-america"]
    mirror["spec"]["mirrors"][0]["source"]["authentication"] = {
        "type": "custom",
        "sasl": True,
        "config": {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": 'a.B required password="${strimzisecrets:north-america/mm2-reads-europe:password}";',
        },
    }
    copies = topology(*clusters(), *changed).secret_copies()
    assert ("europe", "mm2-reads-europe", "north-america") in {(c.origin, c.name, c.region) for c in copies}


def planned(region: str, name: str) -> Program:
    """The program of a region, in a lab of the scenario's clusters, as it is applied."""
    own = program(region, region, name=name)
    environment = own["spec"]["template"]["spec"]["containers"][0]["env"]
    folder = "/etc/kafka/user"
    environment += [{"name": "KAFKA_PASSWORD_FILE", "value": f"{folder}/password"}]
    environment[:] = [one for one in environment if one["name"] != "KAFKA_USERNAME"]
    environment += [{"name": "KAFKA_USERNAME", "value": "producer"}]
    described = {
        one: read_resources("file.yaml", yaml.safe_dump_all(found))
        for one in LISTENERS
        if (found := [c for c in (*clusters(), user(one, "producer", [])) if c["metadata"]["namespace"] == one])
    }
    described[region] += read_resources("file.yaml", yaml.safe_dump(own))
    plan = plan_stage(described, {})[region]
    (deployment,) = [document for document in plan.documents if document.kind == "Deployment"]
    return Program(deployment.content)


def test_programs_are_given_the_sign_in_of_their_cluster() -> None:
    variables = planned("europe", "producer").variables
    assert (variables["KAFKA_SECURITY_PROTOCOL"], variables["KAFKA_SASL_MECHANISM"]) == ("SASL_SSL", "SCRAM-SHA-256")
    assert planned("north-america", "producer").variables["KAFKA_SASL_MECHANISM"] == "PLAIN"
    variables = planned("south-america", "producer").variables
    assert variables["KAFKA_SECURITY_PROTOCOL"] == "SSL"
    assert variables["KAFKA_CERTIFICATE_FILE"] == "/etc/kafka/user/user.crt"
    assert not {"KAFKA_SASL_MECHANISM", "KAFKA_PASSWORD_FILE"} & variables.keys()


def test_the_sign_in_follows_the_listener_and_the_user() -> None:
    oauth = {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512"}}
    listener = {"name": "internal", "tls": True, "authentication": oauth}
    assert (type_for(listener), of_user(listener, {}).mechanism) == ("scram-sha-512", "OAUTHBEARER")
    assert of_user(listener, None) == USUAL
    assert of_user(listener, {"spec": {"authentication": {"type": "scram-sha-512"}}}) == USUAL
    assert type_for({"tls": True, "authentication": {"type": "tls"}}) == "tls"
    assert type_for({"tls": True}) == ""
    nothing = SignIn(is_encrypted=False)
    assert (nothing.security_protocol, of_end({}), why_refused({"name": "a"}, nothing)) == ("PLAINTEXT", nothing, "")
    assert why_refused({"name": "a"}, SignIn(is_encrypted=False, mechanism="PLAIN")) == "the listener 'a' has no PLAIN"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "TLS"}, "KAFKA_SECURITY_PROTOCOL: 'TLS' is not possible"),
        ({"KAFKA_SASL_MECHANISM": "GSSAPI"}, "KAFKA_SASL_MECHANISM: 'GSSAPI' is not possible"),
        ({"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_CERTIFICATE_FILE": "x"}, "KAFKA_KEY_FILE is not set"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(WrongUseError, match=message):
        Connection.from_environment({"KAFKA_BOOTSTRAP_SERVERS": "a:1", **variables})


def test_an_environment_holds_client_credentials(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "ca").write_text(certificate_pem(AUTHORITY))
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "a:1",
        "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
        "KAFKA_USERNAME": "ann",
        "KAFKA_PASSWORD_FILE": str(tmp_path / "password"),
        "KAFKA_CA_FILE": "/ca.crt",
        "KAFKA_TOKEN_ENDPOINT": "https://identity.example.com/token",
    }
    connection = Connection.from_environment(environment)
    assert connection.credentials == ClientCredentials("https://identity.example.com/token", "ann", "s3cret")
    assert (connection.principal, connection.password) == ("ann", None)
    further = {"KAFKA_TOKEN_SCOPE": "read", "KAFKA_TOKEN_CA_FILE": str(tmp_path / "ca")}
    credentials = Connection.from_environment(environment | further).credentials
    assert credentials
    assert (credentials.scope, credentials.ca_file) == ("read", tmp_path / "ca")
    for endpoint, said in (("", "KAFKA_TOKEN_ENDPOINT is not set"), ("ftp://x", "KAFKA_TOKEN_ENDPOINT: .*not http")):
        with pytest.raises(WrongUseError, match=said):
            Connection.from_environment(environment | {"KAFKA_TOKEN_ENDPOINT": endpoint})


def test_an_environment_and_properties_hold_a_certificate(tmp_path: Path) -> None:
    chain, key = certificate_pem("reader"), key_pem()
    for name, content in (("ca", certificate_pem(AUTHORITY)), ("crt", chain), ("key", key)):
        (tmp_path / name).write_text(content)
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9093",
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_CA_FILE": str(tmp_path / "ca"),
        "KAFKA_CERTIFICATE_FILE": str(tmp_path / "crt"),
        "KAFKA_KEY_FILE": str(tmp_path / "key"),
    }
    connection = Connection.from_environment(environment)
    sign_in = SignIn(is_encrypted=True, has_certificate=True)
    secret = {"user.crt": chain, "user.key": key}
    properties = client_properties(sign_in, "reader", secret, "127.0.0.1:9093", str(tmp_path / "ca"))
    assert properties
    assert Connection.of_properties(properties, "file") == connection
    assert connection.principal == "CN=reader"
    assert client_properties(sign_in, "reader", {}, "127.0.0.1:9093", "ca") is None
    expired = certificate_pem("reader", expired=True)
    (tmp_path / "crt").write_text(expired)
    with pytest.raises(WrongUseError, match=r"the certificate of CN=reader expired on"):
        Connection.from_environment(environment)


def test_a_mirror_with_a_certificate_is_known_by_its_subject() -> None:
    local = {"source.cluster.ssl.keystore.certificate.chain": "${secrets:/lab/regions/a/secrets/mm2-reads:user.crt}"}
    assert user_of(local, "source") == "CN=mm2-reads"
    strimzi = {"target.cluster.ssl.keystore.certificate.chain": "${strimzisecrets:a/mm2-writes:user.crt}"}
    assert user_of(strimzi, "target") == "CN=mm2-writes"
    assert Connection(("a:1",)).principal == "ANONYMOUS"


def with_listener(authentication: dict[str, Any] | None, kind: str, **further: str) -> Program:
    """A program of Europe's whose listener and user are of these kinds, as it is applied."""
    (cluster,) = [one for one in clusters() if one["metadata"]["name"] == "europe"]
    cluster["spec"]["kafka"]["listeners"][0]["authentication"] = authentication
    reader = user("europe", "reader", [])
    reader["spec"] |= {"authentication": {"type": kind}} if kind else {}
    own = program("europe", "europe", "reader")
    container = own["spec"]["template"]["spec"]["containers"][0]
    folder = "/etc/kafka/user"
    container["env"] += [
        {"name": "KAFKA_USERNAME", "value": "reader"},
        {"name": "KAFKA_PASSWORD_FILE", "value": f"{folder}/password"},
        *({"name": name, "value": value} for name, value in further.items()),
    ]
    container["volumeMounts"] = [{"name": "reader", "mountPath": folder}]
    described = {"europe": read_resources("file.yaml", yaml.safe_dump_all([cluster, reader, own], sort_keys=False))}
    (deployment,) = [one for one in with_sign_ins(described, {})["europe"] if one.kind == "Deployment"]
    return Program(deployment.content)


def test_a_program_without_a_sign_in_mounts_no_secret() -> None:
    found = with_listener(None, "")
    assert found.variables["KAFKA_SECURITY_PROTOCOL"] == "SSL"
    assert "KAFKA_PASSWORD_FILE" not in found.variables
    assert found.pod["volumes"] == found.pod["containers"][0]["volumeMounts"] == []


def test_a_program_with_a_token_endpoint_signs_in_by_client_credentials() -> None:
    oauth = {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "OAUTHBEARER"}}
    found = with_listener(oauth, "", KAFKA_TOKEN_ENDPOINT="https://identity.example.com/token")
    assert (found.variables["KAFKA_SECURITY_PROTOCOL"], found.variables["KAFKA_SASL_MECHANISM"]) == (
        "SASL_SSL",
        "OAUTHBEARER",
    )
    assert found.variables["KAFKA_PASSWORD_FILE"] == "/etc/kafka/user/password"
    assert found.pod["volumes"]


def test_the_usual_sign_in_leaves_a_program_as_it_is() -> None:
    found = with_listener({"type": "scram-sha-512"}, "scram-sha-512")
    assert not [name for name in found.variables if name.startswith("KAFKA_S")]
    assert found.pod["volumes"]


@pytest.mark.parametrize(
    ("authentication", "kind", "message"),
    [
        (
            {"type": "tls"},
            "scram-sha-512",
            r"spec\.authentication\.type: Deployment/program cannot sign in: .* asks for",
        ),
        (
            {"type": "custom", "sasl": True, "listenerConfig": {"sasl.enabled.mechanisms": "OAUTHBEARER"}},
            "",
            r"KafkaUser/reader: spec\.authentication: .* cannot sign in with OAUTHBEARER without KAFKA_TOKEN",
        ),
    ],
)
def test_a_program_that_cannot_sign_in_is_refused(authentication: dict[str, Any], kind: str, message: str) -> None:
    with pytest.raises(WrongUseError, match=message) as error:
        with_listener(authentication, kind)
    assert str(error.value).startswith("file.yaml:")
