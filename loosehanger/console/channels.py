"""Views that several viewers share: rendered once a second while a viewer is connected, and sent when they changed.

A viewer gets the newest rendering as soon as they can take one. Nothing is queued in between, so a slow viewer costs
no memory.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable

Render = Callable[[], Awaitable[str]]
TICK_S = 1.0


class _Channel:
    def __init__(self, render: Render) -> None:
        self._render = render
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self.viewers = 0
        self.content = ""

    async def enter(self) -> None:
        self.viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def wait_for_change(self, seen: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.content != seen)
        except TimeoutError:
            return

    async def _run(self) -> None:
        while self.viewers:
            started = time.monotonic()
            try:
                content = await self._render()
            except Exception:  # A defect in one rendering must not end the view; the log has the trace.
                traceback.print_exc()
                content = '<p class="problem">This view could not be rendered; see the console\'s log.</p>'
            if content != self.content:
                async with self._changed:
                    self.content = content
                    self._changed.notify_all()
            await asyncio.sleep(max(0.1, TICK_S - (time.monotonic() - started)))  # until the next second
        self._task = None


class Channels:
    """The views with at least one viewer."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], _Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    async def follow(self, name: tuple[str, str], render: Render, alive: Callable[[], bool]) -> AsyncIterator[str]:
        """Yields a view's current content, and its new content after each change.

        Args:
            name: the view and its subject; viewers of the same one share a rendering.
            render: renders the view.
            alive: whether the viewer may still see it; checked about once a second.
        """
        channel = self._channels.setdefault(name, _Channel(render))
        await channel.enter()
        seen = ""
        try:
            while alive():
                await channel.wait_for_change(seen, TICK_S)
                if channel.content != seen and alive():
                    seen = channel.content
                    yield seen
        finally:
            channel.viewers -= 1
            if not channel.viewers and self._channels.get(name) is channel:
                del self._channels[name]
