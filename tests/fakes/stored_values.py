"""One value of every kind that a column holds, and what files of earlier versions mean."""

from collections.abc import Mapping
from dataclasses import replace

from advisor.estimate import Source
from advisor.goal import ClassLimits
from advisor.llm import LayerGroup, ModelShape, weight_format
from advisor.llm.feed_forward import DenseFeedForward, Experts
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2
from advisor.measurement.capacity import Capacity, Tried
from advisor.measurement.findings import Findings
from advisor.measurement.memory import PreemptionOnset
from advisor.measurement.quality import QualityFigures
from advisor.measurement.records import (
    AcceptanceFigures,
    ClientHealth,
    LoadRole,
    OpenLoop,
    QualityAnswer,
    QualityPass,
    QualityRecord,
    Window,
)
from advisor.measurement.report import (
    Distribution,
    MeasuredPoint,
    MeasurementReport,
    Rank,
    measured_point,
)
from advisor.measurement.saturation import Binding, Rung, Saturation
from advisor.measurement.slo import Attained, Slo
from advisor.recommender.evidence import PointPlan, QualityPlan, StudyOptions
from advisor.recommender.recommendation import (
    Confirmation,
    PagingPicture,
    Prediction,
    QualityVerdict,
    Recommendation,
    VerdictKind,
)
from advisor.roofline.picture import RooflinePoint
from advisor.serving import WeightQuantization
from advisor.traffic.trace import Privacy
from tests.fakes.traffic import DISTANCE, WHOLE_REPORT, whole_summary
from tests.fakes.values import (
    BASELINE,
    DEVICE,
    FACTS,
    FULL_CONFIG,
    GOAL,
    LOOKUP,
    MODEL,
    QUANTILES,
    REPORT,
    SUMMARY,
    estimate,
    load_point,
    plan,
    recommendation,
)

OPTIONS = StudyOptions(
    ladder_top=64,
    confirm=False,
    baseline_command="vllm serve demo --dtype=float32 --api-key=<text>",
    baseline_notes=("--api-key is not kept: it belongs to a deployment",),
)
QUALITY_PASS = QualityPass(
    subset_digest="5e7",
    answers=(
        QualityAnswer(request_id="a", label="prose", greedy=(5, 7, 2)),
        QualityAnswer(request_id="b", label=None, greedy=(), forced=(5, 8)),
    ),
)
FIGURES = QualityFigures(
    requests=12,
    tokens=384,
    top1_agreement=estimate(0.8),
    greedy_agreement=estimate(0.5),
    identical=estimate(0.25),
)
WIDE_CONFIG = FULL_CONFIG.changed(
    {
        "quantization": WeightQuantization(algorithm="rtn"),
        "kv_cache_dtype": "fp8",
        "enable_chunked_prefill": True,
        "gpu_memory_utilization": 0.85,
    }
)
WIDE_PLAN = replace(
    plan(config=WIDE_CONFIG),
    points=(
        PointPlan(concurrency=16, repeat=1, requests=32),
        PointPlan(concurrency=32, repeat=1, requests=48, optional=True),
        PointPlan(concurrency=4, repeat=1, requests=12, role=LoadRole.STATIC),
    ),
    quality=QualityPlan(requests=12, max_tokens=32, passes=2),
)
SATURATION = Saturation(
    rungs=(
        Rung(
            concurrency=8,
            repeats=2,
            throughput_tokens_per_s=estimate(180.0),
            ttft_p50_s=0.5,
            tpot_p50_s=0.04,
            tpot_p95_s=None,
            kv_peak_usage=0.2,
        ),
    ),
    concurrency=estimate(14.0),
    plateau_tokens_per_s=estimate(240.0),
    step_s=estimate(0.03),
    step_s_per_request=estimate(0.002),
    cap=None,
    saturated=True,
    binding=Binding.COMPUTE,
    reason="step time grows in proportion to the requests",
)


def wide_recommendation() -> Recommendation:
    """A bundle of the current version with every picture in it."""
    return replace(
        recommendation(),
        saturation=SATURATION,
        paging=PagingPicture(
            block_size=16,
            reserved_tokens=2048,
            paged_share=0.95,
            contiguous_share=0.125,
            paged_requests=300.0,
            contiguous_requests=45.5,
        ),
        quality=(
            QualityVerdict(
                technique="int8_weights",
                figures=FIGURES,
                tolerance=None,
                within=False,
                reason="below the floor",
            ),
        ),
        confirmation=Confirmation(
            config_hash=BASELINE.hash,
            concurrency=16,
            requests=20,
            order=("A", "B", "B", "A"),
            gain=estimate(1.1),
            kind=VerdictKind.HELPS,
            confirmed=True,
            reason="the sign agrees",
        ),
        predictions=(
            Prediction(
                title="Baseline",
                concurrency=16,
                predicted=estimate(220.0, Source.ROOFLINE),
                measured=estimate(200.0),
            ),
        ),
        roofline=(
            RooflinePoint(
                phase="decode",
                concurrency=16,
                intensity_flops_per_byte=14.5,
                achieved_flops_per_s=None,
                attainable_flops_per_s=2.9e11,
            ),
        ),
        baseline_notes=OPTIONS.baseline_notes,
    )


HYBRID = ModelShape(
    architecture="NoneSuch",
    hidden_size=64,
    vocab_size=512,
    layers=(
        LayerGroup(
            count=3,
            mixer=Attention(heads=4, kv_heads=2, head_dim=16, value_dim=8, window=128, sinks=True),
            feed_forward=DenseFeedForward(intermediate=128, gated=False, bias=True),
            norm_bias=True,
        ),
        LayerGroup(
            count=2,
            mixer=LatentAttention(
                heads=4, kv_rank=32, query_rank=None, nope_dim=16, rope_dim=8, value_dim=16
            ),
            feed_forward=Experts(experts=8, active=2, intermediate=32, shared_intermediate=32),
            plain_mixer=True,
        ),
        LayerGroup(
            count=1,
            mixer=Mamba2(inner=128, heads=8, head_dim=16, state=16, groups=1, kernel=4),
            norms=1,
        ),
        LayerGroup(
            count=1,
            mixer=GatedDeltaNet(key_heads=2, value_heads=4, key_dim=8, value_dim=8, kernel=4),
            feed_forward=DenseFeedForward(intermediate=128),
            plain_feed_forward=True,
        ),
    ),
    tied_embeddings=False,
    dtype="bfloat16",
    max_position_embeddings=None,
    weights=weight_format("W4A16-zero"),
    quantized_head=True,
    position_parameters=64 * 128,
    tower_parameters=1000,
    head_bias=True,
    notes=("one of every kind of layer",),
)
MEASURED = MeasurementReport(
    rank=Rank.CLIENT_SIDE,
    tool="rooftune",
    tool_version="0.1.0",
    model="demo",
    engine="vllm 0.32.0",
    started_epoch_s=1_790_000_000.25,
    points=(
        measured_point(load_point(4)),
        MeasuredPoint(
            kind=None,
            requests=8,
            failed=1,
            duration_s=4.5,
            concurrency=2.0,
            rate_per_s=1.75,
            normalised_latency_s=Distribution(
                count=7, mean=0.25, sd=0.5, minimum=0.125, maximum=0.75, percentiles={99.9: 0.7}
            ),
            usable=False,
            remarks=("1 of 8 requests failed",),
        ),
    ),
    loads=(load_point(4),),
    remarks=("arrivals: recorded",),
    plan_digest="5e7",
    complete=False,
    findings=Findings(
        capacity=Capacity(load=2.0, fails_at=4.0, undecided=(3.0,), tries=5, reason="it failed"),
        tried=(
            Tried(
                load=2.0,
                attained=(Attained(met=30.0, counted=31.0, requests=31, slo=Slo(ttft_s=0.5)),),
                holds=None,
                limited="its timers were late",
            ),
        ),
        onset=PreemptionOnset(measured=8, clear=4, predicted=6, highest=16),
        start_s=12.5,
        start_phases=(("loading", 2.0),),
    ),
)
SECOND_SUMMARY = replace(
    SUMMARY,
    overall=replace(SUMMARY.overall, other_lookups=(LOOKUP,)),
    total_tokens=QUANTILES,
    paged_share=0.95,
    block_size=16,
    static_speedup=estimate(1.6, Source.SIMULATED),
)
SECOND_GOAL = replace(GOAL, min_top1_agreement=None)
SECOND_FACTS = replace(FACTS, checkpoint_digest="c0ffee")
WIDE_FACTS = replace(
    SECOND_FACTS,
    start_phases=(("launching", 12.5), ("loading", 2.0), ("opening", 6.0)),
    graph_mode="FULL_AND_PIECEWISE",
    compilation_mode="VLLM_COMPILE",
    kernels=("MarlinLinearKernel",),
    quantization="compressed-tensors",
    kv_cache_dtype="fp8",
    chunked_prefill=True,
    speculative_method="ngram",
    speculative_tokens=3,
    tensor_parallel=2,
    executor="mp",
    consumed_bytes=15 << 30,
    activation_bytes=1 << 30,
    graph_bytes=600 << 20,
    vllm_commit="0a1b2c3",
    torch_version="2.13.0",
    cuda_version="13.0",
    driver_version="580.65",
    sm_clock_mhz=1980.0,
    memory_clock_mhz=2619.0,
)
SECOND_POINT = replace(load_point(4), role=LoadRole.STATIC, longest_output_tokens=160)
ACCEPTED = AcceptanceFigures(
    num_speculative_tokens=2,
    drafts=10,
    draft_tokens=20,
    accepted=12,
    per_position=(estimate(0.7), estimate(0.5)),
    acceptance_rate=0.6,
    acceptance_length=2.2,
    coverage=0.9,
    tokens_per_step=2.0,
    reason="few requests",
)
WIDE_POINT = replace(
    SECOND_POINT,
    loaded_tokens_per_s=210.5,
    open_loop=OpenLoop(arrivals="gamma", rate_per_s=2.5, cv=1.5, speed=2.0, most_in_flight=64),
    client=ClientHealth(
        processes=2,
        cpu_share=0.9,
        send_delay_p50_s=0.001,
        send_delay_p99_s=0.03,
        send_delay_max_s=0.25,
        loop_delay_p99_s=0.002,
        frames=4096,
        limited=True,
        reason="its busiest process used 90% of a core",
    ),
    window=Window(since_s=1.5, until_s=40.0, left_out=6, steady=True, rule="MSER-5"),
    chunk_gap_s=QUANTILES,
    not_fitting=3,
    retries=1,
    acceptance_by={"temperature 0.7": ACCEPTED},
    energy_j=1250.5,
    steady_tokens_per_s=estimate(215.0),
    intervals={"ttft_s p50": estimate(0.25)},
    counters=replace(load_point().counters, known=False),
)
THIRD_RECOMMENDATION = replace(wide_recommendation(), subset=DISTANCE)
STORED = (
    WHOLE_REPORT,
    replace(whole_summary(), privacy=Privacy.REDACTED),
    DEVICE,
    BASELINE.functional,
    HYBRID,
    replace(SECOND_GOAL, class_limits={"chat": ClassLimits(ttft_p95_s=0.5)}),
    WIDE_CONFIG,
    WIDE_PLAN,
    WIDE_FACTS,
    WIDE_POINT,
    replace(THIRD_RECOMMENDATION, engine=WIDE_FACTS),
    OPTIONS,
    QualityRecord(passes=(QUALITY_PASS,)),
    MEASURED,
)
"""One value of every kind that a column holds, every field of it in use."""

# What the saved file of an earlier version says, by kind and version.
EARLIER: Mapping[tuple[str, int], object] = {
    **{
        (type(value).__name__, 1): value
        for value in (
            REPORT,
            SUMMARY,
            GOAL,
            FULL_CONFIG,
            plan(config=FULL_CONFIG),
            FACTS,
            load_point(),
            recommendation(),
            MODEL,
        )
    },
    **{
        (type(value).__name__, 2): value
        for value in (
            SECOND_SUMMARY,
            SECOND_GOAL,
            SECOND_FACTS,
            SECOND_POINT,
            wide_recommendation(),
        )
    },
    ("Recommendation", 3): THIRD_RECOMMENDATION,
}
