"""The rules, dashboards and runbooks in ``monitoring/``, and what ``./lab monitoring`` writes."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loosehanger.audit.metrics import ALARMS, AuditMetrics
from loosehanger.cli import commands, monitoring_commands
from loosehanger.cli.cleaning import TARGETS
from loosehanger.cli.monitoring import LAB_THRESHOLDS, lab_profile, write_configuration
from loosehanger.console.metrics import Scrape
from loosehanger.errors import LabError
from loosehanger.lab import targets
from loosehanger.lab.progress import Progress
from loosehanger.lab.record import Audit, Lab, Region, WebConsole
from loosehanger.paths import ROOT
from loosehanger.platforms.web_consoles import web_console

MONITORING = ROOT / "monitoring"
RULES = sorted((MONITORING / "rules").glob("*.yaml"))
TESTS = sorted((MONITORING / "tests").glob("*.yaml"))
METRIC = re.compile(r"\b(?:flow:)?loosehanger_[a-z0-9_]+")
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")


def rules() -> list[dict[str, Any]]:
    """Every rule."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Of every rule and every panel."""
    panels = [
        target["expr"]
        for path in (MONITORING / "dashboards").glob("*.json")
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
        for target in panel["targets"]
    ]
    return [*(rule["expr"] for rule in rules()), *panels]


def served() -> set[str]:
    """The name of every series that a control room or an audit can serve."""
    names = set()
    nothing: dict[str, Any] = {name: [] for name in ("flows", *ALARMS)}
    audit = AuditMetrics(5, canary_s=120)
    audit.resume()
    list(audit.following([{"at": 0, "read_at": 0, "since": 0, "totals": {"late": 0}, **nothing}]))
    for family in (*Scrape([], {}, [], {}, [], None, changing=False).collect(), *audit.collect()):
        names |= {family.name} if family.type == "gauge" else set()
        names |= {f"{family.name}_total"} if family.type == "counter" else set()
        names |= {f"{family.name}_bucket"} if family.type == "histogram" else set()
    # Absent without a proof.
    return names | {f"loosehanger_proof_{one}" for one in ("verdict", "claims", "ended_timestamp_seconds")}


def test_every_expression_asks_for_metrics_that_exist() -> None:
    asked = {name for expression in expressions() for name in METRIC.findall(expression.partition("label_values")[0])}
    known = served() | {rule["record"].removeprefix("flow:") for rule in rules() if "record" in rule}
    asked = {name.removeprefix("flow:") for name in asked}
    assert len(asked) > 15
    assert asked <= known, f"not served: {sorted(asked - known)}"


@pytest.mark.parametrize("name", ["flows", "loss", "mirror", "proof"])
def test_a_dashboard_has_its_data_source_and_the_regions_as_variables(name: str) -> None:
    board = json.loads((MONITORING / "dashboards" / f"{name}.json").read_text(encoding="utf-8"))
    assert board["uid"] == f"loosehanger-{name}"
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert {"datasource", "source", "target"} <= variables.keys()
    assert variables["datasource"]["type"] == "datasource"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    for number, panel in enumerate(board["panels"], start=1):
        assert panel["id"] == number
        assert panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used <= variables.keys(), target["expr"]
            # What has a region in its labels follows the choice of the reader.
            of_regions = re.search(r"\bloosehanger_(?:mirror|connector|task|region|link)_", target["expr"])
            assert not of_regions or {"source", "target"} <= used, target["expr"]


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8"), re.MULTILINE)
    alerts = [rule for rule in rules() if "alert" in rule]
    assert [rule["alert"] for rule in alerts] == headings
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def test_every_runbook_says_how_to_find_the_cause_and_what_to_do() -> None:
    _, *sections = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8").split("\n## ")
    for section in sections:
        name, _, text = section.partition("\n")
        meaning, find, mend = re.split(r"\n- (?:Find|Mend): ", text)
        assert all(map(str.strip, (meaning, find, mend))), name
        # With a command of the kit, or a page of its console.
        assert re.search(r"\./lab |console's|prove", find + mend), name


def test_every_button_of_a_runbook_stands_on_a_page() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "loosehanger/console/templates").rglob("*.j2"))
    buttons = set(re.findall(r"press \*([^*]+)\*", text))
    assert buttons
    assert [one for one in buttons if f">{one}<" not in pages and f'"{one}"' not in pages] == []


def test_every_served_metric_is_documented() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(loosehanger_[a-z_]+)`", text))
    assert {name.removesuffix("_bucket") for name in served()} <= documented


@needs_promtool
def test_the_rules_hold_their_own_tests() -> None:
    for command in (["check", "rules", *map(str, RULES)], ["test", "rules", *map(str, TESTS)]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested() -> None:
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]]
    fired = {one["alertname"] for test in tests for one in test.get("alert_rule_test", ()) if one["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


def test_the_lab_profile_waits_no_longer_than_15_seconds() -> None:
    alerts = [{"alert": "A", "expr": "x", "for": "5m"}, {"alert": "B", "for": "0s"}]
    given = {"groups": [{"name": "a", "rules": alerts}]}
    assert lab_profile(given) == {
        "groups": [
            {
                "name": "a",
                "interval": "5s",
                "rules": [{"alert": "A", "expr": "x", "for": "15s"}, {"alert": "B", "for": "0s"}],
            }
        ]
    }
    assert alerts[0] == {"alert": "A", "expr": "x", "for": "5m"}  # not changed


def test_a_threshold_of_the_lab_takes_the_place_of_productions() -> None:
    files = [
        yaml.safe_load((MONITORING / "rules" / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("alerts", "audit")
    ]
    rules, ours = (
        {rule["alert"]: rule for file in profile for group in file["groups"] for rule in group["rules"]}
        for profile in (files, map(lab_profile, files))
    )
    for alert, (production, in_lab) in LAB_THRESHOLDS.items():
        assert rules[alert]["expr"].count(f" {production}") == 1
        assert ours[alert]["expr"] == rules[alert]["expr"].replace(production, in_lab)
    same = rules.keys() - LAB_THRESHOLDS.keys()
    assert {alert: rules[alert]["expr"] for alert in same} == {alert: ours[alert]["expr"] for alert in same}


def lab(**consoles: str) -> Lab:
    """A lab with these consoles in Europe."""
    found = tuple(
        WebConsole(name, url, "operator", scraper="a-scraper" if name == "room" else "")
        for name, url in consoles.items()
    )
    europe = Region("europe", "europe", {}, {}, (), consoles=found)
    return Lab("03-broadcast", "local", "inventories/local", {"europe": europe})


def test_the_configuration_is_ready_to_start(tmp_path: Path) -> None:
    where = tmp_path / "monitoring"
    given = lab(europe="http://127.0.0.1:8080/", room="http://127.0.0.1:8081/")
    assert write_configuration(given, where, lambda region, user: f"{user} of {region.name}") == "http://127.0.0.1:8081"
    token = where / "token"
    assert token.read_text(encoding="utf-8") == "a-scraper of europe"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    written = yaml.safe_load((where / "prometheus.yml").read_text(encoding="utf-8"))
    job, audit = written["scrape_configs"]
    assert audit["file_sd_configs"] == [{"files": ["targets/audit*.json"], "refresh_interval": "5s"}]
    assert (where / "rules" / "audit.yaml").is_file()
    assert job["scheme"] == "http"
    assert "static_configs" not in job
    assert job["file_sd_configs"] == [{"files": ["targets/control-room.json"], "refresh_interval": "5s"}]
    assert written["global"]["scrape_interval"] == "5s"
    assert "a-scraper of europe" not in (where / "prometheus.yml").read_text(encoding="utf-8")
    checks = {"prometheus.yml": "promtool check config", "alertmanager.yml": "amtool check-config"}
    for name, command in checks.items():
        path = where / name
        if shutil.which(command.split()[0]):
            done = subprocess.run([*command.split(), str(path)], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout + done.stderr


def start(tmp_path: Path, *installed: str) -> dict[str, list[str]]:
    """The words of each command of a lab in a folder with a blank, where these programs are installed."""
    folder = tmp_path / "a lab" / "monitoring"
    found = monitoring_commands.commands(
        folder, "http://127.0.0.1:8081", ["/kept/a b"], lambda name: f"/opt/{name}" if name in installed else None
    )
    return {name: shlex.split(command) for name, command in found.items()}


def test_what_is_installed_is_started_with_the_labs_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "a lab" / "monitoring"
    words = start(tmp_path, "prometheus", "prometheus-alertmanager", "grafana", "docker")
    assert words["prometheus"] == [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:9090",
    ]
    assert words["alertmanager"][0] == "prometheus-alertmanager"
    assert words["grafana"] == ["grafana", "server", "--homepath=/usr/share/grafana", f"--config={folder}/grafana.ini"]
    assert start(tmp_path, "grafana-server")["grafana"][:2] == ["grafana-server", "--homepath=/usr/share/grafana"]


def test_grafana_of_an_archive_finds_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "defaults.ini").touch()
    found = monitoring_commands.commands(tmp_path, "", [], lambda name: f"{tmp_path}/bin/{name}")
    assert shlex.split(found["grafana"])[2] == f"--homepath={tmp_path}"


@pytest.mark.parametrize(("installed", "engine"), [((), "docker"), (("docker", "podman"), "podman")])
def test_what_is_not_installed_runs_in_a_container_as_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], engine: str
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    folder = tmp_path / "a lab" / "monitoring"
    words = start(tmp_path, *installed)
    for name in ("prometheus", "alertmanager", "grafana"):
        assert words[name][:4] == [engine, "run", "--rm", "--network=host"]
        assert any(one.startswith("--user=1234:") for one in words[name])
        assert ("--userns=keep-id" in words[name]) == (engine == "podman")
        assert f"--volume={folder}:{folder}" in words[name]
        assert "--volume=/kept/a b:/kept/a b:ro" in words[name]
    assert words["prometheus"][-2] == f"--storage.tsdb.path={folder}/data"
    assert words["grafana"][-1].startswith("docker.io/grafana/grafana:")
    assert f"--env=GF_PATHS_CONFIG={folder}/grafana.ini" in words["grafana"]


def test_grafana_has_its_data_source_and_the_dashboards(tmp_path: Path) -> None:
    folder = tmp_path / "o'hara" / "monitoring"
    given = lab(room="http://127.0.0.1:8081/")
    write_configuration(given, folder, lambda *_: "")
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(folder / "grafana.ini", encoding="utf-8")
    assert settings["server"] == {"http_addr": "127.0.0.1", "http_port": "3000"}
    assert settings["auth.anonymous"] == {"enabled": "true", "org_role": "Viewer"}
    provisioning = Path(settings["paths"]["provisioning"])
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text("utf-8"))["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://127.0.0.1:9090")
    (provider,) = yaml.safe_load((provisioning / "dashboards/loosehanger.yaml").read_text("utf-8"))["providers"]
    shown = {path.name for path in Path(provider["options"]["path"]).glob("*.json")}
    assert shown == {path.name for path in (MONITORING / "dashboards").glob("*.json")}
    assert Path(settings["dashboards"]["default_home_dashboard_path"]).is_file()


def test_a_lab_without_metrics_says_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no web console of this lab serves metrics; run the set-up again"):
        write_configuration(lab(europe="http://127.0.0.1:8080/"), tmp_path, lambda *_: "")
    assert list(tmp_path.iterdir()) == []


def test_the_record_names_the_scraper_that_the_role_describes() -> None:
    applied = json.loads((ROOT / "tests/kubernetes/golden.json").read_text(encoding="utf-8"))["documents"]
    consoles = {
        name: web_console(content)
        for region in applied.values()
        for name, content in region.items()
        if name.startswith("Deployment/")
    }
    scrapers = {name: found["scraper"] for name, found in consoles.items() if found}
    assert scrapers.pop("Deployment/control-room") == "scraper"
    assert set(scrapers.values()) == {""}
    assert len(scrapers) == 3


def scraped(home: Path) -> dict[str, list[str]]:
    """The addresses of each file of targets, as Prometheus reads it."""
    return {
        path.name: [address for group in json.loads(path.read_text(encoding="utf-8")) for address in group["targets"]]
        for path in sorted(targets.folder(home).glob("*.json"))
    }


def test_targets_follow_the_record(tmp_path: Path) -> None:
    given = lab(europe="http://127.0.0.1:8080/", room="http://127.0.0.1:8081/")
    audited = replace(given.regions["europe"], audits=(Audit("127.0.0.1:9095", "a-scraper"),))
    with_audit = replace(given, regions={"europe": audited})
    targets.follow(tmp_path, given)
    assert list(tmp_path.iterdir()) == []  # no configuration for Prometheus
    targets.follow(tmp_path, with_audit, begin=True)
    assert scraped(tmp_path) == {"audit-service.json": ["127.0.0.1:9095"], "control-room.json": ["127.0.0.1:8081"]}
    (group,) = json.loads((targets.folder(tmp_path) / "control-room.json").read_text(encoding="utf-8"))
    assert group["labels"] == {"scenario": "03-broadcast"}
    targets.follow(tmp_path, given)  # set up again, without an audit
    assert scraped(tmp_path)["audit-service.json"] == []
    targets.follow(tmp_path, with_audit)
    targets.follow(tmp_path, with_audit, ["europe"])  # a stage is about to kill it
    assert scraped(tmp_path) == {"audit-service.json": [], "control-room.json": []}
    targets.follow(tmp_path, with_audit)
    targets.follow(tmp_path, replace(with_audit, lost=("europe",)))
    assert scraped(tmp_path) == {"audit-service.json": [], "control-room.json": []}


def test_a_clean_up_knows_where_the_targets_are(tmp_path: Path) -> None:
    assert tmp_path / TARGETS == targets.folder(tmp_path)


def test_a_stage_takes_the_targets_of_what_it_kills_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = lab(room="http://127.0.0.1:8081/")
    reached = Progress("05-active-passive", "local", "inventories/local", "setup")
    reached.write(tmp_path)
    monkeypatch.setattr(commands, "lab_home", lambda: tmp_path)
    monkeypatch.setattr(commands, "read_progress", lambda: reached)
    monkeypatch.setattr(commands, "load_lab", lambda: given)
    targets.follow(tmp_path, given, begin=True)
    with commands._scraped(["europe"], reached, changes=False):
        assert scraped(tmp_path)["control-room.json"] == ["127.0.0.1:8081"]
    seen: dict[str, list[str]] = {}

    def stage() -> None:
        with commands._scraped(["europe"], reached, changes=True):
            seen.update(scraped(tmp_path))
            raise LabError("it failed")

    with pytest.raises(LabError, match="it failed"):
        stage()
    assert seen["control-room.json"] == []
    # Nothing of the record says that it is lost, so it is scraped again.
    assert scraped(tmp_path)["control-room.json"] == ["127.0.0.1:8081"]


def test_the_target_of_a_watch_that_was_killed_is_removed(tmp_path: Path) -> None:
    announce = "import sys; from pathlib import Path; from loosehanger.lab import targets; import time; "
    announce += "targets.announce_watch(Path(sys.argv[1]), '127.0.0.1:9095', '03-broadcast'); print('.', flush=True); "
    command = [sys.executable, "-P", "-c", f"{announce}time.sleep(600)", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as watch:
        assert watch.stdout is not None
        try:
            assert watch.stdout.readline() == b".\n"
            assert not targets.forget_dead_watch(tmp_path)  # it lives
            assert scraped(tmp_path) == {"audit.json": ["127.0.0.1:9095"]}
        finally:
            watch.kill()
    assert targets.forget_dead_watch(tmp_path)
    assert scraped(tmp_path) == {}
    assert not targets.forget_dead_watch(tmp_path)  # and there is none
    # Another process has its number now.
    targets.announce_watch(tmp_path, "127.0.0.1:9095", "03-broadcast")
    path = targets.folder(tmp_path) / "audit.process"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"started": "another"}), encoding="utf-8")
    assert targets.forget_dead_watch(tmp_path)
