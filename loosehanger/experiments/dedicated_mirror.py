"""A dedicated MirrorMaker 2 process of an experiment, beside its source or beside its target."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from loosehanger.errors import LabError
from loosehanger.experiments.clients import NAME
from loosehanger.experiments.site import Site, administration, uninterrupted
from loosehanger.files import write_file
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.links import CLIENT
from loosehanger.kafka.properties import read_properties
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.lab.scenario import MIRROR
from loosehanger.platforms.java import Java
from loosehanger.platforms.mirror_properties import DedicatedFlow, mirror_properties
from loosehanger.process_lifetime import end_with_parent

_ONE_PARTITION = {"offset.storage.partitions": 1, "status.storage.partitions": 1}
_HEAP = "256m"


@dataclass(frozen=True)
class MirrorSettings:
    """A mirror's settings that differ from MM2's defaults."""

    connector: Mapping[str, Any] = field(default_factory=dict)
    """The source connector's configuration."""
    worker: Mapping[str, Any] = field(default_factory=dict)
    """The Connect worker's."""


def settings_of(site: Site) -> MirrorSettings:
    """The settings in the manifest of the site's mirror."""
    (document,) = (
        document
        for document in site.lab.topology.of_kind(MIRROR, site.mirror.region)
        if document.name == site.mirror.name
    )
    spec = document.content["spec"]
    connector = next(
        mirror["sourceConnector"] for mirror in spec["mirrors"] if mirror["source"]["alias"] == site.mirror.source_alias
    )
    return MirrorSettings(connector.get("config") or {}, spec["target"].get("config") or {})


@contextlib.contextmanager
def permitted(site: Site) -> Iterator[None]:
    """Lets the target's administrator write in transactions, as mirrors do, under the experiment's names only.

    Raises:
        LabError: the cluster does not answer, or refuses.
    """
    with administration(site, site.mirror.target) as admin:
        principal = f"User:{site.at_home(site.mirror.target).principal}"
        rules = [
            ACL(
                principal, "*", operation, ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType.TRANSACTIONAL_ID, prefix + site.direct, ACLResourcePatternType.PREFIXED),
            )
            # Connect uses one transactional id for each worker, and one for each task.
            for prefix in ("connect-cluster-", "")
            for operation in (ACLOperation.DESCRIBE, ACLOperation.WRITE)
        ]  # fmt: skip
        try:
            if failed := admin.create_acls(rules)["failed"]:
                raise LabError(f"{site.mirror.target}: Kafka refuses the experiment's rights: {failed[0]}")
            yield
        finally:
            with uninterrupted():
                admin.delete_acls(rules)


class DedicatedMirror:
    """Copies one topic until its context ends.

    It uses the administrator's rights, and keeps its state in topics with the names of its aliases, which the site
    deletes.

    Args:
        site: the regions.
        topic: the topic; it must exist, since a new mirror would detect it late.
        number: the mirror's number in the experiment.
        region: the region that it runs in; it reaches the other one through the link.
        settings: its settings.
    """

    def __init__(self, site: Site, topic: str, number: int, region: str, settings: MirrorSettings) -> None:
        self.topic = topic
        aliases = source, target = f"{site.direct}-{2 * number}", f"{site.direct}-{2 * number + 1}"
        self.copy = f"{source}.{self.topic}"
        self._folder = tempfile.TemporaryDirectory(prefix="lab-")
        regions = (site.mirror.source, site.mirror.target)
        ends = {alias: _way(site, into, region) for alias, into in zip(aliases, regions, strict=True)}
        file, log = (Path(self._folder.name) / name for name in ("mm2.properties", "log"))
        write_file(file, mm2_properties(topic, source, target, ends, settings))
        java = Java(site.home)
        command = java.command(
            "org.apache.kafka.connect.mirror.MirrorMaker",
            str(file),
            options=JvmOptions(),
            heap=_HEAP,
            system={"log4j2.level": "ERROR"},
            temporary=Path(self._folder.name),
        )
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **java.environment, CLIENT: NAME},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(end_with_parent, signal.SIGKILL),
            )

    def said(self) -> str:
        """The last error in its log; empty for none.

        Raises:
            LabError: the process has exited.
        """
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if " ERROR " in line or "Exception" in line), "")
        if self._process.poll() is not None:
            raise LabError(f"the experiment's mirror exited: {last or 'no reason in its log'}")
        return last

    def __enter__(self) -> DedicatedMirror:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


def _way(site: Site, into: str, region: str) -> tuple[Connection, Path]:
    """A connection to a region from the mirror's place, and the file with the region's own client settings."""
    connection = site.at_home(into) if into == region else site.across(into, region)
    return connection, site.lab.region(into).clients[ADMINISTRATOR]


def mm2_properties(
    topic: str, source: str, target: str, ends: Mapping[str, tuple[Connection, Path]], settings: MirrorSettings
) -> str:
    """The configuration file of MirrorMaker 2.

    Args:
        topic: the topic to copy.
        source: the source's alias.
        target: the target's alias.
        ends: by alias, the connection to a cluster, and the file with its other client settings.
        settings: the mirror's settings.
    """
    clients = {
        alias: {**read_properties(file), "bootstrap.servers": ",".join(connection.bootstrap_servers)}
        for alias, (connection, file) in ends.items()
    }
    connector = {
        "emit.heartbeats.enabled": False,
        "emit.checkpoints.enabled": False,
        "sync.topic.acls.enabled": False,
        "replication.factor": -1,
        **settings.connector,
        # Copies get names of their own, whatever the manifest's policy is.
        "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
    }
    flow = DedicatedFlow(source, target, topic, connector, {**_ONE_PARTITION, **settings.worker})
    return mirror_properties(clients, [flow])
