"""Changes to the processes of a region on this machine: a mirror's worker, or a broker."""

from __future__ import annotations

import signal
from abc import abstractmethod
from typing import Literal

from loosehanger.errors import LabError, WrongUseError
from loosehanger.faults.changes.change import Change, Undo
from loosehanger.faults.site import FaultSite
from loosehanger.kafka.cluster import Cluster
from loosehanger.lab.kit_users import ADMINISTRATOR
from loosehanger.waiting import wait_for

BACK_S = 120
"""Seconds until a program answers again."""


class ProgramChange(Change):
    """What happens to the first process of its kind."""

    process: Literal["worker", "source-broker", "target-broker"] = "worker"

    def prepare(self, site: FaultSite) -> Undo:
        """Returns the program's region and name; refuses one that does not run."""
        regions = {"source-broker": site.mirror.source, "target-broker": site.mirror.target}
        region = regions.get(self.process, site.mirror.region)
        name = site.mirror.name if self.process == "worker" else f"{site.lab.region(region).cluster}-kafka"
        programs = site.platforms.local_programs(site.home, region)
        if not programs.get(f"{name}-0"):
            raise WrongUseError(f"{region}: {name}-0 does not run; see ./lab status")
        return {"region": region, "program": f"{name}-0", "pid": programs[f"{name}-0"]}

    @abstractmethod
    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Makes the change."""

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Waits until the program answers."""
        self.await_answer(site, undo)

    def await_answer(self, site: FaultSite, undo: Undo) -> None:
        """Waits until the program answers.

        Raises:
            LabError: it does not.
        """
        if self.process == "worker":
            wait_for(lambda: _lacking(site), BACK_S, f"{undo['program']} in {undo['region']}")
            return
        cluster = Cluster.of(site.lab.region(undo["region"]), ADMINISTRATOR)
        with cluster:

            def silent() -> str | None:
                try:
                    cluster.topics()
                except LabError as error:
                    cluster.close()
                    return str(error)
                return None

            wait_for(silent, BACK_S, f"{undo['program']} in {undo['region']}")


class KillProcess(ProgramChange):
    """Kills a program with SIGKILL; its process manager starts it again, as Kubernetes restarts a container."""

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Kills it."""
        site.platforms.signal_local_program(site.home, undo["region"], undo["program"], signal.SIGKILL)


class FreezeProcess(ProgramChange):
    """Freezes a program with SIGSTOP: its connections stay open, and nothing answers."""

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Freezes it."""
        site.platforms.signal_local_program(site.home, undo["region"], undo["program"], signal.SIGSTOP)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Lets it continue, and waits until it answers."""
        site.platforms.signal_local_program(site.home, undo["region"], undo["program"], signal.SIGCONT)
        super().heal(site, undo)


class StopProcess(ProgramChange):
    """Stops a program that does not come back, as a pod that cannot be scheduled."""

    def inject(self, site: FaultSite, undo: Undo) -> None:
        """Stops it, and waits until it is gone."""
        site.platforms.halt_local_program(site.home, undo["region"], undo["program"], halted=True)

    def heal(self, site: FaultSite, undo: Undo) -> None:
        """Starts it, and waits until it answers."""
        site.platforms.halt_local_program(site.home, undo["region"], undo["program"], halted=False)
        super().heal(site, undo)


def _lacking(site: FaultSite) -> str | None:
    """Returns why the workers do not answer for the mirror; None if they do.

    A connector that another fault has paused, deleted or made to fail is that fault's.
    """
    try:
        status = site.connect().status(site.mirror.connector)
    except LabError as error:
        return str(error)
    if status is None:
        return None
    states = {part["state"] for part in (status["connector"], *status["tasks"])}
    return f"{site.mirror.connector} is unassigned" if "UNASSIGNED" in states else None
