"""What the benchmarks share: a lab of their own, Kafka's own measuring tools, percentiles and tables."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec

from loosehanger.errors import LabError
from loosehanger.kafka.connection import connection_for
from loosehanger.paths import lab_home
from loosehanger.quantiles import quantile
from scripts.sandbox import Kit, copy_kit, forget_bytecode

TUNED = (
    "producer.override.batch.size",
    "producer.override.linger.ms",
    "producer.override.compression.type",
    "producer.override.max.request.size",
    "source.consumer.max.poll.records",
    "source.consumer.max.partition.fetch.bytes",
    "source.consumer.fetch.min.bytes",
)
"""The settings of the lab's manifests for speed, which a benchmark of the defaults removes."""
Variant = tuple[dict[str, object], dict[str, object]]
PORT_BASE = 31000
"""Below the ports that the system gives to connections, with room for a lab."""
MOST_S = 3600
"""The longest that a measured command may take."""
_LOOK_S = 0.2
"""From one look at a command's processes to the next."""
TARGETS = ("north-america", "south-america")
MIRRORS = ("mm2-na.yaml", "mm2-sa.yaml")


def machine() -> str:
    """Describes the machine in one line."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.machine()}"


@contextlib.contextmanager
def sandbox(port_base: int = PORT_BASE) -> Iterator[Kit]:
    """Yields a copy of the kit, and cleans its lab up afterwards."""
    with tempfile.TemporaryDirectory(prefix="lab-bench-") as folder:
        kit = copy_kit(Path(folder), port_base)
        try:
            yield kit
        finally:
            kit.run("cleanup")
            forget_bytecode(Path(folder))


def succeed(kit: Kit, command: str, *arguments: str) -> None:
    """Runs one of the kit's commands.

    Raises:
        LabError: it failed.
    """
    done = kit.run(command, *arguments, timeout=600)
    if done.returncode:
        raise LabError(f"{command} ended with {done.returncode}: {done.stderr.strip()}")


class Cost(NamedTuple):
    """The cost and the output of a command."""

    seconds: float
    processor: float
    """CPU seconds of all its processes, which other work on the machine hardly changes."""
    memory: int
    """Peak memory of its processes together, in bytes."""
    code: int
    output: str
    """Its standard output."""


def cost(kit: Kit, command: Sequence[str]) -> Cost:
    """Runs a command of a kit, and looks at its processes until it ends."""
    return measured(command, kit.root, kit.variables())


def measured(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], errors: Path = Path(os.devnull)
) -> Cost:
    """Runs a command, and looks at its processes until it ends.

    Raises:
        LabError: it has not ended within ``MOST_S``.

    Args:
        command: the program and its arguments.
        folder: where it runs.
        environment: its variables.
        errors: the file for its standard error.
    """
    most, processor = 0, dict[int, float]()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, errors.open("w", encoding="utf-8") as complaints:
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=complaints, text=True)
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            resident = 0
            for member in (tree, *tree.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    resident += member.memory_info().rss
                    times = member.cpu_times()
                    processor[member.pid] = times.user + times.system
            most = max(most, resident)
            if time.monotonic() - started > MOST_S:
                process.kill()
                raise LabError(f"{command[0]} has not ended within {MOST_S} s; it was killed")
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - started
        output.seek(0)
        return Cost(seconds, sum(processor.values()), most, process.returncode, output.read())


def configure(kit: Kit, worker: Mapping[str, object], connector: Mapping[str, object], tasks: int = 1) -> None:
    """Writes both mirrors with these settings in place of the lab's, and sets the lab up without its clients.

    Args:
        kit: where.
        worker: settings of ``spec.target.config``; a value of None removes one.
        connector: settings of the source connector, likewise.
        tasks: tasks of the source connector.
    """
    for name in MIRRORS:
        original = Path(__file__).parents[2] / "playbooks" / "03-broadcast" / "manifests" / name
        resource = yaml.safe_load(original.read_text(encoding="utf-8"))
        source = resource["spec"]["mirrors"][0]["sourceConnector"]
        source["tasksMax"] = tasks
        for settings, changes in ((resource["spec"]["target"]["config"], worker), (source["config"], connector)):
            for key, value in changes.items():
                settings.pop(key, None)
                if value is not None:
                    settings[key] = value
        kit.manifest(name).write_text(yaml.safe_dump(resource, sort_keys=False), encoding="utf-8")
    # The lab's own clients would also use the CPU.
    succeed(kit, "setup", "03-broadcast", "-e", "consumer_replicas=0", "-e", "producer_replicas=0")


def processes(kit: Kit) -> Iterator[psutil.Process]:
    """Yields every process of a kit's lab."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.environ().get("LAB_REGION_FOLDER", "/")).is_relative_to(kit.home):
                yield process


def admin(kit: Kit, region: str) -> KafkaAdminClient:
    """Returns a client that may do everything in a region."""
    return KafkaAdminClient(**connection_for(kit.lab.region(region), "admin").kafka_python())


class ToolCommand(NamedTuple):
    """One of Kafka's own tools, to be started."""

    command: Sequence[str]
    environment: Mapping[str, str]


def tool(config: Path, main_class: str, *arguments: str) -> ToolCommand:
    """Returns how to start one of Kafka's own tools with client properties; ``{config}`` becomes their file."""
    jars = sorted((lab_home() / "jars" / "kafka").glob("*.jar"))
    command = [
        *(str(lab_home() / "java" / "bin" / "java"), "-Xmx512m", "-Dlog4j2.level=ERROR"),
        f"org.apache.kafka.tools.{main_class}",
        *(argument.replace("{config}", str(config)) for argument in arguments),
    ]
    return ToolCommand(command, {**os.environ, "CLASSPATH": ":".join(map(str, jars))})


def started(tool: ToolCommand) -> subprocess.Popen[str]:
    """Starts a tool."""
    return subprocess.Popen(
        tool.command, env=tool.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def kafka_tool(kit: Kit, region: str, main_class: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts one of Kafka's own tools, as the region's administrator; ``{config}`` becomes its client configuration."""
    return started(tool(kit.lab.region(region).clients["admin"], main_class, *arguments))


def produce(
    kit: Kit, topic: str, records: int, size: int, throughput: int = -1, payloads: Path | None = None
) -> subprocess.Popen[str]:
    """Starts ProducerPerformance in Europe: records of ``size`` bytes, ``throughput`` a second (-1: all it can).

    With a file of payloads, one in each line, it writes these instead of random letters, which no codec compresses.
    """
    values = ("--payload-file", str(payloads)) if payloads else ("--record-size", str(size))
    return kafka_tool(
        kit, "europe", "ProducerPerformance", "--topic", topic, "--num-records", str(records),
        *values, "--throughput", str(throughput), "--command-config", "{config}",
        "--command-property", "acks=all", "batch.size=65536", "linger.ms=5",
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> str:
    """Waits for a tool and returns its output.

    Raises:
        LabError: it failed.
    """
    output, _ = process.communicate(timeout=900)
    if process.returncode:
        raise LabError(f"{process.args!r}: {output.strip().splitlines()[-1:]}")
    return output


def rate_in(output: str) -> float:
    """Reads the last ``… records/sec`` of ProducerPerformance."""
    return float(re.findall(r"([\d.]+) records/sec", output)[-1])


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns p50, p95 and p99."""
    return quantile(values, 0.5), quantile(values, 0.95), quantile(values, 0.99)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Formats a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def end_offsets(client: KafkaAdminClient, topic: str) -> int:
    """Returns the sum of a topic's end offsets; 0 while the topic does not exist."""
    (found,) = client.describe_topics([topic])
    if found["error_code"]:
        return 0
    specs = {TopicPartition(topic, p["partition_index"]): OffsetSpec.LATEST for p in found["partitions"]}
    return sum(end.offset for end in client.list_partition_offsets(specs).values())


VARIANTS: dict[str, Variant] = {
    "MM2 defaults, exactly-once off": (
        {"exactly.once.source.support": None},
        {"exactly.once.support": None, "source.consumer.isolation.level": None, **dict.fromkeys(TUNED)},
    ),
    "MM2 defaults, exactly-once on": ({}, dict.fromkeys(TUNED)),
    "for throughput, exactly-once on": (
        {},
        {
            "producer.override.batch.size": 327680,
            "producer.override.linger.ms": 20,
            "source.consumer.max.poll.records": 5000,
        },
    ),
    "the lab's manifests": ({}, {}),
}
"""Settings of workers and source connectors to compare; None removes the lab's own."""


def there_and_back() -> list[tuple[str, Variant]]:
    """Returns the variants in their order, and then in the reverse order."""
    return [*VARIANTS.items(), *reversed(VARIANTS.items())]
