"""Makes the class data archives with which Kafka's nodes, Connect's workers and Spark's jobs start in half the time.

Usage: ``python -m scripts.class_archives``, once the rest is installed in LAB_HOME; a lab's first set-up does so in the
background (``loosehanger.cli.class_archives``). An archive has the classes that a run has loaded. So a node, a worker
with a mirror and a proof run once, on a few records of their own, without a network beyond this machine. Java uses an
archive only with the class path and the Java that it was made with; everything runs without it, too. Usable archives
are left alone, and a failure is reported without failing the command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from uuid import uuid4

from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from loosehanger.cli.class_archives import BACKGROUND, FOLDER, NAMES, is_made, only_one, step_back
from loosehanger.errors import LabError
from loosehanger.files import make_folder, remove_folder, write_file
from loosehanger.kafka.clients import Bounds, connect_admin, connect_consumer, connect_producer
from loosehanger.kafka.connect import REST_USER, ConnectClient, ConnectError
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.properties import SCRAM_LOGIN_MODULE, format_properties
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.java import WORKER, Java
from loosehanger.platforms.local import certificates
from loosehanger.platforms.local.kafka_cluster import DEDUPE_BUFFER
from loosehanger.platforms.local.mirror_maker_settings import BASIC_AUTH
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.secret_store import read_secret, secret_file
from loosehanger.ports import LOOPBACK, free_ports
from loosehanger.process_lifetime import end_with_parent
from loosehanger.waiting import wait_for

_CLUSTER, _CERTIFICATE, _USER, _PASSWORD = "training", "node", "admin", "training"
_PROVED, _MIRRORED = "PROVED", "MIRRORED"
_ALIAS = "source"
_RECORDS = 200
_START_S, _MIRROR_S, _STOP_S, _PROOF_S = 90.0, 60.0, 60.0, 180.0
_LOOK = Bounds(connect_s=1, answer_s=5)
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def say(text: str) -> None:
    """Shows the user the progress."""
    print(text, file=sys.stderr, flush=True)


class Archives:
    """The archives of an installation.

    Args:
        home: the folder of the installation.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.java = Java(home)
        self.base = (home / "java").resolve() / "lib" / "server" / "classes.jsa"
        """Java's own classes, on which the other archives build: Java looks for it there."""

    def path(self, name: str) -> Path:
        """Returns the path of an archive."""
        return self.home / "jars" / f"{name}.jsa"

    def missing(self) -> list[str]:
        """Returns the archives that do not exist, or that Java would not use."""
        with ThreadPoolExecutor() as threads:
            return [name for name, usable in zip(NAMES, threads.map(self._is_usable, NAMES), strict=True) if not usable]

    def make_base(self) -> None:
        """Makes the archive of Java's own classes, unless it is usable.

        Raises:
            LabError: Java cannot make it.
        """
        java = str(self.home / "java/bin/java")
        if subprocess.run([java, "-Xshare:on", "-version"], capture_output=True).returncode == 0:
            return
        new = self.base.with_suffix(".new")
        dump = [java, "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
        if subprocess.run(dump, capture_output=True).returncode:
            raise LabError("Java cannot archive its own classes")
        new.replace(self.base)

    def take(self, name: str, made: Path) -> None:
        """Moves a new archive into its place, and reports one that is missing."""
        if made.exists():
            made.replace(self.path(name))
        if not self._is_usable(name):
            self.replace_by_base(name)
            say(f"There is no archive of {name.title()}'s classes: it will start more slowly, and nothing else changes")

    def replace_by_base(self, name: str) -> None:
        """Makes a program use the archive of Java's own classes: Java uses none if the named file is missing."""
        self.path(name).unlink(missing_ok=True)
        self.path(name).symlink_to(self.base)

    def _is_usable(self, name: str) -> bool:
        if not is_made(self.path(name)):
            return False
        spark_java = self.home / "java-spark"
        environment = os.environ | self.java.environment
        if name == "spark":
            connector = sorted((self.home / "jars/spark").resolve().glob("*.jar"))
            found = find_spec("pyspark")
            assert found is not None
            assert found.origin is not None
            paths = [*connector, f"{spark_java.resolve()}/empty/", Path(found.origin).parent / "jars/*"]
            environment |= {"CLASSPATH": ":".join(map(str, paths))}
        java = str((spark_java if name == "spark" else self.home / "java") / "bin/java")
        command = [java, f"-XX:SharedArchiveFile={self.path(name)}", "-Xshare:on", "-version"]
        return subprocess.run(command, env=environment, capture_output=True).returncode == 0


class Training:
    """A cluster of one node, a worker and a proof, in a folder of their own.

    Args:
        archives: where the archives go.
        folder: an empty folder.
    """

    def __init__(self, archives: Archives, folder: Path) -> None:
        self._archives = archives
        self._java = archives.java
        self._folder = folder
        self._region = LocalRegion(folder, ROOT, _CLUSTER, 0)
        self._port, self._controller, self._rest = free_ports(3)
        write_file(folder / "log4j2.properties", self._java.logging_configuration)
        certificates.ensure_authority(self._region, _CLUSTER, validity_days=2)
        certificates.ensure_certificate(self._region, _CLUSTER, _CERTIFICATE, _CERTIFICATE, [], 2)
        self._authority = secret_file(self._region, f"{_CLUSTER}-cluster-ca-cert", "ca.crt")
        self._security = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM_LOGIN_MODULE} required username="{_USER}" password="{_PASSWORD}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
        }
        self._servers = {"bootstrap.servers": f"{LOOPBACK}:{self._port}"}
        self._client = self._write("client", self._servers | self._security)
        self._connection = Connection.from_properties(self._client)

    def made(self, name: str) -> Path:
        """Returns the path of a new archive, before it is moved into its place."""
        return self._folder / f"{name}.jsa"

    def run(self) -> None:
        """Runs all three, each of which writes its archive as it stops.

        Raises:
            LabError: one of them does not start, or does not do its work in time.
        """
        properties = self._broker()
        scram = f"SCRAM-SHA-512=[name={_USER},password={_PASSWORD},iterations=4096]"
        format_ = ("format", "--cluster-id", uuid4().hex[:22], "--config", str(properties), "--add-scram", scram)
        with self._running("format", "kafka.tools.StorageTool", *format_) as formatting:
            formatting.wait(_START_S)
        with ThreadPoolExecutor() as readers:
            with self._running("kafka", "kafka.Kafka", str(properties)) as node:
                wait_for(partial(self._not_ready, node), _START_S, "a node")
                self._fill()
                with ThreadPoolExecutor() as threads:
                    proof = threads.submit(self._prove, readers)
                    self._mirror()
            # The node writes its archive while Spark writes its own.
            proof.result()

    def _running(
        self, name: str, main_class: str, *arguments: str, **system: str
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        # A short run is not worth compiling thoroughly.
        flags: dict[str, str | int] = {"SharedArchiveFile": str(self._archives.base), "TieredStopAtLevel": 1}
        if name in NAMES:
            flags |= {"ArchiveClassesAtExit": str(self.made(name))}
        command = self._java.command(
            main_class,
            *arguments,
            options=JvmOptions.model_validate({"-XX": flags}),
            heap="384m",
            system=self._java.logging(self._folder) | system,
            temporary=self._folder,
        )
        return running(command, self._folder, self._java.environment, self._folder / f"{name}.log")

    def _write(self, name: str, properties: Mapping[str, str]) -> Path:
        path = self._folder / f"{name}.properties"
        write_file(path, format_properties(properties))
        return path

    def _broker(self) -> Path:
        """Writes the node's settings: those settings of the lab's nodes on which the loaded classes depend."""
        clients, controller = "CLIENTS-9098", "CONTROLPLANE-9090"
        listeners = {clients: self._port, controller: self._controller}
        urls = [f"{name}://{LOOPBACK}:{port}" for name, port in listeners.items()]
        settings = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@{LOOPBACK}:{self._controller}",
            "controller.listener.names": controller,
            "inter.broker.listener.name": clients,
            "listeners": ",".join(urls),
            "listener.security.protocol.map": f"{clients}:SASL_SSL,{controller}:SSL",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "log.dirs": str(self._folder / "data"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_USER};{certificates.principal(_CERTIFICATE)}",
            "log.cleaner.dedupe.buffer.size": str(DEDUPE_BUFFER),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            settings |= {f"{topic}.replication.factor": "1", f"{topic}.num.partitions": "1"}
        settings |= {f"{topic}.min.isr": "1" for topic in ("transaction.state.log", "share.coordinator.state.topic")}
        for name in listeners:
            prefix = f"listener.name.{name.lower()}"
            settings |= {
                f"{prefix}.ssl.keystore.type": "PEM",
                f"{prefix}.ssl.keystore.location": str(secret_file(self._region, _CERTIFICATE, "keystore.pem")),
                f"{prefix}.ssl.truststore.type": "PEM",
                f"{prefix}.ssl.truststore.location": str(self._authority),
                f"{prefix}.ssl.client.auth": "none" if name == clients else "required",
            }
        prefix = f"listener.name.{clients.lower()}"
        settings[f"{prefix}.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        settings[f"{prefix}.scram-sha-512.sasl.jaas.config"] = self._security["sasl.jaas.config"]
        return self._write("server", settings)

    def _worker(self) -> Path:
        """Writes the worker's settings, as ``_broker`` does a node's."""
        stores = read_secret(self._region, _CERTIFICATE)
        password = stores["store.password"].decode()
        settings = {f"{kind}.converter": _BYTES for kind in ("key", "value", "header")}
        for topic in ("config", "offset", "status"):
            settings |= {f"{topic}.storage.topic": topic, f"{topic}.storage.replication.factor": "-1"}
        for client in ("", "producer.", "consumer.", "admin."):
            settings |= {f"{client}{name}": value for name, value in self._security.items()}
        for store in ("keystore", "truststore"):
            settings |= {
                f"listeners.https.ssl.{store}.type": "PKCS12",
                f"listeners.https.ssl.{store}.location": str(secret_file(self._region, _CERTIFICATE, f"{store}.p12")),
                f"listeners.https.ssl.{store}.password": password,
            }
        settings |= self._servers | {
            "group.id": "workers",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "plugin.path": str(self._folder / "plugins"),
            "plugin.discovery": "service_load",
            "listeners": f"https://{LOOPBACK}:{self._rest}",
            "listeners.https.ssl.key.password": password,
            "rest.extension.classes": f"{BASIC_AUTH}.BasicAuthSecurityRestExtension",
        }
        make_folder(self._folder / "plugins")
        return self._write("worker", settings)

    def _not_ready(self, node: subprocess.Popen[bytes]) -> str | None:
        if node.poll() is not None:
            raise LabError("a node exits as it starts")
        try:
            connect_admin(self._connection, _LOOK).close()
        except (KafkaError, OSError):
            return "no answer"
        return None

    def _fill(self) -> None:
        """Writes a topic and its copy, for the proof, and a topic for the mirror."""
        topics = (_PROVED, f"{_ALIAS}.{_PROVED}", _MIRRORED)
        with closing(connect_admin(self._connection, _LOOK)) as admin:
            admin.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1) for name in topics])
        now = round(time.time() * 1000)
        with closing(connect_producer(self._connection)) as producer:
            for topic in topics:
                for number in range(_RECORDS):
                    text = str(number).encode()
                    place = {"partition": number % 2, "timestamp_ms": now + number}
                    producer.send(topic, key=text, value=b'{"n": %b}' % text, headers=[("number", text)], **place)
            producer.flush()

    def _mirror(self) -> None:
        """Runs a worker until its mirror has copied a topic."""
        users, jaas = self._folder / "users.properties", self._folder / "rest-jaas.conf"
        write_file(users, f"{REST_USER}={_PASSWORD}\n")
        login = f'KafkaConnect {{ {BASIC_AUTH}.PropertyFileLoginModule required file="{users}"; }};\n'
        write_file(jaas, login)
        system = {"java.security.auth.login.config": str(jaas)}
        with self._running("connect", WORKER, str(self._worker()), **system):
            rest = ConnectClient(
                [f"https://{LOOPBACK}:{self._rest}"], REST_USER, _PASSWORD, self._authority, patient=True
            )
            wait_for(partial(_no_answer, rest), _START_S, "a worker")
            ends = {
                f"{end}.cluster.{name}": value
                for end in ("source", "target")
                for name, value in ({"alias": end} | self._servers | self._security).items()
            }
            factors = {
                f"{topic}replication.factor": "-1" for topic in ("", "offset-syncs.topic.", "checkpoints.topic.")
            }
            for name in ("MirrorSourceConnector", "MirrorCheckpointConnector"):
                further = {
                    "name": name,
                    "connector.class": f"org.apache.kafka.connect.mirror.{name}",
                    "tasks.max": "1",
                    "topics": _MIRRORED,
                    "groups": ".*",
                    "consumer.isolation.level": "read_committed",
                    "producer.override.compression.type": "lz4",
                    "sync.group.offsets.enabled": "true",
                }
                rest.configure(name, ends | factors | further)
            wait_for(self._not_mirrored, _MIRROR_S, "a mirror")

    def _not_mirrored(self) -> str | None:
        with closing(connect_consumer(self._connection, _LOOK)) as consumer:
            places = [TopicPartition(f"{_ALIAS}.{_MIRRORED}", number) for number in range(2)]
            if not consumer.partitions_for_topic(places[0].topic):
                return "no topic"
            # A transaction's marker takes an offset, too.
            return None if sum(consumer.end_offsets(places).values()) > _RECORDS else "no records"

    def _prove(self, readers: Executor) -> None:
        """Proves that a topic has its copy."""
        options = ["--work", str(self._folder / "work"), "--allow-same-cluster", "--topics", _PROVED]
        options += ["--policy", "default", "--source-alias", _ALIAS]
        options += ["--source-config", str(self._client), "--target-config", str(self._client)]
        command = [sys.executable, "-P", "-m", "loosehanger.proof.submit", "prove", *options]
        environment = {"PYTHONPATH": str(ROOT), "LAB_CLASSES_TO": str(self.made("spark"))}
        run_job(command, self._folder, environment, readers)


def _no_answer(rest: ConnectClient) -> str | None:
    try:
        rest.connectors()
    except ConnectError:
        return "no answer"
    return None


def run_job(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], readers: Executor, seconds: float = _PROOF_S
) -> None:
    """Runs a job to its end, which comes before that of its Java. The job is killed when this process is.

    Args:
        command: the job.
        folder: where it runs.
        environment: its variables, beside those of this process.
        readers: reads its output to the end, which comes when Java has written its archive.
        seconds: how long it may take.

    Raises:
        LabError: it fails.
        subprocess.TimeoutExpired: it takes longer.
    """
    job = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=partial(end_with_parent, signal.SIGKILL),
    )
    assert job.stdout is not None
    # Beside the waiting: a job waits as soon as its pipe is full.
    output = readers.submit(_last_line, job.stdout)
    try:
        code = job.wait(seconds)
    finally:
        job.kill()
    if code:
        raise LabError(f"a proof fails: {output.result() or 'no output'}")


def _last_line(output: IO[str]) -> str:
    """Reads to the end; returns the last line that is not empty."""
    with output:
        return "".join(deque(filter(None, map(str.strip, output)), maxlen=1))


@contextmanager
def running(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program, and stops it; it then writes its archive. The program is killed when this process is."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=partial(end_with_parent, signal.SIGKILL),
        )
    try:
        yield process
        process.terminate()
        process.wait(_STOP_S)
    finally:
        process.kill()
        process.wait()


def make(archives: Archives) -> None:
    """Makes the archives that are missing.

    Raises:
        LabError: a program does not do its work.
    """
    if not archives.missing():
        return
    say("Preparing the classes of Kafka and Spark for a quicker start")
    # A run that was killed leaves its folder.
    for left in (archives.home / "jars").glob(f"{FOLDER}*"):
        remove_folder(left)
    with tempfile.TemporaryDirectory(prefix=FOLDER, dir=archives.home / "jars") as folder:
        training = Training(archives, Path(folder))
        try:
            training.run()
        finally:
            for name in NAMES:
                archives.take(name, training.made(name))


def main() -> int:
    """Makes the archives; with ``--base`` that of Java's own classes alone, in place of those that are not usable."""
    if BACKGROUND in sys.argv[1:]:
        step_back()
    archives = Archives(lab_home())
    try:
        with only_one(archives.home) as alone:
            if not alone:
                return 0
            archives.make_base()
            if "--base" in sys.argv[1:]:
                for name in archives.missing():
                    archives.replace_by_base(name)
            else:
                make(archives)
    except (LabError, OSError, KafkaError, subprocess.TimeoutExpired) as error:
        say(f"The classes of Kafka and Spark cannot be prepared: {error}. Both start more slowly; nothing else changes")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
