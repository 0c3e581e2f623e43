"""The configuration file of ``mirrorproof``: what it means, and what is refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.kafka.connection import connection_for
from loosehanger.lab.kit_users import PROVER
from loosehanger.lab.mirrors.replication import named_topics, selected_topics, source_topic, target_topic
from loosehanger.mirrorproof.configuration import Configuration, read_configuration, schema
from loosehanger.mirrorproof.mapping import Suggestion, suggest
from loosehanger.paths import ROOT

CLUSTERS = """\
clusters:
  old:
    properties: {bootstrap.servers: "old:9092"}
  new:
    properties:
      bootstrap.servers: new:9092
"""


def read(folder: Path, text: str, name: str = "flows.yaml") -> Configuration:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_configuration(path)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(WrongUseError) as caught:
        read(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def flow(folder: Path, *lines: str) -> Configuration:
    text = "".join(f"    {line}\n" for line in lines)
    return read(folder, f"{CLUSTERS}flows:\n  - source: old\n    target: new\n{text}")


@pytest.mark.parametrize(
    ("names", "copies"),
    [
        ("{}", {"a.b": "a.b"}),
        ("{policy: identity}", {"a.b": "a.b"}),
        ("{policy: default}", {"a.b": "old.a.b"}),
        ("{policy: default, alias: eu, separator: _}", {"a.b": "eu_a.b"}),
        ("{policy: default, separator: ''}", {"a.b": "olda.b"}),
        ("{prefix: dr-, suffix: .v2}", {"a.b": "dr-a.b.v2"}),
        ("{pairs: {a.b: c}}", {"a.b": "c", "d": "d"}),
        ("{pairs: {a.b: c}, policy: default}", {"a.b": "c", "d": "old.d"}),
        ("{pattern: '(\\w+)\\.(\\w+)', replacement: '$2-$1'}", {"a.b": "b-a", "d": "d"}),
        ("{pattern: '(?P<team>\\w+)\\..*', replacement: 'x.${team}'}", {"a.b": "x.a"}),
        ("{pattern: '(\\w+)\\.(\\w+)', replacement: '\\2.\\1'}", {"a.b": "b.a"}),
    ],
)
def test_a_mapping_gives_copies_their_names(names: str, copies: dict[str, str], tmp_path: Path) -> None:
    (mirror,) = flow(tmp_path, "patterns: ['.*']", f"names: {names}").mirrors
    assert {topic: target_topic(mirror, topic) for topic in copies} == copies
    if "pattern:" not in names:
        assert {copy: source_topic(mirror, copy) for copy in copies.values()} == {v: k for k, v in copies.items()}


def test_topics_are_named_and_patterns_match_and_what_is_excluded_is_left_out(tmp_path: Path) -> None:
    (mirror,) = flow(tmp_path, "topics: [pay.in, orders]", "patterns: [log-.*]", "exclude: [log-secret]").mirrors
    there = ["pay.in", "pay-in", "orders", "log-a", "log-secret", "__consumer_offsets", "mm2-x.internal"]
    assert selected_topics(mirror, there) == ["log-a", "orders", "pay.in"]
    assert named_topics(mirror, ["orders"]) == {"pay.in"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "flows.yaml: is empty; expected a configuration (keys and values: clusters, flows)"),
        ("- a\n", "flows.yaml:1: expected a configuration (keys and values: clusters, flows)"),
        ("clusters: {\n", "flows.yaml:2: not YAML: did not find expected node content"),
        (CLUSTERS, "flows.yaml:1: flows: nothing to compare; give flows, or a copier's files under 'read'"),
        (f"{CLUSTERS}flow: []\n", "flows.yaml:7: flow: unknown key; did you mean 'flows'?"),
        (
            f"{CLUSTERS}flows:\n- source: olds\n  target: new\n  topics: [a]\n",
            "flows.yaml:8: flows[0].source: there is no cluster 'olds'; did you mean 'old'?",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  topic: [a]\n",
            "flows.yaml:10: flows[0].topic: unknown key; did you mean 'topics'?",
        ),
        (f"{CLUSTERS}flows:\n- source: old\n  topics: [a]\n", "flows.yaml:8: flows[0].target: is missing"),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n",
            "flows.yaml:8: flows[0].topics: names no topics; give topics, patterns or both",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: old\n  topics: [a]\n",
            "flows.yaml:9: flows[0].target: is the source, so that each topic would be compared with itself",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  topics: ['a.*']\n",
            "flows.yaml:10: flows[0].topics[0]: 'a.*' is not a topic's name; write patterns under 'patterns'",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  patterns:\n  - a\n  - '('\n",
            "flows.yaml:12: flows[0].patterns[1]: '(' is not a regular expression: missing ), unterminated subpattern "
            "at position 0",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  topics: [a]\n  names:\n    alias: x\n",
            "flows.yaml:11: flows[0].names: alias and separator need 'policy: default'",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  topics: [a]\n  names: {{policy: default, prefix: x}}\n",
            "flows.yaml:11: flows[0].names: policy and prefix or suffix exclude each other; give one of them",
        ),
        (
            f"{CLUSTERS}flows:\n- source: old\n  target: new\n  topics: [a]\n  names:\n    pattern: (a)\n"
            "    replacement: $2\n",
            "flows.yaml:13: flows[0].names.replacement: has a group that the pattern does not have (invalid group "
            "reference 2 at position 3); it has 1",
        ),
        (
            f"{CLUSTERS}flows:\n- {{source: old, target: new, topics: [a]}}\n"
            "- {source: old, target: new, topics: [b]}\n",
            "flows.yaml:8: flows[0]: two flows are called 'old-new'; give each a name",
        ),
        (
            f"{CLUSTERS}flows:\n- {{source: old, target: new, topics: [a]}}\njudge: {{order: never}}\n",
            "flows.yaml:9: judge.order: 'never' is not possible here; expected 'judge', 'report' or 'ignore'",
        ),
        ("clusters: {a: {}}\n", "flows.yaml:1: clusters.a: expected one of properties, file, environment; has none"),
        (
            "clusters: {a: secret}\n",
            "flows.yaml:1: clusters.a: expected keys and values: properties, file, environment",
        ),
    ],
)
def test_what_cannot_be_used_is_named_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, text) == message


def test_client_properties_are_resolved_late_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "new.properties").write_text("bootstrap.servers=new:9092\n", encoding="utf-8")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:SECRET}";'
    found = read(
        tmp_path,
        f"clusters:\n  old: {{environment: OLD_}}\n  new: {{file: new.properties}}\n"
        f"  third:\n    properties: |\n      bootstrap.servers=third:1\n      security.protocol=SASL_PLAINTEXT\n"
        f"      sasl.mechanism=PLAIN\n      sasl.jaas.config={jaas}\n"
        "flows:\n- {name: one, source: old, target: new, topics: [a]}\n"
        "- {name: two, source: old, target: third, topics: [a]}\n",
    )
    environment = {"OLD_BOOTSTRAP_SERVERS": "old:1,old:2", "SECRET": "hunter2"}
    lab = found.lab(environment)
    ways = {name: connection_for(region, PROVER) for name, region in lab.clusters.items()}
    assert ways["old"].bootstrap_servers == ("old:1", "old:2")
    assert ways["new"].bootstrap_servers == ("new:9092",)
    assert ways["third"].password == "hunter2"
    assert "hunter2" not in f"{lab!r}{found!r}"
    assert [claim.subject["mirror"] for claim in lab.claims] == ["external/one", "external/two"]
    assert list(found.lab(environment, ["two"]).clusters) == ["old", "third"]
    with pytest.raises(WrongUseError, match=r"flows.yaml:6|third.*SECRET is not set"):
        found.lab({"OLD_BOOTSTRAP_SERVERS": "old:1"})
    with pytest.raises(WrongUseError, match="no environment variable begins with OLD_; set OLD_BOOTSTRAP_SERVERS"):
        found.lab({})
    with pytest.raises(WrongUseError, match="has no flow 'twoo'; did you mean 'two'"):
        found.lab(environment, ["twoo"])


def test_a_password_that_stands_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    for wrong in ("[hunter2]", "{x: hunter2}"):
        text = f"clusters:\n  old:\n    properties:\n      sasl.jaas.config: {wrong}\n"
        said = refused(tmp_path, text)
        assert "hunter2" not in said
        assert said == "flows.yaml:4: clusters.old.properties.sasl.jaas.config: " + (
            "expected a text, a number, or true or false"
        )


def test_results_are_beside_the_file_and_what_is_judged_is_kept(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"{CLUSTERS}flows:\n- {{source: old, target: new, topics: [a]}}\n"
        "judge: {order: report, settings: judge}\nresults: {json: out.json, junit: out.xml}\n",
    )
    assert found.results == {"json": tmp_path / "out.json", "junit": tmp_path / "out.xml"}
    assert (found.judge.order, found.judge.settings) == ("report", "judge")


def test_the_schema_in_the_documents_is_this_one() -> None:
    # python -m scripts.mirrorproof_schema writes it.
    assert json.loads((ROOT / "docs" / "mirrorproof.schema.json").read_text(encoding="utf-8")) == schema()


@pytest.mark.parametrize(
    ("absent", "there", "suggested"),
    [
        (["a", "b.c"], ["europe.a", "europe.b.c"], Suggestion({"policy": "default", "alias": "europe"}, 2)),
        (["a"], ["eu-a"], Suggestion({"policy": "default", "alias": "eu", "separator": "-"}, 1)),
        (["orders", "stock"], ["orders.v2", "stock.v2", "x"], Suggestion({"suffix": ".v2"}, 2)),
        (["orders", "stock"], ["orders", "stock"], Suggestion({"policy": "identity"}, 2)),
        (["orders"], ["prestock"], None),
        (["orders"], [], None),
    ],
)
def test_a_mapping_is_suggested(absent: list[str], there: list[str], suggested: Suggestion | None) -> None:
    assert suggest(absent, there) == suggested


def test_the_example_of_the_documents_is_a_configuration(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "mirrorproof-flows.md").read_text(encoding="utf-8")
    found = read(tmp_path, text.partition("```yaml\n")[2].partition("```")[0])
    shop, team, archive = found.mirrors
    assert target_topic(shop, "orders") == "europe.orders"
    assert target_topic(team, "team-a.b") == "a.v2.b"
    assert [target_topic(archive, topic) for topic in ("ledger", "x")] == ["ledger-of-2026", "x.archive"]
    (tmp_path / "old.properties").write_text("bootstrap.servers=old:9092\n", encoding="utf-8")
    lab = found.lab({"NEW_PASSWORD": "p", "ARCHIVE_BOOTSTRAP_SERVERS": "a:1"})
    assert connection_for(lab.clusters["new"], PROVER).password == "p"
