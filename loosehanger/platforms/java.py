"""The Java programs: where the runtime and the jars are, and how a program is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loosehanger.lab.manifests.resources import JvmOptions

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
"""The thorough compiler takes what ran ten times as often as it would otherwise. A start takes a quarter less of the
processor, of which the compiler had the largest share; what is really busy gets there within seconds all the same."""


@dataclass(frozen=True)
class Java:
    """The lab's Java runtime and Kafka's jars."""

    home: Path
    """The lab's home."""

    def command(
        self,
        main_class: str,
        *arguments: str,
        options: JvmOptions,
        heap: str,
        system: dict[str, str],
        temporary: Path | None = None,
    ) -> list[str]:
        """The command that runs one of Kafka's programs.

        Args:
            main_class: the class to run.
            arguments: its arguments.
            options: heap and flags of the manifest.
            heap: the heap where the manifest has none, as in ``512m``.
            system: system properties.
            temporary: the folder for its temporary files; None for the machine's own.
        """
        return [
            str(self.home / "java" / "bin" / "java"),
            # Halves the start of a node; without the archive, or with one that does not fit, everything runs as well.
            f"-XX:SharedArchiveFile={self._jars / 'kafka.jsa'}",
            *("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"),
            *_THOROUGH_LATER,
            # Java keeps counters in /tmp, and Kafka's codecs unpack native libraries there. Killed, it leaves both.
            "-XX:-UsePerfData",
            *([f"-Djava.io.tmpdir={temporary}"] if temporary else []),
            *options.arguments(heap),
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            *(f"-D{name}={value}" for name, value in system.items()),
            main_class,
            *arguments,
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a program: the class path, in the order in which the archive of classes was made."""
        return {"CLASSPATH": ":".join(str(jar) for jar in sorted((self._jars / "kafka").glob("*.jar")))}

    def logging(self, folder: Path) -> dict[str, str]:
        """The system property that sends a program's log to its standard output, in the lab's format."""
        return {"log4j2.configurationFile": str(folder / "log4j2.properties")}

    @property
    def logging_configuration(self) -> str:
        """The content of ``log4j2.properties``."""
        return _LOGGING

    @property
    def _jars(self) -> Path:
        # The archive of classes names the jars by their own paths.
        return (self.home / "jars").resolve()
