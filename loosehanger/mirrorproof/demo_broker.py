"""A broker of ``mirrorproof demo``: one process on the loopback address, without users, with its data in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kafka.errors import KafkaError

from loosehanger.errors import LabError, WrongUseError
from loosehanger.files import make_folder, write_file
from loosehanger.kafka.clients import Bounds, connect_admin
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import format_properties
from loosehanger.mirrorproof.connector import broker, fetch, there
from loosehanger.mirrorproof.places import JARS, cache
from loosehanger.paths import caller_path
from loosehanger.ports import LOOPBACK, free_ports
from loosehanger.process_lifetime import end_with_parent
from loosehanger.waiting import wait_for

_STARTS_S = 180.0
_STOPS_S = 10.0
_FORMATS_S = 60.0
_LOOK = Bounds(connect_s=1, answer_s=2)
_HEAP = "256m"


def broker_jars(kafka: Path | None, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the jars of a broker: those of the user's own Kafka, or locked ones, fetched once and checked by hash.

    Args:
        kafka: an installation of Kafka, with its jars in ``libs``.
        environment: the user's variables.

    Raises:
        WrongUseError: the installation has no broker, or a jar of the user's folder is missing.
        LabError: a jar cannot be fetched.
    """
    if kafka is None:
        if given := environment.get(JARS):
            return there(caller_path(given) / "kafka", broker(), "mirrorproof jars FOLDER --demo fetches them")
        return fetch(cache(environment) / "jars", broker())
    found = sorted(kafka.glob("libs/*.jar"))
    if not any(path.name.startswith("kafka_2.13-4.") for path in found):
        raise WrongUseError(f"--kafka: {kafka} is not an installation of Kafka 4 (libs/kafka_2.13-4.….jar is missing)")
    return found


class DemoBroker:
    """A broker, and the client properties that lead to it."""

    def __init__(self, name: str, folder: Path, java: Path, jars: Sequence[Path]) -> None:
        """Takes its name, a folder for its files, a Java program and Kafka's jars."""
        self.name = name
        self.properties = folder / f"{name}.properties"
        self._folder = folder / name
        self._java = java
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = free_ports(2)
        address = f"{LOOPBACK}:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{LOOPBACK}:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "auto.create.topics.enable": "false",
        }
        make_folder(self._folder)
        write_file(self._folder / "server.properties", format_properties(settings))
        write_file(self.properties, format_properties({"bootstrap.servers": address}))
        self.connection = Connection.from_properties(self.properties)

    def start(self, cluster_id: str) -> None:
        """Starts the process; ``wait`` waits for its answer.

        Args:
            cluster_id: 16 bytes in Base64, as Kafka wants it.

        Raises:
            LabError: its folder cannot be prepared.
        """
        properties = str(self._folder / "server.properties")
        formatting = self._run("kafka.tools.StorageTool", "format", "-c", properties, "-t", cluster_id)
        try:
            if formatting.wait(_FORMATS_S):
                raise LabError(f"{self.name}: Kafka does not accept its folder: {self._last_words()}")
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{self.name}: its folder was not ready within {_FORMATS_S:.0f} s") from error
        finally:
            _end(formatting)
        self._process = self._run("kafka.Kafka", properties)

    def wait(self) -> None:
        """Waits until it answers.

        Raises:
            LabError: it has exited, or does not answer in time.
        """
        wait_for(self._missing, _STARTS_S, f"the broker {self.name}")

    def stop(self) -> None:
        """Stops the process, if it is running."""
        if self._process is not None:
            _end(self._process)

    def _missing(self) -> str | None:
        if self._process is None or self._process.poll() is not None:
            raise LabError(f"the broker {self.name} has exited: {self._last_words()}")
        try:
            connect_admin(self.connection, _LOOK).close()
        except (KafkaError, OSError):
            return "no answer"
        return None

    def _last_words(self) -> str:
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
        return said[-1] if said else "it wrote nothing"

    def _run(self, *arguments: str) -> subprocess.Popen[bytes]:
        options = [f"-Xmx{_HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        # The native libraries that it unpacks go with its folder.
        options += [f"-Djava.io.tmpdir={self._folder}", "-Dlog4j2.level=WARN"]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._java), *options, *arguments],
                cwd=self._folder,
                env=os.environ | {"CLASSPATH": os.pathsep.join(map(str, self._jars))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demo, which then ends its brokers; killed itself, it must not leave them.
                start_new_session=True,
                preexec_fn=partial(end_with_parent, signal.SIGKILL),
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process: its data has no value, so it gets little time."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOPS_S)
    process.kill()
    process.wait()
