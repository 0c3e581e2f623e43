"""The Java runtime, Kafka's jars, and the commands that start Java programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loosehanger.lab.manifests.resources import KAFKA_VERSION, JvmOptions

_LOGGING = """\
status = error
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
"""
_THOROUGH_LATER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Raises the thresholds of the C2 compiler tenfold. A start takes a quarter less CPU time, and hot code is still
compiled within seconds."""


WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
"""The program of Connect's workers."""
_ARCHIVES = {WORKER: "connect.jsa"}
"""The archive of classes that a program has, where it is not the nodes'."""


def set_of(version: str) -> str:
    """Returns the name of a Kafka's set of jars, which is the name of their folder."""
    return "kafka" if version == KAFKA_VERSION else f"kafka-{version}"


@dataclass(frozen=True)
class Java:
    """The lab's Java runtime and Kafka's jars."""

    home: Path
    """The lab's home."""
    version: str = KAFKA_VERSION
    """Kafka's."""

    def command(
        self,
        main_class: str,
        *arguments: str,
        options: JvmOptions,
        heap: str,
        system: dict[str, str],
        temporary: Path | None = None,
        agent: str = "",
    ) -> list[str]:
        """Returns the command that runs one of Kafka's programs.

        Args:
            main_class: the class to run.
            arguments: its arguments.
            options: heap and flags of the manifest.
            heap: the heap if the manifest sets none, such as ``512m``.
            system: system properties.
            temporary: the folder for its temporary files; None for the system's.
            agent: the option that starts a Java agent in it; empty for none.
        """
        return [
            str(self.home / "java" / "bin" / "java"),
            *self.start_options(main_class),
            *_THOROUGH_LATER,
            # Java keeps counters in /tmp, and Kafka's codecs unpack native libraries there. A killed JVM leaves both.
            "-XX:-UsePerfData",
            *([f"-Djava.io.tmpdir={temporary}"] if temporary else []),
            *options.arguments(heap),
            *([agent] if agent else []),
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            *(f"-D{name}={value}" for name, value in system.items()),
            main_class,
            *arguments,
        ]

    def start_options(self, main_class: str) -> list[str]:
        """Returns the options with which one of Kafka's programs starts sooner."""
        # Kafka keeps each listener's key in a key store in memory, which is encrypted 10,000 times over: a third of a
        # node's start. No program of Kafka writes a key store.
        in_memory = "-Dkeystore.pkcs12.keyPbeIterationCount=1"
        if self.version != KAFKA_VERSION:
            return [in_memory]  # Older releases have no archive of classes.
        return [
            in_memory,
            # Halves the start-up time of a node; Java ignores a missing or unsuitable archive.
            f"-XX:SharedArchiveFile={self._jars / _ARCHIVES.get(main_class, 'kafka.jsa')}",
            *("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Returns a program's environment: the class path, in the order of the class data archive."""
        return {"CLASSPATH": ":".join(str(jar) for jar in sorted((self._jars / set_of(self.version)).glob("*.jar")))}

    def logging(self, folder: Path) -> dict[str, str]:
        """Returns the system property that logs to standard output in the lab's format."""
        return {"log4j2.configurationFile": str(folder / "log4j2.properties")}

    @property
    def logging_configuration(self) -> str:
        """Returns the content of ``log4j2.properties``."""
        return _LOGGING

    @property
    def _jars(self) -> Path:
        # The class data archive names the jars by their real paths.
        return (self.home / "jars").resolve()
