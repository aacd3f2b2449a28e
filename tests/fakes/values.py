"""Valid values of the kinds that are stored: small, and true to their type."""

from advisor.estimate import Estimate, Source
from advisor.goal import Goal, Objective
from advisor.hardware import DeviceFacts
from advisor.llm import dense_model
from advisor.measurement.records import (
    AcceptanceFigures,
    ClassFigures,
    EngineCounters,
    HostLoad,
    LoadPoint,
)
from advisor.recommender.evidence import PointPlan, TrialPlan
from advisor.recommender.recommendation import (
    Effect,
    MemoryPicture,
    NoiseFloor,
    RankedConfig,
    Recommendation,
    Verdict,
    VerdictKind,
)
from advisor.serving import (
    EngineFacts,
    FunctionalSettings,
    Levers,
    NgramSpeculation,
    ServingConfig,
)
from advisor.traffic.figures import (
    Arrivals,
    ClassSummary,
    CountSource,
    LookupAcceptance,
    PrefixSharing,
    Quantiles,
    TrafficSummary,
)
from advisor.traffic.trace import Reject, TraceReport

QUANTILES = Quantiles(
    count=3, unknown=1, mean=2.0, p5=1.0, p25=1.5, p50=2.0, p75=2.5, p95=3.0, max=3.25
)
GOAL = Goal(objective=Objective.THROUGHPUT, concurrency=16, ttft_p95_s=2.5)
BASELINE = ServingConfig(functional=FunctionalSettings(max_model_len=2048, enforce_eager=True))
DRAFTING = BASELINE.changed({"speculative_config": NgramSpeculation(num_speculative_tokens=4)})
FULL_CONFIG = ServingConfig(
    functional=BASELINE.functional,
    levers=Levers(
        max_num_seqs=8,
        enable_prefix_caching=False,
        dtype="bfloat16",
        speculative_config=NgramSpeculation(num_speculative_tokens=3),
    ),
)
REPORT = TraceReport(
    format="openai-jsonl",
    encoding="utf-8",
    rows=5,
    accepted=4,
    rejected=1,
    rejects=(Reject(line=3, field="messages", reason="is not a list"),),
    warnings=("usage is zero although there is text",),
    time_unit="s",
)
FACTS = EngineFacts(vllm_version="0.32.0", start_s=20.5, weight_bytes=269_000_000, block_size=128)
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


def estimate(value: float, source: Source = Source.MEASURED) -> Estimate:
    """A value with ten per cent to either side."""
    return Estimate(
        value=value, low=0.9 * value, high=1.1 * value, source=source, basis="3 repeats"
    )


DEVICE = DeviceFacts(
    name="a test processor",
    kind="cpu",
    threads=1,
    memory_bytes=24 << 30,
    bandwidth_bytes_per_s=estimate(2e10),
    matrix_rate_flops_per_s={"bfloat16": estimate(1e11), "float32": estimate(2e11)},
    cpu_features=("avx2", "fma"),
)
LOOKUP = LookupAcceptance(
    num_speculative_tokens=2,
    requests=4,
    decode_steps=40,
    drafts=10,
    draft_tokens=20,
    accepted=9,
    per_position=(0.6, 0.3),
    coverage=0.25,
    tokens_per_step=estimate(1.2),
)
SUMMARY = TrafficSummary(
    requests=4,
    with_text=4,
    sessions=2,
    count_source=CountSource.TOKENISED,
    overall=ClassSummary(
        label="all",
        requests=4,
        prompt_tokens=QUANTILES,
        output_tokens=QUANTILES,
        prefix_sharing=PrefixSharing(
            block_size=128, hit_share=estimate(0.5), hit_tokens=256, prompt_tokens=512
        ),
        lookup=LOOKUP,
    ),
    classes=(),
    arrivals=Arrivals(
        span_s=60.0,
        rate_per_s=0.5,
        interarrival_cv=1.1,
        peak_rate_per_s=2.0,
        burstiness_ratio=3.0,
        peak_simultaneous=4,
    ),
    unmeasurable={"lookup": "no recorded outputs"},
)


def plan(key: str = "baseline", config: ServingConfig = BASELINE) -> TrialPlan:
    """A trial of two points."""
    return TrialPlan(
        key=key,
        title=f"The {key}",
        technique=None,
        config=config,
        points=(
            PointPlan(concurrency=1, repeat=0, requests=8),
            PointPlan(concurrency=16, repeat=0, requests=32),
        ),
        expected_s=90.0,
        predicted=((1, estimate(30.0, Source.ROOFLINE)), (16, estimate(220.0, Source.ROOFLINE))),
    )


COUNTERS = EngineCounters(
    prompt_tokens=8000,
    generation_tokens=9234,
    engine_steps=800,
    prefix_queries=8000,
    prefix_hits=4000,
    preemptions=0,
    drafts=881,
    draft_tokens=1762,
    accepted=993,
    accepted_per_position=(555, 438),
    peak_kv_usage=0.31,
    peak_running=16,
    peak_waiting=0,
)
QUIET_HOST = HostLoad(
    load_average_before=0.5,
    load_average_after=1.5,
    neighbour_cpu_s=0.25,
    neighbours=("sshd",),
    steal_share=None,
    disturbed=False,
)


def load_point(concurrency: int = 16, repeat: int = 0, throughput: float = 222.5) -> LoadPoint:
    """A finished, usable point."""
    return LoadPoint(
        concurrency=concurrency,
        repeat=repeat,
        subset_digest="5e7",
        requests=32,
        succeeded=31,
        failed=1,
        failures={"http_503": 1},
        duration_s=41.5,
        throughput_tokens_per_s=estimate(throughput),
        requests_per_s=0.75,
        output_tokens=9234,
        prompt_tokens=8000,
        ttft_s=QUANTILES,
        tpot_s=QUANTILES,
        e2e_s=None,
        classes=(
            ClassFigures(
                label="prose",
                requests=31,
                ttft_s=QUANTILES,
                tpot_s=None,
                e2e_s=QUANTILES,
                output_tokens=9234,
            ),
        ),
        acceptance=AcceptanceFigures(
            num_speculative_tokens=2,
            drafts=881,
            draft_tokens=1762,
            accepted=993,
            per_position=(estimate(0.63), estimate(0.5)),
            acceptance_rate=0.56,
            acceptance_length=2.13,
            coverage=0.4,
            tokens_per_step=1.45,
        ),
        tokens_per_engine_step=11.5,
        prefix_hit_share=0.5,
        in_flight_mean=15.25,
        counters=COUNTERS,
        host=QUIET_HOST,
        usable=True,
        flaws=(),
    )


EFFECT = Effect(
    concurrency=16,
    kind=VerdictKind.HELPS,
    predicted=estimate(1.3, Source.ROOFLINE),
    measured=estimate(1.2),
    by_class={"prose": estimate(1.01)},
)


def recommendation(study_id: str = "a study") -> Recommendation:
    """Two ranked configurations and one verdict."""
    ranked = tuple(
        RankedConfig(
            rank=rank,
            config=config,
            config_hash=config.hash,
            title=title,
            overrides={name: str(value) for name, value in config.overrides().items()},
            throughput_tokens_per_s=estimate(throughput),
            gain=estimate(throughput / 200.0),
            ttft_p95_s=estimate(1.5),
            tpot_p95_s=None,
            feasible=True,
            tied_with_better=False,
        )
        for rank, config, title, throughput in (
            (1, DRAFTING, "with drafts", 240.0),
            (2, BASELINE, "baseline", 200.0),
        )
    )
    return Recommendation(
        study_id=study_id,
        goal=GOAL,
        baseline=BASELINE,
        ranked=ranked,
        verdicts=(
            Verdict(
                technique="ngram_speculation",
                title="N-gram drafts",
                kind=VerdictKind.HELPS,
                sentence="Helps by 20 % at 16 requests in flight.",
                effects=(EFFECT,),
            ),
        ),
        noise=NoiseFloor(relative_sd=estimate(0.01), repeats=2, basis="one repeat"),
        memory=MemoryPicture(
            weight_bytes=269_000_000,
            kv_cache_bytes=2 << 30,
            kv_cache_tokens=93_184,
            kv_bytes_per_token=23_040,
            kv_peak_usage=0.31,
            headroom_bytes=None,
            device_bytes=24 << 30,
        ),
        engine=FACTS,
        device=DEVICE,
        machine="a test processor",
        workload_digest="w0",
        model_digest="m0",
        engine_version="0.32.0",
        requests_measured=32,
        mean_prompt_tokens=250.0,
        mean_output_tokens=None,
        conclusive=True,
        warnings=("one point was disturbed",),
    )
