"""The form of server-sent events, without a server."""

import asyncio
from datetime import UTC, datetime

from api.events import Hub, Look, Stream, frame, last_event_id
from api.schemas import EventView
from api.wire import parse_frames

EVENT = EventView(
    id=7,
    at=datetime(2026, 1, 2, tzinfo=UTC),
    kind="progress",
    body={"text": "two\nlines", "share": 0.5},
)


def test_a_frame_read_back_is_the_event() -> None:
    """A line break in a value stays inside the one data line."""
    (read,) = parse_frames(iter(frame(EVENT).split("\n")))

    assert (read.id, read.event) == (7, "progress")
    assert "two\\nlines" in read.data


def test_a_resume_header_that_is_no_number_starts_at_the_beginning() -> None:
    """Nobody is refused for an odd header."""
    found = [last_event_id(text) for text in ("12", "-1", "x", "", None)]

    assert found == [12, 0, 0, 0, 0]


def test_a_quiet_stream_sends_comments_and_then_ends() -> None:
    """Keep-alive comments are no events; the end is one."""
    looks = iter([Look(events=(), over=None)] * 3 + [Look(events=(), over="done")])
    stream = Stream(
        hub=Hub(),
        noun="study",
        noun_id="1",
        look=lambda _: next(looks),
        poll_s=0.001,
        keepalive_s=0.0,
    )

    async def read() -> list[str]:
        return [text async for text in stream.frames(0)]

    frames = asyncio.run(read())

    assert frames[:3] == [": keep-alive\n\n"] * 3
    assert [item.event for item in parse_frames(iter("".join(frames).split("\n")))] == ["end"]
