"""The problems that ``./lab status`` shows: causes before what follows from them, each with its next command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loosehanger.cli import problems, retention_risk, status
from loosehanger.cli.problems import as_json, as_lines, degrade, find_problems, nearly_matches, of_mirror, of_topics
from loosehanger.cli.retention_risk import MirrorRisk
from loosehanger.errors import ExitCode
from loosehanger.kafka.retention_risk import TopicRisk
from loosehanger.kafka.transactions import HANGS
from loosehanger.lab import targets
from loosehanger.lab.mirrors.mirror import Mirror
from loosehanger.lab.mirrors.replication import offset_syncs
from loosehanger.paths import ROOT
from loosehanger.platforms.local import status as local_status
from loosehanger.platforms.local.processes import ProcessState
from loosehanger.platforms.local.region import LocalRegion
from loosehanger.problems import Problem, Rank, in_order

MIRROR = Mirror("mm2-na", "east", "na", "east", "na", "identity", ".", r"LH\..*", "", "c", region="na")
AT = "na, KafkaMirrorMaker2/mm2-na"


def lab(**changes: Any) -> Any:
    """A lab with one mirror."""
    found = {"unfinished": "", "stage": "setup", "scenario": "03-broadcast", "platform": "local", "mirrors": [MIRROR]}
    return SimpleNamespace(**(found | changes))


def risk(**changes: Any) -> TopicRisk:
    """A topic of which nothing waits."""
    return replace(
        TopicRisk("LH.A", 0, None, None, "", None, None, endangered=False, gone=0, made_again=False), **changes
    )


def row(kind: str, name: str, detail: str = "", *, healthy: bool = False) -> dict[str, Any]:
    """The health of a resource."""
    return {"kind": kind, "name": name, "healthy": healthy, "state": "x", "detail": detail}


def find(
    known: list[Problem],
    regions: Mapping[str, Any] | None = None,
    rights: Mapping[tuple[str, str], list[str]] | None = None,
    **changes: Any,
) -> list[Problem]:
    """The problems of a lab of which the platform knows some."""
    return find_problems(lab(**changes), regions or {}, known, (), {}, rights or {})


def test_causes_come_before_what_follows_from_them() -> None:
    link = Problem(Rank.LINK, "the link between east and na is cut", "east, na", 100.0)
    stalled = Problem(Rank.FLOW, "the mirror delivers nothing", AT, 10.0)
    failed = Problem(Rank.CONNECTOR, "task 0 failed", AT, 50.0)
    dead = Problem(Rank.PROCESS, "process kafka-na-0 does not run", "na")
    assert in_order([stalled, failed, link, dead, link]) == [dead, link, failed, stalled]
    older = Problem(Rank.LINK, "another link is cut", "east, sa", 90.0)
    assert in_order([link, older]) == [older, link]


def test_missing_rights_that_name_the_user_replace_a_trace_and_keep_its_time() -> None:
    trace = Problem(Rank.RIGHTS, "a user of the mirror lacks a right on topic LH.A", AT, 70.0)
    found = find([trace], rights={("na", "mm2-na"): ["user mm2 lacks in east: Read on topic LH.A"]})
    assert found == [Problem(Rank.RIGHTS, "user mm2 lacks in east: Read on topic LH.A", AT, 70.0)]


def test_a_right_that_a_shared_user_lacks_is_one_problem() -> None:
    lacks = "user mm2-east lacks in east: Read on topic LH.A"
    trace = Problem(Rank.RIGHTS, "TopicAuthorizationException", AT, 7.0)
    (found,) = find([trace], rights={("na", "mm2-na"): [lacks], ("sa", "mm2-sa"): [lacks]})
    assert (found.cause, found.where, found.since) == (lacks, f"{AT}; sa, KafkaMirrorMaker2/mm2-sa", 7.0)
    own = [Problem(Rank.CONNECTOR, "connector c was paused by hand", place) for place in (AT, "sa, x")]
    assert find(own) == own


def test_a_running_mirror_with_a_problem_is_degraded() -> None:
    def marked(*problems: Problem) -> list[str]:
        running = {"healthy": True, "state": "Running"}
        rows = {"na": [{**row("KafkaMirrorMaker2", name), **running} for name in ("mm2-na", "mm2-na-2")]}
        degrade(rows, problems)
        assert all(one["healthy"] == (one["state"] == "Running") for one in rows["na"])
        return [one["state"] for one in rows["na"]]

    assert marked(Problem(Rank.CONNECTOR, "changed by hand", AT)) == ["Degraded", "Running"]
    assert marked(Problem(Rank.TOPIC, "fewer partitions", f"{AT}, topic LH.A")) == ["Degraded", "Running"]
    assert marked(Problem(Rank.RIGHTS, "lacks", f"sa, x; {AT}-2")) == ["Running", "Degraded"]
    assert marked(Problem(Rank.OTHER, "lost long ago", AT), Problem(Rank.LINK, "slow", "east, na")) == [
        "Running",
        "Running",
    ]


def test_a_resource_without_a_cause_is_listed_with_its_detail() -> None:
    known = Problem(Rank.CONNECTOR, "connector c was paused by hand", AT)
    regions = {"na": [row("KafkaMirrorMaker2", "mm2-na"), row("Deployment", "shop", "it waits")], "sa": []}
    found = find([known], regions)
    assert [(one.cause, one.where) for one in found] == [
        ("the region has no resources", "sa"),
        ("connector c was paused by hand", AT),
        ("it waits", "na, Deployment/shop"),
    ]


def test_a_healthy_lab_has_none() -> None:
    assert find([], {"na": [row("Kafka", "na", "1 node", healthy=True)]}) == []


def test_an_unfinished_stage_comes_first_with_the_command_that_repeats_it() -> None:
    found = find([Problem(Rank.LINK, "cut", "east, na")], unfinished="switchover")
    assert found[0].cause == "the stage 'switchover' was begun and not finished"
    assert problems.apply_again(lab(unfinished="switchover")) == "./lab stage switchover"
    assert problems.apply_again(lab()) == "./lab setup 03-broadcast"


@pytest.mark.parametrize(
    ("changes", "rank", "cause", "command"),
    [
        ({"made_again": True}, Rank.TOPIC, "deleted and created again",
         "./lab kafka east topics --describe --topic LH.A"),
        ({"gone": 1500, "behind": 3}, Rank.TOPIC, "deleted 1,500 offsets of LH.A before they were copied",
         "./lab kafka"),
        ({"gone": 1500}, Rank.OTHER, "deleted 1,500 offsets of LH.A", "./lab kafka east configs --describe"),
        ({"held": 7, "held_by": "held by a transaction of producer 5"}, Rank.TOPIC, "7 offsets of LH.A wait behind",
         "./lab kafka east transactions list"),
        ({"held": 7, "held_by": HANGS}, Rank.TOPIC, "never ends", "transactions find-hanging --topic LH.A"),
        ({"endangered": True, "behind": 40, "age_s": 60.0, "loss_in_s": 30.0, "by": "time"}, Rank.FLOW,
         "40 offsets behind, and east may delete what is not copied of LH.A by time in 30 s",
         "./lab topic set east LH.A"),
    ],
)  # fmt: skip
def test_what_a_mirror_may_lose_has_its_cause(changes: dict[str, Any], rank: Rank, cause: str, command: str) -> None:
    (found,) = of_mirror(MirrorRisk(MIRROR, {"LH.A": risk(**changes)}))
    assert (found.rank, found.where) == (rank, f"{AT}, topic LH.A")
    assert cause in found.cause
    assert command in found.next


def test_a_mirror_that_stalls_names_its_log() -> None:
    (found,) = of_mirror(MirrorRisk(MIRROR, stalled="running, but no record was delivered for 35 s"))
    assert (found.rank, found.next) == (Rank.FLOW, "./lab logs na/mm2-na")


def test_a_copy_with_fewer_partitions_than_its_source_is_named() -> None:
    topics = {"east": {"LH.A": 6, "LH.B": 3}, "na": {"LH.A": 4}}
    (found,) = of_topics(MIRROR, topics, [MIRROR])
    assert found.cause == (
        "topic LH.A has 4 partitions in na, and its source LH.A has 6 in east: records of partition 4 and above "
        "cannot be copied"
    )
    assert found.next == "./lab kafka na topics --alter --topic LH.A --partitions 6"
    assert list(of_topics(MIRROR, {"east": {"LH.A": 6}}, [MIRROR])) == [], "na does not answer"


def test_a_missing_offset_syncs_topic_is_named() -> None:
    mirror = replace(MIRROR, groups=".*", checkpoint_connector="cp")
    region, name = offset_syncs(mirror)
    topics: dict[str, dict[str, int]] = {"east": {"LH.A": 1}, "na": {"LH.A": 1}}
    (found,) = of_topics(mirror, topics, [mirror])
    assert (
        found.cause == f"the offset-syncs topic {name} does not exist in {region}, so no group's offset is translated"
    )
    topics[region][name] = 1
    assert list(of_topics(mirror, topics, [mirror])) == []
    assert list(of_topics(replace(mirror, state="stopped"), {"east": {}, "na": {}}, [mirror])) == []


@pytest.mark.parametrize(
    ("patterns", "topic", "near"),
    [
        (r"LH\..*", "LX.ORDERS", True),
        (r"LH\..*", "LHORDERS", True),
        (r"LH\.ORDER, LH\.STOCK", "LH.ORDERS", True),
        (r"LH\.ORDERS", "LH.ORDRES", False),
        (r"LH\..*", "payments", False),
        (r"LH\.STOCK, LH\.SENSORS", "LH.ORDERS", False),
    ],
)
def test_a_name_is_near_a_pattern_that_one_character_separates_from_it(patterns: str, topic: str, near: bool) -> None:
    assert nearly_matches(patterns, topic) is near


def test_a_topic_that_nearly_matches_is_named_and_one_that_is_excluded_or_copied_is_not() -> None:
    mirror = replace(MIRROR, topics_exclude=r"LH\.STAFF")
    names = dict.fromkeys(("LH.A", "LX.A", "LH.STAFF", "__consumer_offsets", "other"), 1)
    (found,) = of_topics(mirror, {"east": names, "na": {"LH.A": 1}}, [mirror])
    assert found.cause == (
        r"topic LX.A of east is not copied: it differs by one character from the mirror's pattern LH\..*"
    )
    other = replace(MIRROR, name="mm2-sa", topics=r"LX\..*")
    assert list(of_topics(mirror, {"east": names, "na": {}}, [mirror, other])) == []


def test_no_topic_of_the_shop_nearly_matches_a_pattern_of_a_scenario() -> None:
    # Set-ups take the names of topics from variables of roles and playbooks.
    files = [file for folder in ("roles", "playbooks") for file in (ROOT / folder).rglob("*.yaml")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    names = {name for text in texts for name in re.findall(r"\bLH\.[A-Z.]*[A-Z]", text)}
    patterns = {pattern for text in texts for pattern in re.findall(r"^ +topicsPattern: (.+)$", text, re.MULTILINE)}
    assert {"LH.ORDERS", "LH.STOCK"} <= names
    assert r"LH\..*" in patterns
    for pattern in patterns:
        others = [name for name in names if not any(re.fullmatch(one.strip(), name) for one in pattern.split(","))]
        assert [name for name in others if nearly_matches(pattern, name)] == []


def test_a_problem_as_json_and_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_795_000_180.0)
    one = Problem(Rank.LINK, "the link between east and na is cut", "east, na", 1_795_000_000.0)
    document = as_json(one, "./lab setup 03-broadcast")
    assert document["next"] == "./lab setup 03-broadcast"
    assert str(document["since"]).startswith("2026-11-1")
    assert as_json(replace(one, since=None), "x")["since"] is None
    first, where, following = as_lines(replace(one, next="./lab link east na --heal"), "x", 76)
    assert first == "the link between east and na is cut"
    assert where.startswith("  where east, na, since ")
    assert where.endswith("(3.0 min)")
    assert following == "  next  ./lab link east na --heal"


def test_a_frozen_process_differs_from_one_that_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout is not None
        child.stdout.readline()
        one = ProcessState("mm2-0", "mm2-0", "RUNNING", child.pid, 9, Path("/nowhere/mm2-0.log"))
        assert not one.frozen
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert one.frozen
        (found,) = local_status._process_causes([one], ["mm2-0"], "na")
        assert found.cause == "process mm2-0 is frozen: a signal (SIGSTOP) stopped it, and it does not answer"
        assert found.next == f"kill -CONT {child.pid}"
        assert local_status._not_running([one], ["mm2-0"]) == [f"{found.cause}; kill -CONT {child.pid} resumes it"]
        os.kill(child.pid, signal.SIGCONT)
        child.communicate()
    assert not ProcessState("x", "x", "RUNNING", 0, 0, Path("/nowhere")).frozen


def test_a_process_that_does_not_run_has_its_last_error_and_its_time(tmp_path: Path) -> None:
    log = tmp_path / "shop.log"
    log.write_text("starting\nerror: no such topic\n", encoding="utf-8")
    one = ProcessState("shop", "shop", "BACKOFF", 0, 0, log, ended=1_795_000_000)
    (found,) = local_status._process_causes([one], ["shop"], "na")
    assert found.cause == f"process shop does not run (BACKOFF): error: no such topic ({log})"
    assert (found.since, found.next) == (1_795_000_000, "./lab logs na/shop")
    (absent,) = local_status._process_causes([], ["shop"], "na")
    assert absent == Problem(Rank.PROCESS, "process shop is not there", "na, process shop")


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ("exited: shop (terminated by SIGKILL; not expected)", ": it was killed by SIGKILL"),
        ("stopped: shop (exit status 143)", ": it was stopped"),
        ("exited: shop-2 (terminated by SIGKILL; not expected)", ""),
        ("exited: shop (exit status 1; not expected)", ""),
    ],
)
def test_a_process_that_was_killed_or_stopped_is_not_explained_by_what_it_logged(
    tmp_path: Path, ended: str, said: str
) -> None:
    (tmp_path / "shop.log").write_text("2026-11-26 13:00:01,001 INFO  all is well (X)\n", encoding="utf-8")
    manager = (
        f"2026-11-26 13:00:00,100 INFO exited: shop (exit status 2; not expected)\n2026-11-26 13:00:02 INFO {ended}\n"
    )
    (tmp_path / "supervisor.log").write_text(manager, encoding="utf-8")
    one = ProcessState("shop", "shop", "BACKOFF", 0, 0, tmp_path / "shop.log")
    (found,) = local_status._process_causes([one], ["shop"], "na")
    assert found.cause == f"process shop does not run (BACKOFF){said}"


def test_a_disk_that_is_full_is_named_before_its_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free = {tmp_path / "a": 4096, tmp_path / "b": 4 << 30}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free[path], total=8_000_000))
    (found,) = local_status._full_disks({"na-0": tmp_path / "a", "na-1": tmp_path / "b"}, "na")
    assert found.cause == "the disk of process na-0 is full: 4.1 kB of 8.0 MB is free"
    assert (found.where, found.next) == (f"na, {tmp_path}/a", f"df -h {tmp_path}/a")
    assert in_order([Problem(Rank.PROCESS, "x", "na"), found])[0] is found


def test_a_region_whose_process_manager_is_down_has_one_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    region = LocalRegion(tmp_path, ROOT, "na", 20000)
    monkeypatch.setattr(local_status, "states", lambda _: [])
    ill = [
        local_status.Health("Kafka", "na", False, "Down", "x"),
        local_status.Health("Deployment", "s", False, "Down", "y"),
    ]
    monkeypatch.setattr(local_status, "_all", lambda *_: ill)
    found = {Problem(**problem) for one in local_status.status(region) for problem in one["problems"]}
    assert [one.cause for one in found] == [
        "nothing of na is running: its process manager is down, as after a restart of the machine"
    ]


def test_a_link_that_was_changed_by_hand_names_what_it_was(tmp_path: Path) -> None:
    way = {"delay": 0.04, "jitter": 0.0, "rate": 0.0, "silent": False, "refuses": False}
    (tmp_path / "settings.json").write_text(
        '{"start": {"east>na": {"delay": 0.04}, "na>east": {"delay": 0.04}}}', encoding="utf-8"
    )
    report = {
        "between": ["east", "na"],
        "directions": [{"from": "east", "to": "na", **way, "rate": 5e4}, {"from": "na", "to": "east", **way}],
    }
    found = local_status._changed_settings(report, tmp_path)
    assert found is not None
    assert found.cause == (
        "the link between east and na was changed by hand: to na 40 ms of delay, 50 kB/s, which was 40 ms of delay, "
        "unlimited"
    )
    assert found.next == "./lab link east na --delay 40ms --jitter 0ms --rate unlimited"
    report["directions"][0]["rate"] = 0.0  # type: ignore[index]
    assert local_status._changed_settings(report, tmp_path) is None
    report["directions"][1]["refuses"] = True  # type: ignore[index]
    found = local_status._changed_settings(report, tmp_path)
    assert found is not None
    assert "to east 40 ms of delay, unlimited, connections refused, which was 40 ms of delay, unlimited" in found.cause
    assert found.next.endswith("link east na --delay 40ms --jitter 0ms --rate unlimited --no-outbound-only")


def test_problems_survive_the_way_through_json() -> None:
    one = Problem(Rank.LINK, "cut", "east, na", 3.0, "x")
    assert Problem(**asdict(one)) == one


def test_status_shows_the_cause_before_the_regions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = Problem(Rank.LINK, "the link between east and na is cut", "east, na", None, "./lab link east na --heal")
    slow = Problem(
        Rank.LINK, "the link between east and sa was changed by hand", "east, sa", None, "./lab link east sa"
    )
    link = {**row("Link", "east-na", "1 kB to na"), "problems": [asdict(cut)]}
    shaped = {**row("Link", "east-sa", "1 kB to sa", healthy=True), "problems": [asdict(slow)]}
    kafka = {**row("Kafka", "east", "1 node", healthy=True), "topics": {"LH.A": 1}}
    rows = {"east": [kafka, link, shaped]}
    found = lab(pod=None, lost=(), regions={"east": None}, claims=(), inventory="x")
    progress = SimpleNamespace(variables=())
    monkeypatch.setattr(status, "load_lab", lambda: found)
    monkeypatch.setattr(status, "required_progress", lambda: progress)
    monkeypatch.setattr(targets, "forget_dead_watch", lambda _: None)
    monkeypatch.setattr(status, "port_bases", lambda _: None)
    monkeypatch.setattr(status, "_ask_by_ansible", lambda _: rows)
    monkeypatch.setattr(status, "_measure", lambda *_: [])
    assert status.run([]) == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert shown.index("1. the link between east and na is cut") < shown.index("2. the link between east and sa")
    assert shown.index("next  ./lab link east na --heal") < shown.index("Link/east-na")
    assert status.run(["--json"]) == ExitCode.FAILED
    document = json.loads(capsys.readouterr().out)
    assert [one["cause"] for one in document["problems"]] == [cut.cause, slow.cause]
    assert document["problems"][0] == {
        "cause": cut.cause, "where": "east, na", "since": None, "next": "./lab link east na --heal"
    }  # fmt: skip
    assert [set(one) for one in document["regions"]["east"]] == [{"kind", "name", "healthy", "state", "detail"}] * 3
    rows["east"] = [kafka, shaped]
    assert status.run([]) == ExitCode.DONE
    assert "changed by hand" not in capsys.readouterr().out, "a possible cause is not shown where nothing is wrong"


def test_a_right_that_a_running_mirror_lacks_is_a_problem_once_a_record_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def lacking(_: Any, mirror: Any, waiting: Any) -> list[str]:
        asked.append((mirror.name, waiting and sorted(waiting)))
        return ["user mm2 lacks in east: Read on topic LH.A"]

    monkeypatch.setattr(retention_risk, "lacking_rights", lacking)
    claim = SimpleNamespace(window=None, mirrors=[MIRROR.id])
    found = lab(lost=(), claims=(claim,))
    where = {"kind": "KafkaMirrorMaker2", "name": MIRROR.name, "detail": "1 task", "healthy": True, "state": "Running"}

    def judged(standing: MirrorRisk, **state: Any) -> tuple[dict[str, Any], Any]:
        regions = {MIRROR.region: [{**where, **state}]}
        _, rights = status._losses(found, regions, [standing], set())
        return regions[MIRROR.region][0], rights

    fresh = MirrorRisk(MIRROR, {"LH.A": risk(behind=3, age_s=1.0)})
    assert judged(fresh) == (where, {})
    waits = MirrorRisk(MIRROR, {"LH.A": risk(behind=3, age_s=60.0), "LH.B": risk()})
    shown, rights = judged(waits)
    assert (shown["healthy"], shown["state"]) == (False, "Degraded")
    assert shown["detail"] == "1 task; user mm2 lacks in east: Read on topic LH.A"
    (problem,) = find_problems(found, {}, [], [replace(waits, topics={})], {}, rights)
    assert (problem.rank, problem.since) == (Rank.RIGHTS, None)
    (problem,) = (one for one in find_problems(found, {}, [], [waits], {}, rights) if one.rank == Rank.RIGHTS)
    assert problem.since == pytest.approx(time.time() - 60, abs=5)
    judged(waits, state="Paused")
    judged(waits, healthy=False, state="Failed")
    assert asked == [(MIRROR.name, ["LH.A"]), (MIRROR.name, None)], "one that rests as it should is not judged"
    down = {(MIRROR.source, "Kafka", "x")}
    status._losses(found, {MIRROR.region: [{**where, "healthy": False}]}, [waits], down)
    assert len(asked) == 2, "nor one whose cluster is down"
