"""The parts of ``mirrorproof demo`` that need no broker: its jars, and the copier's mistakes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from loosehanger.errors import WrongUseError
from loosehanger.mirrorproof import connector, demo_broker, demo_copier, places


def test_the_demo_takes_the_brokers_jars_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        WrongUseError, match=r"kafka/.*jar is missing or is another file; mirrorproof jars FOLDER --demo"
    ):
        demo_broker.broker_jars(None, {places.JARS: str(tmp_path)})
    with pytest.raises(WrongUseError, match="is not an installation of Kafka 4"):
        demo_broker.broker_jars(tmp_path, {})
    jar = tmp_path / "libs" / "kafka_2.13-4.1.0.jar"
    jar.parent.mkdir()
    jar.touch()
    assert demo_broker.broker_jars(tmp_path, {}) == [jar]
    names = {jar.artifact for jar in connector.broker()}
    assert {"kafka_2.13", "kafka-clients", "kafka-metadata", "commons-validator"} <= names
    assert not [name for name in names if name.startswith(("connect-", "jersey-", "jetty-"))]


@pytest.mark.parametrize(("mistake", "values"), [(None, 1), ("lost", 0), ("changed", 1), ("doubled", 2)])
def test_the_copier_of_the_demo_makes_one_kind_of_mistake(mistake: demo_copier.Mistake | None, values: int) -> None:
    def copied(topic: str, offset: int) -> list[bytes]:
        record = SimpleNamespace(topic=topic, offset=offset, value=b'{"amount": "1.99"}')
        return demo_copier._copies(record, mistake)

    assert len(copied("orders", 250)) == values
    assert (copied("orders", 250) == [b'{"amount": "1.98"}']) == (mistake == "changed")
    for topic, offset in (("orders", 0), ("orders", 249), ("payments", 250)):
        assert copied(topic, offset) == [b'{"amount": "1.99"}']
