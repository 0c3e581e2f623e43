"""``mirrorproof prove --config``: what reaches the job, and what is refused before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loosehanger.arguments import Parser
from loosehanger.errors import WrongUseError
from loosehanger.lab import job_options
from loosehanger.mirrorproof import command_line, prove
from loosehanger.mirrorproof.command_line import SUB_COMMANDS

CONFIGURATION = """\
clusters:
  old: {properties: {bootstrap.servers: "old:9092"}}
  new: {properties: {bootstrap.servers: "new:9092"}}
flows:
- {name: shop, source: old, target: new, topics: [a]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "flows.yaml"
    found.write_text(CONFIGURATION, encoding="utf-8")
    return found


def test_the_file_and_the_flows_reach_the_job(path: Path) -> None:
    given = ["--config", str(path), "--flow", "shop", "--flow", "pay", "--timeout", "7", "--json"]
    arguments = prove.job_arguments(SUB_COMMANDS["prove"].parser("prove").parse_args(given))
    parser = Parser()
    job_options.prove(parser)
    prove.add_flows(parser)
    found = parser.parse_args(arguments)
    assert (found.config, found.flow, found.timeout, found.json) == (path, ["shop", "pay"], 7.0, True)
    assert (found.source_config, found.topics) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --config FILE, or SOURCE and TARGET"),
        (["a", "b", "--flow", "x"], "--flow needs --config"),
        (["a", "--config", "{}"], "SOURCE exclude --config"),
        (["--config", "{}", "--topics", "x", "--policy", "default"], "--topics and --policy exclude --config"),
        (["--config", "{}", "--groups", "x"], "--groups exclude --config"),
        (["--config", "{}", "--flow", "shpo"], "has no flow 'shpo'; did you mean 'shop'?"),
        (["--config", "/no/such.yaml"], "/no/such.yaml: cannot be read"),
    ],
)
def test_wrong_use_is_named_before_spark_starts(
    arguments: list[str], message: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prove, "start", lambda *_: pytest.fail("the job started"))
    with pytest.raises(WrongUseError) as raised:
        command_line.main(["prove", *(word.format(path) for word in arguments)])
    assert message in str(raised.value)


def test_the_job_starts_with_what_can_be_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(prove, "start", lambda _, arguments, __: started.append(arguments))
    prove.run(SUB_COMMANDS["prove"].parser("prove").parse_args(["--config", str(path)]))
    assert started[0][0] == f"--config={path}"
