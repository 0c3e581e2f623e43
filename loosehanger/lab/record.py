"""The record of the lab that is set up, in ``.lab/access/``: its resources, and how to reach them.

``lab.json`` names the scenario and the stage that was reached. ``<region>.json`` has one region's resources as they
were applied, and the addresses of what runs there. Client configurations (``<region>/<user>.properties``) and
certificates lie beside it, readable by their owner only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from loosehanger.lab.snapshots import Snapshots, archives, read_snapshots, snapshot_id
from loosehanger.lab.topology import Topology
from loosehanger.paths import lab_home
from loosehanger.suggestions import did_you_mean


@dataclass(frozen=True)
class Pod:
    """The pod that clients run in when only the Kubernetes network reaches the lab's clusters."""

    namespace: str
    kubeconfig: str
    """Empty for kubectl's default."""
    context: str
    """Empty for the kubeconfig's current context."""
    image: str
    secret: str
    """The Secret with the region's record."""


@dataclass(frozen=True)
class Kubernetes:
    """The Kubernetes cluster with a region's resources; clients may run in another one."""

    kubeconfig: str
    """Empty for kubectl's default."""
    context: str
    """Empty for the kubeconfig's current context."""


@dataclass(frozen=True)
class WebConsole:
    """A web console, for one region or for all of them."""

    name: str
    url: str
    username: str
    account: str = ""
    """The region's KafkaUser whose password people sign in with; empty for the user of the same name."""

    scraper: str = ""
    """The region's KafkaUser whose password is the token for its metrics; empty for a console without metrics."""

    @property
    def password_of(self) -> str:
        """The KafkaUser whose password people sign in with."""
        return self.account or self.username


@dataclass(frozen=True)
class Audit:
    """Where the audit of the lab serves its metrics."""

    address: str
    scraper: str
    """The region's KafkaUser whose password is the token for them."""


@dataclass(frozen=True)
class Exporter:
    """Where a Kafka node or a Connect worker serves its own metrics."""

    kind: str
    cluster: str
    """The name of the resource."""
    pod: str
    """The name that its pod has on Kubernetes."""
    address: str
    username: str
    password_file: str


@dataclass(frozen=True)
class Region:
    """One region of the lab."""

    name: str
    cluster: str
    """The name of its Kafka cluster; empty for a region with applications only."""
    clients: dict[str, Path]
    """Client properties file of each user."""
    logs: dict[str, Path]
    """The log file of each Deployment, where the platform keeps one."""
    mirrors: tuple[Mirror, ...]
    """The mirrors that run in this region, wherever they write."""
    pod: Pod | None = None
    """The pod that keeps this record; None for this machine."""
    consoles: tuple[WebConsole, ...] = ()
    audits: tuple[Audit, ...] = ()
    """The audit of the lab, in the region that runs it."""
    kubernetes: Kubernetes | None = None
    """The Kubernetes cluster of the region; None within a pod, and on the local platform."""
    exporters: tuple[Exporter, ...] = ()
    """Where Kafka serves its own metrics, on the local platform."""
    ledgers: dict[str, Path] = field(default_factory=dict)
    """The ledger folder of each program that keeps one, where the platform keeps them as files."""
    variables: Mapping[str, str] | None = field(default=None, repr=False)
    """The variables that placeholders in client properties may name; None for the kit's own files, which have none."""
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The client properties of users that have no file, for clusters of the user's own."""

    def client_file(self, user: str) -> Path:
        """Returns the client properties file of a user of this region's cluster.

        Raises:
            WrongUseError: the region has no such user.
        """
        if user not in self.clients:
            raise WrongUseError(f"{self.name}: no client configuration for user '{user}'; run the set-up again")
        return self.clients[user]


@dataclass(frozen=True)
class Lab:
    """The lab that is set up."""

    scenario: str
    platform: str
    inventory: str
    regions: dict[str, Region]
    stage: str = ""
    """The last stage that was reached; empty before the first."""
    unfinished: str = ""
    """The stage that was begun and not finished; empty for none."""
    topology: Topology = field(default_factory=lambda: Topology(()))
    declared_claims: tuple[DeclaredClaim, ...] = ()
    """The claims of ``scenario.yaml``, besides those that follow from the mirrors."""
    copied_at_mark: Mapping[str, Window] = field(default_factory=dict)
    """Offsets up to which each source of a mirror, by its id, had been copied when the last stage stopped it."""
    archives: Mapping[str, Window] = field(default_factory=dict)
    """First target offsets that are copies of a mirror's current source, by the source's id: ``Claim.archives``."""
    lost: tuple[str, ...] = ()
    """The regions that the stage has killed."""

    @property
    def clusters(self) -> dict[str, Region]:
        """The live regions that have a Kafka cluster."""
        return {name: region for name, region in self.regions.items() if region.cluster and name not in self.lost}

    @property
    def ledgers(self) -> tuple[Path, ...]:
        """The ledger folders of producers and consumers, where the platform keeps them as files."""
        return tuple(path for region in self.regions.values() for path in region.ledgers.values())

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """Every mirror of every region."""
        return tuple(mirror for region in self.regions.values() for mirror in region.mirrors)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of the stage that was begun or reached last."""
        stage = self.unfinished or self.stage
        return claims_of(self.mirrors, self.declared_claims, stage, self.copied_at_mark, self.archives)

    @property
    def chains(self) -> tuple[Mirror, ...]:
        """The chains that the stage's claims name, each as one mirror."""
        return chains_of(self.mirrors, self.declared_claims, self.unfinished or self.stage)

    @property
    def pod(self) -> Pod | None:
        """The pod that this lab's clients run in; None for this machine."""
        return next((region.pod for region in self.regions.values() if region.pod), None)

    def region(self, name: str) -> Region:
        """Returns the region of this name.

        Raises:
            WrongUseError: no region has this name.
        """
        if name not in self.regions:
            hint = did_you_mean(name, self.regions) or f"; the regions are: {', '.join(self.regions)}"
            raise WrongUseError(f"unknown region '{name}'{hint}")
        return self.regions[name]


def check_stage(scenario: Scenario, stage: str, progress: Progress | None) -> None:
    """Checks that a stage may run now.

    The stage that was interrupted, and the one that was reached last, may always run again.

    Args:
        scenario: the scenario of the stage.
        stage: the stage's name.
        progress: the scenario that is set up; None for none.

    Raises:
        WrongUseError: it may not; the message names the stages that may.
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
        # A stage that may follow both the reached and the unfinished stage may also follow an interrupted run.
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
    """Reads the record of the lab.

    Raises:
        NothingSetUpError: nothing is set up.
        WrongUseError: another version of the kit wrote the record, or it cannot be read.
    """
    progress = required_progress(home)
    progress.check_version()
    found = [
        _read(path) for path in sorted(((home or lab_home()) / "access").glob("*.json")) if path.name != "lab.json"
    ]
    topology = Topology(_document(entry) for region in found for entry in region["documents"])
    kept = archives(home or lab_home())
    if progress.unfinished:
        # A run may have stopped after the wipe of a mirror's source and before its recreation.
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
        _copied_at_mark(topology, read_snapshots(home or lab_home(), progress.unfinished or progress.stage)),
        {mirror.id: kept[snapshot_id(mirror)] for mirror in topology.mirrors if snapshot_id(mirror) in kept},
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
    exporters: Iterable[Exporter] = (),
    audits: Sequence[Mapping[str, str]] = (),
    **places: Mapping[str, str],
) -> str:
    """Returns the content of ``<region>.json``.

    Args:
        name: the region.
        documents: the resources that were applied there.
        clients: the client properties file of each user.
        logs: the log file of each program, where there is one.
        consoles: the web consoles: name, url, username, account.
        connect: Connect's REST interface of each mirror that runs there.
        ledgers: the ledger folder of each program that keeps one as files.
        exporters: where Kafka serves its own metrics.
        audits: where the audit of the lab serves its metrics: address, scraper.
        places: the pod that keeps the record and the cluster with the resources, on Kubernetes.
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
        "exporters": [asdict(exporter) for exporter in exporters],
        **({"audits": audits} if audits else {}),
        **places,
    }
    return json.dumps(content, indent=1, sort_keys=True)


def recorded_documents(home: Path, region: str) -> list[Document]:
    """Returns the resources that were applied in a region, by its record; none without a record."""
    path = home / "access" / f"{region}.json"
    found = _read(path) if path.exists() else {}
    return [_document(entry) for entry in found.get("documents", ())]


def recorded_pod(home: Path, region: str) -> Pod | None:
    """Returns the pod that keeps a region's record; None for this machine or without a record."""
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


def _copied_at_mark(topology: Topology, snapshots: Snapshots) -> dict[str, Window]:
    """Returns the end of what was copied, by source of each mirror that was stopped."""
    known = {fence.mirror: fence.positions for fence in snapshots.fences}
    return {
        mirror.id: {
            topic: {number: last + 1 for number, last in positions.items()}
            for topic, positions in known[snapshot_id(mirror)].items()
        }
        for mirror in topology.mirrors
        if snapshot_id(mirror) in known
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
        exporters=tuple(Exporter(**exporter) for exporter in found.get("exporters", ())),
        consoles=tuple(WebConsole(**console) for console in found["consoles"]),
        audits=tuple(Audit(**audit) for audit in found.get("audits", ())),
        kubernetes=Kubernetes(**found["kubernetes"]) if "kubernetes" in found else None,
        ledgers={program: Path(path) for program, path in found.get("ledgers", {}).items()},
    )
