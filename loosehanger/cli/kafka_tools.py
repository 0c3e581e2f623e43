"""``./lab kafka``: runs Kafka's own command-line tools, signed in to a cluster of the lab."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NoReturn

from loosehanger.cli.client_settings import properties_file
from loosehanger.cli.command_line import KAFKA_TOOLS
from loosehanger.errors import LabError, WrongUseError
from loosehanger.kafka.cluster import Cluster
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.oauth import ALLOWED_URLS
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.lab.record import Lab
from loosehanger.paths import lab_home
from loosehanger.platforms.java import Java
from loosehanger.suggestions import did_you_mean

_HEAP = "256m"


def run(lab: Lab, region: str, user: str, tool: str, arguments: Sequence[str]) -> NoReturn:
    """Becomes the tool.

    Args:
        lab: what is set up.
        region: the region of the cluster.
        user: the user that it signs in as.
        tool: its name, a key of ``KAFKA_TOOLS``.
        arguments: its own arguments.

    Raises:
        WrongUseError: the region, user or tool does not exist, or an argument is one that the kit sets.
        LabError: Java cannot be started, or the cluster refuses the user or does not answer.
    """
    if tool not in KAFKA_TOOLS:
        hint = did_you_mean(tool, KAFKA_TOOLS) or f"; there are: {', '.join(KAFKA_TOOLS)}"
        raise WrongUseError(f"there is no tool '{tool}'{hint}")
    properties = properties_file(lab.region(region), user)
    if given := [word for word in arguments if word.partition("=")[0] in ("--bootstrap-server", "--command-config")]:
        raise WrongUseError(f"{given[0]}: ./lab kafka sets it; leave it out, and use --user for another user")
    connection = Connection.from_properties(properties)
    servers = ",".join(connection.bootstrap_servers)
    # Java's tools report some wrong sign-ins as a time-out after a minute, and the others in fifty lines.
    with Cluster(region, connection) as cluster:
        cluster.connect()
    temporary = folder if (folder := lab_home() / "regions" / region / "tmp").is_dir() else None
    given_by_us = ("--bootstrap-server", servers, "--command-config", str(properties))
    endpoints = [connection.credentials.endpoint] if connection.credentials else []
    become(KAFKA_TOOLS[tool].main_class, *given_by_us, *arguments, temporary=temporary, token_endpoints=endpoints)


def become(
    main_class: str,
    *arguments: str,
    log_level: str = "ERROR",
    temporary: Path | None = None,
    token_endpoints: Collection[str] = (),
) -> NoReturn:
    """Replaces this process with one of Kafka's programs, so that signals and the exit code are its own.

    Args:
        main_class: the program.
        arguments: its arguments.
        log_level: the least severe messages that it logs.
        temporary: the folder for its temporary files; None for the system's.
        token_endpoints: where it gets tokens, which Kafka's clients ask only if they are allowed to.

    Raises:
        LabError: Java cannot be started.
    """
    java = Java(lab_home())
    system = {"log4j2.level": log_level}
    if token_endpoints:
        system[ALLOWED_URLS] = ",".join(sorted(token_endpoints))
    command = java.command(main_class, *arguments, options=JvmOptions(), heap=_HEAP, system=system, temporary=temporary)
    sys.stdout.flush()
    try:
        os.execve(command[0], command, {**os.environ, **java.environment})  # noqa: S606 (no shell is wanted)
    except OSError as error:
        raise LabError(f"{command[0]}: cannot be started ({error.strerror}); ./lab setup installs it") from error
