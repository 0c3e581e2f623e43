"""The audit as a service: when it watches, and when it waits."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loosehanger.audit import service
from loosehanger.audit.display import line_of
from loosehanger.audit.metrics import AuditMetrics
from loosehanger.audit.service import AuditService, digest
from loosehanger.errors import LabError, UnreachableError, WrongUseError
from loosehanger.jobs import audit
from loosehanger.lab.job_options import metrics_token
from loosehanger.lab.manifests.documents import Document, read_resources
from loosehanger.lab.plan import plan_stage
from loosehanger.lab.progress import Progress, required_progress
from loosehanger.platforms import web_consoles
from loosehanger.platforms.kubernetes import audit as kubernetes_audit
from loosehanger.platforms.kubernetes.access import Clients
from loosehanger.platforms.kubernetes.resources import ManifestEntry
from loosehanger.platforms.local import preflight
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.proof.session import SparkEndedError
from loosehanger.waiting import wait_for

from .. import console_role
from .test_audit_metrics import document, flow


class Lab:
    """A record on disk, and a watch of it that yields a round whenever it is asked for one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.metrics = AuditMetrics(5)
        self.lines: list[str] = []
        self.begun = 0
        self.errors: list[LabError] = []
        self.ended = threading.Event()
        made = AuditService(
            home / "access", lambda: required_progress(home).unfinished, self.rounds, self.metrics, self.lines.append
        )
        self.problem: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, args=(made,))

    def _run(self, made: AuditService) -> None:
        try:
            made.run(self.ended)
        except SparkEndedError as error:
            self.problem.append(error)

    def reach(self, stage: str, unfinished: str = "") -> None:
        """Records a stage."""
        Progress("03-broadcast", "local", "inventories/local", stage, unfinished).write(self.home)

    def rounds(self, changed: threading.Event) -> Iterator[dict[str, Any]]:
        """A watch."""
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        while not changed.is_set():
            yield document(flow())
            changed.wait(0.01)

    def served(self) -> dict[str, float]:
        """The gauges without labels."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self.metrics)
        lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
        return {line.split()[0].removeprefix("loosehanger_audit_"): float(line.split()[1]) for line in lines}

    def wait(self, what: str, *, watching: bool) -> None:
        """Waits until it serves a round, or serves none."""
        name = "round_timestamp_seconds"
        wait_for(lambda: None if (name in self.served()) is watching else what, 30, "the service")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A service that runs."""
    monkeypatch.setattr(service, "LOOK_S", 0.01)
    monkeypatch.setattr(service, "RETRY_S", 0.01)
    made = Lab(tmp_path)
    made.thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        made.thread.join(30)
        assert not made.thread.is_alive()


def test_it_watches_from_the_end_of_a_stage_to_the_beginning_of_the_next(lab: Lab) -> None:
    wait_for(lambda: None if lab.lines else "a line", 30, "the service")
    assert lab.lines == ["waiting: nothing is set up; ./lab scenarios shows what there is"]
    assert lab.served().keys() == {"started_timestamp_seconds", "paused"}
    lab.reach("", "setup")
    wait_for(lambda: None if len(lab.lines) > 1 else "a line", 30, "the service")
    assert lab.lines[1] == "waiting: the stage 'setup' is not finished"
    assert lab.begun == 0
    lab.reach("setup")
    lab.wait("a round", watching=True)
    assert lab.served()["paused"] == 0
    lab.reach("setup", "failover")
    lab.wait("no round", watching=False)
    assert lab.served() == {**lab.served(), "paused": 1}
    assert lab.begun == 1
    lab.reach("failover")
    lab.wait("the next watch", watching=True)
    assert lab.begun == 2


def test_a_region_that_does_not_answer_is_asked_again(lab: Lab) -> None:
    lab.errors = [UnreachableError("europe does not answer"), WrongUseError("no such user")]
    lab.reach("setup")
    lab.wait("a round", watching=True)
    assert lab.lines[-3:-1] == ["waiting: europe does not answer", "waiting: no such user"]
    assert lab.lines[-1].startswith("proved")


def test_without_spark_it_ends(lab: Lab) -> None:
    lab.errors = [SparkEndedError("Spark ended")]
    lab.reach("setup")
    lab.thread.join(30)
    assert [str(error) for error in lab.problem] == ["Spark ended"]


def test_a_line_of_the_log_stays_the_same_while_nothing_of_note_changes() -> None:
    assert line_of(document(flow(records=7))) == line_of(document(flow(records=9))) == "proved: 1 copies of topics"
    differs = document(flow(missing=2, duplicates=1), findings=[{}])
    assert line_of(differs) == "disproved: 1 copies of topics, 2 missing, 1 duplicates"
    late = document(flow(late=3), problems=["europe does not answer"])
    assert line_of(late) == "inconclusive: 1 copies of topics, records are late; europe does not answer"


def test_the_record_is_what_lies_in_its_folder(tmp_path: Path) -> None:
    before = digest(tmp_path)
    (tmp_path / "europe.json").write_text(json.dumps({"a": 1}), encoding="utf-8")
    changed = digest(tmp_path)
    assert changed != before
    (tmp_path / "europe").mkdir()
    (tmp_path / "europe" / "admin.properties").write_text("x", encoding="utf-8")
    assert digest(tmp_path) == changed


def test_what_the_manifest_gives_is_checked(tmp_path: Path) -> None:
    assert audit.address({"AUDIT_PORT": "9095"}) == ("127.0.0.1", 9095)
    for wrong in ("", "x", "0", "70000", "-1"):
        with pytest.raises(WrongUseError, match=f"AUDIT_PORT: '{wrong}' is not a port"):
            audit.address({"AUDIT_PORT": wrong})
    with pytest.raises(WrongUseError, match=r"AUDIT_METRICS_TOKEN_FILE: .* cannot be read"):
        metrics_token(tmp_path / "none", audit.TOKEN_FILE)


def of_the_role(**changes: Any) -> dict[str, list[Document]]:
    """What the role of the consoles describes in Europe, by its own template."""
    return {"europe": read_resources("roles/console/templates/console.yaml.j2", console_role.text(**changes))}


def test_a_set_up_without_it_removes_it_and_its_volume() -> None:
    with_audit, without = of_the_role(console_audit="true"), of_the_role()
    both = {("Deployment", "audit"), ("PersistentVolumeClaim", "audit")}
    assert {(one.kind, one.name) for one in with_audit["europe"]} - {
        (one.kind, one.name) for one in without["europe"]
    } == both
    plan = plan_stage(without, with_audit, fits=False)["europe"]
    assert not both & {(one.kind, one.name) for one in plan.documents}
    # A stage that describes no console leaves it alone.
    users = {"europe": [one for one in without["europe"] if one.kind == "KafkaUser"]}
    plan = plan_stage(users, with_audit, fits=False)["europe"]
    assert both <= {(one.kind, one.name) for one in plan.documents}


def test_the_record_has_its_address_and_its_scraper() -> None:
    (content,) = (one.content for one in of_the_role(console_audit="true")["europe"] if is_audit_program(one))
    assert web_consoles.audit(content) == {"address": "127.0.0.1:9095", "scraper": "scraper"}
    assert web_consoles.web_console(content) is None
    (stopped,) = (
        one.content for one in of_the_role(console_audit="true", console_replicas=0)["europe"] if is_audit_program(one)
    )
    assert web_consoles.audit(stopped) is None


def is_audit_program(document: Document) -> bool:
    """Whether a resource is the audit's Deployment."""
    return document.kind == "Deployment" and document.name == "audit"


def test_its_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Memory:
        available = 3500 * 2**20

    monkeypatch.setattr("psutil.virtual_memory", Memory)
    monkeypatch.setattr(preflight, "marked_processes", lambda *_: [])
    region = LocalRegion(tmp_path, tmp_path, "europe", 20_000)
    preflight.check_machine(region, regions=3, memory_mb=1000, disk_mb=0)
    with pytest.raises(WrongUseError, match=r"3 regions need 3620 MB \(.*, and the audit takes 620\)"):
        preflight.check_machine(region, regions=3, memory_mb=1000, disk_mb=0, audits=1)


@pytest.mark.parametrize(
    ("region", "image", "switches", "said"),
    [
        ("europe", "python:3", False, "europe: the audit needs Spark, which only the kit's own image has; leave out"),
        (
            "asia",
            "",
            False,
            "europe: the audit runs beside the kit's clients, which are in asia; set platform",
        ),
        (
            "europe",
            "",
            True,
            "europe: on Kubernetes the audit follows no stage; remove it with ./lab setup",
        ),
        ("europe", "", False, ""),
    ],
)
def test_kubernetes_refuses_it_where_it_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str, image: str, switches: bool, said: str
) -> None:
    plans = plan_stage(of_the_role(console_audit="true"), {}, fits=False)
    monkeypatch.setattr(type(plans["europe"]), "switches", property(lambda _: switches))
    clients = Clients(tmp_path, region, "the kit's")
    with pytest.raises(WrongUseError, match=re.escape(said)) if said else nullcontext():
        kubernetes_audit.check(plans, clients, image)
    kubernetes_audit.check(plan_stage(of_the_role(), {}, fits=False), clients, image)


def test_its_pod_on_kubernetes_has_the_record_and_no_other_users(tmp_path: Path) -> None:
    plans = plan_stage(of_the_role(console_audit="true"), {}, fits=False)
    Progress("03-broadcast", "kubernetes", "i", unfinished="setup").write(tmp_path)
    manifests = [ManifestEntry("x", one.content) for one in plans["europe"].documents]
    found = {one.document["kind"]: one.document for one in kubernetes_audit.with_record(tmp_path, manifests, plans)
             if one.name in ("audit", kubernetes_audit.CONFIG_MAP)}  # fmt: skip
    assert json.loads(found["ConfigMap"]["data"]["0"])["stage"] == "setup"
    assert json.loads(found["ConfigMap"]["data"]["0"])["unfinished"] == ""
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (volume,) = (volume["projected"] for volume in pod["volumes"] if "projected" in volume)
    paths = [item["path"] for source in volume["sources"] for kind in source.values() for item in kind["items"]]
    assert paths[-1] == "lab.json"
    assert "europe.json" in paths
    assert not any("admin" in path for path in paths)
