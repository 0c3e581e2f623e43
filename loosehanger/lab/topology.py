"""The topology of a lab: clusters, mirrors, users and secrets, read from the manifests alone.

Before a set-up the documents come from the roles, and afterwards from the record. So every command gets the same
answer, and a file that was edited and not applied has no effect.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loosehanger.errors import WrongUseError
from loosehanger.lab.manifests import sign_ins, views
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.manifests.views import MIRROR, MirrorMaker, Program, listeners_of
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import (
    DEFAULT_EXCLUDED,
    IDENTITY_POLICY,
    STATE_TOPICS,
    SYNCHRONISATION,
    selected_topics,
    target_topic,
)
from loosehanger.lab.scenario import CopiedSecret

SOURCE_CONNECTOR = "MirrorSourceConnector"
CHECKPOINT_CONNECTOR = "MirrorCheckpointConnector"
SERVICE = re.compile(
    r"\b(?P<cluster>[a-z0-9][a-z0-9-]*)-kafka-bootstrap\.(?P<region>[a-z0-9][a-z0-9-]*)"
    r"\.svc(?:\.cluster\.local)?:(?P<port>\d+)\b"
)
"""The address of a Kafka cluster in a manifest."""


class Address(NamedTuple):
    """The listener that an address in a manifest belongs to."""

    region: str
    cluster: str


@dataclass(frozen=True)
class SecretCopy:
    """A secret that is copied from one region to another."""

    origin: str
    name: str
    region: str
    """The region that needs the copy."""
    as_name: str
    """Its name there."""
    maker: str
    """The kind of the resource that creates it, such as ``KafkaUser``."""

    @property
    def source(self) -> str:
        """The mark on a copy that names its origin: ``region/name``."""
        return f"{self.origin}/{self.name}"


class Topology:
    """The topology that a lab's documents describe."""

    def __init__(self, documents: Iterable[Document], secrets: Sequence[CopiedSecret] = ()) -> None:
        self._documents = tuple(documents)
        self._declared_secrets = tuple(secrets)
        offered = list(self._offered())
        self._addresses = {text: address for text, address, _ in offered}
        self._listeners = {text: listener for text, _, listener in offered}

    @property
    def regions(self) -> tuple[str, ...]:
        """Every region that has resources."""
        return tuple(dict.fromkeys(document.namespace for document in self._documents))

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """Every source of every mirror that has a source connector."""
        return tuple(mirror for document in self.of_kind(MIRROR) for _, mirror in self._mirrors_of(document))

    def where(self, mirror: Mirror) -> str:
        """Returns file, line, resource and field of a mirror's source, for messages."""
        return next(
            document.where("spec", "mirrors", index)
            for document in self.of_kind(MIRROR)
            for index, found in self._mirrors_of(document)
            if found.id == mirror.id
        )

    @property
    def declared_topics(self) -> tuple[tuple[str, str], ...]:
        """Region and name of every topic that a manifest declares."""
        return tuple(
            (document.namespace, str(document.spec.get("topicName") or document.name))
            for document in self.of_kind("KafkaTopic")
        )

    def of_kind(self, kind: str, region: str | None = None) -> list[Document]:
        """Returns every resource of a kind, in one region or in all."""
        return [
            document for document in self._documents if document.kind == kind and region in (None, document.namespace)
        ]

    def clusters(self, region: str) -> tuple[str, ...]:
        """Returns the names of a region's Kafka clusters."""
        return tuple(document.name for document in self.of_kind("Kafka", region))

    def users(self, region: str) -> tuple[str, ...]:
        """Returns the names of a region's users."""
        return tuple(document.name for document in self.of_kind("KafkaUser", region))

    def address(self, text: str, where: str) -> Address:
        """Returns the cluster that an address belongs to.

        Args:
            text: such as ``west-kafka-bootstrap.west.svc:9098``.
            where: the field with the address, for the message.

        Raises:
            WrongUseError: no Kafka of the scenario has this address.
        """
        name = short_address(text)
        if name not in self._addresses:
            raise WrongUseError(
                f"{where}: no Kafka of this scenario has the address '{text}'; "
                f"the addresses are: {', '.join(sorted(self._addresses)) or 'none'}"
            )
        return self._addresses[name]

    def listener(self, text: str) -> Mapping[str, Any] | None:
        """Returns the listener at an address, in its manifest's form; None for an address of no Kafka here."""
        return self._listeners.get(short_address(text))

    def first_listener(self, region: str) -> Mapping[str, Any]:
        """Returns the first listener of a region's cluster, which the kit's own clients use; empty without one."""
        return next((one for text, one in self._listeners.items() if self._addresses[text].region == region), {})

    def user(self, region: str, name: str) -> Document | None:
        """Returns a KafkaUser of a region; None for a name that no manifest has."""
        return next((user for user in self.of_kind("KafkaUser", region) if user.name == name), None)

    def connected(self) -> Topology:
        """Returns the topology without mirrors one of whose clusters is missing, such as one being recreated."""
        kept = (document for document in self._documents if document.kind != MIRROR or self._is_connected(document))
        return Topology(kept, self._declared_secrets)

    @property
    def crossings(self) -> tuple[tuple[str, str], ...]:
        """Pairs of regions: programs of the first use services of the second."""
        found: dict[tuple[str, str], None] = {}
        for document in self._documents:
            for text in _texts(document.content):
                for match in _ANY_SERVICE.finditer(text):
                    if match[1] != document.namespace and match[1] in self.regions:
                        found[document.namespace, match[1]] = None
        return tuple(found)

    def secret_copies(self) -> tuple[SecretCopy, ...]:
        """Returns the secrets that each region needs from another, each once.

        A secret that a mirror names for one of its ends belongs to that end's region. A secret that a program mounts
        belongs to its own region if that has it, else to a region whose address is in the program's environment.

        Raises:
            WrongUseError: no manifest creates a secret that is needed, or the region already has another of its name.
        """
        copies = {
            **dict.fromkeys(self._copies_of_mirrors()),
            **dict.fromkeys(self._copies_of_programs()),
            **dict.fromkeys(self._copies_declared()),
        }
        places: dict[tuple[str, str], SecretCopy] = {}
        for copy in copies:
            other = places.setdefault((copy.region, copy.as_name), copy)
            if other != copy:
                raise WrongUseError(
                    f"{copy.region}: the secret '{copy.as_name}' would be that of {copy.origin} and that of "
                    f"{other.origin}; give the users different names"
                )
        return tuple(copies)

    def check(self) -> None:
        """Checks that the manifests of all regions fit together.

        Raises:
            WrongUseError: an address belongs to no cluster, two regions have one alias, two mirrors share a worker
                group or a state topic, mirrors that keep topic names form a loop, no manifest creates a secret, or a
                mirror signs in as its cluster does not allow.
        """
        self._check_sign_ins()
        self._check_aliases()
        self._check_state()
        self._check_loops()
        self.secret_copies()

    # Reading the documents.

    def _offered(self) -> Iterator[tuple[str, Address, Mapping[str, Any]]]:
        for kafka in self.of_kind("Kafka"):
            for listener in listeners_of(kafka.content):
                address = f"{kafka.name}-kafka-bootstrap.{kafka.namespace}.svc:{listener.get('port')}"
                yield address, Address(kafka.namespace, kafka.name), listener

    def _ends(self, document: Document) -> Iterator[tuple[Mapping[str, Any], str, tuple[str | int, ...]]]:
        """Yields the target and the sources of a mirror: content, region, and path in the manifest."""
        for end, path in MirrorMaker(document.content).ends:
            where = document.where(*path, "bootstrapServers")
            yield end, self.address(str(end.get("bootstrapServers", "")), where).region, path

    def _is_connected(self, document: Document) -> bool:
        try:
            return bool(list(self._ends(document)))
        except WrongUseError:
            return False

    def _mirrors_of(self, document: Document) -> Iterator[tuple[int, Mirror]]:
        """Yields the sources of a mirror, each with its index in ``spec.mirrors``."""
        (target_end, target, _), *sources = self._ends(document)
        mirrors = MirrorMaker(document.content).mirrors
        for index, ((end, source, _), mirror) in enumerate(zip(sources, mirrors, strict=True)):
            if "sourceConnector" not in mirror:
                continue
            connector = mirror["sourceConnector"] or {}
            config = connector.get("config") or {}
            pair = f"{end.get('alias')}->{target_end.get('alias')}"
            checkpoints = "checkpointConnector" in mirror
            found = Mirror(
                name=document.name,
                source_alias=str(end.get("alias")),
                target_alias=str(target_end.get("alias")),
                source=source,
                target=target,
                policy="identity" if config.get("replication.policy.class") == IDENTITY_POLICY else "default",
                separator=str(config.get("replication.policy.separator", ".")),
                topics=mirror.get("topicsPattern") or ".*",
                topics_exclude=mirror.get("topicsExcludePattern") or DEFAULT_EXCLUDED,
                connector=f"{pair}.{SOURCE_CONNECTOR}",
                region=document.namespace,
                groups=(mirror.get("groupsPattern") or ".*") if checkpoints else "",
                groups_exclude=mirror.get("groupsExcludePattern") or "" if checkpoints else "",
                checkpoint_connector=f"{pair}.{CHECKPOINT_CONNECTOR}" if checkpoints else "",
                offset_syncs=str(config.get("offset-syncs.topic.location", "source")),
                state=connector.get("state") or "running",
                transforms=bool(config.get("transforms")),
                checkpoint_state=(mirror.get("checkpointConnector") or {}).get("state") or "running",
                synchronisation={name: str(config[name]) for name in SYNCHRONISATION if name in config},
            )
            yield index, found

    # Secrets.

    def _made(self, region: str) -> dict[str, Document]:
        """Returns the secrets that a region creates itself, each with the resource that creates it."""
        own = [document for document in self._documents if document.namespace == region]
        # With tokens a user's secret is a manifest of its own; it identifies the user all the same.
        own.sort(key=lambda document: document.kind != "Secret")
        return {name: document for document in own for name in secrets_of(document)}

    def _copies_of_mirrors(self) -> Iterator[SecretCopy]:
        for document in self.of_kind(MIRROR):
            for end, region, path in self._ends(document):
                for name, place in _named_by_end(end):
                    if "config" in place and name in self._made(document.namespace):
                        continue  # The identity provider's client secret, say, is of no cluster.
                    yield from self._needed(document, name, region, document.where(*path, *place))

    def _copies_of_programs(self) -> Iterator[SecretCopy]:
        for document in self.of_kind("Deployment"):
            program = Program(document.content)
            values = list(program.variables.values())
            addresses = [match for value in values for match in SERVICE.finditer(value)]
            regions = dict.fromkeys(self.address(match[0], document.where()).region for match in addresses)
            # The names of other regions' services, Connect's REST interface among them, contain the region.
            regions |= dict.fromkeys(
                match[1] for value in values for match in _ANY_SERVICE.finditer(value) if match[1] in self.regions
            )
            for volume in program.pod.get("volumes") or ():
                name = (volume.get("secret") or {}).get("secretName")
                if (
                    name is None
                    or name in self._made(document.namespace)
                    or self._is_declared(name, document.namespace)
                ):
                    continue
                owners = [region for region in regions if name in self._made(region)]
                if len(owners) != 1:
                    reason = (
                        f"both {' and '.join(owners)} create it; give one of them another name"
                        if owners
                        else "no manifest creates it; add it, or remove the volume"
                    )
                    raise WrongUseError(f"{document.where()}: the secret '{name}': {reason}")
                yield SecretCopy(owners[0], name, document.namespace, name, self._made(owners[0])[name].kind)

    def _copies_declared(self) -> Iterator[SecretCopy]:
        for secret in self._declared_secrets:
            if secret.from_ not in self.regions:
                continue  # The region was deleted, and its secret was copied before that.
            if secret.name not in self._made(secret.from_):
                raise WrongUseError(
                    f"scenario.yaml: secrets: the secret '{secret.name}' does not exist in {secret.from_}, and no "
                    "manifest creates it"
                )
            maker = self._made(secret.from_)[secret.name].kind
            yield SecretCopy(secret.from_, secret.name, secret.to, secret.as_ or secret.name, maker)

    def _is_declared(self, name: str, region: str) -> bool:
        return any((secret.as_ or secret.name, secret.to) == (name, region) for secret in self._declared_secrets)

    def _needed(self, document: Document, name: str, owner: str, where: str) -> Iterator[SecretCopy]:
        here = document.namespace
        if self._is_declared(name, here):
            return
        if name not in self._made(owner):
            raise WrongUseError(
                f"{where}: the secret '{name}' does not exist in {owner}, and no manifest creates it; "
                "add a KafkaUser of that name"
            )
        if owner == here:
            return
        if maker := self._made(here).get(name):
            raise WrongUseError(
                f"{where}: the secret '{name}' of {owner} would overwrite the one that {here} has by {maker.where()}; "
                "give one of them another name"
            )
        yield SecretCopy(owner, name, here, name, self._made(owner)[name].kind)

    # How mirrors fit together.

    def _check_sign_ins(self) -> None:
        for document in self.of_kind(MIRROR):
            for end, region, path in self._ends(document):
                client = sign_ins.of_end(end)
                listener = self.listener(str(end.get("bootstrapServers", ""))) or {}
                secret = ((end.get("authentication") or {}).get("passwordSecret") or {}).get("secretName")
                user, users = sign_ins.user_of(end), self.users(region)
                if secret != user and secret in users and user in users:
                    where = document.where(*path, "authentication", "passwordSecret", "secretName")
                    raise WrongUseError(f"{where}: is the password of KafkaUser/{secret}, and the user is '{user}'")
                refused = sign_ins.why_refused(listener, client) or self._why_not_user(region, end, client)
                if not refused:
                    continue
                field = ("tls",) if bool(listener.get("tls")) != client.is_encrypted else ("authentication", "type")
                raise WrongUseError(f"{document.where(*path, *field)}: {region} would refuse it: {refused}")

    def _why_not_user(self, region: str, end: Mapping[str, Any], client: sign_ins.SignIn) -> str:
        """Returns why the user of a mirror's end cannot sign in like that; empty if it can or no manifest has it."""
        name = sign_ins.user_of(end)
        user = self.user(region, name)
        kind = sign_ins.user_type(user.content) if user else ""
        if not kind:
            return ""
        if kind == "scram-sha-512" and client.mechanism != sign_ins.SCRAM_512:
            return f"KafkaUser/{name} has a password for {sign_ins.SCRAM_512} alone; remove its authentication"
        if kind in (sign_ins.TLS, sign_ins.TLS_EXTERNAL) and not client.has_certificate:
            return f"KafkaUser/{name} has a certificate (type {kind}), and no password"
        return ""

    def _check_aliases(self) -> None:
        known: dict[str, tuple[str, str]] = {}
        for document in self.of_kind(MIRROR):
            for end, region, path in self._ends(document):
                where = document.where(*path, "alias")
                other, first = known.setdefault(str(end.get("alias")), (region, where))
                if other != region:
                    raise WrongUseError(
                        f"{where}: '{end.get('alias')}' is {region} here and {other} elsewhere ({first}); "
                        "give each region an alias of its own"
                    )

    def _check_state(self) -> None:
        taken: dict[tuple[str, str, str], str] = {}
        for document in self.of_kind(MIRROR):
            end, target, _ = next(self._ends(document))
            for name in ("groupId", *STATE_TOPICS):
                use = (target, "group" if name == "groupId" else "topic", str(end.get(name)))
                if other := taken.get(use):
                    raise WrongUseError(
                        f"{document.where('spec', 'target', name)}: '{use[2]}' is also {other} on the same target "
                        "cluster; they would overwrite each other's state: give each its own"
                    )
                taken[use] = f"{name} of {document.reference} ({document.source})"

    def _check_loops(self) -> None:
        flows: dict[str, dict[str, str]] = {}
        for document in self.of_kind(MIRROR):
            for _, mirror in self._mirrors_of(document):
                if mirror.policy == "identity" and mirror.state == "running":
                    flows.setdefault(mirror.source, {})[mirror.target] = f"{document.source}: {document.reference}"
        for start in flows:
            if loop := _loop(flows, start, [start]):
                names = [flows[a][b] for a, b in itertools.pairwise(loop)]
                raise WrongUseError(
                    f"{'; '.join(names)}: with IdentityReplicationPolicy these mirrors form a loop "
                    f"({' -> '.join(loop)}), in which records circulate forever; "
                    "remove one of them, or use DefaultReplicationPolicy"
                )
        running = [mirror for mirror in self.mirrors if mirror.state == "running"]
        for region, topic in self.declared_topics:
            if ring := _ring(running, [], region, topic):
                names = [self.where(mirror) for mirror, _ in ring]
                raise WrongUseError(
                    f"{'; '.join(names)}: {region}'s {topic} would return to the region it was copied from, and "
                    f"circulate forever under longer and longer names ({' -> '.join(name for _, name in ring)}), "
                    "because IdentityReplicationPolicy adds no prefix by which its source recognises its own topics; "
                    "narrow topicsPattern, or use DefaultReplicationPolicy throughout"
                )


OF_IDENTITY = ("Kafka", "KafkaUser")
"""The kinds whose secrets authenticate clients and clusters to each other."""
_CLUSTER_SECRETS = ("cluster-ca-cert", "cluster-ca", "clients-ca-cert", "clients-ca")
_ANY_SERVICE = re.compile(r"\b[a-z0-9][a-z0-9-]*\.([a-z0-9][a-z0-9-]*)\.svc(?:\.cluster\.local)?:\d+\b")


def clients_of(topology: Topology, region: str) -> set[tuple[str, str]]:
    """Returns region and name of the producers and consumers, wherever they run, of a region's clusters."""
    addresses = {
        (document.namespace, document.name): (Program(document.content).cluster_address, document.where())
        for document in topology.of_kind("Deployment")
    }
    known = {client: place for client, place in addresses.items() if topology.listener(place[0])}
    return {client for client, place in known.items() if topology.address(*place).region == region}


def short_address(text: str) -> str:
    """Returns a service's address without the domain of its Kubernetes cluster."""
    return text.strip().replace(".svc.cluster.local:", ".svc:")


def _texts(content: object) -> Iterator[str]:
    """Yields every text in a resource."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for value in content.values():
            yield from _texts(value)
    elif isinstance(content, Sequence):
        for value in content:
            yield from _texts(value)


def secrets_of(document: Document) -> Sequence[str]:
    """Returns the names of the secrets that the operators create for a resource."""
    match document.kind:
        case "KafkaUser" if sign_ins.user_type(document.content) == sign_ins.TLS_EXTERNAL:
            return ()
        case "Secret" | "KafkaUser":
            return (document.name,)
        case "Kafka":
            return [f"{document.name}-{part}" for part in _CLUSTER_SECRETS]
        case views.MIRROR:
            # Only if Connect's REST interface requires a password.
            return [f"{document.name}-connect", f"{document.name}-connect-cluster-ca-cert"]
        case _:
            return ()


def identity_of(document: Document) -> Sequence[str]:
    """Returns the secrets of a resource that authenticate clients and clusters to each other."""
    return secrets_of(document) if document.kind in OF_IDENTITY else ()


def _named_by_end(end: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yields the secrets that an end of a mirror names, each with its path."""
    for index, certificate in enumerate((end.get("tls") or {}).get("trustedCertificates") or ()):
        yield str(certificate.get("secretName")), ("tls", "trustedCertificates", index, "secretName")
    authentication = end.get("authentication") or {}
    for field in ("passwordSecret", "certificateAndKey"):
        if "secretName" in (reference := authentication.get(field) or {}):
            yield str(reference["secretName"]), ("authentication", field, "secretName")
    for key, value in (authentication.get("config") or {}).items():
        for found in sign_ins.REFERENCE.finditer(str(value)):
            yield found["secret"], ("authentication", "config", key)


def _loop(flows: dict[str, dict[str, str]], start: str, path: list[str]) -> list[str] | None:
    for end in flows.get(path[-1], {}):
        if end == start:
            return [*path, end]
        if end not in path and (loop := _loop(flows, start, [*path, end])):
            return loop
    return None


def _ring(
    mirrors: Sequence[Mirror], path: list[tuple[Mirror, str]], region: str, topic: str
) -> list[tuple[Mirror, str]]:
    """Returns the path of a topic from a mirror back to the same mirror, with its name at each hop; empty for none."""
    for mirror in mirrors:
        if mirror.source == region and selected_topics(mirror, [topic]):
            before = [known.id for known, _ in path]
            further = [*path, (mirror, target_topic(mirror, topic))]
            if mirror.id in before:
                return further[before.index(mirror.id) :]
            if ring := _ring(mirrors, further, mirror.target, further[-1][1]):
                return ring
    return []
