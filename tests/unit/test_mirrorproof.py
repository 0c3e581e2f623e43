"""The command line of ``mirrorproof``: its options, the Spark that it finds, and what it says of clusters."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from loosehanger.errors import ExitCode, InconclusiveError, WrongUseError
from loosehanger.lab import job_options
from loosehanger.mirrorproof import command_line, connector, doctor, jars, places, spark
from loosehanger.mirrorproof.command_line import SUB_COMMANDS
from loosehanger.mirrorproof.doctor import ClusterState
from loosehanger.mirrorproof.prove import job_arguments
from scripts import install


def test_the_options_reach_the_job_as_they_were_given(tmp_path: Path) -> None:
    given = [
        "a.properties",
        "b.properties",
        "--topics",
        "x,y",
        "--groups",
        "g,h",
        "--since",
        "2026-11-21T08:00",
        "--json",
        "--configs",
    ]
    given += [
        "judge",
        "--policy",
        "default",
        "--source-alias",
        "old",
        "--timeout",
        "7.5",
        "--report",
        str(tmp_path / "r"),
    ]
    options = SUB_COMMANDS["prove"].parser("prove").parse_args(given)
    found = job_options.parser("prove").parse_args(job_arguments(options))
    assert (found.source_config.name, found.target_config.name) == ("a.properties", "b.properties")
    for name in (
        "topics",
        "groups",
        "since",
        "json",
        "configs",
        "policy",
        "source_alias",
        "timeout",
        "report",
        "while_moving",
    ):
        assert getattr(found, name) == getattr(options, name), name
    assert (found.topics, found.timeout, found.while_moving) == ("x,y", 7.5, False)


def test_without_topics_all_are_compared() -> None:
    options = SUB_COMMANDS["prove"].parser("prove").parse_args(["a", "b"])
    assert job_options.parser("prove").parse_args(job_arguments(options)).topics == ".*"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prov"], "there is no sub-command 'prov'"),
        (["prove", "a"], "TARGET; mirrorproof prove --help explains"),
        (["prove", "a", "b", "--source-alias", "x"], "--policy default and --source-alias go together"),
        (["prove", "/no/such", "b"], "/no/such: cannot be read"),
        (["doctor", "a", "b", "--topics", "("], "a: "),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(WrongUseError) as raised:
        command_line.main(arguments)
    assert message in str(raised.value) or arguments[0] == "doctor"
    assert raised.value.exit_code == ExitCode.WRONG_USE


def spark_home(folder: Path, version: str) -> Path:
    """A folder that looks like an installation of Spark."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder


@pytest.mark.parametrize(
    ("version", "accepted"), [("4.0.2", True), ("4.2.0", True), ("3.5.7", False), ("4.3.0", False)]
)
def test_the_users_spark_is_accepted_by_its_version(
    version: str, accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    home = spark_home(tmp_path / "spark", version)
    (home / "bin").mkdir()
    submit = home / "bin" / "spark-submit"
    submit.write_text("#!/bin/sh\n", encoding="utf-8")
    submit.chmod(0o700)
    for environment in ({"SPARK_HOME": str(home)}, {"PATH": str(submit.parent)}):
        if accepted:
            assert spark.find_spark(environment) == spark.SparkHome(home, version, is_users=True)
        else:
            with pytest.raises(WrongUseError, match=f"Spark {version} is not supported; use Spark 4.0 to 4.2"):
                spark.find_spark(environment)


def test_a_spark_or_java_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(WrongUseError, match="Spark is missing; install mirrorproof"):
        spark.find_spark({"PATH": str(tmp_path)})
    with pytest.raises(WrongUseError, match="is not an installation of Spark"):
        spark.find_spark({"SPARK_HOME": str(tmp_path)})
    with pytest.raises(WrongUseError, match="Java is missing"):
        spark.find_java({"PATH": str(tmp_path)})
    with pytest.raises(WrongUseError, match="has no bin/java"):
        spark.find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(("version", "locked"), [("4.0.3", "4.0.0"), ("4.1.1", "4.1.1"), ("4.2.0", "4.2.0")])
def test_a_folder_of_jars_is_checked_by_hash(version: str, locked: str, tmp_path: Path) -> None:
    environment, remedy = {places.JARS: str(tmp_path)}, f"mirrorproof jars FOLDER --spark {version[:3]} makes one"
    with pytest.raises(WrongUseError, match=rf"has no spark-sql-kafka-0-10_2\.13-\*\.jar, .*; {remedy}"):
        connector.jars_for(version, environment)
    damaged = tmp_path / f"spark-sql-kafka-0-10_2.13-{locked}.jar"
    damaged.write_text("x", encoding="utf-8")
    with pytest.raises(WrongUseError, match=f"is missing or is another file; {remedy}"):
        connector.jars_for(version, environment)
    shutil.move(damaged, damaged.with_name("spark-sql-kafka-0-10_2.13-3.5.7.jar"))
    with pytest.raises(WrongUseError, match=rf"has the connector for Spark 3\.5\.7, and Spark is {version}"):
        connector.jars_for(version, environment)


@pytest.mark.parametrize("version", connector.SPARKS)
def test_each_spark_has_a_connector_of_its_own(version: str) -> None:
    found = {jar.artifact: jar.version for jar in connector.connector(version)}
    assert len(found) == 4
    assert connector.minor(found["spark-sql-kafka-0-10_2.13"]) == version
    assert found["kafka-clients"].startswith("3.9.")


def test_another_repository_is_named_by_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.REPOSITORY, "ftp://x")
    with pytest.raises(WrongUseError, match=places.REPOSITORY):
        jars.repository(places.REPOSITORY)
    assert jars.MAVEN_CENTRAL == install.MAVEN_CENTRAL


def test_a_repository_out_of_reach_leaves_the_proof_inconclusive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(places.REPOSITORY, f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(jars, "FIRST_PAUSE", 0.01)
        ends = [tmp_path / name for name in ("a.properties", "b.properties")]
        for number, path in enumerate(ends):
            path.write_text(f"bootstrap.servers=127.0.0.1:{number + 1}", encoding="utf-8")
        with pytest.raises(InconclusiveError, match="cannot be reached"):
            command_line.main(["prove", *map(str, ends), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "inconclusive"
    assert places.REPOSITORY in document["reasons"][0]


def test_rights_and_topics_that_are_missing_are_named() -> None:
    patterns = [doctor._compiled(text) for text in ("orders", "payments", "x.*")]
    source = ClusterState("source", id="A", is_complete=True)
    source.topics = {"orders": ["READ", "DESCRIBE"], "x1": ["READ", "DESCRIBE", "DESCRIBE_CONFIGS"], "other": []}
    target = ClusterState("target", id="A", is_complete=True)
    target.topics = {"orders": None, "old.x1": ["DESCRIBE_CONFIGS"], "other": []}
    problems = [check.line for check in doctor._together(source, target, patterns) if check.remedy]
    assert problems == [
        "PROBLEM  both    clusters    source and target are the same cluster (id A); "
        "give the client properties of two clusters",
        "PROBLEM  source  topics      there is no topic payments, or the user lacks Describe on it; "
        "correct --topics, or grant Describe",
        "PROBLEM  source  rights      DescribeConfigs is missing on orders; grant DescribeConfigs",
        "PROBLEM  target  rights      Read is missing on old.x1; grant Read",
    ]


def test_an_advertised_address_that_is_of_no_use_is_a_problem() -> None:
    check = doctor._advertised("source", [{"host": "no-such-host.invalid", "port": 9092}])
    assert "no-such-host.invalid does not resolve" in check.line
    assert check.line.startswith("PROBLEM")
