"""``./lab monitoring``: a ready configuration of Prometheus, Alertmanager and Grafana for the lab that is set up."""

from __future__ import annotations

import argparse
import copy
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from loosehanger.cli import monitoring_commands
from loosehanger.cli.columns import beside
from loosehanger.errors import ExitCode, LabError
from loosehanger.files import write_file
from loosehanger.lab import targets
from loosehanger.lab.record import Exporter, Lab, Region, WebConsole
from loosehanger.paths import ROOT, lab_home

SOURCE = ROOT / "monitoring"
INTERVAL = "5s"
LONGEST_FOR_S = 15
PARTS = {"Kafka": "kafka", "KafkaMirrorMaker2": "mirrormaker2"}
"""What follows the resource's name in Strimzi's names of its pods, by kind."""
LAB_THRESHOLDS = {"MirrorLagging": ("> 60", "> 15"), "CanaryStale": ("+ 60", "+ 30")}
"""What an alert's expression has in production, and would fire after more than a minute in a lab; and the lab's."""


def run(lab: Lab, options: argparse.Namespace, password: Callable[[Region, str], str]) -> int:
    """Writes the configuration to ``.lab/monitoring``, and shows how to start Prometheus and the others with it.

    Args:
        lab: the lab that is set up.
        options: the command line's.
        password: returns the password of a region's user.

    Raises:
        LabError: no web console of the lab serves metrics.
    """
    folder, address = prepare(lab, password)
    secrets = [one.password_file for region in lab.regions.values() for one in region.exporters]
    commands = monitoring_commands.commands(folder, address, secrets, shutil.which)
    if options.json:
        print(json.dumps({"folder": str(folder), "metrics": f"{address}/metrics", "commands": commands}, indent=1))
        return ExitCode.DONE
    print(f"{folder} has prometheus.yml, alertmanager.yml, the rules, and grafana.ini with the dashboards.\n")
    for name, command in commands.items():
        print(f"{name}:\n  {command}\n")
    print(beside("", "docs/monitoring.md says what to look at first, and docs/runbooks.md what each alert means."))
    return ExitCode.DONE


def prepare(lab: Lab, password: Callable[[Region, str], str]) -> tuple[Path, str]:
    """Writes the lab's configuration and targets to ``.lab/monitoring``.

    Args:
        lab: the lab that is set up.
        password: returns the password of a region's user.

    Returns:
        The folder, and the address of the console that serves the metrics.

    Raises:
        LabError: no web console of the lab serves metrics.
    """
    folder = lab_home() / "monitoring"
    address = write_configuration(lab, folder, password)
    targets.follow(lab_home(), lab, begin=True)
    return folder, address


def scraped(lab: Lab) -> tuple[Region, WebConsole] | None:
    """The console that serves the lab's metrics, and its region; None if there is no such console."""
    return next(((region, one) for region in lab.regions.values() for one in region.consoles if one.scraper), None)


def write_configuration(lab: Lab, folder: Path, password: Callable[[Region, str], str]) -> str:
    """Writes the configuration for a lab, in the lab's profile of the rules.

    Args:
        lab: the lab that is set up.
        folder: where to write; the token there is readable by its owner only.
        password: returns the password of a region's user.

    Returns:
        The address of the console that serves the metrics.

    Raises:
        LabError: no web console of the lab serves metrics.
    """
    place = scraped(lab)
    if place is None:
        raise LabError("no web console of this lab serves metrics; run the set-up again")
    region, console = place
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(folder / "token", password(region, console.scraper))
    for name in ("recording.yaml", "alerts.yaml", "audit.yaml"):
        rules = yaml.safe_load((SOURCE / "rules" / name).read_text(encoding="utf-8"))
        write_file(folder / "rules" / name, yaml.safe_dump(lab_profile(rules), sort_keys=False, width=120))
    prometheus = yaml.safe_load((SOURCE / "prometheus.yml").read_text(encoding="utf-8"))
    write_file(folder / "prometheus.yml", yaml.safe_dump(_prometheus(prometheus, lab, console.url), sort_keys=False))
    alertmanager = yaml.safe_load((SOURCE / "alertmanager.yml").read_text(encoding="utf-8"))
    alertmanager["route"] |= {"group_wait": "0s", "group_interval": INTERVAL}
    write_file(folder / "alertmanager.yml", yaml.safe_dump(alertmanager, sort_keys=False))
    for path in (SOURCE / "dashboards").glob("*.json"):
        write_file(folder / "dashboards" / path.name, path.read_text(encoding="utf-8"))
    for name, text in monitoring_commands.grafana_files(folder).items():
        write_file(folder / name, text)
    return console.url.rstrip("/")


def lab_profile(rules: dict[str, Any]) -> dict[str, Any]:
    """The lab's profile of production's rules, evaluated every 5 s, waiting 15 s at most, with its own thresholds.

    Args:
        rules: a file of rules; not changed.
    """
    found = copy.deepcopy(rules)
    for group in found["groups"]:
        group["interval"] = INTERVAL
        for rule in group["rules"]:
            if rule.get("for", "0s") != "0s":
                rule["for"] = f"{LONGEST_FOR_S}s"
            if rule.get("alert") in LAB_THRESHOLDS:
                rule["expr"] = rule["expr"].replace(*LAB_THRESHOLDS[rule["alert"]])
    return found


def _prometheus(given: dict[str, Any], lab: Lab, url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    given["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    job, audit = given["scrape_configs"]
    audit["file_sd_configs"][0]["refresh_interval"] = INTERVAL
    job["scheme"] = parts.scheme
    del job["static_configs"]
    job["file_sd_configs"] = [{"files": [f"targets/{targets.CONTROL_ROOM}"], "refresh_interval": INTERVAL}]
    given["scrape_configs"] += [
        _kafka_job(name, region.exporters) for name, region in lab.regions.items() if region.exporters
    ]
    return given


def _kafka_job(region: str, exporters: Sequence[Exporter]) -> dict[str, Any]:
    """The metrics of a region's nodes and workers, with the labels that Strimzi's dashboards choose by.

    They are those of its PodMonitor: of the pod, its container, and its labels that begin with ``strimzi.io/``.
    """
    return {
        "job_name": f"kafka-resources-metrics-{region}",
        "basic_auth": {"username": exporters[0].username, "password_file": exporters[0].password_file},
        "static_configs": [
            {
                "targets": [exporter.address],
                "labels": {
                    "strimzi_io_kind": exporter.kind,
                    "strimzi_io_cluster": exporter.cluster,
                    "strimzi_io_name": f"{exporter.cluster}-{PARTS[exporter.kind]}",
                    "namespace": region,
                    "kubernetes_pod_name": exporter.pod,
                    "container": "kafka" if exporter.kind == "Kafka" else f"{exporter.cluster}-{PARTS[exporter.kind]}",
                },
            }
            for exporter in exporters
        ],
    }
