"""The site of an experiment: two regions, the mirror and the link between them, and topics of its own.

Afterwards, also after a failure, the link is restored and the topics are deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, UnknownTopicOrPartitionError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.clients import PATIENT, connect_admin
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.kafka.links import OPEN, ask, link_state, relay_folders, wanted_change
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import selected_topics, target_topic
from loosehanger.lab.progress import LOCAL
from loosehanger.lab.record import Lab
from loosehanger.platforms.operations import FindAddresses
from loosehanger.waiting import wait_for

_MIRRORED, _DIRECT = "LH.EXPERIMENT-", "experiment-"
"""Prefixes of its topics: of those that are mirrored, and of those that no mirror copies."""
_OWN = re.compile(
    rf"(?:.*[^\w-])?(?:{re.escape(_MIRRORED)}[0-9a-f]{{8}}|{re.escape(_DIRECT)}[0-9a-f]{{8}}(?:-[0-9]+(?:\.internal)?)?)"
)
"""A topic, its copies, and the internal topics of a dedicated mirror, which have its source's name."""
_CREATED_S, _DELETED_S, _LINK_S = 90, 30, 20
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop an experiment."""
LinkState = dict[str, Any]
"""The answer of a link's relay."""


@dataclass(frozen=True)
class Site:
    """Two regions, with the mirror and the link between them."""

    lab: Lab
    home: Path
    mirror: Mirror
    folder: Path
    """The folder of their link's relay."""
    abroad: Connection
    """The target's connection to the source's cluster, through the link."""
    mirrored: str
    """The source's name of the mirrored topic, which does not exist yet."""
    direct: str
    """The topic that is not mirrored."""
    find_addresses: FindAddresses

    @property
    def copy(self) -> str:
        """The name of the mirrored topic at the target."""
        return target_topic(self.mirror, self.mirrored)

    @property
    def mirror_client(self) -> str:
        """The mirror's client name in the link's counters."""
        return f"KafkaMirrorMaker2/{self.mirror.name}"

    def at_home(self, region: str) -> Connection:
        """A region's connection to its own cluster."""
        return connection_for(self.lab.region(region), ADMINISTRATOR)

    def across(self, into: str, seen_from: str) -> Connection:
        """One region's connection to the other's cluster, through the link.

        Raises:
            WrongUseError: there is no link between them.
        """
        return _across(self.lab, self.home, self.find_addresses, into, seen_from)

    def link(self, values: dict[str, float] | None = None, action: str | None = None) -> LinkState:
        """Changes both directions of the link if asked, and returns its state.

        Raises:
            LabError: it does not answer.
        """
        wanted = None
        if values is not None or action is not None:
            wanted = wanted_change(self.mirror.source, self.mirror.target, values or {}, action, one_way=False)
        try:
            return ask(self.folder, wanted)
        except OSError as error:
            raise LabError(f"the link does not answer ({error.strerror or error}); run ./lab status") from error


def choose(lab: Lab, home: Path, find_addresses: FindAddresses, source: str | None, target: str | None) -> Site:
    """Chooses the site of an experiment.

    Args:
        lab: what is set up.
        home: the lab's home.
        find_addresses: the platform's.
        source: the mirror's source; None for that of the first suitable mirror.
        target: the mirror's target; None likewise.

    Raises:
        WrongUseError: the lab has no suitable mirror, or its link is closed.
        LabError: the link does not answer.
    """
    if lab.platform != LOCAL:
        raise WrongUseError(
            f"on {lab.platform} the cluster provides the links between regions, not the kit; experiments need the "
            "local platform"
        )
    for region in filter(None, (source, target)):
        lab.region(region)
    number = secrets.token_hex(4)
    mirrored, direct = _MIRRORED + number, _DIRECT + number
    fit = [
        mirror
        for mirror in lab.mirrors
        if {mirror.source, mirror.target} <= lab.clusters.keys()
        and mirror.region == mirror.target
        and mirror.state == "running"
        and not mirror.transforms
        and selected_topics(mirror, [mirrored])
        and not any(selected_topics(other, [direct]) for other in lab.mirrors)
    ]
    chosen = [m for m in fit if source in (None, m.source) and target in (None, m.target)]
    if not chosen:
        pairs = ", ".join(f"--source {m.source} --target {m.target}" for m in fit)
        where = f" from {source or 'anywhere'} to {target or 'anywhere'}" if source or target else ""
        advice = f"try {pairs}" if pairs else "./lab scenarios shows which scenarios mirror"
        raise WrongUseError(
            f"{lab.scenario} has no mirror{where} for an experiment, which must run beside its target and copy "
            f"topics whose names begin with LH.; {advice}"
        )
    mirror = chosen[0]
    pair = {mirror.source, mirror.target}
    folder = next((folder for ends, folder in relay_folders(home).items() if set(ends) == pair), None)
    abroad = _across(lab, home, find_addresses, mirror.source, mirror.target)
    if folder is None:
        raise _no_link(mirror.source, mirror.target)
    site = Site(lab, home, mirror, folder, abroad, mirrored, direct, find_addresses)
    if (state := link_state(site.link())) != OPEN:
        raise WrongUseError(
            f"the link is {state}; run ./lab link {mirror.source} {mirror.target} --heal, then run the experiment"
        )
    return site


def _across(lab: Lab, home: Path, find_addresses: FindAddresses, into: str, seen_from: str) -> Connection:
    connection = connection_for(lab.region(into), ADMINISTRATOR)
    servers = find_addresses(home, into, connection.bootstrap_servers, seen_from)
    if servers is None:
        raise _no_link(into, seen_from)
    return replace(connection, bootstrap_servers=tuple(servers))


def _no_link(into: str, seen_from: str) -> WrongUseError:
    return WrongUseError(f"there is no link between {into} and {seen_from}; run the set-up again")


def is_own(topic: str) -> bool:
    """Whether a topic is an experiment's, or a copy of one."""
    return _OWN.fullmatch(topic) is not None


@contextlib.contextmanager
def prepared(site: Site) -> Iterator[None]:
    """Creates the topics, and afterwards deletes them and restores the link, also after a failure.

    Raises:
        WrongUseError: another experiment is running.
        LabError: a cluster or the link does not answer.
    """
    with (site.home / "access" / "experiment.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise WrongUseError("another experiment is running on this lab; wait for its end") from error
        before = site.link()
        try:
            _delete_topics(site)  # of an experiment that was killed
            with administration(site, site.mirror.source) as admin:
                admin.create_topics([NewTopic(name, 1, -1) for name in (site.mirrored, site.direct)])
            with administration(site, site.mirror.target) as admin:
                wait_for(
                    lambda: None if site.copy in admin.list_topics() else "the topic does not exist",
                    _CREATED_S,
                    f"{site.mirror.target}: {site.copy}, which the mirror creates",
                )
            yield
        finally:
            with uninterrupted():
                try:
                    put_back(site, before)
                finally:
                    _delete_topics(site)


def put_back(site: Site, before: LinkState) -> None:
    """Restores the link's earlier settings."""

    def refused() -> str | None:
        try:
            for way in before["directions"]:
                values = {name: way[name] for name in ("delay", "jitter", "rate")}
                ask(site.folder, wanted_change(way["from"], way["to"], values, "heal", one_way=True))
        except OSError as error:
            return f"it does not answer ({error.strerror or error})"
        return None

    wait_for(refused, _LINK_S, "restoring the link's settings")


def _delete_topics(site: Site) -> None:
    """Deletes every topic of experiments, the source's first, since mirrors would recreate the copies."""
    regions = [site.mirror.source, *(name for name in site.lab.clusters if name != site.mirror.source)]
    for region in regions:
        with administration(site, region) as admin:
            own = [name for name in admin.list_topics() if is_own(name)]
            for name in own:
                # Mirrors may still write records to a copy that they read before.
                if region != site.mirror.source:
                    _wait_until_at_rest(admin, name)
                with contextlib.suppress(UnknownTopicOrPartitionError):
                    admin.delete_topics([name])
    for region in regions:
        with administration(site, region) as admin:

            def there(admin: KafkaAdminClient = admin) -> str | None:
                return ", ".join(name for name in admin.list_topics() if is_own(name)) or None

            wait_for(there, _DELETED_S, f"{region}: deleting topics")


def _wait_until_at_rest(admin: KafkaAdminClient, topic: str) -> None:
    sizes: list[int] = []

    def growing() -> str | None:
        sizes.append(stored(admin, topic))
        return None if len(sizes) > 3 and len(set(sizes[-3:])) == 1 else "mirrors still write"

    with contextlib.suppress(LabError):  # It is deleted nevertheless.
        wait_for(growing, 10, topic)


def stored(admin: KafkaAdminClient, topic: str) -> int:
    """The bytes of a topic on a broker's disk: the largest of all brokers, since each replica has a copy."""
    return max(
        sum(
            int(partition["partition_size"])
            for folder in broker["log_dirs"]
            for found in folder["topics"]
            if found["name"] == topic
            for partition in found["partitions"]
        )
        for broker in admin.describe_log_dirs()
    )


@contextlib.contextmanager
def administration(site: Site, region: str) -> Iterator[KafkaAdminClient]:
    """An administrator's client for a region.

    Raises:
        LabError: its cluster does not answer, or refuses.
    """
    try:
        client = connect_admin(site.at_home(region), PATIENT)
    except (KafkaError, OSError) as error:
        raise LabError(f"{region}: the cluster does not answer; see ./lab status") from error
    try:
        yield client
    except KafkaError as error:
        raise LabError(f"{region}: {type(error).__name__}: {error}") from error
    finally:
        client.close()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignores a second Ctrl-C during a clean-up, which is bounded in time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
