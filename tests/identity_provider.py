"""A small identity provider: Authlib's OAuth 2.0 server with client credentials, signed tokens (RFC 9068), and TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc.jwk import KeySet, RSAKey

from loosehanger.files import write_file
from loosehanger.kafka.properties import OAUTH_LOGIN_MODULE, LoginModule, format_jaas

from .certificates import AUTHORITY, certificate_pem, key_pem

ISSUER = "https://identity.example.com"
AUDIENCE = "kafka"
CLIENT, SECRET, SCOPE = "prover", "s3cret:of/the=client", "kafka.read"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


@dataclass
class Client(ClientMixin):  # type: ignore[misc]
    """A registered client, with the audience that its tokens are for."""

    id: str
    secret: str
    audience: str = AUDIENCE

    def get_client_id(self) -> str:
        return self.id

    def get_allowed_scope(self, scope: str) -> str:
        return scope if scope == SCOPE else ""

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method, endpoint) == ("client_secret_basic", "token")

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class _Tokens(JWTBearerTokenGenerator):  # type: ignore[misc]
    def __init__(self, keys: KeySet, life_s: int) -> None:
        super().__init__(ISSUER, expires_generator=lambda *_: life_s)
        self._keys = keys

    def get_jwks(self) -> KeySet:
        return self._keys

    def get_audiences(self, client: Client, user: object, scope: str) -> str:
        del user, scope
        return client.audience


class _Server(AuthorizationServer):  # type: ignore[misc]
    """What a framework's integration adds to Authlib's server."""

    def __init__(self, clients: dict[str, Client], tokens: _Tokens) -> None:
        super().__init__(scopes_supported=[SCOPE])
        self._clients = clients
        self.register_token_generator("default", tokens)
        self.register_grant(ClientCredentialsGrant)

    def query_client(self, client_id: str) -> Client | None:
        return self._clients.get(client_id)

    def save_token(self, token: object, request: object) -> None:
        """Signed tokens need no store."""

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Nothing listens."""

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> tuple[int, Any, dict[str, str]]:
        return status, body, dict(headers)


@dataclass
class IdentityProvider:
    """One that runs."""

    endpoint: str
    keys: Path
    """The public keys (JWKS) that brokers judge tokens by."""
    authority: Path
    """The certificate authority of its own certificate."""
    asked: list[str] = field(default_factory=list)
    """The scopes of the requests so far."""

    @property
    def truststore(self) -> dict[str, str]:
        """The settings by which Java trusts its certificate."""
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}

    @property
    def validation(self) -> dict[str, str]:
        """A broker's settings that judge its tokens; those of one listener come with a prefix."""
        return {
            "oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }

    def listener(self, *further: str) -> dict[str, Any]:
        """The authentication of a listener that takes its tokens, and these mechanisms."""
        settings = {"sasl.enabled.mechanisms": ",".join(["OAUTHBEARER", *further]), **self.validation}
        return {"type": "custom", "sasl": True, "listenerConfig": settings}

    def jaas(self, client: str, secret: str) -> str:
        """A client's ``sasl.jaas.config``."""
        options = {"clientId": client, "clientSecret": secret, "scope": SCOPE, **self.truststore}
        return format_jaas(LoginModule(OAUTH_LOGIN_MODULE, options))

    def mirror(self, client: str, secret: str) -> dict[str, Any]:
        """The authentication of an end of a mirror, which signs in as a client."""
        config = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": self.jaas(client, secret),
            "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.endpoint,
        }
        return {"type": "custom", "sasl": True, "config": config}


def _handler(server: _Server, found: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """The token endpoint."""
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            found.asked.append(form.get("scope", ""))
            request = OAuth2Request("POST", f"https://{self.headers['Host']}{self.path}", headers=self.headers)
            request.payload = BasicOAuth2Payload(form)
            request._body = form
            status, body, headers = server.create_token_response(request)
            content = json.dumps(dict(body)).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    return Handler


@contextmanager
def providing(folder: Path, *clients: Client, life_s: int = 3600) -> Iterator[IdentityProvider]:
    """Runs an identity provider on the loopback address.

    Args:
        folder: where its certificate, the authority of that and the public keys are written.
        clients: the registered clients.
        life_s: how long its tokens live.
    """
    key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "of-a-test"})
    keys = KeySet([key])
    certificate, authority, public = (folder / name for name in ("server.pem", "ca.pem", "jwks.json"))
    write_file(certificate, certificate_pem("identity") + key_pem())
    write_file(authority, certificate_pem(AUTHORITY))
    write_file(public, json.dumps(keys.as_dict(private=False)))
    found = IdentityProvider("", public, authority)
    server = _Server({client.id: client for client in clients}, _Tokens(keys, life_s))
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(server, found)) as web:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        web.socket = context.wrap_socket(web.socket, server_side=True)
        found.endpoint = f"https://127.0.0.1:{web.server_address[1]}/token"
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            web.shutdown()
            thread.join()
