"""A machine with known effects in virtual time: what the planner's tests measure on.

Its step time is a smooth maximum of a fixed part and a power of the tokens, which is no form that
the recommender fits. Nothing in `advisor` imports it. Load points go through the same summary as
those of a real engine.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.measurement.latency import quantiles
from advisor.measurement.points import summarise_point
from advisor.measurement.records import EngineCounters, HostLoad, LoadPoint, Outcome, RequestRecord
from advisor.recommender.evidence import PointPlan, StudyEvidence, TrialEvidence, TrialPlan
from advisor.recommender.planner import Finished, next_step
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES, Technique
from advisor.traffic.trace import (
    ClassSummary,
    CountSource,
    LookupAcceptance,
    PrefixSharing,
    TrafficSummary,
)

DEFAULT_SLOTS = 128
QUIET = HostLoad(
    load_average_before=0.1,
    load_average_after=0.1,
    neighbour_cpu_s=0.0,
    neighbours=(),
    steal_share=0.0,
    disturbed=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of the world's traffic."""

    label: str
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Planted truth. A step of n decoded or verified and p prompt tokens takes

    ``factor[dtype] * ((fixed^3 + (token * n)^3)^(1/3) + prompt * p^0.95)`` seconds, times noise.
    `shared` is the share of prompt tokens that a prefix cache serves; `acceptance` is the chance
    per class that a draft token is accepted after those before it.
    """

    fixed_s: float = 0.020
    token_s: float = 0.0011
    prompt_s: float = 0.0006
    dtype_factor: Mapping[str, float] = field(default_factory=lambda: {"float32": 1.6})
    shared: float = 0.6
    acceptance: Mapping[str, float] = field(default_factory=lambda: {"copy": 0.8, "prose": 0.0})
    draft_s: float = 0.0004
    start_sd: float = 0.008
    point_sd: float = 0.006
    start_s: float = 30.0
    failing: frozenset[str] = frozenset()
    disturbed: frozenset[str] = frozenset()

    def step_s(self, *, decoded: float, prompt: float, config: ServingConfig) -> float:
        """Seconds of one step."""
        decode = math.cbrt(math.pow(self.fixed_s, 3) + math.pow(self.token_s * decoded, 3))
        drafting = self.draft_s if config.levers.speculative_config is not None else 0.0
        factor = self.dtype_factor.get(config.levers.dtype or "auto", 1.0)
        return factor * (decode + drafting + self.prompt_s * math.pow(prompt, 0.95))


def requests(count: int = 48, seed: int = 0) -> tuple[PlannedRequest, ...]:
    """A mixed sample, half copying and half prose, shuffled by `seed`."""
    rng = np.random.default_rng(seed)
    labels = ["copy" if index % 2 else "prose" for index in range(count)]
    rng.shuffle(labels)
    return tuple(
        PlannedRequest(
            label=label,
            prompt_tokens=int(rng.integers(30, 200)),
            output_tokens=int(rng.integers(6, 30)),
        )
        for label in labels
    )


@dataclass(slots=True)
class _Running:
    request: PlannedRequest
    index: int
    sent_s: float
    left: int
    frames_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Loop:
    """One closed loop in virtual time on one started engine."""

    world: World
    config: ServingConfig
    rng: np.random.Generator
    speed: float
    now_s: float = 0.0
    steps: int = 0
    drafts: int = 0
    accepted: int = 0
    positions: list[int] = field(default_factory=list)

    def run(self, traffic: tuple[PlannedRequest, ...], concurrency: int) -> list[RequestRecord]:
        """Serve all of `traffic` with so many in flight, first come first served."""
        coming = list(enumerate(traffic))[::-1]
        waiting: list[_Running] = []
        running: list[_Running] = []
        records: list[RequestRecord] = []
        slots = self.config.levers.max_num_seqs or DEFAULT_SLOTS
        while coming or waiting or running:
            while coming and len(waiting) + len(running) < concurrency:
                index, request = coming.pop()
                waiting.append(_Running(request, index, self.now_s, request.output_tokens))
            new = waiting[: max(0, slots - len(running))]
            waiting = waiting[len(new) :]
            self._step(running, new)
            running += new
            records += [self._record(item) for item in running if item.left <= 0]
            running = [item for item in running if item.left > 0]
        return records

    def _step(self, decoding: list[_Running], new: list[_Running]) -> None:
        speculation = self.config.levers.speculative_config
        length = speculation.num_speculative_tokens if speculation else 0
        caching = self.config.levers.enable_prefix_caching is not False
        share = self.world.shared if caching else 0.0
        prompt = sum(item.request.prompt_tokens for item in new) * (1 - share)
        decoded = len(decoding) * (1 + length) + len(new)
        duration = self.world.step_s(decoded=decoded, prompt=prompt, config=self.config)
        self.now_s += duration * self.speed
        self.steps += 1
        for item in decoding:
            item.left -= 1 + self._accept(item.request, length)
            item.frames_s.append(self.now_s)
        for item in new:
            item.left -= 1
            item.frames_s.append(self.now_s)

    def _accept(self, request: PlannedRequest, length: int) -> int:
        if not length:
            return 0
        self.positions = self.positions or [0] * length
        self.drafts += 1
        taken = 0
        while taken < length and self.rng.random() < self.world.acceptance[request.label]:
            self.positions[taken] += 1
            taken += 1
        self.accepted += taken
        return taken

    def _record(self, item: _Running) -> RequestRecord:
        return RequestRecord(
            request_id=str(item.index),
            label=item.request.label,
            outcome=Outcome.OK,
            intended_s=item.sent_s,
            sent_s=item.sent_s,
            end_s=self.now_s,
            first_token_s=item.frames_s[0],
            last_token_s=item.frames_s[-1],
            prompt_tokens=item.request.prompt_tokens,
            output_tokens=item.request.output_tokens,
            finish_reason="length",
            frame_times_s=tuple(item.frames_s),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A world with traffic: runs trials as an agent does, in virtual time."""

    world: World
    traffic: tuple[PlannedRequest, ...]
    rng: np.random.Generator

    def trial(self, plan: TrialPlan) -> TrialEvidence:
        """Start an engine and measure every planned load point."""
        if plan.key in self.world.failing:
            return TrialEvidence(plan=plan, state=TrialState.FAILED, failure_kind="out_of_memory")
        start = math.exp(self.rng.normal(0, self.world.start_sd))
        points = tuple(self.point(plan, point, start) for point in plan.points)
        return TrialEvidence(
            plan=plan,
            state=TrialState.DONE,
            facts=EngineFacts(start_s=self.world.start_s, weight_bytes=1000, kv_cache_bytes=2000),
            points=points,
        )

    def point(self, plan: TrialPlan, point: PointPlan, start: float = 1.0) -> LoadPoint:
        """One load point on a running engine whose start was `start` times slower."""
        speed = start * math.exp(self.rng.normal(0, self.world.point_sd))
        loop = Loop(world=self.world, config=plan.config, rng=self.rng, speed=speed)
        records = loop.run(self.traffic[: point.requests], point.concurrency)
        speculation = plan.config.levers.speculative_config
        length = speculation.num_speculative_tokens if speculation else 0
        counters = EngineCounters(
            prompt_tokens=sum(record.prompt_tokens or 0 for record in records),
            generation_tokens=sum(record.output_tokens or 0 for record in records),
            engine_steps=loop.steps,
            prefix_queries=0,
            prefix_hits=0,
            preemptions=0,
            drafts=loop.drafts,
            draft_tokens=loop.drafts * length,
            accepted=loop.accepted,
            accepted_per_position=tuple(loop.positions),
            peak_kv_usage=0.25,
            peak_running=None,
            peak_waiting=None,
        )
        return summarise_point(
            concurrency=point.concurrency,
            repeat=point.repeat,
            subset_digest=f"first {point.requests}",
            records=records,
            counters=counters,
            host=replace(QUIET, disturbed=plan.key in self.world.disturbed),
            num_speculative_tokens=length or None,
        )


def laboratory(world: World, *, seed: int = 0) -> Lab:
    """A lab with the usual traffic."""
    return Lab(world=world, traffic=requests(), rng=np.random.default_rng(seed))


def study(
    world: World,
    *,
    seed: int = 0,
    evidence: StudyEvidence | None = None,
    techniques: tuple[Technique, ...] = TECHNIQUES,
) -> StudyEvidence:
    """A whole study: plan, measure, plan again, until the planner says that it is finished."""
    known = evidence or begin()
    lab = laboratory(world, seed=seed)
    while not isinstance(plan := next_step(known, techniques=techniques), Finished):
        done = lab.trial(plan)
        took_s = world.start_s + sum(point.duration_s for point in done.points)
        known = replace(known, trials=(*known.trials, done), spent_s=known.spent_s + took_s)
    return known


def begin(
    *,
    goal: Goal | None = None,
    baseline: ServingConfig | None = None,
    budget_s: float = 3600.0,
    traffic: TrafficSummary | None = None,
) -> StudyEvidence:
    """A study before its first trial."""
    return StudyEvidence(
        goal=goal or Goal(concurrency=16),
        baseline=baseline or ServingConfig(),
        model=MODEL,
        device=DEVICE,
        traffic=traffic or summary(),
        trials=(),
        budget_s=budget_s,
        spent_s=0.0,
        requests_per_point=48,
        workload_digest="w" * 64,
        model_digest="m" * 64,
        engine_version="0.32.0",
    )


def summary(*, with_text: bool = True, lengths: bool = True) -> TrafficSummary:
    """What an upload of the world's traffic would say."""
    sample = requests()
    overall = ClassSummary(
        label="all",
        requests=len(sample),
        prompt_tokens=quantiles([r.prompt_tokens for r in sample]) if lengths else None,
        output_tokens=quantiles([r.output_tokens for r in sample]) if lengths else None,
        prefix_sharing=_sharing(sample) if with_text else None,
        lookup=_lookup(sample) if with_text else None,
    )
    return TrafficSummary(
        requests=len(sample),
        with_text=len(sample) if with_text else 0,
        sessions=0,
        count_source=CountSource.TOKENISED if lengths else CountSource.UNKNOWN,
        overall=overall,
        classes=(),
        arrivals=None,
    )


def _sharing(sample: tuple[PlannedRequest, ...]) -> PrefixSharing:
    tokens = sum(request.prompt_tokens for request in sample)
    return PrefixSharing(
        block_size=16,
        hit_share=estimate(0.6, 0.5, 0.7),
        hit_tokens=int(0.6 * tokens),
        prompt_tokens=tokens,
    )


def _lookup(sample: tuple[PlannedRequest, ...]) -> LookupAcceptance:
    return LookupAcceptance(
        num_speculative_tokens=4,
        requests=len(sample),
        decode_steps=1000,
        drafts=600,
        draft_tokens=2400,
        accepted=700,
        per_position=(0.4, 0.3, 0.25, 0.2),
        coverage=0.6,
        tokens_per_step=estimate(1.7, 1.5, 1.9),
    )


def estimate(value: float, low: float, high: float) -> Estimate:
    """A measured number with an interval."""
    return Estimate(value=value, low=low, high=high, source=Source.MEASURED, basis="planted")


MODEL = ModelShape(
    architecture="LlamaForCausalLM",
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
    tied_embeddings=True,
    attention_bias=False,
    qk_norm=False,
    max_position_embeddings=8192,
    dtype="bfloat16",
)
DEVICE = DeviceFacts(
    name="planted",
    kind="cpu",
    threads=2,
    memory_bytes=24 << 30,
    bandwidth_bytes_per_s=estimate(18e9, 16e9, 20e9),
    matrix_rate_flops_per_s={
        "bfloat16": estimate(150e9, 140e9, 160e9),
        "float32": estimate(100e9, 95e9, 105e9),
    },
)
