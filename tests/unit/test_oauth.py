"""OAUTHBEARER by client credentials: as people write it, and the tokens of a real identity provider."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.files import write_file
from loosehanger.kafka import oauth
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ClientCredentials, TokenError, TokenProvider
from loosehanger.kafka.properties import OAUTH_LOGIN_MODULE, format_properties, parse_jaas
from tests.certificates import AUTHORITY, certificate_pem
from tests.identity_provider import CLIENT, SCOPE, SECRET, Client, IdentityProvider, providing

ENDPOINT = "https://identity.example.com/token"
COMMON = f"""\
bootstrap.servers=b:9092
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url={ENDPOINT}
"""
OF_JAAS = f"""\
sasl.login.callback.handler.class={oauth.LOGIN_HANDLER}
sasl.jaas.config={OAUTH_LOGIN_MODULE} required \\
  clientId='ann' clientSecret='s3cr/+t=' scope='read write' \\
  extension_logicalCluster='lkc-1' extension_identityPoolId='pool-2';
"""
OF_KAFKA_4 = f"""\
sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever
sasl.oauthbearer.client.credentials.client.id=ann
sasl.oauthbearer.client.credentials.client.secret=s3cr/+t=
sasl.oauthbearer.scope=read write
sasl.jaas.config={OAUTH_LOGIN_MODULE} required extension_logicalCluster=lkc-1 extension_identityPoolId=pool-2;
"""
OF_LIBRDKAFKA = """\
sasl.oauthbearer.method=oidc
sasl.oauthbearer.client.id=ann
sasl.oauthbearer.client.secret=s3cr/+t=
sasl.oauthbearer.scope=read write
sasl.oauthbearer.extensions=logicalCluster=lkc-1,identityPoolId=pool-2
"""
OF_STRIMZI = f"""\
sasl.login.callback.handler.class=io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler
sasl.jaas.config={OAUTH_LOGIN_MODULE} required oauth.client.id="ann" oauth.client.secret="s3cr/+t=" \\
  oauth.scope="read write" oauth.token.endpoint.uri="{ENDPOINT}" \\
  extension_logicalCluster=lkc-1 extension_identityPoolId=pool-2;
"""
WANTED = ClientCredentials(
    ENDPOINT, "ann", "s3cr/+t=", "read write", (("identityPoolId", "pool-2"), ("logicalCluster", "lkc-1"))
)


def read(folder: Path, text: str) -> tuple[Connection, list[str]]:
    """What a file of client properties means, and what it is warned of."""
    warned: list[str] = []
    write_file(folder / "client.properties", text)
    return Connection.from_properties(folder / "client.properties", {}, warned.append), warned


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(COMMON + OF_JAAS, id="JAAS"),
        pytest.param(COMMON + OF_KAFKA_4, id="Kafka 4.1"),
        pytest.param(COMMON + OF_LIBRDKAFKA, id="librdkafka"),
        pytest.param(COMMON.rpartition("sasl.")[0] + OF_STRIMZI, id="Strimzi"),
    ],
)
def test_every_spelling_means_the_same_to_both_clients(text: str, tmp_path: Path) -> None:
    found, warned = read(tmp_path, text)
    assert warned == []
    assert found.credentials == WANTED
    assert "s3cr" not in repr(found) + repr(found.credentials)
    python, java = found.kafka_python(), found.java()
    assert python["sasl_mechanism"] == java["sasl.mechanism"] == "OAUTHBEARER"
    assert python["sasl_oauth_token_provider"].extensions() == dict(WANTED.extensions)
    assert "sasl_plain_password" not in python
    options = parse_jaas(java["sasl.jaas.config"], "java").options
    assert (options["clientId"], options["clientSecret"], options["scope"]) == ("ann", "s3cr/+t=", "read write")
    assert read(tmp_path, format_properties(java))[0] == found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (OF_JAAS.replace("clientSecret=", "secret="), "sasl.jaas.config: clientSecret missing"),
        ("", "sasl.jaas.config: clientId and clientSecret missing"),
        (OF_JAAS + "sasl.oauthbearer.token.endpoint.url=", "endpoint.url: is missing"),
        (OF_JAAS + "sasl.oauthbearer.token.endpoint.url=file:///token", "a token in a file is not supported"),
        (OF_JAAS + "sasl.oauthbearer.token.endpoint.url=ftp://a/b", "'ftp' is not http"),
        (OF_JAAS + "sasl.login.callback.handler.class=a.B", "a.B is not supported; use client credentials"),
        (OF_JAAS + "sasl.oauthbearer.jwt.retriever.class=a.JwtBearerJwtRetriever", "JwtBearerJwtRetriever is not"),
        (OF_JAAS.replace("clientId", "unsecuredLoginStringClaim_sub"), "tokens without a signature"),
        (OF_STRIMZI.replace("oauth.client.secret", "oauth.access.token"), "oauth.access.token is not supported"),
        (OF_LIBRDKAFKA.replace("oidc", "default"), "only 'oidc'"),
    ],
)
def test_another_way_to_a_token_is_named(lines: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUseError, match=message) as error:
        read(tmp_path, COMMON + lines)
    assert "s3cr" not in str(error.value)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[IdentityProvider, ClientCredentials]]:
    folder = tmp_path_factory.mktemp("identity")
    with providing(folder, Client(CLIENT, SECRET), life_s=2) as provider:
        authority = certificate_pem(AUTHORITY)
        yield provider, ClientCredentials(provider.endpoint, CLIENT, SECRET, SCOPE, ca_certificates=authority)


def test_a_token_is_shared_and_renewed_before_it_expires(
    identity: tuple[IdentityProvider, ClientCredentials], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, credentials = identity
    now = [time.monotonic()]
    monkeypatch.setattr("loosehanger.kafka.oauth.time.monotonic", lambda: now[0])
    tokens, asked = TokenProvider(credentials), len(provider.asked)
    assert tokens.token() == tokens.token()
    assert len(provider.asked) == asked + 1
    now[0] += 1.7
    tokens.token()
    assert len(provider.asked) == asked + 2
    assert oauth.provider(credentials) is oauth.provider(replace(credentials))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client_secret": "no"}, r"refuses client 'prover': invalid_client: .* \(HTTP 401\)"),
        ({"scope": "no"}, r"refuses client 'prover': invalid_scope: .* \(HTTP 400\)"),
        ({"ca_certificates": None}, "cannot be reached: its certificate is not trusted"),
        ({"endpoint": "https://127.0.0.1:1/token"}, r"127\.0\.0\.1:1 cannot be reached: Connection refused"),
    ],
)
def test_why_there_is_no_token_is_named(
    change: dict[str, Any], message: str, identity: tuple[IdentityProvider, ClientCredentials]
) -> None:
    with pytest.raises(TokenError, match=message) as error:
        TokenProvider(replace(identity[1], **change)).token()
    assert SECRET not in str(error.value)


def test_a_provider_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "_ASK_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        with pytest.raises(TokenError, match="cannot be reached: no answer within"):
            TokenProvider(ClientCredentials(endpoint, CLIENT, SECRET)).token()
