"""A planted engine in virtual time: what a load would measure, without processes or waiting."""

from collections import deque
from dataclasses import asdict

from advisor.measurement.records import EngineCounters, Outcome, RequestRecord
from advisor.serving import NgramSpeculation, ServingConfig
from probes.load.plan import LoadPlan, PlannedRequest
from tests.fakes.planted_core import Counters, PlantedCore
from tests.fakes.planted_text import prompt_of
from tests.fakes.planted_truth import Truth, settings


def planted_core(truth: Truth, config: ServingConfig) -> PlantedCore:
    """A freshly started engine; keep it for several loads of one start."""
    chosen: dict[str, object] = {}
    for name, value in config.overrides().items():
        chosen[name] = asdict(value) if isinstance(value, NgramSpeculation) else value
    if config.functional.max_model_len is not None:
        chosen["max_model_len"] = config.functional.max_model_len
    return PlantedCore(truth, settings(truth, chosen))


def replay(core: PlantedCore, plan: LoadPlan) -> tuple[list[RequestRecord], EngineCounters]:
    """The load of `plan` (a closed loop, or gangs) on `core`, with an empty prefix cache first.

    Time 0 is the start of the load; the records are those of a client that costs nothing, but
    lets through no more than the truth's ``client_limit`` at a time.
    """
    core.pool.forget()
    load = _Load(core, plan)
    before = asdict(core.counters)
    load.run()
    return load.records, _difference(before, asdict(core.counters), load)


class _Load:
    def __init__(self, core: PlantedCore, plan: LoadPlan) -> None:
        self.records: list[RequestRecord] = []
        self.peak_kv_usage = 0.0
        self.peak_running = 0
        self.peak_waiting = 0
        self._core = core
        self._plan = plan
        self._waiting = iter(plan.requests)
        self._held_back: deque[PlannedRequest] = deque()
        self._now_s = 0.0
        self._sent_s: dict[str, float] = {}
        self._times_s: dict[str, list[float]] = {}
        self._ids: dict[str, list[int]] = {}
        self._frames: dict[str, list[int]] = {}

    def run(self) -> None:
        """Step the engine until every request is answered."""
        self._fill()
        while not self._core.idle:
            duration_s, outputs = self._core.step()
            self._now_s += duration_s
            self.peak_kv_usage = max(self.peak_kv_usage, self._core.kv_usage)
            self.peak_running = max(self.peak_running, len(self._core.running))
            self.peak_waiting = max(self.peak_waiting, len(self._core.waiting))
            for output in outputs:
                self._times_s[output.key].append(self._now_s)
                self._ids[output.key] += output.token_ids
                self._frames[output.key].append(len(output.token_ids))
                if output.finish is not None:
                    self._record(output.key, output.finish, output.cached_tokens)
            self._fill()

    def _fill(self) -> None:
        """Send until the plan's number is in flight, and pass on what the client lets through."""
        busy = self._plan.schedule.gang and bool(self._sent_s)
        slots = self._plan.schedule.concurrency or len(self._plan.requests)
        slots = self._plan.schedule.concurrency or len(self._plan.requests)
        while not busy and len(self._sent_s) < slots:
            request = next(self._waiting, None)
            if request is None:
                break
            self._sent_s[request.request_id] = self._now_s
            self._held_back.append(request)
        limit = self._core.truth.client_limit or len(self._plan.requests)
        while self._held_back and len(self._times_s) < limit:
            self._submit(self._held_back.popleft())

    def _submit(self, request: PlannedRequest) -> None:
        prompt, text = prompt_of(request.body, self._core.truth.vocab_size)
        self._core.submit(
            request.request_id,
            prompt,
            text,
            limit=int(str(request.body["max_tokens"])),
            ignore_eos=bool(request.body.get("ignore_eos")),
        )
        self._times_s[request.request_id] = []
        self._ids[request.request_id] = []
        self._frames[request.request_id] = []

    def _record(self, key: str, finish: str, cached_tokens: int) -> None:
        request = next(item for item in self._plan.requests if item.request_id == key)
        prompt, _ = prompt_of(request.body, self._core.truth.vocab_size)
        times_s = self._times_s.pop(key)
        ids = self._ids.pop(key)
        sent_s = self._sent_s.pop(key)
        self.records.append(
            RequestRecord(
                request_id=key,
                label=request.label,
                outcome=Outcome.OK,
                intended_s=sent_s,
                sent_s=sent_s,
                end_s=self._now_s,
                first_token_s=times_s[0],
                last_token_s=times_s[-1],
                prompt_tokens=len(prompt),
                output_tokens=len(ids),
                cached_tokens=cached_tokens,
                finish_reason=finish,
                frame_times_s=tuple(times_s),
                token_ids=tuple(ids),
                frame_tokens=tuple(self._frames.pop(key)),
            )
        )


def _difference(
    before: dict[str, int | list[int]], after: dict[str, int | list[int]], load: _Load
) -> EngineCounters:
    grown = Counters()
    for name, value in after.items():
        old = before[name]
        if isinstance(value, list) and isinstance(old, list):
            setattr(grown, name, [new - was for was, new in zip(old, value, strict=True)])
        elif isinstance(value, int) and isinstance(old, int):
            setattr(grown, name, value - old)
    return EngineCounters(
        prompt_tokens=grown.prompt_tokens,
        generation_tokens=grown.generation_tokens,
        engine_steps=grown.steps,
        prefix_queries=grown.prefix_queries,
        prefix_hits=grown.prefix_hits,
        preemptions=grown.preemptions,
        drafts=grown.drafts,
        draft_tokens=grown.draft_tokens,
        accepted=grown.accepted,
        accepted_per_position=tuple(grown.per_position),
        peak_kv_usage=load.peak_kv_usage,
        peak_running=load.peak_running,
        peak_waiting=load.peak_waiting,
    )
