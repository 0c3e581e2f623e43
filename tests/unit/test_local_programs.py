"""Programs of a region on this machine: what outlives them, and how a region dies."""

from __future__ import annotations

import copy
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from loosehanger.errors import LabError
from loosehanger.lab.manifests.loader import Manifest, read_manifests
from loosehanger.lab.manifests.resources import JvmOptions, KafkaMirrorMaker2
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.java import Java
from loosehanger.platforms.local.apply import apply, delete, delete_region, erase
from loosehanger.platforms.local.mirror_maker import LocalMirrorMaker
from loosehanger.platforms.local.processes import (
    MARK,
    PROGRAM,
    Process,
    kill_everything,
    marked_processes,
    states,
    stop_everything,
    tail,
)
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.platforms.local.services import ServiceAddresses, offer, resolve

TEXT = """\
apiVersion: v1
kind: Namespace
metadata: {name: region-a}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: notes, namespace: region-a}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: writer, namespace: region-a}
spec:
  template:
    spec:
      containers:
        - name: writer
          image: none
          command:
            - python
            - -c
            - >-
              import os, sys, tempfile, time;
              open(sys.argv[1] + '/home', 'w').write(os.environ['LAB_HOME']);
              open(os.environ['NOTES'] + '/note', 'a').write('x');
              open(sys.argv[1] + '/temporary', 'w').write(tempfile.mkstemp()[1]);
              time.sleep(600)
            - /var/lib/notes
          env: [{name: NOTES, value: /var/lib/notes}]
          volumeMounts: [{name: notes, mountPath: /var/lib/notes}]
      volumes: [{name: notes, persistentVolumeClaim: {claimName: notes}}]
"""


@pytest.fixture
def region(tmp_path: Path) -> Iterator[LocalRegion]:
    region = LocalRegion(tmp_path, ROOT, "region-a", 0)
    yield region
    delete_region(region, bound=60)


def manifests(*, without: str = "") -> list[Manifest]:
    return [m for m in read_manifests("file.yaml", TEXT) if m.resource.kind != without]


def test_what_a_program_writes_into_its_claim_outlives_it(region: LocalRegion) -> None:
    apply(region, manifests(), ready_seconds=120)
    note = region.volumes / "notes" / "note"
    assert note.read_text() == "x"
    # What is installed is where the lab says, and not where the program would look for it.
    assert note.with_name("home").read_text() == str(lab_home())
    assert note.parent.stat().st_mode & 0o777 == 0o700
    # A program that is killed leaves its temporary files: they go with the region.
    temporary = Path(note.with_name("temporary").read_text())
    assert temporary.parent == region.temporary
    assert temporary.is_relative_to(region.folder)
    assert region.temporary.stat().st_mode & 0o777 == 0o700
    deployment = [m for m in manifests() if m.resource.kind == "Deployment"]
    assert delete(region, deployment) == ["Deployment/writer"]
    assert note.read_text() == "x"
    claim = [m for m in manifests() if m.resource.kind == "PersistentVolumeClaim"]
    assert delete(region, claim) == ["PersistentVolumeClaim/notes"]
    assert not note.parent.exists()


def ends(code: str, *more: str) -> list[Manifest]:
    """The same with a program that runs this code instead."""
    document = next(document for document in yaml.safe_load_all(TEXT) if document["kind"] == "Deployment")
    container = document["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", "-c", code]
    container["env"] += [{"name": name, "value": "127.0.0.1:1"} for name in more]
    return [*manifests(without="Deployment"), *read_manifests("file.yaml", yaml.safe_dump(document))]


ODD = ['{"a": 1}', "one\ntwo", "a ; b", "# 100%(x)s", "it's", "$HOME `id` \\", "é", ""]


def test_a_command_and_its_environment_arrive_as_they_are_written(tmp_path: Path) -> None:
    # A folder's name, too, has what the process manager takes for a comment.
    region = LocalRegion(tmp_path / "kit #2 ; new", ROOT, "region-a", 0)
    document = yaml.safe_load(TEXT.split("---")[2])
    container = document["spec"]["template"]["spec"]["containers"][0]
    code = """
import json, os, pathlib, sys, time
odd = [os.environ[f"ODD_{number}"] for number in range(int(sys.argv[2]))]
pathlib.Path(sys.argv[1], "got").write_text(json.dumps([sys.argv[3:], odd]))
time.sleep(600)
"""
    container["command"] = ["python", "-c", code]
    container["args"] = ["/var/lib/notes", str(len(ODD)), *ODD]
    container["env"] = [{"name": f"ODD_{number}", "value": value} for number, value in enumerate(ODD)]
    try:
        apply(
            region,
            [*manifests(without="Deployment"), *read_manifests("file.yaml", yaml.safe_dump(document))],
            ready_seconds=60,
        )
        assert json.loads((region.volumes / "notes" / "got").read_text()) == [ODD, ODD]
        (state,) = states(region)
        assert state.log.exists()
    finally:
        delete_region(region, bound=60)


def test_the_environment_of_a_program_is_on_no_command_line(region: LocalRegion) -> None:
    process = Process("p", ["program", "word"], PROGRAM, region.folder, {"SECRET": "a value"})
    (command,) = [line for line in process.script(region).splitlines() if not line.startswith("export ")]
    assert command.endswith("exec program word")
    assert "a value" not in command + process.render(region)


def test_a_program_does_not_restart_for_the_path_of_another_terminal(
    region: LocalRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(region, manifests(), ready_seconds=120)
    before = [state.pid for state in states(region)]
    monkeypatch.setenv("PATH", f"{region.folder}:{os.environ['PATH']}")
    assert apply(region, manifests(), ready_seconds=120).changed == []
    assert [state.pid for state in states(region)] == before
    environment = psutil.Process(before[0]).environ()
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_java_leaves_nothing_in_the_machines_temporary_folder(tmp_path: Path) -> None:
    options = JvmOptions.model_validate({"-XX": {"UsePerfData": "true"}})
    words = Java(tmp_path).command("kafka.Kafka", options=options, heap="64m", system={}, temporary=tmp_path / "tmp")
    assert f"-Djava.io.tmpdir={tmp_path / 'tmp'}" in words
    # Java's counters are in /tmp wherever that is: off, unless a manifest wants them.
    assert words.index("-XX:-UsePerfData") < words.index("-XX:+UsePerfData")


def test_the_process_manager_has_no_name_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    deep = LocalRegion(tmp_path.joinpath(*["a-deep-folder"] * 12), ROOT, "region-a", 0)
    try:
        apply(deep, manifests(), ready_seconds=120)
        # What another user can recreate there, supervisord would follow when it deletes its socket.
        bound = [str(one.laddr) for process in marked_processes(deep) for one in process.net_connections(kind="unix")]
        named = [path for path in bound if path]
        assert named
        assert not [path for path in named if path.startswith(str(temporary))]
        assert (deep.folder / "supervisor.sock").is_socket()
        assert [process.state for process in states(deep)] == ["RUNNING"]
    finally:
        stop_everything(deep, bound=60)
    assert not (deep.folder / "supervisor.sock").exists()
    assert not list(temporary.iterdir())


def test_a_program_that_refuses_its_settings_is_named_with_its_last_line_at_once(region: LocalRegion) -> None:
    # As a Python program that takes a while to load: the process manager calls it running until then.
    refuses = "import sys, time; time.sleep(1.5); print('reads'); print('error: --rate: no'); sys.exit(2)"
    said = r"^region-a: writer cannot start; its log says: error: --rate: no \([^()]*writer\.log\)$"
    with pytest.raises(LabError, match=said):
        apply(region, ends(refuses), ready_seconds=300)


def test_a_program_that_ends_again_and_again_is_not_ready(region: LocalRegion) -> None:
    ends_soon = "import time; time.sleep(1.5); print('error: no such topic'); raise SystemExit(1)"
    with pytest.raises(
        LabError, match=r"not within 8 seconds: writer .*; its log says: (error: no such topic|nothing)"
    ):
        apply(region, ends(ends_soon), ready_seconds=8)


def test_a_program_is_ready_when_it_has_a_connection_to_its_cluster(region: LocalRegion) -> None:
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        connects = f"import socket, time; s = socket.create_connection({cluster.getsockname()}); time.sleep(600)"
        apply(region, ends(connects, "KAFKA_BOOTSTRAP_SERVERS"), ready_seconds=60)
    with pytest.raises(LabError, match=r"writer (has no connection to its cluster|has just started|is [A-Z]+)"):
        apply(region, ends("import time; time.sleep(600)", "KAFKA_BOOTSTRAP_SERVERS"), ready_seconds=6)


def test_a_program_that_ends_soon_after_it_connects_is_not_ready(region: LocalRegion) -> None:
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        # As one does whose password is refused, after a while of loading.
        refused = (
            "import socket, sys, time; time.sleep(1.2); "
            f"s = socket.create_connection({cluster.getsockname()}); time.sleep(0.5); sys.exit('error: refused')"
        )
        with pytest.raises(LabError, match=r"not within 8 seconds: writer "):
            apply(region, ends(refused, "KAFKA_BOOTSTRAP_SERVERS"), ready_seconds=8)


def test_a_program_whose_end_was_interrupted_ends_the_next_time(region: LocalRegion) -> None:
    apply(region, manifests(), ready_seconds=120)
    # What an interrupted end leaves: the file is gone, and the process manager does not know it yet.
    (region.folder / "programs" / "writer.conf").unlink()
    assert [state.name for state in states(region)] == ["writer"]
    none = list(read_manifests("file.yaml", TEXT.replace("  template:", "  replicas: 0\n  template:")))
    apply(region, none, ready_seconds=60)
    assert states(region) == []
    assert len(marked_processes(region)) == 1, "the process manager"


def test_a_claim_that_is_not_there_is_named(region: LocalRegion) -> None:
    with pytest.raises(LabError, match="region-a: Deployment/writer: there is no claim 'notes'"):
        apply(region, manifests(without="PersistentVolumeClaim"), ready_seconds=120)


def test_a_region_dies_as_a_whole_and_stays_dead(region: LocalRegion) -> None:
    apply(region, manifests(), ready_seconds=120)
    before = marked_processes(region)
    killed = kill_everything(region)
    assert killed is not None
    # The process manager among them, which would have started the program again.
    assert killed.processes == len(before) == 2
    # Who is responsible for them may not have noticed yet.
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in before)
    assert states(region) == []
    assert region.resource("Deployment", "writer"), "what it had is still there, as after a power cut"
    assert kill_everything(region) is None


def test_a_region_is_dead_where_its_dead_processes_have_a_parent_that_never_looks(region: LocalRegion) -> None:
    # As in a container whose first process is not made for that.
    starts = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print(1, flush=True); sys.stdin.read()"
    before = {name: value for name, value in os.environ.items() if name != MARK}
    started = "import os, sys; os.environ[sys.argv[1]] = sys.argv[2]; exec(sys.argv[3])"
    command = [sys.executable, "-c", started, MARK, str(region.folder), starts]
    with subprocess.Popen(command, env=before, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin
        assert parent.stdout
        assert parent.stdout.read(1)
        (child,) = psutil.Process(parent.pid).children()
        killed = kill_everything(region)
        assert killed is not None
        assert killed.processes == 1
        assert child.status() == psutil.STATUS_ZOMBIE
        assert not stop_everything(region, bound=60)
        parent.stdin.close()


WAITS_FOR_THE_OTHER = """\
import pathlib, signal, sys, time
mine, other = (pathlib.Path(f"{sys.argv[1]}/{name}") for name in (sys.argv[2], sys.argv[3]))
def end(*_):
    mine.touch()
    while not other.exists(): time.sleep(0.01)
    mine.with_suffix(".met").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""


def test_programs_that_end_do_so_at_once(region: LocalRegion, tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS_FOR_THE_OTHER)
    text = next(document for document in yaml.safe_load_all(TEXT) if document["kind"] == "Deployment")
    both = []
    for mine, other in (("writer", "reader"), ("reader", "writer")):
        document = copy.deepcopy(text)
        document["metadata"]["name"] = mine
        pod = document["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = 5
        pod["containers"][0]["command"] = ["python", str(script), "/var/lib/notes", mine, other]
        both.append(document)
    apply(region, [*manifests(without="Deployment"), *read_manifests("a", yaml.safe_dump_all(both))], ready_seconds=60)
    for document in both:
        document["spec"]["replicas"] = 0
    apply(region, list(read_manifests("a", yaml.safe_dump_all(both))), ready_seconds=60)
    assert states(region) == []
    notes = region.volumes / "notes"
    assert sorted(path.name for path in notes.glob("*.met")) == ["reader.met", "writer.met"]


def test_of_a_region_that_is_erased_nothing_is_left_but_the_record_of_it(region: LocalRegion) -> None:
    apply(region, manifests(), ready_seconds=120)
    access = region.home / "access"
    (access / region.name).mkdir(parents=True)
    for path in (access / region.name / "admin.properties", access / f"{region.name}.json"):
        path.touch()
    name = "region-a-kafka-bootstrap.region-a.svc:9098"
    offer(region, "region-a", {name: ServiceAddresses(["127.0.0.1:1"])})
    kill_everything(region)
    assert erase(region, bound=60)
    assert not region.folder.exists()
    assert (access / f"{region.name}.json").exists()
    # A program that used it keeps trying where it was.
    assert [path.name for path in (access / region.name).iterdir()] == ["services.json"]
    assert resolve(LocalRegion(region.home, ROOT, "region-b", 100), name) == "127.0.0.1:1"
    assert not erase(region, bound=60)


class Answers:
    """Connect, which has one connector and refuses a setting."""

    def __init__(self, present: dict[str, str]) -> None:
        self.present = present
        self.asked: list[dict[str, str]] = []

    def connectors(self) -> dict[str, object]:
        return {"one": {"info": {"config": self.present}, "status": {}}}

    def objections(self, configuration: dict[str, str]) -> list[str]:
        self.asked.append(configuration)
        return [f"{name}: no" for name in configuration if name.startswith("producer.override.x")]


def mirror_of_the_broadcast(region: LocalRegion) -> LocalMirrorMaker:
    """The mirror of a manifest of the kit, of which nothing runs."""
    text = (ROOT / "playbooks/03-broadcast/manifests/mm2-na.yaml").read_text()
    (manifest,) = read_manifests("file.yaml", text)
    assert isinstance(manifest.resource, KafkaMirrorMaker2)
    return LocalMirrorMaker(region, manifest.resource)


def test_what_connect_refuses_is_known_before_anything_is_changed(
    region: LocalRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = mirror_of_the_broadcast(region)
    assert mirror.objections() == [], "there is no worker yet"
    same, other = {"a": "b"}, {"a": "c", "producer.override.x": "1"}
    answers = Answers(same)
    monkeypatch.setattr(LocalMirrorMaker, "rest", answers)
    monkeypatch.setattr(LocalMirrorMaker, "connectors", lambda _: {"one": same})
    assert (mirror.objections(), answers.asked) == ([], []), "nothing changes"
    monkeypatch.setattr(LocalMirrorMaker, "connectors", lambda _: {"one": other})
    assert mirror.objections() == ["one: producer.override.x: no"]
    # The workers that run are going to have another policy.
    mirror.folder.mkdir(parents=True)
    (mirror.folder / "worker-0.properties").write_text("connector.client.config.override.policy=None\n")
    assert mirror.objections() == []
    assert answers.asked[-1] == {"a": "c"}


def test_what_depends_on_a_setting_of_workers_that_changes_is_not_judged_by_those_that_run(
    region: LocalRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = mirror_of_the_broadcast(region)
    mirror.folder.mkdir(parents=True)
    (mirror.folder / "worker-0.properties").write_text("exactly.once.source.support=disabled\n")
    answers = Answers({})
    monkeypatch.setattr(LocalMirrorMaker, "rest", answers)
    desired = {"a": "c", "exactly.once.support": "required", "topic.creation.groups": "x"}
    monkeypatch.setattr(LocalMirrorMaker, "connectors", lambda _: {"one": desired})
    assert mirror.objections() == []
    assert answers.asked == [{"a": "c", "topic.creation.groups": "x"}]


def test_a_region_whose_name_begins_with_this_ones_keeps_its_record(region: LocalRegion) -> None:
    access = region.home / "access"
    for name in ("region-a", "region-ab"):
        (access / name).mkdir(parents=True)
        (access / f"{name}.json").write_text("{}")
    delete_region(region, bound=60)
    assert sorted(path.name for path in access.iterdir()) == ["region-ab", "region-ab.json"]


def test_regions_are_asked_side_by_side(region: LocalRegion) -> None:
    other = replace(region, name="region-b")
    apply(region, manifests(), ready_seconds=120)
    apply(other, read_manifests("file.yaml", TEXT.replace("region-a", "region-b")), ready_seconds=120)
    try:
        with ThreadPoolExecutor(max_workers=8) as threads:
            found = list(threads.map(states, [region, other] * 100))
        names = [{one.log.parents[1].name for one in processes} for processes in found]
        assert names == [{"region-a"}, {"region-b"}] * 100
    finally:
        delete_region(other, bound=60)


def test_a_config_map_is_kept(region: LocalRegion) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: region-a}\ndata: {a: b}\n"
    apply(region, read_manifests("file.yaml", f"{TEXT.split('---')[0]}---\n{text}"), ready_seconds=60)
    assert region.resource("ConfigMap", "m")
    assert delete(region, read_manifests("file.yaml", text)) == ["ConfigMap/m"]
    assert region.resource("ConfigMap", "m") is None


HERDER = """\
2026-11-26 13:00:00,001 INFO  Kafka Connect starting (Connect)
2026-11-26 13:00:01,001 ERROR Uncaught exception in herder work thread, exiting:  (DistributedHerder)
org.apache.kafka.common.config.ConfigException: Topic 'x' supplied via the 'offset.storage.topic' property is \
required to have 'cleanup.policy=compact' to guarantee consistency
\tat org.apache.kafka.connect.util.TopicAdmin.verifyTopicCleanupPolicyOnlyCompact(TopicAdmin.java:1)
"""
CLEAR = (
    "org.apache.kafka.common.config.ConfigException: Topic 'x' supplied via the 'offset.storage.topic' property is "
    "required to have 'cleanup.policy=compact' to guarantee consistency"
)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (None, "nothing yet"),
        ("\n", "nothing yet"),
        ("started\ndoing\n", "doing"),
        (HERDER, CLEAR),
        (HERDER + "2026-11-26 13:00:02,001 INFO  Kafka Connect stopped (Connect)\n", CLEAR),
        (
            "2026-11-26 13:00:01,001 ERROR Stopping due to error (ConnectDistributed)\n"
            "org.apache.kafka.connect.errors.ConnectException: Unable to start REST\n\tat a.B.c(B.java:1)\n"
            "Caused by: java.io.IOException: Failed to bind to /127.0.0.1:9999\n\t... 3 more\n",
            "java.io.IOException: Failed to bind to /127.0.0.1:9999",
        ),
        ("2026-11-26 13:00:01,001 ERROR it broke (X)\n2026-11-26 13:00:02,001 INFO  on (X)\n", "ERROR it broke (X)"),
        ('Exception in thread "main" java.lang.IllegalStateException: no\n\tat a.B\n', "IllegalStateException: no"),
        (
            "Unrecognized VM option 'Nope'\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.\n",
            "Unrecognized VM option 'Nope'",
        ),
        ("reading\nerror: region-a: no\n", "error: region-a: no"),
    ],
)
def test_the_cause_is_quoted_from_a_log_with_the_logs_path(tmp_path: Path, log: str | None, said: str) -> None:
    path = tmp_path / "worker-0.log"
    if log is not None:
        path.write_text(log)
    assert tail(path).endswith(f"{said} ({path})")
    assert "Stopping due to error" not in tail(path)
