"""What a region's cluster was asked: one answer for all who ask, and the last one while the next takes long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest

from loosehanger.console import cluster
from loosehanger.console.cluster import ClusterView
from loosehanger.console.models import Broker
from loosehanger.errors import UnreachableError, WrongUseError
from loosehanger.kafka import patches
from tests.consoles import NOWHERE


class SlowCluster(ClusterView):
    """A cluster that answers on request, with the number of the question."""

    def __init__(self) -> None:
        super().__init__("europe", NOWHERE)
        self.asked = 0
        self.down = False
        self.let = threading.Semaphore(0)

    def _brokers(self) -> list[Broker]:
        self.asked += 1
        number = self.asked
        self.let.acquire()
        if self.down:
            raise OSError("nothing is there")
        return [
            Broker(
                region="europe", node=number, host="nowhere", port=9092, rack=None, controller=True, leads=0,
                replicas=0, behind=0, bytes=0, health="good",
            )
        ]  # fmt: skip

    async def number(self) -> int:
        """The number of the question whose answer is shown."""
        (broker,) = await self.brokers()
        return broker.node


Scene = Callable[[SlowCluster], Awaitable[None]]


def play(scene: Scene) -> None:
    """Plays a scene with a cluster; whatever it still waits for is let go at the end."""

    async def whole() -> None:
        view = SlowCluster()
        try:
            async with asyncio.timeout(20):
                await scene(view)
        finally:
            view.let.release(100)
            view.close()

    asyncio.run(whole())


async def first(view: SlowCluster) -> None:
    """Asks for the first time."""
    view.let.release()
    assert await view.number() == 1


async def until_another(view: SlowCluster) -> None:
    """Asks until the answer differs from the first one: a thread has it, so there is nothing to wait for but time."""
    while await view.number() == 1:
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question after an answer is a new one."""
    monkeypatch.setattr(cluster, "FRESH_S", 0.0)
    monkeypatch.setattr(cluster, "REST", 0.0)


def test_who_asks_together_gets_one_answer() -> None:
    async def scene(view: SlowCluster) -> None:
        waiting = asyncio.gather(view.number(), view.number())
        await asyncio.sleep(0)  # Both have asked.
        view.let.release()
        assert tuple(await waiting) == (1, 1)
        assert view.asked == 1

    play(scene)


def test_the_last_answer_will_do_while_the_next_one_takes_long() -> None:
    async def scene(view: SlowCluster) -> None:
        await first(view)
        reported = view.answered_at("brokers")
        assert await view.number() == 1
        assert view.answered_at("brokers") == reported
        view.let.release()
        await until_another(view)
        assert view.answered_at("brokers") > reported

    play(scene)


def test_an_answer_that_is_too_old_will_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(view: SlowCluster) -> None:
        await first(view)
        monkeypatch.setattr(cluster, "STALE_S", 0.0)
        waiting = asyncio.ensure_future(view.number())
        view.let.release()
        assert await waiting == 2

    play(scene)


def test_an_answer_that_took_long_does_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(view: SlowCluster) -> None:
        waiting = asyncio.ensure_future(view.number())
        await asyncio.sleep(0.05)
        view.let.release()
        assert await waiting == 1
        view.let.release(10)
        assert await view.number() == 1
        assert view.asked == 1
        monkeypatch.setattr(cluster, "REST", 0.0)
        await until_another(view)

    monkeypatch.setattr(cluster, "REST", 100.0)
    play(scene)


def test_settings_of_all_topics_are_read_again_after_a_rest_a_new_topic_or_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, read = ClusterView("europe", NOWHERE), list[list[str]]()

    def settings(topics: list[str], _: str) -> tuple[dict[str, object], dict[str, object]]:
        read.append(topics)
        return {}, {}

    monkeypatch.setattr(view, "_settings", settings)
    monkeypatch.setattr(view, "_change", lambda *_: None)
    monkeypatch.setattr(cluster, "SETTINGS_REST", 1e9)
    for names in (["A"], ["A"], ["A", "B"]):
        view._modified_settings(names)
    assert read == [["A"], ["A", "B"]]
    asyncio.run(view.change("A", {}))
    view._modified_settings(["A", "B"])
    assert len(read) == 3
    monkeypatch.setattr(cluster, "SETTINGS_REST", 0.0)
    view._modified_settings(["A", "B"])
    assert len(read) == 4
    view.close()


def test_a_cluster_that_is_gone_is_told_as_soon_as_it_is_known() -> None:
    async def scene(view: SlowCluster) -> None:
        await first(view)
        view.down = True
        assert await view.number() == 1
        view.let.release(100)
        with pytest.raises(UnreachableError, match="europe: Kafka does not answer"):
            await until_another(view)

    play(scene)


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        (
            "retention.mss",
            ["retention.ms"],
            r"europe: A: 'retention\.mss' is not a setting of a topic; did you",
        ),
        ("foo", ["retention.ms"], "'foo' is not a setting of a topic$"),
        ("retention.ms", ["retention.ms"], ""),
        ("foo", [], ""),
    ],
)
def test_a_setting_that_topics_do_not_have_cannot_be_unset(
    monkeypatch: pytest.MonkeyPatch, name: str, known: list[str], said: str
) -> None:
    monkeypatch.setattr(patches, "topic_configs", lambda *_: ({"A": {key: {} for key in known}}, {}))
    with pytest.raises(WrongUseError, match=said) if said else nullcontext():
        patches.check_settings(None, "A", [name], "europe: A")


def test_what_was_known_before_a_change_is_not_told_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(view: SlowCluster) -> None:
        await first(view)
        assert await view.number() == 1
        view.let.release()  # The second question's answer, which was asked before the change.
        monkeypatch.setattr(view, "_change", lambda *_: None)
        await view.change("LH.ORDERS", {})
        view.let.release()
        assert await view.number() == 3

    play(scene)
