"""The bootstrap: when it installs, when it does nothing, and what it says to a machine that lacks something."""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from loosehanger.paths import ROOT

# Stands in for the real installer: it makes what the bootstrap looks at, and counts its runs.
INSTALLER = """\
import os, pathlib, sys
home = pathlib.Path(os.environ["LAB_HOME"])
for name in ("venv/bin/python", "java/bin/java", "java-spark/bin/java"):
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).touch(mode=0o700)
(home / "jars/kafka").mkdir(parents=True, exist_ok=True)
if "dev" in sys.argv[1]:
    (home / "venv/dev").touch()
with (home / "runs").open("a") as runs:
    runs.write(pathlib.Path(sys.argv[1]).name + "\\n")
sys.exit(int(os.environ.get("INSTALLER_FAILS_WITH", "0")))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real bootstrap and a stand-in for the installer."""
    folder = tmp_path / "a checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in (
        "pyproject.toml",
        "requirements-build.lock",
        "requirements.lock",
        "requirements-dev.lock",
        "jars.lock",
    ):
        (folder / name).write_text(f"{name}\n", encoding="utf-8")
    shutil.copy(ROOT / "scripts/bootstrap.sh", folder / "scripts")
    (folder / "scripts/install.py").write_text(INSTALLER, encoding="utf-8")
    (folder / "scripts/class_archives.py").touch()
    return folder


def bootstrap(
    checkout: Path, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAB_")}
    command = [str(checkout / "scripts/bootstrap.sh"), *arguments]
    variables = {"LAB_PYTHON": sys.executable} | variables
    return subprocess.run(
        command, env=environment | variables, cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )


def runs(home: Path) -> list[str]:
    return (home / "runs").read_text(encoding="utf-8").split()


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}


def test_second_run_changes_nothing(checkout: Path) -> None:
    assert bootstrap(checkout).returncode == 0
    before = snapshot(checkout)
    done = bootstrap(checkout, LAB_PYTHON="/no/python/is/started")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert snapshot(checkout) == before
    assert runs(checkout / ".lab") == ["requirements.lock"]


@pytest.mark.parametrize(
    "change",
    [
        *("pyproject.toml", "requirements-build.lock", "requirements.lock", "jars.lock"),
        *("scripts/install.py", "scripts/bootstrap.sh", "scripts/class_archives.py"),
    ],
)
def test_change_of_an_input_installs_again(checkout: Path, change: str) -> None:
    bootstrap(checkout)
    with (checkout / change).open("a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert bootstrap(checkout).returncode == 0
    assert len(runs(checkout / ".lab")) == 2


@pytest.mark.parametrize("loss", ["venv", "java", "java-spark", "jars", "installed"])
def test_loss_of_a_part_installs_again(checkout: Path, loss: str) -> None:
    bootstrap(checkout)
    path = checkout / ".lab" / loss
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert bootstrap(checkout).returncode == 0
    assert len(runs(checkout / ".lab")) == 2


def test_moved_checkout_installs_again(checkout: Path) -> None:
    bootstrap(checkout)
    moved = checkout.rename(checkout.with_name("elsewhere"))
    assert bootstrap(moved).returncode == 0
    assert len(runs(moved / ".lab")) == 2


def test_failed_install_is_not_taken_for_a_finished_one(checkout: Path) -> None:
    assert bootstrap(checkout, INSTALLER_FAILS_WITH="2").returncode == 2
    assert bootstrap(checkout).returncode == 0
    assert len(runs(checkout / ".lab")) == 2


def test_development_tools_stay(checkout: Path) -> None:
    bootstrap(checkout)
    bootstrap(checkout, "--dev")
    bootstrap(checkout)
    assert runs(checkout / ".lab") == ["requirements.lock", "requirements-dev.lock"]


def test_lab_home_may_be_elsewhere_and_relative(checkout: Path, tmp_path: Path) -> None:
    assert bootstrap(checkout, cwd=tmp_path, LAB_HOME="my home").returncode == 0
    assert runs(tmp_path / "my home") == ["requirements.lock"]
    assert not (checkout / ".lab").exists()

    (tmp_path / "moved").mkdir()
    (tmp_path / "my home").rename(tmp_path / "moved/my home")
    bootstrap(checkout, cwd=tmp_path / "moved", LAB_HOME="my home")
    assert len(runs(tmp_path / "moved/my home")) == 2


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """A folder with every usual name of Python, each of which says that it is 3.9."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -c \'import sys; sys.version_info = (3, 9, 18, "final", 0)\n'
            'exec(sys.argv[1])\' "$2"\n',
            encoding="utf-8",
        )
        program.chmod(0o755)
    return folder


def test_refuses_an_old_python(checkout: Path, old_python: Path) -> None:
    for python in (str(old_python / "python3"), ""):
        done = bootstrap(checkout, LAB_PYTHON=python, PATH=f"{old_python}:/bin")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "3.11, 3.12 or 3.13" in done.stderr
        assert "LAB_PYTHON" in done.stderr
        assert not (checkout / ".lab").exists()


def test_finds_a_newer_python_behind_an_old_one(checkout: Path, old_python: Path) -> None:
    (old_python / "python3.12").unlink()
    (old_python / "python3.12").symlink_to(sys.executable)
    assert bootstrap(checkout, LAB_PYTHON="", PATH=f"{old_python}:/bin").returncode == 0


def test_says_what_to_install_when_python_has_no_ensurepip(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n", encoding="utf-8")
    done = bootstrap(ROOT, PYTHONPATH=str(tmp_path), LAB_HOME=str(tmp_path / "home"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"apt install python3.{sys.version_info.minor}-venv" in done.stderr


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installer, at work in a folder of its own."""
    monkeypatch.setenv("LAB_HOME", str(tmp_path / "the home"))
    (tmp_path / "the home").mkdir()
    return importlib.reload(importlib.import_module("scripts.install"))


def test_two_installers_do_not_meet(install: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    inside = threading.Event()

    def second() -> None:
        with install.only_one_at_a_time():
            inside.set()

    with (install.HOME / "install.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=second)
        thread.start()
        assert not inside.wait(0.2)
    assert inside.wait(5), "the lock goes with its owner"
    thread.join()
    assert "waiting for it" in capfd.readouterr().err


def test_unreachable_index_is_one_line_without_its_password(install: ModuleType) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(
            install.MachineError, match=rf"^127.0.0.1:{port}: cannot .* refused\); .*PIP_INDEX_URL"
        ) as raised:
            install.check_index(f"http://user:secret@127.0.0.1:{port}/simple")
    assert "secret" not in str(raised.value)


def test_index_that_answers_with_an_error_is_reachable(install: ModuleType) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request).start()
        install.check_index(f"http://127.0.0.1:{server.server_port}/simple")


def test_one_variable_names_the_certificate_authorities_for_all(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
    (tmp_path / "ca.pem").touch()
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "ca.pem"))
    install.prepare_environment_variables()
    assert {os.environ[name] for name in names} == {str(tmp_path / "ca.pem")}

    (tmp_path / "ca.pem").unlink()
    with pytest.raises(install.MachineError, match=r"ca\.pem"):
        install.prepare_environment_variables()


def test_pips_files_and_variables_count_as_they_do_for_pip(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "XDG_CONFIG_"))]:
        monkeypatch.delenv(name)
    for name in ("UV_DEFAULT_INDEX", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(install, "UV", tmp_path / "uv")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "uv"], check=True)
    # "pip config get" looks at this one alone, once it is there.
    (tmp_path / "uv/pip.conf").write_text("[global]\ntimeout = 9\n", encoding="utf-8")
    user = tmp_path / ".config/pip/pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text("[global]\nindex-url = https://user.example/?a='b'\ncert = /ca.pem\n", encoding="utf-8")
    install.use_index_of_pip()
    assert os.environ["UV_DEFAULT_INDEX"] == "https://user.example/?a='b'"
    assert os.environ["SSL_CERT_FILE"] == "/ca.pem"

    user.write_text("[global]\nindex-url = https://all.example/\n[install]\nindex-url = https://one.example/\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "")
    install.use_index_of_pip()
    assert os.environ["UV_DEFAULT_INDEX"] == "https://one.example/"


def test_spark_gets_a_java_that_starts(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "VENV", Path(sys.prefix))
    for _ in range(2):  # the second time it replaces the first
        install.make_java_homes()
    as_spark_does = ["-Dtext=two words", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    plain, spark = (
        subprocess.run([install.HOME / home / "bin/java", *as_spark_does], capture_output=True, text=True, check=False)
        for home in ("java", "java-spark")
    )
    assert plain.returncode == 1
    assert spark.returncode == 0
    assert "text = two words" in spark.stderr


def test_a_home_that_cannot_be_made_is_one_line() -> None:
    """No folder can be made there, not even by an administrator."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/install.py"), str(ROOT / "requirements.lock")],
        env={**os.environ, "LAB_HOME": "/proc/nothing"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: /proc/nothing: No such file or directory; LAB_HOME can name another folder to install into\n"
    )
