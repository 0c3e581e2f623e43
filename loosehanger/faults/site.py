"""Where a fault is injected: one mirror of the lab, and one topic that it copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka.admin import KafkaAdminClient

from loosehanger.errors import WrongUseError
from loosehanger.kafka.clients import PATIENT, connect_admin
from loosehanger.kafka.connect import ConnectClient
from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.kafka.links import relay_folders
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import target_topic
from loosehanger.lab.record import Lab
from loosehanger.platforms.operations import FaultOperations


@dataclass(frozen=True)
class FaultSite:
    """One mirror of the lab, and one topic that it copies."""

    lab: Lab
    home: Path
    """The lab's home."""
    mirror: Mirror
    topic: str
    """The topic's name at the mirror's source."""
    platforms: FaultOperations

    @property
    def copy(self) -> str:
        """The topic's name at the mirror's target."""
        return target_topic(self.mirror, self.topic)

    def connection(self, region: str, user: str = ADMINISTRATOR) -> Connection:
        """A user's way into a region's cluster, from that region.

        Raises:
            WrongUseError: the region has no such user.
        """
        return connection_for(self.lab.region(region), user)

    @contextlib.contextmanager
    def admin(self, region: str) -> Iterator[KafkaAdminClient]:
        """Opens an administrator's client of a region's cluster.

        Raises:
            KafkaError: the cluster does not answer.
        """
        client = connect_admin(self.connection(region), PATIENT)
        try:
            yield client
        finally:
            client.close()

    def connect(self) -> ConnectClient:
        """Connect's REST interface of the mirror's workers."""
        return ConnectClient.of(self.mirror.connect)

    def relay(self) -> Path:
        """The folder of the relay that carries the link between source and target.

        Raises:
            WrongUseError: there is no link between them.
        """
        pair = {self.mirror.source, self.mirror.target}
        for ends, folder in relay_folders(self.home).items():
            if set(ends) == pair:
                return folder
        raise WrongUseError(f"{self.lab.scenario} has no link between {self.mirror.source} and {self.mirror.target}")
