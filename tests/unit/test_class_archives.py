"""The archives of classes: they are used by what they were made for, and nothing needs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from loosehanger.cli import class_archives as background
from loosehanger.cli.class_archives import NAMES
from loosehanger.errors import LabError
from loosehanger.lab.manifests.resources import JvmOptions
from loosehanger.paths import ROOT, lab_home
from loosehanger.platforms.java import WORKER, Java
from loosehanger.proof import submit
from loosehanger.waiting import wait_for
from scripts import class_archives

ARCHIVED = "source: shared objects file (top)"


def loaded(log: Path) -> tuple[int, int]:
    """How many classes a program has loaded from its own archive, and how many from none."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if " source: " in line]
    return sum(ARCHIVED in line for line in lines), sum("shared objects file" not in line for line in lines)


@pytest.mark.parametrize(("main_class", "least"), [("kafka.Kafka", 1000), (WORKER, 500)])
def test_the_programs_of_kafka_use_theirs(main_class: str, least: int, tmp_path: Path) -> None:
    """Both load most of their classes before they refuse a command line without settings."""
    java = Java(lab_home())
    log = tmp_path / "classes"
    command = java.command(
        main_class, options=JvmOptions.model_validate({}), heap="256m", system={}, temporary=tmp_path
    )
    command.insert(1, f"-Xlog:class+load:file={log}")
    subprocess.run(command, env=os.environ | java.environment, capture_output=True)
    archived, others = loaded(log)
    assert archived > least
    assert others < archived / 4


def test_a_job_of_spark_uses_its_own(tmp_path: Path) -> None:
    """With the class path and the options that a job has, not those of its launcher."""
    log = tmp_path / "classes-%p"
    done = subprocess.run(
        [sys.executable, "-c", "from loosehanger.proof.session import start_session; start_session('x', records=1)"],
        env=submit.environment(lab_home(), "local[1]", "512m", [], tmp_path)
        | {"PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": f"-Xlog:class+load:file={log}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    archived, others = max(loaded(path) for path in tmp_path.glob("classes-*"))
    assert archived > 3000
    assert others < archived / 4


def test_what_is_usable_is_left_alone(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (lab_home() / "jars").glob("*.jsa")}
    assert {path.stem for path in before} == set(NAMES)
    monkeypatch.setattr(sys, "argv", ["class_archives"])
    assert class_archives.main() == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert capfd.readouterr().err == ""


def test_java_uses_an_archive_in_the_place_of_one_that_is_not_made(tmp_path: Path) -> None:
    archives = class_archives.Archives(lab_home())
    link = tmp_path / "kafka.jsa"
    link.symlink_to(archives.base)
    java = [str(lab_home() / "java/bin/java"), "-Xlog:class+load", "-version"]
    for options, used in (([f"-XX:SharedArchiveFile={link}"], True), (["-XX:SharedArchiveFile=/nowhere"], False)):
        said = subprocess.run([*java[:1], *options, *java[1:]], capture_output=True, text=True).stdout
        assert ("shared objects file" in said) is used


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source.resolve())
    except OSError:  # on another disk
        shutil.copyfile(source, target)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation with archives that were made for other jars."""
    (tmp_path / "java").symlink_to((lab_home() / "java").resolve())
    (tmp_path / "java-spark").symlink_to((lab_home() / "java-spark").resolve())
    for name in ("kafka", "spark"):
        (tmp_path / "jars" / name).mkdir(parents=True)
        for jar in (lab_home() / f"jars/{name}").glob("*.jar"):
            (tmp_path / f"jars/{name}" / jar.name).write_bytes(jar.read_bytes())
    for name in NAMES:
        _link_or_copy(lab_home() / f"jars/{name}.jsa", tmp_path / f"jars/{name}.jsa")
    next((tmp_path / "jars/kafka").glob("connect-mirror-client-*.jar")).unlink()
    return tmp_path


def test_an_archive_that_java_would_not_use_is_missing(home: Path) -> None:
    assert class_archives.Archives(home).missing() == list(NAMES)
    assert class_archives.Archives(lab_home()).missing() == []


def test_an_installation_replaces_what_java_would_not_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Java's own classes, until the next set-up makes it again in the background."""
    monkeypatch.setenv("LAB_HOME", str(home))
    monkeypatch.setattr(sys, "argv", ["class_archives", "--base"])
    assert class_archives.main() == 0
    base = class_archives.Archives(home).base
    assert {path.readlink() for path in (home / "jars").glob("*.jsa")} == {base}


def test_a_clean_up_stops_the_making_and_what_it_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that starts first, which formats a node's folder, waits for a file that is never written."""
    monkeypatch.setenv("LAB_HOME", str(home))
    (home / "jars/kafka.jsa").unlink()
    java = home / "java"
    java.unlink()
    (java / "bin").mkdir(parents=True)
    (java / "lib/server").mkdir(parents=True)
    program = java / "bin/java"
    program.write_text('#!/bin/bash\n[[ "$*" != *StorageTool* ]] || exec tail -f /dev/null\n', encoding="utf-8")
    program.chmod(0o700)
    background.start()

    def running() -> list[psutil.Process]:
        return [found for found in psutil.process_iter() if found.pid and str(home) in str(environment(found))]

    wait_for(lambda: None if any(found.name() == "tail" for found in running()) else "no program", 60, "the making")
    background.stop(home)
    wait_for(lambda: str(running()) if running() else None, 10, "its end")
    assert list((home / "jars").glob("training-*")) == []


def environment(process: psutil.Process) -> str:
    """The folder that a process makes archives for."""
    try:
        return process.environ().get("LAB_HOME", "") if process.pid != os.getpid() else ""
    except psutil.Error:
        return ""


def test_a_job_that_says_much_comes_to_its_end_before_its_java(tmp_path: Path) -> None:
    """Its output is more than a pipe holds, and what it has started keeps that open until a file is there."""
    archive = tmp_path / "archive"
    waiting = f"until [ -e {archive} ]; do sleep 0.1; done"
    job = ["bash", "-c", f"head -c 300000 /dev/zero | tr '\\0' '\\n'; {{ {waiting}; echo written; }} &"]
    with ThreadPoolExecutor() as readers:
        class_archives.run_job(job, tmp_path, {}, readers, 60)
        archive.touch()


def test_a_job_that_fails_is_named_by_its_last_line(tmp_path: Path) -> None:
    job = ["bash", "-c", "seq 100000; echo no brokers; echo; exit 3"]
    with ThreadPoolExecutor() as readers, pytest.raises(LabError, match="a proof fails: no brokers"):
        class_archives.run_job(job, tmp_path, {}, readers, 60)


def test_archives_that_cannot_be_made_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    java.chmod(0o700)
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["class_archives"])
    assert class_archives.main() == 0
    assert "Java cannot archive its own classes. Both start more slowly" in capfd.readouterr().err
