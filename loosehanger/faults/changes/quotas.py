"""Quotas of the clients of a mirror's workers."""

from __future__ import annotations

from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import end_region, end_user, worker_group
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.site import FaultSite

_RATE = "producer_byte_rate"
_EXACT = 0
"""The match type of a quota's entity by its name."""


class ThrottleOffsets(Change):
    """Limits the producer with which the workers write their positions, so that a flush of offsets times out.

    The copies are another producer's. With exactly-once delivery positions are written in the copies' transactions,
    which this does not reach.
    """

    rate: float
    """Bytes a second; a flush of few partitions has some kilobytes."""

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the user and the client; refuses where there is a quota already."""
        region = end_region(site, "target")
        undo = {"region": region, "user": end_user(site, "target"), "client-id": f"{worker_group(site)}-offsets"}
        with granted(site, region, "CLUSTER", "kafka-cluster", "DESCRIBE_CONFIGS"), site.admin(region) as admin:
            components = [
                DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=_EXACT, match=undo[kind])
                for kind in ("user", "client-id")
            ]
            found = _ask(admin, region, DescribeClientQuotasRequest(components=components, strict=True))
        if found.entries:
            raise WrongUseError(f"{region}: client {undo['client-id']} of user {undo['user']} has a quota already")
        return undo

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Sets the quota."""
        _alter(site, undo, self.rate)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Removes the quota; what waits is written once the brokers' last pause has passed."""
        _alter(site, undo, None)


def _alter(site: FaultSite, undo: Undo, rate: float | None) -> None:
    entity = [
        AlterClientQuotasRequest.EntryData.EntityData(entity_type=kind, entity_name=undo[kind])
        for kind in ("user", "client-id")
    ]
    change = AlterClientQuotasRequest.EntryData.OpData(key=_RATE, value=rate or 0.0, remove=rate is None)
    entry = AlterClientQuotasRequest.EntryData(entity=entity, ops=[change])
    region = undo["region"]
    with granted(site, region, "CLUSTER", "kafka-cluster", "ALTER_CONFIGS"), site.admin(region) as admin:
        answer = _ask(admin, region, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    if failed := [one.error_message for one in answer.entries if one.error_code]:
        raise LabError(f"{region}: Kafka refuses the quota: {failed[0]}")


def _ask(admin: KafkaAdminClient, region: str, request: Any) -> Any:
    """Sends a request that kafka-python's admin client has no method for, as that sends its own.

    Raises:
        LabError: the broker refuses it.
    """

    async def send() -> Any:
        return await admin._manager.send(request)

    answer = admin._manager.run(send)
    if code := getattr(answer, "error_code", 0):
        raise LabError(f"{region}: Kafka refuses to describe quotas: error {code}")
    return answer
