"""What is set up, and how to reach it: the record that the set-up leaves in ``.lab/access/``.

``.lab/access/lab.json`` names scenario, platform and inventory; ``.lab/access/<region>.json`` describes one region;
client configurations (``.lab/access/<region>/<user>.properties``) and certificates lie beside it, readable by their
owner only.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.connection import Connection
from lab.errors import NothingSetUpError, WrongUseError

ROOT = Path(__file__).resolve().parents[2]


def lab_home() -> Path:
    """The folder that holds everything the kit installs and makes: ``LAB_HOME``, or ``.lab`` in the checkout."""
    return Path(os.environ.get("LAB_HOME") or ROOT / ".lab").absolute()


def caller_path(text: str) -> Path:
    """A path as the user meant it: the kit's programs may run in another folder than the one it was typed in."""
    return Path(os.environ.get("LAB_CALLED_FROM", ""), text).absolute()


@dataclass(frozen=True)
class Mirror:
    """A KafkaMirrorMaker2 of a region, one entry for each source."""

    name: str
    source_alias: str
    target_alias: str
    source: str
    """The region it reads."""
    target: str
    """The region it writes, which is also the one it runs in."""
    policy: str
    """``identity`` keeps topic names; ``default`` puts the source's alias and a separator before them."""
    separator: str
    topics: str
    """Which topics: MM2's own list of regular expressions."""
    topics_exclude: str
    connector: str
    connect: dict[str, str]
    """Connect's REST interface: ``url``, and where it asks for them ``username``, ``password_file``, ``ca_file``."""


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
    clients: dict[str, Path]
    """Client properties file of each user."""
    logs: dict[str, Path]
    """Log of each deployment, where the platform keeps it in a file."""
    mirrors: tuple[Mirror, ...]
    pod: Pod | None = None
    """Where this record belongs, if not here."""
    consoles: tuple[WebConsole, ...] = ()
    kubernetes: Kubernetes | None = None
    """Where the region's resources are; None within a pod, and where there are no resources."""

    def connection(self, user: str) -> Connection:
        """The user's way into this region's cluster.

        Raises:
            WrongUseError: no such user here.
        """
        if user not in self.clients:
            raise WrongUseError(f"{self.name}: no client configuration for user '{user}'; run the set-up again")
        return Connection.from_properties(self.clients[user])


@dataclass(frozen=True)
class Lab:
    """What was set up last."""

    scenario: str
    platform: str
    inventory: str
    regions: dict[str, Region]

    @property
    def mirrors(self) -> tuple[Mirror, ...]:
        """Every mirror of every region."""
        return tuple(mirror for region in self.regions.values() for mirror in region.mirrors)

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
            raise WrongUseError(f"unknown region '{name}'; the regions are: {', '.join(self.regions)}")
        return self.regions[name]


def load_lab(home: Path | None = None) -> Lab:
    """Reads what the set-up recorded.

    Raises:
        NothingSetUpError: nothing is set up.
    """
    access = (home or lab_home()) / "access"
    try:
        lab: dict[str, Any] = json.loads((access / "lab.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NothingSetUpError("nothing is set up; run ./setup-03-broadcast.sh first") from error
    regions = {}
    for path in sorted(access.glob("*.json")):
        if path.name != "lab.json":
            region = _region(json.loads(path.read_text(encoding="utf-8")))
            regions[region.name] = region
    return Lab(lab["scenario"], lab["platform"], lab["inventory"], regions)


def _region(document: dict[str, Any]) -> Region:
    return Region(
        name=document["name"],
        cluster=document["cluster"],
        clients={user: Path(path) for user, path in document["clients"].items()},
        logs={name: Path(path) for name, path in document["logs"].items()},
        mirrors=tuple(Mirror(**mirror) for mirror in document["mirrors"]),
        pod=Pod(**document["pod"]) if "pod" in document else None,
        consoles=tuple(WebConsole(**console) for console in document.get("consoles", ())),
        kubernetes=Kubernetes(**document["kubernetes"]) if "kubernetes" in document else None,
    )
