"""OAUTHBEARER by client credentials: read from client properties, and the tokens for kafka-python.

Java's clients fetch and renew their tokens themselves, from the same credentials.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.key_stores import read_trust_store, trusting_context
from loosehanger.kafka.properties import OAUTH_LOGIN_MODULE, LoginModule, format_jaas, parse_jaas

LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The property of a JVM without which Kafka's clients of 3.9.1 and later ask no token endpoint."""
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
"""The client property with the address of an identity provider's token endpoint."""
_SCOPE = "sasl.oauthbearer.scope"
_CREDENTIALS = "sasl.oauthbearer.client.credentials.client."
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_RETRIEVERS = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever")
_HANDLERS = (LOGIN_HANDLER, "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler")
_STRIMZI_HANDLER = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
_STRIMZI_OPTIONS = {
    "oauth.token.endpoint.uri": ENDPOINT,
    "oauth.client.id": "clientId",
    "oauth.client.secret": "clientSecret",
    "oauth.scope": "scope",
}
_STRIMZI_STORE = "oauth.ssl.truststore."
_EXTENSION = "extension_"
_ASK_S = 4.0
"""How long a token endpoint may take: a wrong sign-in must be named within 10 s, start-up included."""
_LIFE_USED = 0.8
"""The part of a token's life after which it is renewed, as in Java's clients."""
_LIFE_S = 60.0
"""The life of a token that names none."""
_MOST_BYTES = 1 << 20


class TokenError(LabError):
    """No token was given; the message follows a cluster's name."""


@dataclass(frozen=True)
class ClientCredentials:
    """What a client shows to an identity provider for a token (RFC 6749, section 4.4)."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: tuple[tuple[str, str], ...] = ()
    """SASL extensions (KIP-342), such as Confluent Cloud's ``logicalCluster``."""
    ca_file: Path | None = None
    ca_certificates: str | None = None
    """The endpoint's authorities in PEM, in place of a file; neither for the machine's."""
    url_encode: bool = False
    """Whether id and secret are encoded before they are sent, as RFC 6749 requires and Kafka does not by default."""

    def java(self) -> dict[str, str]:
        """The properties for a Java client, in the form that every one since 3.4 reads."""
        options = {"clientId": self.client_id, "clientSecret": self.client_secret}
        if self.scope:
            options["scope"] = self.scope
        options |= {f"{_EXTENSION}{name}": value for name, value in self.extensions}
        if self.ca_file:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca_file)}
        elif self.ca_certificates:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_certificates}
        properties = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": format_jaas(LoginModule(OAUTH_LOGIN_MODULE, options)),
            "sasl.login.callback.handler.class": LOGIN_HANDLER,
            ENDPOINT: self.endpoint,
            "sasl.login.connect.timeout.ms": str(round(_ASK_S * 1000)),
            "sasl.login.read.timeout.ms": str(round(_ASK_S * 1000)),
        }
        if self.url_encode:
            properties["sasl.oauthbearer.header.urlencode"] = "true"
        return properties


def read_credentials(properties: Mapping[str, str], path: str) -> ClientCredentials:
    """Reads the client credentials of client properties: Kafka's own keys, librdkafka's, or Strimzi's.

    Args:
        properties: the client properties; librdkafka's as ``of_librdkafka`` has rewritten them.
        path: where they stand, for messages.

    Raises:
        WrongUseError: something is missing, or it is another way to a token.
    """
    jaas, where = properties.get("sasl.jaas.config", "").strip(), f"{path}: sasl.jaas.config"
    options = dict(parse_jaas(jaas, where).options) if jaas else {}
    settings = dict(properties)
    _check_the_way(settings, options, path)
    for name, meant in _STRIMZI_OPTIONS.items():
        if name in options:
            (settings if meant == ENDPOINT else options)[meant] = options[name]
    endpoint = settings.get(ENDPOINT, "").strip()
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongUseError(
            f"{path}: {ENDPOINT}: {f'{parts.scheme or endpoint!r} is not http(s)' if endpoint else 'is missing'}; "
            "give the https address of the identity provider's token endpoint"
        )
    # Kafka 4.1's own keys come before the options of JAAS.
    found = {
        option: settings.get(f"{_CREDENTIALS}{name}", "").strip() or options.get(option, "")
        for name, option in (("id", "clientId"), ("secret", "clientSecret"))
    }
    if missing := [option for option, value in found.items() if not value]:
        raise WrongUseError(
            f"{where}: {' and '.join(missing)} missing, or {_CREDENTIALS}id and .secret as properties of their own"
        )
    store = _STRIMZI_STORE if any(name.startswith(_STRIMZI_STORE) for name in options) else "ssl.truststore."
    own = {
        f"ssl.truststore.{name.removeprefix(store)}": value for name, value in options.items() if name.startswith(store)
    }
    ca_file, ca_certificates = read_trust_store(own, f"{path}: sasl.jaas.config")
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    return ClientCredentials(
        endpoint,
        found["clientId"],
        found["clientSecret"],
        settings.get(_SCOPE, "").strip() or options.get("scope", ""),
        tuple(sorted(extensions.items())),
        ca_file,
        ca_certificates,
        settings.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true",
    )


def _check_the_way(settings: Mapping[str, str], options: Mapping[str, str], path: str) -> None:
    """Checks that it is the grant of client credentials.

    Raises:
        WrongUseError: it is another one.
    """
    use = "use client credentials: an id and a secret at a token endpoint"
    handler = settings.get("sasl.login.callback.handler.class", "").strip()
    if handler and handler not in (*_HANDLERS, _STRIMZI_HANDLER):
        raise WrongUseError(f"{path}: sasl.login.callback.handler.class: {handler} is not supported; {use}")
    retriever = settings.get(_RETRIEVER, "").strip().rpartition(".")[2]
    if retriever and retriever not in _RETRIEVERS:
        raise WrongUseError(f"{path}: {_RETRIEVER}: {retriever} is not supported; {use}")
    if settings.get(ENDPOINT, "").strip().startswith("file:"):
        raise WrongUseError(f"{path}: {ENDPOINT}: a token in a file is not supported; {use}")
    if any(name.startswith("unsecuredLogin") for name in options):
        raise WrongUseError(f"{path}: sasl.jaas.config: tokens without a signature are not supported; {use}")
    given = ("oauth.access.token", "oauth.refresh.token", "oauth.username.password", "oauth.client.assertion")
    if other := [name for name in options if name.startswith(given)]:
        raise WrongUseError(f"{path}: sasl.jaas.config: {other[0]} is not supported; {use}")


class _Token(NamedTuple):
    text: str
    renewed_at: float
    """On the monotonic clock."""


class TokenProvider:
    """Tokens of one client, each used until most of its life is over. For any number of threads."""

    def __init__(self, credentials: ClientCredentials) -> None:
        """Takes the client's credentials; asks for nothing yet."""
        self._credentials = credentials
        self._lock = threading.Lock()
        self._held: _Token | None = None

    def token(self) -> str:
        """Returns a token that is valid for a while.

        Raises:
            TokenError: the identity provider does not answer, or refuses the client.
        """
        with self._lock:
            if self._held is None or time.monotonic() >= self._held.renewed_at:
                self._held = None
                self._held = self._ask()
            return self._held.text

    def _ask(self) -> _Token:
        wanted, asked = self._credentials, time.monotonic()
        form = {"grant_type": "client_credentials"} | ({"scope": wanted.scope} if wanted.scope else {})
        pair = [wanted.client_id, wanted.client_secret]
        if wanted.url_encode:
            pair = [quote(part, safe="") for part in pair]
        headers = {
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        request = urllib.request.Request(wanted.endpoint, urlencode(form).encode(), headers)  # noqa: S310 - checked
        server = urlsplit(wanted.endpoint).netloc.rpartition("@")[2]
        place = f"the token endpoint {server}"
        try:
            with _opener(wanted).open(request, timeout=_ASK_S) as answer:
                document = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise TokenError(f"{place} refuses client '{wanted.client_id}': {_refusal(error)}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise TokenError(f"{place} cannot be reached: {_words(reason)}") from error
        except ValueError as error:
            raise TokenError(f"{place} answers with something that is not JSON; check {ENDPOINT}") from error
        text = document.get("access_token") if isinstance(document, dict) else None
        if not isinstance(text, str) or not text:
            raise TokenError(f"{place} gives no access_token; check {ENDPOINT}")
        return _Token(text, asked + _LIFE_USED * _life_s(text, document))


def _opener(credentials: ClientCredentials) -> urllib.request.OpenerDirector:
    """Follows no redirection: a secret must not go elsewhere."""
    context = trusting_context(credentials.ca_file, credentials.ca_certificates)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirection)


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _refusal(error: urllib.error.HTTPError) -> str:
    """A token endpoint's answer, in RFC 6749's words where it uses them."""
    try:
        document = json.loads(error.read(_MOST_BYTES))
        said = [str(document[name]) for name in ("error", "error_description") if document.get(name)]
    except (ValueError, OSError, AttributeError):
        said = []
    return f"{': '.join(said)} (HTTP {error.code})" if said else f"HTTP {error.code} {error.reason}"


def _words(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    if isinstance(reason, TimeoutError):
        return f"no answer within {_ASK_S:.0f} s"
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)


def _life_s(token: str, document: Mapping[str, Any]) -> float:
    """How long a token lives: by its own times, which brokers judge by; else as the provider says."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return max(float(claims["exp"]) - float(claims.get("iat") or time.time()), 1.0)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        pass
    try:
        return max(float(document["expires_in"]), 1.0)
    except (KeyError, TypeError, ValueError):
        return _LIFE_S


@lru_cache(maxsize=64)
def provider(credentials: ClientCredentials) -> TokenProvider:
    """Returns the one provider of these credentials in this process, whose tokens all its clients share."""
    return TokenProvider(credentials)
