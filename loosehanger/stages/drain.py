"""Waits until what was written before a switch is copied, read and translated."""

from __future__ import annotations

import time
from collections.abc import Sequence

from loosehanger.kafka.offsets import Positions
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.record import Lab
from loosehanger.stages import live_mirror
from loosehanger.stages.live_mirror import LiveMirror
from loosehanger.waiting import wait_for

_DRAINING = "still draining (producers are stopped and no client has moved; run the stage again to continue)"
_SETTLING = (
    "offsets still settling (the groups' members are stopped and no client has moved; run the stage again to continue)"
)
_SETTLED_SECONDS = 6.0
"""Seconds without growth after which an offset counts as translated; the kit's mirrors translate every two seconds."""


def drain(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> None:
    """Waits until all records of the source are copied and read, and their offsets translated.

    Raises:
        LabError: not within ``bound`` seconds; the message has the numbers.
    """
    deadline = time.monotonic() + bound

    def wait(flow: LiveMirror) -> None:
        wait_for(flow.missing, max(deadline - time.monotonic(), 0.0), _DRAINING)

    for mirror in mirrors:
        live_mirror.with_flow(lab, mirror, wait)


def settle(lab: Lab, mirrors: Sequence[Mirror], bound: float) -> None:
    """Waits until the records that groups have read are at the target, and their offsets there no longer grow.

    Their members are stopped, and producers still write. MirrorMaker 2 does not report its last translation of a
    group, so an offset that has not grown for more than two of its rounds counts as final.

    Raises:
        LabError: not within ``bound`` seconds; the message says what is missing.
    """
    deadline = time.monotonic() + bound

    def wait(flow: LiveMirror) -> None:
        last: tuple[float, dict[str, Positions]] = time.monotonic(), {}

        def growing() -> str | None:
            nonlocal last
            if missing := next(flow.unsettled(), None):
                return missing
            if (now := flow.translated()) != last[1]:
                last = time.monotonic(), now
            return None if time.monotonic() - last[0] >= _SETTLED_SECONDS else "offsets of groups are still growing"

        wait_for(growing, max(deadline - time.monotonic(), 0.0), _SETTLING)

    for mirror in mirrors:
        live_mirror.with_flow(lab, mirror, wait)


def await_arrival(lab: Lab, group: str, region: str, bound: float) -> None:
    """Waits until running mirrors have copied to a region the records that a group has read at their sources.

    Raises:
        LabError: not within ``bound`` seconds; the message says what is missing.
    """
    for mirror in lab.mirrors:
        if mirror.target == region and mirror.state == "running" and mirror.source not in lab.lost:
            live_mirror.with_flow(lab, mirror, lambda flow: wait_for(lambda: flow.unarrived(group), bound, _DRAINING))
