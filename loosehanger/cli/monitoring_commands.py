"""The commands that start Prometheus, Alertmanager and Grafana for a lab: what is installed, else containers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

PROMETHEUS, ALERTMANAGER, GRAFANA = "127.0.0.1:9090", "127.0.0.1:9093", "127.0.0.1:3000"
"""Where each listens: on the loopback interface only, because none of them asks for a sign-in."""

GRAFANA_SETTINGS = "grafana.ini"
PROVISIONING = "provisioning"
GRAFANA_DATA = "grafana"
ENGINES = ("podman", "docker")
GRAFANA_PROGRAMS = ("grafana", "grafana-server")


class MonitoringProgram(NamedTuple):
    """A program of the monitoring, and how it is started."""

    names: tuple[str, ...]
    """What packages call it: the first that is installed is taken."""
    image: str
    arguments: tuple[str, ...]
    """Of the installed program, and of the image's entry point if it takes any."""
    environment: tuple[str, ...] = ()
    """Of the container, in place of arguments: paths in an image's environment outweigh those of its settings."""


def commands(folder: Path, address: str, secrets: Iterable[str], which: Callable[[str], str | None]) -> dict[str, str]:
    """The commands, ready for a shell: Prometheus, Alertmanager, Grafana, and one that shows the metrics.

    Args:
        folder: where the configuration is.
        address: of the console that serves the metrics.
        secrets: files outside of the folder that Prometheus reads.
        which: returns the path of an installed program, or None; ``shutil.which``.
    """
    mounts = [f"{folder}:{folder}", *(f"{path}:{path}:ro" for path in sorted(set(secrets)))]
    found = {name: _start(program, mounts, which) for name, program in _programs(folder).items()}
    return found | {
        "curl": f'curl --header "Authorization: Bearer $(cat {shlex.quote(str(folder / "token"))})" {address}/metrics'
    }


def grafana_files(folder: Path) -> dict[str, str]:
    """Grafana's settings, its data source and its dashboards for a folder of configuration: text by path in it.

    It listens on the loopback interface, and shows the dashboards to those who can reach it there, without a sign-in
    and without a right to change anything.
    """
    settings = (
        f"[paths]\ndata = {folder / GRAFANA_DATA}\nprovisioning = {folder / PROVISIONING}\n"
        f"[server]\nhttp_addr = {GRAFANA.split(':')[0]}\nhttp_port = {GRAFANA.split(':')[1]}\n"
        f"[dashboards]\ndefault_home_dashboard_path = {folder / 'dashboards' / 'flows.json'}\n"
        "[auth]\ndisable_login_form = true\n[auth.basic]\nenabled = false\n"
        "[auth.anonymous]\nenabled = true\norg_role = Viewer\n"
        "[analytics]\nreporting_enabled = false\ncheck_for_updates = false\ncheck_for_plugin_updates = false\n"
    )
    source = (
        "apiVersion: 1\ndatasources:\n  - name: Prometheus\n    type: prometheus\n    access: proxy\n"
        f"    url: http://{PROMETHEUS}\n    isDefault: true\n    jsonData: {{timeInterval: 5s}}\n"
    )
    dashboards = (
        "apiVersion: 1\nproviders:\n  - name: loosehanger\n    type: file\n    allowUiUpdates: false\n"
        f"    options: {{path: {_yaml(folder / 'dashboards')}}}\n"
    )
    return {
        GRAFANA_SETTINGS: settings,
        f"{PROVISIONING}/datasources/prometheus.yaml": source,
        f"{PROVISIONING}/dashboards/loosehanger.yaml": dashboards,
    }


def _yaml(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _programs(folder: Path) -> dict[str, MonitoringProgram]:
    return {
        "prometheus": MonitoringProgram(
            ("prometheus",),
            "docker.io/prom/prometheus:v3.5.0",
            (
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={PROMETHEUS}",
            ),
        ),
        "alertmanager": MonitoringProgram(
            ("alertmanager", "prometheus-alertmanager"),  # Debian's package has the second
            "docker.io/prom/alertmanager:v0.28.1",
            (
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'alerts'}",
                f"--web.listen-address={ALERTMANAGER}",
                "--cluster.listen-address=",
            ),
        ),
        "grafana": MonitoringProgram(
            GRAFANA_PROGRAMS,
            "docker.io/grafana/grafana:12.1.0",
            (f"--config={folder / GRAFANA_SETTINGS}",),
            (
                f"GF_PATHS_CONFIG={folder / GRAFANA_SETTINGS}",
                f"GF_PATHS_DATA={folder / GRAFANA_DATA}",
                f"GF_PATHS_PROVISIONING={folder / PROVISIONING}",
            ),
        ),
    }


def _start(program: MonitoringProgram, mounts: Iterable[str], which: Callable[[str], str | None]) -> str:
    name = next((name for name in program.names if which(name)), None)
    if name is None:
        return shlex.join(_container(program, mounts, which))
    if name not in GRAFANA_PROGRAMS:
        return shlex.join([name, *program.arguments])
    server = [name, "server"] if name == "grafana" else [name]
    return shlex.join([*server, f"--homepath={_grafana_home(which(name) or name)}", *program.arguments])


def _container(program: MonitoringProgram, mounts: Iterable[str], which: Callable[[str], str | None]) -> list[str]:
    """In the host's network, where the lab listens; as the user, to whom the token belongs."""
    engine = next((engine for engine in ENGINES if which(engine)), ENGINES[-1])
    user = os.getuid()
    return [
        *(engine, "run", "--rm", "--network=host", f"--user={user}:{os.getgid()}", "--security-opt=label=disable"),
        *(["--userns=keep-id"] if engine == "podman" and user else []),
        *(f"--volume={mount}" for mount in mounts),
        *(f"--env={one}" for one in program.environment),
        program.image,
        *(() if program.environment else program.arguments),
    ]


def _grafana_home(program: str) -> Path:
    """The folder of Grafana's own files: beside its archive's ``bin``, or where packages put it."""
    top = Path(program).resolve().parent.parent
    homes = (top, top / "share" / "grafana", Path("/usr/share/grafana"))
    return next((home for home in homes if (home / "conf" / "defaults.ini").is_file()), homes[-1])
