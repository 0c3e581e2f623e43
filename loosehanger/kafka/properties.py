"""Client properties: Java's file format, JAAS entries, placeholders and PEM, as Kafka's own tools read them.

The one place that reads and writes them. ``connection`` makes a connection of what is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from loosehanger import java_clients
from loosehanger.errors import WrongUseError
from loosehanger.paths import caller_path
from loosehanger.suggestions import did_you_mean

SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH_LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PLACEHOLDER = re.compile(r"\$\{(?:(?P<provider>[\w-]+):(?P<key>[^}]*)|(?P<variable>[A-Z_][A-Z0-9_]*))\}")
_JAAS_TOKEN = re.compile(
    r"""(?P<skip>[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)
      |(?P<quoted>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      |(?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_.$\xa0-\U0010ffff-]*)
      |(?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "r": "\r", "f": "\f", "a": "\a", "v": "\v"}
_JAAS_FLAGS = ("required", "requisite", "sufficient", "optional")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_PEM_WIDTH = 64

_KNOWN_FAMILIES = ("config.providers.", "sasl.kerberos.", "sasl.oauthbearer.")
_OF_LIBRDKAFKA = frozenset(
    """
    https.ca.location https.ca.pem metadata.broker.list sasl.mechanisms sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.extensions sasl.oauthbearer.grant.type sasl.oauthbearer.method
    sasl.password sasl.username ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem
    """.split()
)
"""Properties of clients that rest on librdkafka, which ``of_librdkafka`` understands."""
_OAUTH_OPTIONS = {"client.id": "clientId", "client.secret": "clientSecret"}
_NO_VERIFICATION = "enable.ssl.certificate.verification"
"""librdkafka's property that turns verification off, which no property of Kafka's does."""


@dataclass(frozen=True)
class LoginModule:
    """One JAAS entry. Its options, a password among them, never show in ``repr``."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def read_properties(path: Path) -> dict[str, str]:
    """Reads a file of properties: UTF-8 if it is valid, else ISO-8859-1; without its byte order mark.

    Raises:
        WrongUseError: the file cannot be read, or is not a file of properties.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WrongUseError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_properties(_decoded(data, path), str(path))


def parse_properties(text: str, where: str = "properties") -> dict[str, str]:
    """Reads properties as ``java.util.Properties`` does.

    Args:
        text: the properties.
        where: where they stand, for messages.

    Raises:
        WrongUseError: an escape that Java refuses too.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _parts(line)
        try:
            properties[_unescaped(key)] = _unescaped(value)
        except ValueError as error:
            raise WrongUseError(f"{where}: line {number}: {error}") from error
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Writes properties, one a line, sorted by name: ASCII, which Java reads as what was written."""
    return "".join(f"{_escaped(key, ' =:#!')}={_escaped(value)}\n" for key, value in sorted(properties.items()))


def resolve(properties: Mapping[str, str], environment: Mapping[str, str], where: str) -> dict[str, str]:
    """Replaces placeholders: ``${env:NAME}`` as for Kafka's EnvVarConfigProvider, and ``${NAME}`` in capitals.

    Args:
        properties: what was read.
        environment: the variables.
        where: where the properties stand, for messages.

    Raises:
        WrongUseError: a variable is not set, or a placeholder is of a provider that is declared and not supported.
    """
    providers = {name.strip() for name in properties.get("config.providers", "").split(",") if name.strip()}
    environments = {"env"} | {
        name
        for name in providers
        if properties.get(f"config.providers.{name}.class", "").endswith(".EnvVarConfigProvider")
    }

    def of(key: str) -> str:
        def value(found: re.Match[str]) -> str:
            provider, variable = found["provider"], found["variable"] or found["key"]
            if provider is not None and provider not in environments:
                if provider in providers:
                    raise WrongUseError(
                        f"{where}: {key}: the configuration provider '{provider}' is not supported; "
                        "use environment variables (${env:NAME})"
                    )
                return found[0]
            if variable not in environment:
                raise WrongUseError(f"{where}: {key}: the environment variable {variable} is not set")
            return environment[variable]

        return _PLACEHOLDER.sub(value, properties[key])

    return {key: of(key) for key in properties}


def of_librdkafka(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """Rewrites properties of clients that rest on librdkafka as Kafka's own, which come first where both are given.

    Args:
        properties: the client properties.
        where: where they stand, for messages.

    Raises:
        WrongUseError: a file that they name cannot be read.
    """
    found = dict(properties)
    given = {name: value for name in _OF_LIBRDKAFKA if (value := found.pop(name, "").strip())}

    def take(name: str, value: str | None) -> None:
        if value and not found.get(name, "").strip():
            found[name] = value

    take("bootstrap.servers", given.get("metadata.broker.list"))
    take("sasl.mechanism", given.get("sasl.mechanisms"))
    if oauth := _oauth_of(given, where):
        take("sasl.jaas.config", format_jaas(oauth))
    elif "sasl.username" in given or "sasl.password" in given:
        module = PLAIN_LOGIN_MODULE if found.get("sasl.mechanism", "").strip() == "PLAIN" else SCRAM_LOGIN_MODULE
        user = {"username": "sasl.username", "password": "sasl.password"}
        if missing := [name for name in user.values() if name not in given]:
            raise WrongUseError(f"{where}: {missing[0]} is missing")
        options = {option: given[name] for option, name in user.items()}
        take("sasl.jaas.config", format_jaas(LoginModule(module, options)))
    if not any(found.get(name, "").strip() for name in ("ssl.truststore.location", "ssl.truststore.certificates")):
        take("ssl.truststore.location", given.get("ssl.ca.location"))
        take("ssl.truststore.certificates", given.get("ssl.ca.pem"))
    for name, location in (("certificate", "certificate.chain"), ("key", "key")):
        path = given.get(f"ssl.{name}.location")
        pem = _pem_of(caller_path(path), f"{where}: ssl.{name}.location") if path else given.get(f"ssl.{name}.pem")
        take(f"ssl.keystore.{location}", pem)
    return found


def _oauth_of(given: Mapping[str, str], where: str) -> LoginModule | None:
    """The client credentials of librdkafka's properties as a JAAS entry; None where they have none."""
    prefix = "sasl.oauthbearer."
    own = {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
    if not own:
        return None
    if (
        own.get("method", "oidc").lower() != "oidc"
        or own.get("grant.type", "client_credentials") != "client_credentials"
    ):
        raise WrongUseError(f"{where}: {prefix}method: only 'oidc' with the grant client_credentials is supported")
    options = {option: own[name] for name, option in _OAUTH_OPTIONS.items() if name in own}
    for pair in filter(None, (part.strip() for part in own.get("extensions", "").split(","))):
        name, _, value = pair.partition("=")
        options[f"extension_{name}"] = value
    for name, option in (("location", "location"), ("pem", "certificates")):
        if authority := given.get(f"https.ca.{name}"):
            options |= {"ssl.truststore.type": "PEM", f"ssl.truststore.{option}": authority}
    return LoginModule(OAUTH_LOGIN_MODULE, options)


def _pem_of(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise WrongUseError(f"{where}: {path} cannot be read ({error.strerror})") from error


def unknown_properties(properties: Mapping[str, str]) -> list[str]:
    """Names the properties that no client of Kafka's knows, a sentence each, with what was probably meant."""
    said = []
    for key in sorted(properties):
        if key in java_clients.ALL or key in _OF_LIBRDKAFKA or key.startswith(_KNOWN_FAMILIES):
            continue
        if key == _NO_VERIFICATION:
            said.append(f"'{key}' is librdkafka's and has no effect here; no property of Kafka's turns it off")
            continue
        said.append(f"'{key}' is unknown and has no effect{did_you_mean(key, java_clients.ALL)}")
    return said


def parse_jaas(text: str, where: str) -> LoginModule:
    """Reads the one entry of ``sasl.jaas.config``.

    Args:
        text: its value.
        where: what it is, for messages, which never show any of it.

    Raises:
        WrongUseError: it is not an entry that Java's clients read.
    """
    tokens = _jaas_tokens(text, where)
    kinds = [kind for kind, _ in tokens]
    if kinds[:2] != ["word", "word"] or tokens[1][1].lower() not in _JAAS_FLAGS:
        raise WrongUseError(f'{where}: expected \'{SCRAM_LOGIN_MODULE} required username="…" password="…";\'')
    options: dict[str, str] = {}
    place = 2
    while place < len(tokens) and tokens[place] != ("mark", ";"):
        value = kinds[place + 1 : place + 3]
        if kinds[place] == "mark" or tokens[place + 1 : place + 2] != [("mark", "=")] or value[1:] in ([], ["mark"]):
            raise WrongUseError(f"{where}: option {place // 3 + 1} is not 'name=\"value\"'")
        options[tokens[place][1]] = tokens[place + 2][1]
        place += 3
    if place == len(tokens):
        raise WrongUseError(f"{where}: the ';' at its end is missing")
    if place + 1 < len(tokens):
        raise WrongUseError(f"{where}: only one login module is possible")
    return LoginModule(tokens[0][1], options)


def format_jaas(module: LoginModule) -> str:
    """Writes an entry for ``sasl.jaas.config``."""
    options = "".join(
        ' {}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in module.options.items()
    )
    return f"{module.name} required{options};"


def certificates(pem: str, where: str) -> str:
    """The certificates of an inline PEM, which may stand in one line, as clients of every kind read them.

    Raises:
        WrongUseError: the text has no certificate.
    """
    found = ["".join(body.split()) for body in _CERTIFICATE.findall(pem)]
    if not found:
        raise WrongUseError(f"{where}: has no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    return "".join(
        "-----BEGIN CERTIFICATE-----\n"
        + "".join(f"{body[start : start + _PEM_WIDTH]}\n" for start in range(0, len(body), _PEM_WIDTH))
        + "-----END CERTIFICATE-----\n"
        for body in found
    )


def _decoded(data: bytes, path: Path) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise WrongUseError(f"{path}: is UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines with a property, continued ones joined, and the number of the first line of each."""
    joined, began = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not joined and (not line or line[0] in "#!"):
            continue
        began = began if joined else number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield began, joined + line
        joined = ""
    if joined:
        yield began, joined


def _parts(line: str) -> tuple[str, str]:
    """A logical line's key and value, with their escapes."""
    found = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    return (found[1], found[2]) if found else (line, "")


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        letter = found[1]
        if letter[0] != "u":
            return _ESCAPES.get(letter, letter)
        if not re.fullmatch("u[0-9a-fA-F]{4}", letter):
            raise ValueError("'\\u' is not followed by four hexadecimal digits")
        return chr(int(letter[1:], 16))

    value = re.sub(r"\\(u[0-9a-fA-F]{0,4}|.|$)", lambda found: one(found) if found[1] else "", text, flags=re.DOTALL)
    # Java writes what is beyond the basic plane as two escapes.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escaped(text: str, special: str = "") -> str:
    written = []
    for place, letter in enumerate(text):
        if letter in special or letter == "\\" or (letter == " " and place == 0):
            written.append("\\" + letter)
        elif letter in "\t\n\r\f":
            written.append("\\" + next(name for name, meant in _ESCAPES.items() if meant == letter))
        elif " " <= letter <= "~":
            written.append(letter)
        else:
            units = letter.encode("utf-16-be")
            written += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(written)


def _jaas_tokens(text: str, where: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    while place < len(text):
        found = _JAAS_TOKEN.match(text, place)
        if not found:
            raise WrongUseError(
                f"{where}: cannot be read from its character {place + 1} on; "
                "values with other characters than letters, digits, '_', '-', '.' and '$' must be in quotes"
            )
        place, kind, token = found.end(), found.lastgroup or "", found[0]
        if kind == "quoted":
            token = _JAAS_ESCAPE.sub(_jaas_unescaped, token[1:-1])
        if kind != "skip":
            tokens.append((kind, token))
    return tokens


def _jaas_unescaped(found: re.Match[str]) -> str:
    said = found[1]
    return chr(int(said, 8)) if said[0] in "01234567" else _JAAS_ESCAPES.get(said, said)
