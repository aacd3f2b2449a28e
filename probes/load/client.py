"""The streaming client: sends a plan's requests when they are due and notes what comes back."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from advisor.canonical import Json
from advisor.measurement.records import Outcome, RequestRecord
from probes.load.connection import Clock, Exchange
from probes.load.dispatch import Dispatcher, Due
from probes.load.endpoint import Endpoint
from probes.load.health import LoopWatch, ProcessHealth
from probes.load.plan import LoadPlan, PlannedRequest

# Refusals that another try may cure: too many requests, and servers that are away for a while.
_PASSING = ("http_429", "http_500", "http_502", "http_503", "http_504", "transport:", "timeout:con")


async def run_plan(
    plan: LoadPlan,
    *,
    on_record: Callable[[RequestRecord], None],
    clock: Clock = time.monotonic,
    start_s: float | None = None,
) -> ProcessHealth:
    """Send all requests of `plan`; `on_record` gets each record as its request ends.

    `start_s` is the moment on `clock` from which the schedule counts, None: now.
    """
    watch = LoopWatch(clock)
    load = _Load(plan, await Endpoint.of(plan), clock=clock, on_record=on_record)
    await load.run(clock() if start_s is None else start_s)
    return watch.stop(frames=load.frames, send_delays_s=load.send_delays_s)


@dataclass(slots=True)
class _Attempts:
    """The times of the attempts at one request."""

    first_sent_s: float
    last_sent_s: float
    count: int = 1


class _Load:
    """One run of a plan."""

    def __init__(
        self,
        plan: LoadPlan,
        endpoint: Endpoint,
        *,
        clock: Clock,
        on_record: Callable[[RequestRecord], None],
    ) -> None:
        self.frames = 0
        self.send_delays_s: list[float] = []
        self._plan = plan
        self._endpoint = endpoint
        self._clock = clock
        self._on_record = on_record
        self._news = asyncio.Event()
        # What the engine said, for the turns that quote it.
        self._said: dict[tuple[str, int], str] = {}
        self._quoted = {
            (request.session or "", answer.turn)
            for request in plan.requests
            for answer in request.history
        }

    async def run(self, start_s: float) -> None:
        """Send everything, from `start_s` on."""
        dispatcher = Dispatcher(self._plan.requests, self._plan.schedule, start_s=start_s)
        async with asyncio.TaskGroup() as group:
            while dispatcher.left:
                while (due := dispatcher.take(self._clock())) is not None:
                    group.create_task(self._one(due, dispatcher))
                if dispatcher.left:
                    await self._wait(dispatcher.wake_s())

    async def _wait(self, until_s: float | None) -> None:
        """Until that time, or until a request has ended."""
        timer = None
        if until_s is not None:
            delay_s = max(0.0, until_s - self._clock())
            timer = asyncio.get_running_loop().call_later(delay_s, self._news.set)
        await self._news.wait()
        self._news.clear()
        if timer is not None:
            timer.cancel()

    async def _one(self, due: Due, dispatcher: Dispatcher) -> None:
        request = self._plan.requests[due.index]
        record = await self._send(request, due)
        dispatcher.ended(due.index, record.end_s)
        self._news.set()
        self._on_record(record)

    async def _send(self, request: PlannedRequest, due: Due) -> RequestRecord:
        """All attempts at one request; a failure is a record, not an exception."""
        data = self._endpoint.request_bytes(request, self._body(request))
        could_s = due.could_s
        attempts: _Attempts | None = None
        while True:
            began_s = self._clock()
            exchange = await self._attempt(request, data)
            sent_s = began_s if exchange.sent_s is None else exchange.sent_s
            connected_s = sent_s if exchange.connected_s is None else exchange.connected_s
            # A loop that counts in milliseconds may end a sleep before a retry a little early.
            self.send_delays_s.append(max(0.0, began_s - could_s) + sent_s - connected_s)
            self.frames += exchange.answer.frames
            if attempts is None:
                attempts = _Attempts(first_sent_s=sent_s, last_sent_s=sent_s)
            else:
                attempts.count += 1
                attempts.last_sent_s = sent_s
            if not self._again(exchange, attempts.count):
                return self._record(request, due, exchange, attempts)
            could_s = exchange.end_s + self._plan.retry_wait_s * 2 ** (attempts.count - 1)
            await asyncio.sleep(max(0.0, could_s - self._clock()))

    def _again(self, exchange: Exchange, attempts: int) -> bool:
        error = exchange.answer.error
        if error is None or attempts > self._plan.retries:
            return False
        return error.startswith(_PASSING) and not exchange.answer.frame_times_s

    async def _attempt(self, request: PlannedRequest, data: bytes) -> Exchange:
        """One connection, from its opening to the end of the answer or to a limit."""
        plan = self._plan
        quoted = (request.session or "", request.turn or 0) in self._quoted
        exchange = Exchange(data, clock=self._clock, keep_content=quoted)
        try:
            async with asyncio.timeout(plan.connect_timeout_s):
                await self._endpoint.connect(exchange)
            limits = _Limits(exchange, plan, self._clock)
            await exchange.over
            limits.cancel()
            exchange.leave()
        except TimeoutError:
            exchange.fail("timeout:connect")
        except OSError as failure:
            exchange.fail(f"transport:{type(failure).__name__}")
        except asyncio.CancelledError:
            exchange.drop()
            raise
        return exchange

    def _body(self, request: PlannedRequest) -> dict[str, Json]:
        """The request's body, with what the engine said to the turns before."""
        body = dict(request.body)
        messages = body.get("messages")
        if not request.history or not isinstance(messages, list):
            return body
        messages = list(messages)
        for answer in request.history:
            said = self._said.get((request.session or "", answer.turn))
            recorded = messages[answer.message]
            # A turn that failed said nothing: its recorded answer stands.
            if said is not None and isinstance(recorded, dict):
                messages[answer.message] = {**recorded, "content": said}
        return body | {"messages": messages}

    def _record(
        self, request: PlannedRequest, due: Due, exchange: Exchange, attempts: _Attempts
    ) -> RequestRecord:
        seen = exchange.answer
        if seen.error is None and seen.keep_content:
            self._said[request.session or "", request.turn or 0] = "".join(seen.content)
        usage, times_s = seen.usage, tuple(seen.frame_times_s)
        sent_s = max(attempts.first_sent_s, due.intended_s)
        body = request.body
        return RequestRecord(
            request_id=request.request_id,
            label=request.label,
            outcome=Outcome.OK if seen.error is None else Outcome.FAILED,
            intended_s=due.intended_s,
            sent_s=sent_s,
            end_s=max(exchange.end_s, sent_s),
            first_token_s=times_s[0] if times_s else None,
            last_token_s=times_s[-1] if times_s else None,
            prompt_tokens=usage.prompt_tokens if usage else None,
            output_tokens=seen.output_tokens,
            cached_tokens=usage.cached_tokens if usage else None,
            finish_reason=seen.finish_reason,
            error=seen.error,
            frame_times_s=times_s,
            token_ids=None if seen.token_ids is None else tuple(seen.token_ids),
            frame_tokens=seen.tokens_by_frame,
            attempts=attempts.count,
            last_sent_s=attempts.last_sent_s if attempts.count > 1 else None,
            temperature=_number(body.get("temperature")),
            session=request.session,
            turn=request.turn,
            wanted_tokens=_whole(body.get("max_completion_tokens", body.get("max_tokens"))),
            accepted_histogram=seen.accepted_histogram,
        )


class _Limits:
    """Ends an exchange that has been silent, or has gone on, for too long."""

    def __init__(self, exchange: Exchange, plan: LoadPlan, clock: Clock) -> None:
        self._exchange = exchange
        self._idle_s = plan.idle_timeout_s
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers = [self._loop.call_later(plan.idle_timeout_s, self._look)]
        if plan.request_timeout_s is not None:
            self._timers.append(
                self._loop.call_later(plan.request_timeout_s, exchange.fail, "timeout:request")
            )

    def _look(self) -> None:
        # One timer per silence, not one per frame: it looks when the last bytes came.
        left_s = self._exchange.last_s + self._idle_s - self._clock()
        if left_s <= 0:
            self._exchange.fail("timeout:idle")
        else:
            self._timers[0] = self._loop.call_later(left_s, self._look)

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()


def _number(value: Json) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _whole(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
