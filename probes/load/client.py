"""The streaming client: sends a plan's requests and notes when their tokens arrive.

It reads the socket itself (asyncio and h11, no layers between) because it shares the processor
with the engine's front end. Every request has a connection of its own and is sent once: no stale
connection, so no retry that would hide a failure (case S-08).
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import h11

from advisor.measurement.records import Outcome, RequestRecord
from probes.load.plan import LoadPlan, PlannedRequest
from probes.load.sse import EventStream, Frame, Usage, error_kind

_READ_BYTES = 1 << 16
_OK = 200

Clock = Callable[[], float]


class RequestFailed(Exception):
    """A request that got no complete answer; `kind` goes into its record."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass
class _Progress:
    """What was seen of one request so far."""

    frame_times_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    has_ids: bool = False
    usage: Usage | None = None
    finish_reason: str | None = None
    done: bool = False

    def add(self, frame: Frame, at_s: float) -> None:
        if frame.carries_token:
            self.frame_times_s.append(at_s)
        if frame.token_ids is not None:
            self.has_ids = True
            self.token_ids += frame.token_ids
        self.usage = frame.usage or self.usage
        self.finish_reason = frame.finish_reason or self.finish_reason
        self.done = self.done or frame.done
        if frame.error is not None:
            raise RequestFailed(frame.error)

    @property
    def output_tokens(self) -> int | None:
        """The engine's usage wins, then its token ids (case S-21); frames are never counted."""
        if self.usage is not None and self.usage.completion_tokens is not None:
            return self.usage.completion_tokens
        return len(self.token_ids) if self.has_ids else None


async def run_plan(
    plan: LoadPlan, *, on_record: Callable[[RequestRecord], None], clock: Clock = time.monotonic
) -> None:
    """Send all requests of `plan`; `on_record` gets each record as its request ends."""
    if plan.schedule.gang:
        await _gangs(plan, on_record=on_record, clock=clock)
        return
    start_s = clock()
    waiting = iter(enumerate(plan.requests))
    slots = min(plan.schedule.concurrency, len(plan.requests))
    async with asyncio.TaskGroup() as group:
        for _ in range(slots):
            group.create_task(
                _slot(plan, waiting, start_s=start_s, on_record=on_record, clock=clock)
            )


async def _gangs(
    plan: LoadPlan, *, on_record: Callable[[RequestRecord], None], clock: Clock
) -> None:
    """One gang after the other; a gang is free to go when the last of the one before has ended."""
    free_s = clock()

    async def tell(request: PlannedRequest, intended_s: float) -> float:
        record = await send(plan, request, intended_s=intended_s, clock=clock)
        on_record(record)
        return record.end_s

    size = plan.schedule.concurrency
    for first in range(0, len(plan.requests), size):
        gang = plan.requests[first : first + size]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(tell(request, free_s)) for request in gang]
        free_s = max(task.result() for task in tasks)


async def _slot(
    plan: LoadPlan,
    waiting: Iterator[tuple[int, PlannedRequest]],
    *,
    start_s: float,
    on_record: Callable[[RequestRecord], None],
    clock: Clock,
) -> None:
    free_s = start_s
    for index, request in waiting:
        intended_s = plan.schedule.intended_s(index, start_s=start_s, free_s=free_s)
        await asyncio.sleep(max(0.0, intended_s - clock()))
        record = await send(plan, request, intended_s=intended_s, clock=clock)
        free_s = record.end_s
        on_record(record)


async def send(
    plan: LoadPlan, request: PlannedRequest, *, intended_s: float, clock: Clock = time.monotonic
) -> RequestRecord:
    """Send one request and read its answer to the end; a failure is a record, not an exception."""
    seen = _Progress()
    error = None
    sent_s = max(clock(), intended_s)
    try:
        await _exchange(plan, request, seen, clock)
    except RequestFailed as failure:
        error = failure.kind
    except TimeoutError:
        error = "timeout:idle"
    except (OSError, h11.ProtocolError) as failure:
        error = f"transport:{type(failure).__name__}"
    usage = seen.usage
    return RequestRecord(
        request_id=request.request_id,
        label=request.label,
        outcome=Outcome.OK if error is None else Outcome.FAILED,
        intended_s=intended_s,
        sent_s=sent_s,
        end_s=max(clock(), sent_s),
        first_token_s=seen.frame_times_s[0] if seen.frame_times_s else None,
        last_token_s=seen.frame_times_s[-1] if seen.frame_times_s else None,
        prompt_tokens=usage.prompt_tokens if usage else None,
        output_tokens=seen.output_tokens,
        cached_tokens=usage.cached_tokens if usage else None,
        finish_reason=seen.finish_reason,
        error=error,
        frame_times_s=tuple(seen.frame_times_s),
        token_ids=tuple(seen.token_ids) if seen.has_ids else None,
    )


async def _exchange(plan: LoadPlan, request: PlannedRequest, seen: _Progress, clock: Clock) -> None:
    reader, writer = await _connect(plan)
    try:
        connection = h11.Connection(our_role=h11.CLIENT)
        writer.write(_request_bytes(connection, plan, request))
        await writer.drain()
        await _read_answer(connection, reader, seen, plan=plan, clock=clock)
    finally:
        # Closing before the end of the stream tells the engine to drop the request.
        writer.close()


async def _connect(plan: LoadPlan) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(plan.connect_timeout_s):
            return await asyncio.open_connection(plan.host, plan.port)
    except TimeoutError:
        raise RequestFailed("timeout:connect") from None


def _request_bytes(connection: h11.Connection, plan: LoadPlan, request: PlannedRequest) -> bytes:
    body = json.dumps(request.body, ensure_ascii=False).encode()
    head = h11.Request(
        method="POST",
        target=request.path,
        headers=[
            ("Host", f"{plan.host}:{plan.port}"),
            ("Content-Type", "application/json"),
            ("Accept", "text/event-stream"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ],
    )
    parts = [connection.send(head), connection.send(h11.Data(data=body))]
    parts.append(connection.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)


async def _read_answer(
    connection: h11.Connection,
    reader: asyncio.StreamReader,
    seen: _Progress,
    *,
    plan: LoadPlan,
    clock: Clock,
) -> None:
    stream = EventStream()
    streaming = False
    whole = bytearray()
    status = _OK
    async for event, at_s in _events(connection, reader, plan.idle_timeout_s, clock):
        if isinstance(event, h11.Response):
            status = event.status_code
            streaming = status == _OK and b"event-stream" in dict(event.headers).get(
                b"content-type", b""
            )
        elif isinstance(event, h11.Data) and streaming:
            for frame in stream.feed(bytes(event.data)):
                seen.add(frame, at_s)
        elif isinstance(event, h11.Data):
            whole += event.data
    if not streaming:
        raise RequestFailed(_refusal(status, bytes(whole)))
    if not seen.done:
        raise RequestFailed("stream:truncated")


async def _events(
    connection: h11.Connection, reader: asyncio.StreamReader, idle_timeout_s: float, clock: Clock
) -> AsyncIterator[tuple[h11.Event, float]]:
    """Events of the answer with the time at which their bytes arrived."""
    at_s = clock()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(idle_timeout_s):
                chunk = await reader.read(_READ_BYTES)
            at_s = clock()
            connection.receive_data(chunk)
        elif isinstance(event, h11.ConnectionClosed | h11.EndOfMessage):
            return
        elif isinstance(event, h11.Response | h11.Data):
            yield event, at_s


def _refusal(status: int, body: bytes) -> str:
    """Why an answer is no stream: its HTTP status, or an error inside a 200 (case S-07)."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    error = document.get("error", document) if isinstance(document, dict) else None
    kind = error_kind(error)
    if status != _OK:
        return f"http_{status}" if kind == "unnamed" else f"http_{status}:{kind}"
    return f"in_band:{kind}" if error is not None else "not_a_stream"
