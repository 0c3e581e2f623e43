"""What is set up, and how to reach it: the record that the set-up leaves in ``.lab/access/``.

``lab.json`` says which scenario is set up, and how far it is. ``<region>.json`` has one region's resources as they were
described, and how to reach what runs there. Client configurations (``<region>/<user>.properties``) and certificates lie
beside it, readable by their owner only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loosehanger.errors import WrongUseError
from loosehanger.lab.claims.claims import Claim, DeclaredClaim, Window, chains_of, claims_of, from_record
from loosehanger.lab.manifests.documents import Document
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.progress import Progress as Progress
from loosehanger.lab.progress import read_progress as read_progress
from loosehanger.lab.progress import required_progress, unreadable
from loosehanger.lab.scenario import Scenario
from loosehanger.lab.snapshots import Marks, archives, mark_of, read_marks
from loosehanger.lab.topology import Topology
from loosehanger.paths import lab_home
from loosehanger.suggestions import did_you_mean

ADMINISTRATOR, PROVER = "admin", "prover"
"""The kit's own users in every region with a cluster."""


@dataclass(frozen=True)
class Pod:
    """Where clients run that must be in a Kubernetes cluster to reach the lab's."""

    namespace: str
    kubeconfig: str
    """Empty for the one that kubectl would choose."""
    context: str
    """Empty for the kubeconfig's current one."""
    image: str
    secret: str
    """The Secret with the region's record."""


@dataclass(frozen=True)
class Kubernetes:
    """The cluster that has a region's resources; maybe another one than that in which clients run."""

    kubeconfig: str
    """Empty for the one that kubectl would choose."""
    context: str
    """Empty for the kubeconfig's current one."""


@dataclass(frozen=True)
class WebConsole:
    """Where people look at a region, or at all of them, in a browser."""

    name: str
    url: str
    username: str
    """The user of the region whose name and password people sign in with."""


@dataclass(frozen=True)
class Region:
    """One region of the lab."""

    name: str
    cluster: str
    """The name of its Kafka cluster; empty for a region with applications only."""
    clients: dict[str, Path]
    """Client properties file of each user."""
    logs: dict[str, Path]
    """Log of each deployment, where the platform keeps it in a file."""
    mirrors: tuple[Mirror, ...]
    """The mirrors that run here, wherever they write."""
    pod: Pod | None = None
    """Where this record belongs, if not here."""
    consoles: tuple[WebConsole, ...] = ()
    kubernetes: Kubernetes | None = None
    """Where the region's resources are; None within a pod, and where there are no resources."""
    ledgers: dict[str, Path] = field(default_factory=dict)
    """The folder with the ledger of each program that keeps one, where the platform has it as files."""
    variables: Mapping[str, str] | None = field(default=None, repr=False)
    """The variables that placeholders in client properties may name; None for the kit's own files, which have none."""

    def client_file(self, user: str) -> Path:
        """The file with the properties by which a user connects to this region's cluster.

        Raises:
            WrongUseError: no such user here.
        """
        if user not in self.clients:
            raise WrongUseError(f"{self.name}: no client configuration for user '{user}'; run the set-up again")
        return self.clients[user]


@dataclass(frozen=True)
class Lab:
    """What was set up last."""

    scenario: str
    platform: str
    inventory: str
    regions: dict[str, Region]
    stage: str = ""
    """The last stage that was reached; empty before the first one is."""
    unfinished: str = ""
    """A stage that was begun and not finished; empty for none."""
    topology: Topology = field(default_factory=lambda: Topology(()))
    declared_claims: tuple[DeclaredClaim, ...] = ()
    """What ``scenario.yaml`` claims beside what the mirrors promise."""
    copied_at_mark: Mapping[str, Window] = field(default_factory=dict)
    """How far each source of a mirror, by its id, had been copied when the last stage held it."""
    archives: Mapping[str, Window] = field(default_factory=dict)
    """Where the copies of a source of a mirror, by its id, begin to be that source's: see ``Claim.archives``."""
    lost: tuple[str, ...] = ()
    """The regions that are dead, as the stage wants it."""

    @property
    def clusters(self) -> dict[str, Region]:
        """The regions that have a cluster, and live."""
        return {name: region for name, region in self.regions.items() if region.cluster and name not in self.lost}

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """The folders with the ledgers of producers and consumers, where the platform keeps them in files."""
        return tuple(path for region in self.regions.values() for path in region.ledgers.values())

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """Every mirror of every region."""
        return tuple(mirror for region in self.regions.values() for mirror in region.mirrors)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What has to hold in the stage that was begun or reached last."""
        stage = self.unfinished or self.stage
        return claims_of(self.mirrors, self.declared_claims, stage, self.copied_at_mark, self.archives)

    @property
    def chains(self) -> tuple[Mirror, ...]:
        """The chains of mirrors that claims speak of in that stage, each as one mirror."""
        return chains_of(self.mirrors, self.declared_claims, self.unfinished or self.stage)

    @property
    def pod(self) -> Pod | None:
        """Where clients of this lab run; None for here."""
        return next((region.pod for region in self.regions.values() if region.pod), None)

    def region(self, name: str) -> Region:
        """The region of this name.

        Raises:
            WrongUseError: there is none.
        """
        if name not in self.regions:
            hint = did_you_mean(name, self.regions) or f"; the regions are: {', '.join(self.regions)}"
            raise WrongUseError(f"unknown region '{name}'{hint}")
        return self.regions[name]


def check_stage(scenario: Scenario, stage: str, progress: Progress | None) -> None:
    """Checks whether a stage may run now.

    A stage that was interrupted may always run again, and so may the one that was reached last.

    Args:
        scenario: whose stage.
        stage: its name.
        progress: what is set up; None for nothing.

    Raises:
        WrongUseError: it may not; the message says what may.
    """
    after = scenario.stage(stage).after
    if progress is None:
        if after:
            raise WrongUseError(
                f"{scenario.name}: '{stage}' comes after {_either(after)}, and nothing is set up; "
                f"run ./lab setup {scenario.name} first"
            )
        return
    progress.check_version()
    if progress.scenario != scenario.name:
        raise WrongUseError(f"the scenario {progress.scenario} is set up; run ./lab cleanup before another one")
    if progress.unfinished:
        # A way back that leads from both leads from between them as well.
        if stage != progress.unfinished and not {progress.stage, progress.unfinished} <= set(after):
            raise WrongUseError(
                f"{scenario.name}: '{progress.unfinished}' was begun and not finished; run it again before '{stage}'"
            )
        return
    if stage != progress.stage and progress.stage not in after:
        needed = f"comes after {_either(after)}" if after else "comes first"
        raise WrongUseError(
            f"{scenario.name}: '{stage}' {needed}, and '{progress.stage}' was reached; nothing was changed"
        )


def _either(stages: Sequence[str]) -> str:
    return " or ".join(f"'{stage}'" for stage in stages)


def load_lab(home: Path | None = None) -> Lab:
    """Reads what the set-up recorded.

    Raises:
        NothingSetUpError: nothing is set up.
        WrongUseError: another version of the kit has set it up, or the record cannot be read.
    """
    progress = required_progress(home)
    progress.check_version()
    found = [
        _read(path) for path in sorted(((home or lab_home()) / "access").glob("*.json")) if path.name != "lab.json"
    ]
    topology = Topology(_document(entry) for region in found for entry in region["documents"])
    kept = archives(home or lab_home())
    if progress.unfinished:
        # It may have ended between the wipe of a mirror's source and the making of a new one.
        topology = topology.connected()
    regions = {region["name"]: _region(region, topology) for region in found}
    return Lab(
        progress.scenario,
        progress.platform,
        progress.inventory,
        regions,
        progress.stage,
        progress.unfinished,
        topology,
        from_record(progress.claims),
        _copied_at_mark(topology, read_marks(home or lab_home(), progress.unfinished or progress.stage)),
        {mirror.id: kept[mark_of(mirror)] for mirror in topology.mirrors if mark_of(mirror) in kept},
        progress.lost,
    )


def region_record(
    name: str,
    documents: Iterable[Document],
    *,
    clients: Mapping[str, str],
    logs: Mapping[str, str],
    consoles: Sequence[Mapping[str, str]],
    connect: Mapping[str, Mapping[str, str]],
    ledgers: Mapping[str, str] | None = None,
    **places: Mapping[str, str],
) -> str:
    """What ``<region>.json`` holds.

    Args:
        name: the region.
        documents: what was carried out there.
        clients: client properties file of each user.
        logs: log of each program, where it is a file.
        consoles: the web consoles: name, url, username.
        connect: how to reach Connect's REST interface, for each mirror that runs there.
        ledgers: the folder with the ledger of each program that keeps one, where it is a file.
        places: where the record belongs, and where the region's resources are, on Kubernetes.
    """
    described = [
        {"source": document.source, "line": document.line, "content": document.content} for document in documents
    ]
    content = {
        "name": name,
        "documents": described,
        "clients": clients,
        "logs": logs,
        "consoles": consoles,
        "connect": connect,
        "ledgers": ledgers or {},
        **places,
    }
    return json.dumps(content, indent=1, sort_keys=True)


def recorded_documents(home: Path, region: str) -> list[Document]:
    """What was carried out in a region, by its record; nothing where there is none."""
    path = home / "access" / f"{region}.json"
    found = _read(path) if path.exists() else {}
    return [_document(entry) for entry in found.get("documents", ())]


def recorded_pod(home: Path, region: str) -> Pod | None:
    """Where a region's record belongs, if it has one, and that is not here."""
    path = home / "access" / f"{region}.json"
    return _pod(_read(path)) if path.exists() else None


def _pod(found: Mapping[str, Any]) -> Pod | None:
    return Pod(**found["pod"]) if "pod" in found else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return found


def _copied_at_mark(topology: Topology, marks: Marks) -> dict[str, Window]:
    """The end of what was copied, by each source of a mirror that was held."""
    known = {fence.mirror: fence.positions for fence in marks.fences}
    return {
        mirror.id: {
            topic: {number: last + 1 for number, last in positions.items()}
            for topic, positions in known[mark_of(mirror)].items()
        }
        for mirror in topology.mirrors
        if mark_of(mirror) in known
    }


def _document(entry: Mapping[str, Any]) -> Document:
    return Document(entry["source"], entry["line"], entry["content"])


def _region(found: Mapping[str, Any], topology: Topology) -> Region:
    name = found["name"]
    return Region(
        name=name,
        cluster=next(iter(topology.clusters(name)), ""),
        clients={user: Path(path) for user, path in found["clients"].items()},
        logs={program: Path(path) for program, path in found["logs"].items()},
        mirrors=tuple(
            replace(mirror, connect=found["connect"].get(mirror.name, {}))
            for mirror in topology.mirrors
            if mirror.region == name
        ),
        pod=_pod(found),
        consoles=tuple(WebConsole(**console) for console in found["consoles"]),
        kubernetes=Kubernetes(**found["kubernetes"]) if "kubernetes" in found else None,
        ledgers={program: Path(path) for program, path in found.get("ledgers", {}).items()},
    )
