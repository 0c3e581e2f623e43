"""A rebalance of a mirror's worker group that does not end."""

from __future__ import annotations

import struct
from typing import Any

from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.errors import RequestTimedOutError
from kafka.protocol.consumer.group import JoinGroupRequest

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.changes.ends import worker_group
from loosehanger.faults.changes.permissions import granted
from loosehanger.faults.site import FaultSite
from loosehanger.waiting import wait_for

WAITED_S = 1800
"""How long the coordinator waits for a member that sends nothing; the brokers' own limit of a session."""
JOIN_S = 30
"""Seconds until the workers have joined a rebalance."""
REBALANCES = "PreparingRebalance"
_METADATA = struct.pack(">hH", 2, len("http://127.0.0.1:1")) + b"http://127.0.0.1:1" + struct.pack(">qi", -1, -1)
"""A worker's metadata in the protocol ``sessioned``: version, address, no configuration, no assignment."""


class StallRebalance(Change):
    """Joins two workers to the mirror's worker group that fall silent, as a machine that hangs in a rebalance.

    The second one begins a rebalance, in which the coordinator waits for the first one. Both are static members: a
    connection that closes does not remove them.
    """

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the group, its region and the members' names; refuses a group that is not stable."""
        region, group = site.mirror.target, worker_group(site)
        with granted(site, region, "GROUP", group, "READ"), site.admin(region) as admin:
            if (state := _state(admin, group)) != "Stable":
                raise WrongUseError(f"{region}: the worker group {group} is in the state {state}; see ./lab status")
        return {"region": region, "group": group, "members": [f"{group}-silent-{number}" for number in (1, 2)]}

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Joins them, and waits until the rebalance of the second one has begun."""
        region, group = undo["region"], undo["group"]
        first, second = undo["members"]
        with granted(site, region, "GROUP", group, "READ"), site.admin(region) as admin:
            _join(admin, group, first, JOIN_S)
            try:
                _join(admin, group, second, 3)
            except RequestTimedOutError:
                pass  # No answer comes before the rebalance ends.
            else:
                raise LabError(f"{region}: the rebalance of {group} has ended; no member was waited for")
            wait_for(
                lambda: None if (state := _state(admin, group)) == REBALANCES else f"it is in the state {state}",
                JOIN_S,
                f"{region}: a rebalance of {group}",
            )

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Removes them, which ends the rebalance."""
        region, group = undo["region"], undo["group"]
        with granted(site, region, "GROUP", group, "READ"), site.admin(region) as admin:
            admin.remove_group_members(group, [MemberToRemove(group_instance_id=name) for name in undo["members"]])
            wait_for(
                lambda: None if (state := _state(admin, group)) == "Stable" else f"it is in the state {state}",
                WORKERS_S,
                f"{region}: the end of the rebalance of {group}",
            )


WORKERS_S = 120
"""Seconds until the workers have joined their group again."""


def _state(admin: KafkaAdminClient, group: str) -> str:
    # describe_groups reads members as those of consumers, and fails at a worker's.
    return next((str(one["group_state"]) for one in admin.list_groups() if one["group_id"] == group), "Unknown")


def _join(admin: KafkaAdminClient, group: str, member: str, bound_s: float) -> None:
    """Joins a static member that then falls silent.

    kafka-python joins groups of consumers only, so the request is sent as its admin client sends its own.

    Raises:
        RequestTimedOutError: the coordinator has not answered.
        LabError: it refuses.
    """
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=WAITED_S * 1000,
        rebalance_timeout_ms=WAITED_S * 1000,
        member_id="",
        group_instance_id=member,
        protocol_type="connect",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="sessioned", metadata=_METADATA)],
        max_version=7,
    )

    async def send() -> Any:
        coordinator = await admin._find_coordinator_id(group)
        return await admin._manager.send(request, node_id=coordinator, request_timeout_ms=round(bound_s * 1000))

    answer = admin._manager.run(send)
    if answer.error_code:
        raise LabError(f"{group}: a member may not join: {answer}")
