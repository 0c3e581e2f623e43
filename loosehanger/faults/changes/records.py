"""Changes to records: written where they do not belong, deleted too early, and what no mirror can copy."""

from __future__ import annotations

from typing import Literal

from kafka import TopicPartition

from loosehanger.errors import WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import End, end_region
from loosehanger.faults.changes.positions import await_state
from loosehanger.faults.changes.topics import cluster, copied, name_at, write
from loosehanger.faults.site import FaultSite


class WriteRecords(Change):
    """Writes records into a topic of the fault's own, at the source or into the copy.

    They cannot be unwritten; healing the topic deletes them.
    """

    topic: str
    end: End = "source"
    count: int = 10
    age_s: float = 0
    """How old their timestamps are, in seconds; a negative age is in the future."""
    size: int = 0
    """How many bytes each value has at least."""
    compression: Literal["gzip", "snappy", "lz4", "zstd"] | None = None

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the topic; refuses one that the mirror does not copy."""
        return copied(site, self.topic)

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Writes them."""
        write(
            site,
            end_region(site, self.end),
            name_at(site, self.end, undo["topic"]),
            self.count,
            what="fault",
            age_s=self.age_s,
            size=self.size,
            compression=self.compression,
        )

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Does nothing."""


class DeleteRecords(Change):
    """Deletes the first records of each partition of a topic of the fault's own. They stay deleted."""

    topic: str
    end: End = "target"
    records: int = 10

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the topic; refuses one that the mirror does not copy."""
        return copied(site, self.topic)

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Deletes them."""
        delete_before(site, end_region(site, self.end), name_at(site, self.end, undo["topic"]), self.records)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Does nothing."""


class OutrunMirror(Change):
    """Deletes records at the source before the mirror has copied them, as retention does while a mirror is down.

    The source connector is paused for a moment, and runs again afterwards as if nothing had happened.
    """

    topic: str
    lost: int = 200
    kept: int = 50

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the connector's name; refuses a mirror that does not run."""
        mirror = site.mirror
        status = site.connect().status(mirror.connector)
        if status is None or status["connector"]["state"] != "RUNNING":
            raise WrongUseError(f"{mirror.name} in {mirror.region} does not run; its records could not be outrun")
        return {"connector": mirror.connector}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Pauses, writes, deletes, resumes."""
        connect, source = site.connect(), site.mirror.source
        connect.act(undo["connector"], "stop")
        await_state(connect, undo["connector"], "STOPPED")
        with cluster(site, source) as there:
            (end,) = there.ends([self.topic]).values()
        write(site, source, self.topic, self.lost + self.kept, what="outrun")
        delete_before(site, source, self.topic, end + self.lost)
        self.heal(site, undo)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Starts the connector, if an interrupted injection has left it stopped; deleted records stay deleted."""
        connect = site.connect()
        status = connect.status(undo["connector"])
        if status is not None and status["connector"]["state"] in ("STOPPED", "PAUSED"):
            connect.act(undo["connector"], "resume")
            await_state(connect, undo["connector"], "RUNNING")


def delete_before(site: FaultSite, region: str, topic: str, offset: int) -> None:
    """Deletes the records of each partition of a topic before an offset."""
    with cluster(site, region) as there:
        places = {TopicPartition(topic, number): offset for number in range(there.topics()[topic])}
        there.ask(lambda admin: admin.delete_records(places))
