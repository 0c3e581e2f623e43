"""The scenarios' flowcharts: in each lab's text as the topology has it.

``LH_WRITE_GOLDEN=1 pytest tests/unit/test_diagram.py`` writes them into the texts anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from loosehanger.cli.commands import scenarios
from loosehanger.errors import WrongUseError
from loosehanger.lab.diagram import mermaid
from loosehanger.lab.scenario import read_scenario, scenario_names

BLOCK = re.compile(r"```mermaid\n(.*?)```\n", re.DOTALL)
SETUP = """\
- hosts: north:south
  roles:
    - role: kafka_cluster
- hosts: sea
  roles:
    - {role: producer, producer_cluster: north}
    - {role: consumer, consumer_cluster: south}
"""
MIRROR = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: mm2, namespace: south}
spec:
  target: {alias: south, bootstrapServers: south-kafka-bootstrap.south.svc:9098}
  mirrors:
    - source: {alias: north, bootstrapServers: north-kafka-bootstrap.north.svc:9098}
      topicsPattern: 'a"b\\..*'
      sourceConnector: {state: paused}
"""


@pytest.mark.parametrize("name", scenario_names())
def test_a_lab_shows_the_diagram_of_its_topology(name: str) -> None:
    scenario = read_scenario(name)
    readme = scenario.folder / "README.md"
    text = readme.read_text(encoding="utf-8")
    if os.environ.get("LH_WRITE_GOLDEN"):
        block = f"```mermaid\n{mermaid(scenario)}```\n"
        changed = BLOCK.sub(lambda _: block, text) if BLOCK.search(text) else text.replace("## ", f"{block}\n## ", 1)
        readme.write_text(changed, encoding="utf-8")
    assert BLOCK.findall(readme.read_text(encoding="utf-8")) == [mermaid(scenario)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario whose programs have no cluster in their region, with a mirror that begins paused."""
    made = tmp_path / "12-sea"
    (made / "manifests").mkdir(parents=True)
    (made / "scenario.yaml").write_text(
        "title: Sea\nteaches: Little.\ncontrol_room: north\ntopics: [LH.]\nstages: {setup: {next: ''}}\n",
        encoding="utf-8",
    )
    (made / "setup.yaml").write_text(SETUP, encoding="utf-8")
    (made / "manifests" / "mm2.yaml").write_text(MIRROR, encoding="utf-8")
    return made


def test_programs_reach_the_cluster_that_they_are_given_and_a_paused_mirror_is_dashed(folder: Path) -> None:
    assert mermaid(read_scenario("12-sea", folder.parent)).splitlines() == [
        "flowchart LR",
        '  subgraph north["north"]',
        '    north_kafka[("Kafka")]',
        "  end",
        '  subgraph south["south"]',
        '    south_kafka[("Kafka")]',
        '    south_mm2["mm2"]',
        "  end",
        '  subgraph sea["sea"]',
        '    sea_producer("producer")',
        '    sea_consumer("consumer")',
        "  end",
        "  sea_producer --> north_kafka",
        "  south_kafka --> sea_consumer",
        '  north_kafka -.->|"a#quot;b\\..*"| south_mm2',
        '  south_mm2 -.->|"north.…"| south_kafka',
    ]


def test_an_address_of_no_region_is_named_with_its_file(folder: Path) -> None:
    manifest = folder / "manifests" / "mm2.yaml"
    manifest.write_text(MIRROR.replace("north-kafka-bootstrap.north.svc:9098", "elsewhere:9092"), encoding="utf-8")
    with pytest.raises(WrongUseError, match=r"mm2\.yaml.*'elsewhere:9092' is not the address of a region's cluster"):
        mermaid(read_scenario("12-sea", folder.parent))


def test_the_command_prints_one_diagram(capsys: pytest.CaptureFixture[str]) -> None:
    assert scenarios(["--diagram", "03-broadcast"]) == 0
    assert capsys.readouterr().out == mermaid(read_scenario("03-broadcast"))
