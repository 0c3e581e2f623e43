"""The console's threads load kafka-python when a page is open; the first one must not spoil it for the others."""

from __future__ import annotations

import json
import subprocess
import sys

from loosehanger.paths import ROOT

PROGRAM = """
import json, threading, time
from loosehanger.console.cluster import ClusterView
from loosehanger.console.live import Live
from loosehanger.kafka.connection import Connection

class Nowhere(Connection):
    def kafka_python(self):
        raise LookupError

UNREACHABLE = Nowhere(bootstrap_servers=())
failed = []

def begin(delay, work):
    time.sleep(delay)
    try:
        work()
    except Exception as error:
        failed.append(repr(error))

works = [lambda: ClusterView("region", UNREACHABLE)._explained(lambda: None)] * 3
works.append(lambda: Live("region", UNREACHABLE)._connect())
threads = [threading.Thread(target=begin, args=(0.03 * number, work)) for number, work in enumerate(works)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(failed))
"""


def test_threads_that_begin_together_load_kafka_python_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    failed = json.loads(done.stdout.splitlines()[-1])
    assert failed == ["LookupError()"], "of the one that would connect, and of no other"
