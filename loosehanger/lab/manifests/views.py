"""Views of the resources that the kit reads in many places: mirrors, and the programs of Deployments.

A view reads a manifest that may not have been checked: a part that is missing is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MIRROR = "KafkaMirrorMaker2"
"""The kind of a mirror."""
USER = "KafkaUser"
"""The kind of a user."""
Content = Mapping[str, Any]


def listeners_of(kafka: Content) -> Sequence[Content]:
    """The listeners of a Kafka for clients."""
    return ((kafka.get("spec") or {}).get("kafka") or {}).get("listeners") or ()


@dataclass(frozen=True)
class Program:
    """The program that a Deployment runs."""

    content: Content
    """The Deployment."""

    @property
    def pod(self) -> Content:
        """The specification of its pods."""
        template: Content = (self.content.get("spec") or {}).get("template") or {}
        return template.get("spec") or {}

    @property
    def command(self) -> list[str]:
        """The words of its containers' commands."""
        return [str(word) for container in self._containers for word in container.get("command") or ()]

    @property
    def variables(self) -> dict[str, str]:
        """Its environment; a variable whose value comes from elsewhere is empty."""
        every = (variable for container in self._containers for variable in container.get("env") or ())
        return {str(variable.get("name")): str(variable.get("value", "")) for variable in every}

    @property
    def replicas(self) -> int:
        """The number of its replicas."""
        return int((self.content.get("spec") or {}).get("replicas", 1))

    @property
    def is_console(self) -> bool:
        """Whether it is a web console."""
        return "CONSOLE_NAME" in self.variables

    @property
    def is_audit(self) -> bool:
        """Whether it is the audit of the lab."""
        return "AUDIT_PORT" in self.variables

    @property
    def cluster_address(self) -> str:
        """The bootstrap address of a producer or a consumer; empty for any other program."""
        return self.variables.get("KAFKA_BOOTSTRAP_SERVERS", "") if {"producer", "consumers"} & {*self.command} else ""

    @property
    def _containers(self) -> Sequence[Content]:
        return self.pod.get("containers") or ()


def is_exactly_once(settings: object) -> bool:
    """Whether workers with these settings write copies and positions in transactions."""
    return isinstance(settings, Mapping) and str(settings.get("exactly.once.source.support")) == "enabled"


@dataclass(frozen=True)
class MirrorMaker:
    """A KafkaMirrorMaker2."""

    content: Content

    @property
    def spec(self) -> Content:
        """Its specification."""
        return self.content.get("spec") or {}

    @property
    def target(self) -> Content:
        """Its target."""
        return self.spec.get("target") or {}

    @property
    def exactly_once(self) -> bool:
        """Whether its workers write copies and positions in transactions."""
        return is_exactly_once(self.target.get("config"))

    @property
    def mirrors(self) -> Sequence[Content]:
        """Its entries, one for each source."""
        return self.spec.get("mirrors") or ()

    @property
    def ends(self) -> list[tuple[Content, tuple[str | int, ...]]]:
        """Its target and its sources, each with its path in the manifest."""
        sources = enumerate(self.mirrors)
        return [
            (self.target, ("spec", "target")),
            *((entry.get("source") or {}, ("spec", "mirrors", index, "source")) for index, entry in sources),
        ]

    @property
    def replicas(self) -> int:
        """The number of its workers."""
        return int(self.spec.get("replicas", 1))
