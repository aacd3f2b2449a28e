"""Studies on a planted machine in virtual time: what the planner's tests measure on.

Load points go through the same summary as those of a real engine.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import dense_model
from advisor.measurement.latency import quantiles
from advisor.measurement.points import summarise_point
from advisor.measurement.records import (
    EngineCounters,
    HostLoad,
    LoadPoint,
    LoadRole,
    QualityAnswer,
    QualityPass,
    QualityRecord,
)
from advisor.recommender.evidence import (
    PointPlan,
    QualityPlan,
    StudyEvidence,
    StudyOptions,
    TrialEvidence,
    TrialPlan,
)
from advisor.recommender.ladder import open_points
from advisor.recommender.planner import Finished, next_step
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES, Technique
from advisor.traffic.figures import (
    ClassSummary,
    CountSource,
    LookupAcceptance,
    PrefixSharing,
    TrafficSummary,
)
from advisor.traffic.statistics.gangs import static_speedup
from tests.fakes.planted_loop import (
    DEFAULT_SLOTS,
    Loop,
    PlannedRequest,
    World,
    requests,
    spread_requests,
)

__all__ = [
    "DEVICE",
    "DEVICE_INT8",
    "MODEL",
    "QUIET",
    "Lab",
    "World",
    "begin",
    "estimate",
    "study",
    "summary",
]

VOCABULARY = 1000
USUAL_KV_TOKENS = 100_000
QUIET = HostLoad(
    load_average_before=0.1,
    load_average_after=0.1,
    neighbour_cpu_s=0.0,
    neighbours=(),
    steal_share=0.0,
    disturbed=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A world with traffic: runs trials as an agent does, in virtual time."""

    world: World
    traffic: tuple[PlannedRequest, ...]
    rng: np.random.Generator

    def trial(self, plan: TrialPlan) -> TrialEvidence:
        """Start an engine, measure every planned load point that is still open, ask for answers."""
        if plan.key in self.world.failing:
            return TrialEvidence(plan=plan, state=TrialState.FAILED, failure_kind="out_of_memory")
        if not self.world.held_out and any(p.role is LoadRole.HELD_OUT for p in plan.points):
            return TrialEvidence(
                plan=plan, state=TrialState.SKIPPED, failure_detail="no request is held out"
            )
        start = math.exp(self.rng.normal(0, self.world.start_sd))
        points: list[LoadPoint] = []
        while coming := open_points(plan, points):
            points.append(self.point(plan, coming[0], start))
        return TrialEvidence(
            plan=plan,
            state=TrialState.DONE,
            facts=EngineFacts(
                start_s=self.world.start_s,
                weight_bytes=1000,
                kv_cache_bytes=2000,
                kv_cache_tokens=self.world.kv_tokens or USUAL_KV_TOKENS,
                max_num_seqs=plan.config.levers.max_num_seqs or DEFAULT_SLOTS,
                max_model_len=2048,
                block_size=16,
            ),
            points=tuple(points),
            quality=None if plan.quality is None else self.answers(plan.config, plan.quality),
        )

    def answers(self, config: ServingConfig, plan: QualityPlan) -> QualityRecord:
        """Passes over the quality prompts; the truth of a position depends on its place alone."""
        flips = 0.0 if config.levers.quantization is None else self.world.flips
        return QualityRecord(
            passes=tuple(
                QualityPass(
                    subset_digest=f"first {plan.requests}",
                    answers=tuple(
                        self._answer(place, plan.max_tokens, flips)
                        for place in range(plan.requests)
                    ),
                )
                for _ in range(plan.passes)
            )
        )

    def _answer(self, place: int, length: int, flips: float) -> QualityAnswer:
        truth = np.random.default_rng(place).integers(0, VOCABULARY, size=length)
        flipped = self.rng.random(length) < flips
        forced = tuple(int(token) for token in truth + flipped)
        return QualityAnswer(request_id=str(place), label=None, greedy=forced, forced=forced)

    def point(self, plan: TrialPlan, point: PointPlan, start: float = 1.0) -> LoadPoint:
        """One load point on a running engine whose start was `start` times slower."""
        speed = start * math.exp(self.rng.normal(0, self.world.point_sd))
        loop = Loop(world=self.world, config=plan.config, rng=self.rng, speed=speed)
        traffic, name = self._traffic(point)
        records = loop.run(traffic, point.concurrency, gangs=point.role is LoadRole.STATIC)
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
            peak_kv_usage=self._usage(loop),
            peak_running=loop.peak_running,
            peak_waiting=loop.peak_waiting,
        )
        return summarise_point(
            concurrency=point.concurrency,
            repeat=point.repeat,
            subset_digest=f"{name} {point.requests}",
            records=records,
            counters=counters,
            host=replace(QUIET, disturbed=plan.key in self.world.disturbed),
            num_speculative_tokens=length or None,
            role=point.role,
        )

    def _usage(self, loop: Loop) -> float:
        if self.world.kv_tokens is None:
            return 0.25
        return min(1.0, loop.peak_tokens / self.world.kv_tokens)

    def _traffic(self, point: PointPlan) -> tuple[tuple[PlannedRequest, ...], str]:
        """The requests of a role, and what they are called."""
        match point.role:
            case LoadRole.HELD_OUT:
                return requests(point.requests, seed=1), "held out"
            case LoadRole.STATIC | LoadRole.CONTROL:
                longest = self.world.longest_answer
                return spread_requests(point.requests, longest=longest), "spread"
            case _:
                return self.traffic[: point.requests], "first"


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
    options: StudyOptions | None = None,
    device: DeviceFacts | None = None,
) -> StudyEvidence:
    """A study before its first trial."""
    return StudyEvidence(
        goal=goal or Goal(concurrency=16),
        baseline=baseline or ServingConfig(),
        model=MODEL,
        device=device or DEVICE,
        traffic=traffic or summary(),
        trials=(),
        budget_s=budget_s,
        spent_s=0.0,
        requests_per_point=48,
        workload_digest="w" * 64,
        model_digest="m" * 64,
        engine_version="0.32.0",
        options=options or StudyOptions(),
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
        lookup=_lookup(sample, 4) if with_text else None,
        other_lookups=(_lookup(sample, 2),) if with_text else (),
    )
    return TrafficSummary(
        requests=len(sample),
        with_text=len(sample) if with_text else 0,
        sessions=0,
        count_source=CountSource.TOKENISED if lengths else CountSource.UNKNOWN,
        overall=overall,
        classes=(),
        arrivals=None,
        total_tokens=(
            quantiles([r.prompt_tokens + r.output_tokens for r in sample]) if lengths else None
        ),
        paged_share=0.9 if lengths else None,
        block_size=16,
        static_speedup=(
            static_speedup([r.output_tokens for r in spread_requests()], 4) if lengths else None
        ),
    )


def _sharing(sample: tuple[PlannedRequest, ...]) -> PrefixSharing:
    tokens = sum(request.prompt_tokens for request in sample)
    return PrefixSharing(
        block_size=16,
        hit_share=estimate(0.6, 0.5, 0.7),
        hit_tokens=int(0.6 * tokens),
        prompt_tokens=tokens,
    )


def _lookup(sample: tuple[PlannedRequest, ...], length: int) -> LookupAcceptance:
    gained = 0.175 * length
    return LookupAcceptance(
        num_speculative_tokens=length,
        requests=len(sample),
        decode_steps=1000,
        drafts=600,
        draft_tokens=600 * length,
        accepted=round(1000 * gained),
        per_position=(0.4, 0.3, 0.25, 0.2)[:length],
        coverage=0.6,
        tokens_per_step=estimate(1 + gained, 0.8 + gained, 1.2 + gained),
    )


def estimate(value: float, low: float, high: float) -> Estimate:
    """A measured number with an interval."""
    return Estimate(value=value, low=low, high=high, source=Source.MEASURED, basis="planted")


MODEL = dense_model(
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
        "int8": estimate(260e9, 250e9, 270e9),
    },
    cpu_features=("avx2", "fma"),
)
# The same with 8-bit units.
DEVICE_INT8 = replace(DEVICE, cpu_features=(*DEVICE.cpu_features, "avx512_vnni"))
