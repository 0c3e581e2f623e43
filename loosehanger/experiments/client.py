"""The clients of an experiment, in a process of their own, because a link knows by the process whose bytes it carries.

It takes commands on standard input and answers each on standard output, one line of JSON for each. It exits when its
standard input closes, so it does not outlive its parent.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from loosehanger.errors import LabError
from loosehanger.kafka.clients import PATIENT, connect_consumer, connect_producer
from loosehanger.kafka.connection import Connection
from loosehanger.kafka.key_stores import ClientCertificate

PARTITION = 0
"""Topics of experiments have one partition."""
_POLL_MS = 200
_END_S = 0.05
"""Seconds between two looks at a topic's end offset."""
_FETCH_MS = 100
"""How long a broker waits for more records: a reader that rewinds must wait for the fetch under way."""


class _Reading:
    """A consumer of one topic, without a group."""

    def __init__(self, access: dict[str, Any], topic: str, *, beginning: bool) -> None:
        self._consumer = connect_consumer(
            _connection(access), PATIENT, max_poll_records=5000, fetch_max_wait_ms=_FETCH_MS
        )
        self._place = TopicPartition(topic, PARTITION)
        self._consumer.assign([self._place])
        (self._consumer.seek_to_beginning if beginning else self._consumer.seek_to_end)(self._place)
        self._start = self._consumer.position(self._place)

    def read(self, records: int, mark: str | None, bound: float) -> tuple[list[float], float]:
        """Reads a number of records that have this mark as their key; any, without one.

        Returns:
            The milliseconds from the production of each to its arrival, and the seconds that all took.
        """
        latencies: list[float] = []
        key = None if mark is None else mark.encode()
        started = time.monotonic()
        while len(latencies) < records:
            if time.monotonic() - started > bound:
                raise LabError(f"{len(latencies)} of {records} records arrived within {bound:.0f} seconds")
            for batch in self._consumer.poll(_POLL_MS).values():
                now = time.time() * 1000
                latencies += [now - record.timestamp for record in batch if key is None or record.key == key]
        return latencies, time.monotonic() - started

    def follow(self, records: int, seconds: float, bound: float) -> tuple[int, float]:
        """Watches the topic's end offset from the first arrival on, for a time or up to a number of records.

        It does not read them, because a mirror may be faster than a reader.

        Returns:
            How many offsets followed the first arrival, and the seconds from then to the last of them.
        """
        pause, began, before = threading.Event(), time.monotonic(), self._end()
        arrivals: list[tuple[int, float]] = []
        while not arrivals or (arrivals[-1][0] < records and time.monotonic() - arrivals[0][1] < seconds):
            if not arrivals and time.monotonic() - began > bound:
                raise LabError(f"no record arrived within {bound:.0f} seconds")
            pause.wait(_END_S)
            came = self._end() - before
            if came > (arrivals[-1][0] if arrivals else 0):
                arrivals.append((came, time.monotonic()))
        if len(arrivals) < 2:
            raise LabError(f"all records arrived at once within {seconds:.0f} seconds, so their rate is unknown")
        (first, since), *_, (last, until) = arrivals
        return last - first, until - since

    def _end(self) -> int:
        end: int = self._consumer.end_offsets([self._place])[self._place]
        return end

    def rewind(self) -> None:
        """Seeks to where it began."""
        self._consumer.seek(self._place, self._start)

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


class _Clients:
    """The process's consumers and producers, and the commands for them."""

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._producers: dict[str, KafkaProducer] = {}
        self._threads = ThreadPoolExecutor(max_workers=64)

    def open_readers(self, access: dict[str, Any], topic: str, consumers: int, *, beginning: bool = False) -> Any:
        """Connects consumers, each of which will read all."""

        def connect(_: int) -> _Reading:
            return _Reading(access, topic, beginning=beginning)

        self._readings = list(self._threads.map(connect, range(consumers)))
        return {}

    def read(self, records: int, mark: str | None, bound: float, *, again: bool = False) -> Any:
        """Has every consumer read a number of records, from where it began if ``again``."""

        def run(reading: _Reading) -> tuple[list[float], float]:
            if again:
                reading.rewind()
            return reading.read(records, mark, bound)

        found = list(self._threads.map(run, self._readings))
        latencies = [latency for of_one, _ in found for latency in of_one]
        return {"latencies": latencies, "seconds": max(seconds for _, seconds in found)}

    def follow(self, records: int, seconds: float, bound: float) -> Any:
        """Has the one consumer watch how its topic grows: by how many records, in how many seconds."""
        (reading,) = self._readings
        came, took = reading.follow(records, seconds, bound)
        return {"records": came, "seconds": took}

    def close_readers(self) -> Any:
        """Disconnects the consumers."""
        list(self._threads.map(_Reading.close, self._readings))
        self._readings = []
        return {}

    def open_writer(self, access: dict[str, Any], topic: str, name: str) -> Any:
        """Connects a producer; its first record is acknowledged."""
        producer = connect_producer(_connection(access), allow_auto_create_topics=False)
        self._producers[name] = producer
        producer.send(topic, b"{}", key=b"first", partition=PARTITION).get(timeout=30)
        return {}

    def write(self, name: str, topic: str, mark: str, records: int, rate: float, size: int, bound: float) -> Any:
        """Writes records at a rate, and waits for their acknowledgements.

        Returns:
            For each record, when it was sent, in seconds since the epoch, and the milliseconds to its
            acknowledgement; None for a record without one.
        """
        producer, values = self._producers[name], _values(size)
        acknowledged: list[float | None] = [None] * records
        sent_at: list[float] = []
        pause, started = threading.Event(), time.monotonic()
        for number in range(records):
            pause.wait(max(0.0, started + number / rate - time.monotonic()))
            now, clock = time.time(), time.perf_counter()

            def done(_: Any, number: int = number, clock: float = clock) -> None:
                acknowledged[number] = (time.perf_counter() - clock) * 1000

            sent_at.append(now)
            producer.send(
                topic,
                values[number % len(values)],
                key=mark.encode(),
                partition=PARTITION,
                timestamp_ms=int(now * 1000),
            ).add_callback(done)
        producer.flush(timeout=bound)
        return {"sent": sent_at, "acknowledged": acknowledged}


def value(size: int, chance: random.Random) -> bytes:
    """Makes an event of a size, as compressible as orders are: names repeat, identities and amounts do not."""
    items: list[dict[str, Any]] = []
    while True:
        event = {
            "id": f"{chance.getrandbits(64):016x}",
            "type": "experiment",
            "customer": chance.choice(("Avery", "Blake", "Casey", "Drew", "Emery", "Finley", "Gray", "Harper")),
            "items": items,
        }
        text = json.dumps(event).encode()
        if len(text) >= size:
            return text[:size]
        items.append(
            {
                "product": chance.choice(("slim jeans", "wide jeans", "belt", "jacket", "shirt", "socks")),
                "sku": f"LH-{chance.randrange(10**6):06d}",
                "quantity": chance.randrange(1, 9),
                "price": round(chance.uniform(5, 200), 2),
            }
        )


def _values(size: int, number: int = 500) -> list[bytes]:
    chance = random.Random(size)  # noqa: S311 (no secret)
    return [value(size, chance) for _ in range(number)]


def _connection(access: dict[str, Any]) -> Connection:
    ca_file, shown = access["ca_file"], access.get("certificate")
    given = {
        **access,
        "bootstrap_servers": tuple(access["bootstrap_servers"]),
        "ca_file": Path(ca_file) if ca_file else None,
        "certificate": ClientCertificate(**shown) if shown else None,
    }
    return Connection(**given)


def _commands() -> SimpleQueue[str]:
    """The lines of standard input; the process exits when they end."""
    lines: SimpleQueue[str] = SimpleQueue()

    def take() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=take, daemon=True).start()
    return lines


def main() -> None:
    """Runs one command after the other."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    clients, lines = _Clients(), _commands()
    while True:
        command = json.loads(lines.get())
        try:
            answer = getattr(clients, command.pop("do"))(**command)
        except (KafkaError, LabError, OSError) as error:
            answer = {"error": f"{type(error).__name__}: {error}" if not isinstance(error, LabError) else str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
