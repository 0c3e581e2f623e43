"""One plain broker, for what needs Kafka but no lab: users with SCRAM, an authorizer, no TLS; up in a few seconds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError

from loosehanger.files import write_file
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.patches import AdvertisedAddressError
from loosehanger.kafka.properties import SCRAM_LOGIN_MODULE, format_properties
from loosehanger.paths import lab_home
from loosehanger.platforms.java import Java
from loosehanger.ports import free_ports

from .conftest import wait_until

_ADMIN = "admin"
_PASSWORD = "broker-of-a-test"
_HEAP = "384m"


@dataclass
class Broker:
    """A broker that runs."""

    port: int
    folder: Path
    pid: int = 0
    second: int = 0
    """A port for a second listener."""
    third: int = 0
    """A port for a third one."""

    def connection(self, user: str = _ADMIN) -> Connection:
        """A user's way in."""
        return Connection.from_properties(self.properties(user))

    def properties(self, user: str) -> Path:
        """A user's client properties, as Kafka's tools take them."""
        path = self.folder / f"{user}.properties"
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM_LOGIN_MODULE} required username="{user}" password="{_PASSWORD}";',
        }
        # Whole at any time: threads of a test read it while others ask for it.
        write_file(path, format_properties(settings))
        return path

    def admin(self) -> KafkaAdminClient:
        """A client that may do everything."""
        return KafkaAdminClient(**self.connection().kafka_python(), bootstrap_timeout_ms=2000)

    def allow(self, user: str, topic: str, *operations: ACLOperation) -> Path:
        """A user who may do just this to a topic; returns their client properties."""
        client = self.admin()
        credential = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, _PASSWORD)
        client.alter_user_scram_credentials([credential])
        pattern = ResourcePattern(ResourceType.TOPIC, topic)
        client.create_acls(
            [ACL(f"User:{user}", "*", operation, ACLPermissionType.ALLOW, pattern) for operation in operations]
        )
        client.close()
        return self.properties(user)


@contextmanager
def running(
    folder: Path,
    advertised: str | None = None,
    cluster: str = "MkU3OEVBNTcwNTJENDM2Qg",
    further: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
) -> Iterator[Broker]:
    """Starts a broker with its data in a folder, and stops it.

    Args:
        folder: an empty one.
        advertised: the address that it advertises to its clients, in place of its own.
        cluster: its id, for a second cluster.
        further: settings beside the usual ones, or in place of them, such as a second listener's; ``{broker}`` and
            ``{controller}`` in them are the ports, and ``{second}`` and ``{third}`` two more.
        jvm: options of its Java machine.
    """
    broker, controller, second, third = free_ports(4)
    properties = folder / "server.properties"
    jaas = f'{SCRAM_LOGIN_MODULE} required username="{_ADMIN}" password="{_PASSWORD}";'
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": f"SASL_PLAINTEXT://{advertised or f'127.0.0.1:{broker}'}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_ADMIN};User:ANONYMOUS",
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
    }
    for name, value in (further or {}).items():
        ports = {"{broker}": broker, "{controller}": controller, "{second}": second, "{third}": third}
        for placeholder, port in ports.items():
            value = value.replace(placeholder, str(port))
        settings[name] = value
    properties.write_text(format_properties(settings), encoding="utf-8")
    scram = f"SCRAM-SHA-512=[name={_ADMIN},password={_PASSWORD}]"
    java(
        *("kafka.tools.StorageTool", "format", "-c", str(properties), "-t", cluster),
        *("--add-scram", scram),
        log=folder / "format.log",
    ).wait(60)
    process = java(*jvm, "kafka.Kafka", str(properties), log=folder / "broker.log")
    try:
        found = Broker(broker, folder, process.pid, second, third)
        wait_until(lambda: _answers(found), 60, f"the broker, see {folder / 'broker.log'}")
        yield found
    finally:
        process.kill()
        process.wait()


def _answers(broker: Broker) -> bool:
    try:
        client = broker.admin()
        client.describe_cluster()
        client.close()
    except AdvertisedAddressError:
        return True
    except (KafkaError, OSError):
        return False
    return True


def java(*arguments: str, log: Path, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Starts a program of Kafka's."""
    jars = sorted((lab_home() / "jars" / "kafka").resolve().glob("*.jar"))
    with log.open("wb") as output:
        return subprocess.Popen(
            [
                *(str(lab_home() / "java" / "bin" / "java"), f"-Xmx{_HEAP}", "-Dlog4j2.level=WARN"),
                # Killed, it would leave the native libraries that it unpacks in /tmp.
                *("-XX:-UsePerfData", f"-Djava.io.tmpdir={log.parent}"),
                *Java(lab_home()).start_options("kafka.Kafka"),
                *arguments,
            ],
            env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, jars))},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=stdin,
        )
