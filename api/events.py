"""Progress as server-sent events: resumable by ``Last-Event-ID``, over when the noun is over.

The rows of `db.events` are the truth; a notification only says that looking again is worth it, and
a stream looks every `poll_s` seconds anyway.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from api.codec import json_text
from api.schemas import EventView

KEEP_ALIVE = ": keep-alive\n\n"


class Hub:
    """Wakes the streams of a noun when something was appended to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run on `loop` from now on."""
        self._loop = loop

    def notify(self, noun: str, noun_id: str) -> None:
        """Called by the listener's thread after a commit."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, (noun, noun_id))

    def _wake(self, name: tuple[str, str]) -> None:
        for event in self._waiting.get(name, ()):
            event.set()

    async def wait(self, noun: str, noun_id: str, timeout_s: float) -> None:
        """Until something was appended to the noun, or for `timeout_s`."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault((noun, noun_id), set())
        waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            return
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop((noun, noun_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look found: new events, and the noun's state if it is over."""

    events: tuple[EventView, ...]
    over: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One noun's events for one reader. `look` reads those after an id, in a worker thread."""

    hub: Hub
    noun: str
    noun_id: str
    look: Callable[[int], Look]
    poll_s: float
    keepalive_s: float

    async def frames(self, last_id: int) -> AsyncIterator[str]:
        """Frames from the event after `last_id` on; the last one is ``event: end``."""
        quiet_since = time.monotonic()
        while True:
            found = await run_in_threadpool(self.look, last_id)
            for event in found.events:
                last_id = event.id
                quiet_since = time.monotonic()
                yield frame(event)
            if found.events:
                continue
            if found.over is not None:
                yield f"event: end\ndata: {json.dumps({'state': found.over})}\n\n"
                return
            if time.monotonic() - quiet_since >= self.keepalive_s:
                quiet_since = time.monotonic()
                yield KEEP_ALIVE
            await self.hub.wait(self.noun, self.noun_id, self.poll_s)


def frame(event: EventView) -> str:
    """One event on the wire; JSON has no line breaks, so `data` is one line."""
    return f"id: {event.id}\nevent: {event.kind}\ndata: {json_text(event)}\n\n"


def last_event_id(header: str | None) -> int:
    """Where a stream resumes; a header that is no number of ours starts at the beginning."""
    return int(header) if header is not None and header.isascii() and header.isdigit() else 0
