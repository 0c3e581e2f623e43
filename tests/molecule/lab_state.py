"""What Molecule's scenarios look at: asks Kafka, Connect and the processes of a region, and prints the answer as JSON.

usage: python lab_state.py REGION QUESTION [ARGUMENT ...]

It signs in with the users' own secrets, so a wrong password or a missing right shows. LAB_HOME names the lab.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import requests
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from loosehanger.kafka.connection import Connection, connection_for
from loosehanger.lab.record import load_lab

BOUND_S = 30.0
ADMIN = "admin"
OPERATOR = "operator"
"""Who signs in to every console, with each console's own password."""


@dataclasses.dataclass(frozen=True)
class Region:
    """A region of the lab, known by its files."""

    name: str
    folder: Path

    def secret(self, name: str, key: str) -> Path:
        """The file of a secret's key."""
        return self.folder / "secrets" / name / key

    def connection(self, user: str) -> Connection:
        """A user's way into the region's cluster."""
        services: dict[str, dict[str, list[str]]] = json.loads(
            (self.folder / "services.json").read_text(encoding="utf-8")
        )
        return Connection(
            bootstrap_servers=tuple(services[f"{self.name}-kafka-bootstrap.{self.name}.svc:9098"]["here"]),
            security_protocol="SASL_SSL",
            sasl_mechanism="SCRAM-SHA-512",
            username=user,
            password=self.secret(user, "password").read_text(encoding="utf-8"),
            ca_file=self.secret(f"{self.name}-cluster-ca-cert", "ca.crt"),
        )


def topics(region: Region) -> dict[str, dict[str, Any]]:
    """Each topic with its partitions, the number of offsets written, and the settings made on it."""
    connection = region.connection(ADMIN).kafka_python()
    admin, consumer = KafkaAdminClient(**connection), KafkaConsumer(**connection)
    try:
        found = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
        if not found:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
        configs = admin.describe_configs(resources, config_filter="modified")["topic"]
        ends = consumer.end_offsets([TopicPartition(name, p) for name, count in found.items() for p in range(count)])
        return {
            name: {
                "partitions": count,
                "offsets": sum(end for partition, end in ends.items() if partition.topic == name),
                "config": {key: entry["value"] for key, entry in configs[name].items()},
            }
            for name, count in found.items()
        }
    finally:
        consumer.close()
        admin.close()


def sign_in(region: Region, user: str, password: str = "") -> str:
    """Whether the user gets in, with its own password or another one: ``accepted`` or ``refused``."""
    connection = region.connection(user)
    KafkaConsumer(**connection.kafka_python()).close()
    if password:
        # A refusal only shows as a closed connection; but the right password has just been accepted.
        try:
            KafkaConsumer(
                **dataclasses.replace(connection, password=password).kafka_python(), bootstrap_timeout_ms=3000
            ).close()
        except KafkaError:
            return "refused"
    return "accepted"


def write(region: Region, user: str, topic: str, text: str) -> str:
    """Writes a record as a user: ``done`` or ``refused``."""
    # Without idempotence, which a user without any right to write could not even begin with.
    producer = KafkaProducer(**region.connection(user).kafka_python(), enable_idempotence=False)
    try:
        producer.send(topic, text.encode(), partition=0).get(timeout=BOUND_S)
    except TopicAuthorizationFailedError:
        return "refused"
    finally:
        producer.close(timeout=5)
    return "done"


def read(region: Region, user: str, topic: str, text: str) -> str:
    """Looks in a topic's first partition, as a user, for a record: ``done``, ``refused`` or ``missing``."""
    consumer = KafkaConsumer(
        **region.connection(user).kafka_python(),
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        metadata_max_age_ms=1000,
    )
    deadline = time.monotonic() + BOUND_S
    try:
        consumer.assign([TopicPartition(topic, 0)])
        while time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                if any(record.value == text.encode() for record in records):
                    return "done"
    except TopicAuthorizationFailedError:
        return "refused"
    finally:
        consumer.close()
    return "missing"


def committed(region: Region, group: str) -> dict[str, int]:
    """What a consumer group committed in each topic, summed over its partitions."""
    admin = KafkaAdminClient(**region.connection(ADMIN).kafka_python())
    sums: dict[str, int] = {}
    try:
        for partition, position in admin.list_group_offsets({group: None})[group].items():
            sums[partition.topic] = sums.get(partition.topic, 0) + max(position.offset, 0)
    finally:
        admin.close()
    return sums


def process(region: Region, name: str, *variables: str) -> dict[str, Any]:
    """A process of the region by its name: pid, command, and the variables asked for; empty if it is not there."""
    for found in psutil.process_iter():
        try:
            environment = found.environ()
            if (environment.get("LAB_REGION_FOLDER"), environment.get("SUPERVISOR_PROCESS_NAME")) == (
                str(region.folder),
                name,
            ):
                return {
                    "pid": found.pid,
                    "command": found.cmdline(),
                    "environment": {variable: environment.get(variable) for variable in variables},
                }
        except psutil.Error:
            continue
    return {}


def connectors(region: Region, mirror: str) -> dict[str, Any]:
    """Each connector of a mirror with its state, the states of its tasks, and its configuration without signing in."""
    port = re.search(
        r"^rest\.advertised\.port=(\d+)$",
        (region.folder / "connect" / mirror / "worker-0.properties").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert port
    answer = requests.get(
        f"https://127.0.0.1:{port[1]}/connectors?expand=info&expand=status",
        auth=("operator", region.secret(f"{mirror}-connect", "password").read_text(encoding="utf-8")),
        verify=str(region.secret(f"{mirror}-connect-cluster-ca-cert", "ca.crt")),
        timeout=15,
    )
    answer.raise_for_status()
    return {
        name: {
            "state": connector["status"]["connector"]["state"],
            "tasks": [task["state"] for task in connector["status"]["tasks"]],
            "config": {key: value for key, value in connector["info"]["config"].items() if "jaas" not in key},
        }
        for name, connector in answer.json().items()
    }


def recorded(region: Region, user: str) -> dict[str, Any]:
    """The lab as its record has it, and the topics that a user sees who signs in by it."""
    lab = load_lab()
    consumer = KafkaConsumer(**connection_for(lab.region(region.name), user).kafka_python(), bootstrap_timeout_ms=5000)
    try:
        seen = sorted(consumer.topics())
    finally:
        consumer.close()
    return {
        "scenario": lab.scenario,
        "platform": lab.platform,
        "stage": lab.stage,
        "unfinished": lab.unfinished,
        "mirrors": [mirror.name for mirror in lab.region(region.name).mirrors],
        "clients": sorted(lab.region(region.name).clients),
        "topics": seen,
    }


def console(region: Region, secret: str, port: str) -> dict[str, Any]:
    """What a web console answers to a stranger, to a wrong password, and to the operator with the secret's."""
    url = f"http://127.0.0.1:{port}"
    with requests.Session() as browser:
        browser.trust_env = False
        stranger = browser.get(f"{url}/api/topics", timeout=BOUND_S)
        wrong = browser.post(f"{url}/sign-in", data={"username": OPERATOR, "password": "wrong"}, timeout=BOUND_S)
        password = region.secret(secret, "password").read_text(encoding="utf-8")
        browser.post(
            f"{url}/sign-in", data={"username": OPERATOR, "password": password}, timeout=BOUND_S, allow_redirects=False
        ).raise_for_status()
        session = browser.get(f"{url}/api/session", timeout=BOUND_S).json()
        seen = browser.get(f"{url}/api/topics", timeout=BOUND_S).json()
    return {
        "stranger": stranger.status_code,
        "wrong_password": wrong.status_code,
        "minutes": round((session["expires"] - time.time()) / 60),
        "control_room": session["control_room"],
        "topics": [topic["name"] for topic in seen["topics"]],
        "problems": seen["problems"],
    }


QUESTIONS: dict[str, Callable[..., Any]] = {
    question.__name__: question
    for question in (topics, sign_in, write, read, committed, process, connectors, recorded, console)
}


def main() -> int:
    """Asks the question that the arguments name."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    name, question, *arguments = sys.argv[1:]
    region = Region(name, Path(os.environ["LAB_HOME"]).absolute() / "regions" / name)
    print(json.dumps(QUESTIONS[question](region, *arguments), sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
