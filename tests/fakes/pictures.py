"""A recommendation in which every picture and every sentence of a report has something to show."""

from dataclasses import replace

from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.measurement.quality import QualityFigures
from advisor.measurement.records import AcceptanceFigures
from advisor.measurement.saturation import Binding, Rung, Saturation
from advisor.recommender.recommendation import (
    Confirmation,
    Effect,
    MemoryPicture,
    PagingPicture,
    Prediction,
    QualityVerdict,
    Recommendation,
    Verdict,
    VerdictKind,
)
from advisor.roofline.picture import RooflinePoint
from advisor.serving import EngineFacts, NgramSpeculation, ServingConfig, WeightQuantization
from tests.fakes.findings import measured, ranked, recommendation

DEVICE = DeviceFacts(
    name="planted processor",
    kind="cpu",
    threads=2,
    memory_bytes=8 << 30,
    bandwidth_bytes_per_s=measured(20e9),
    matrix_rate_flops_per_s={"float32": measured(100e9), "bfloat16": measured(60e9)},
)
LOADS = (1, 2, 4, 8, 16, 32)
STEP_S, EACH_S, CAP = 0.05, 0.0045, 20.0
QUANTIZED = "8-bit weights and activations (W8A8)"
DRAFTING = "N-gram speculative decoding (k=4)"


def span(value: float, low: float, high: float, source: Source = Source.MEASURED) -> Estimate:
    """An estimate with both ends named."""
    return Estimate(value=value, low=low, high=high, source=source, basis="planted")


def expected(value: float, spread: float = 0.25) -> Estimate:
    """What the roofline says, with a wide interval."""
    return span(value, value * (1 - spread), value * (1 + spread), Source.ROOFLINE)


def rate_at(concurrency: float) -> float:
    """Tokens/s of the planted knee."""
    inside = min(concurrency, CAP)
    return inside / (STEP_S + EACH_S * inside)


def saturation(*, saturated: bool = True) -> Saturation:
    """Six rungs with their knee near 15 in flight."""
    rungs = tuple(
        Rung(
            concurrency=load,
            repeats=2 if load == 16 else 1,
            throughput_tokens_per_s=measured(rate_at(load), 0.03),
            ttft_p50_s=0.12 + 0.03 * load,
            tpot_p50_s=STEP_S + EACH_S * load,
            tpot_p95_s=1.4 * (STEP_S + EACH_S * load),
            kv_peak_usage=0.01 * load,
        )
        for load in LOADS
    )
    return Saturation(
        rungs=rungs,
        concurrency=span(14.2, 11.6, 17.9),
        plateau_tokens_per_s=measured(rate_at(CAP), 0.03),
        step_s=measured(STEP_S),
        step_s_per_request=measured(EACH_S),
        cap=span(CAP, 17.0, 24.0) if saturated else None,
        saturated=saturated,
        binding=Binding.COMPUTE if saturated else Binding.NOTHING,
        reason="a step takes longer in proportion to the requests in it"
        if saturated
        else "throughput still rises at the highest load tested",
    )


def effect(
    concurrency: int,
    kind: VerdictKind,
    *,
    gain: Estimate | None,
    predicted: Estimate | None = None,
    **more: object,
) -> Effect:
    """An effect; `more` are its other fields."""
    made = Effect(concurrency=concurrency, kind=kind, predicted=predicted, measured=gain)
    return replace(made, **more)  # type: ignore[arg-type]  # the caller names fields of Effect


def verdict(key: str, title: str, *effects: Effect) -> Verdict:
    """A verdict whose sentence names its kind."""
    kind = effects[0].kind
    return Verdict(
        technique=key,
        title=title,
        kind=kind,
        sentence=f"{title}: {kind.value}, as planted.",
        effects=effects,
    )


def acceptance() -> AcceptanceFigures:
    """Four positions."""
    return AcceptanceFigures(
        num_speculative_tokens=4,
        drafts=600,
        draft_tokens=2400,
        accepted=900,
        per_position=tuple(span(x, x - 0.06, x + 0.06) for x in (0.62, 0.45, 0.31, 0.2)),
        acceptance_rate=0.39,
        acceptance_length=2.58,
        coverage=0.5,
        tokens_per_step=1.8,
    )


def verdicts() -> tuple[Verdict, ...]:
    """Every kind once, two loads, classes, acceptance."""
    drafting = verdict(
        "ngram_speculation",
        DRAFTING,
        effect(
            16,
            VerdictKind.HURTS,
            gain=span(0.84, 0.79, 0.9),
            predicted=expected(0.9),
            by_class={"copy": span(1.12, 1.02, 1.23), "prose": span(0.7, 0.64, 0.77)},
        ),
        effect(1, VerdictKind.HELPS, gain=span(1.4, 1.28, 1.52), predicted=expected(1.5)),
    )
    return (
        verdict(
            "continuous_batching",
            "Continuous batching",
            effect(16, VerdictKind.HELPS, gain=span(3.4, 3.1, 3.7), predicted=expected(4.1, 0.3)),
        ),
        verdict(
            "prefix_caching",
            "Prefix caching",
            effect(16, VerdictKind.NEUTRAL, gain=span(1.01, 0.98, 1.04), predicted=expected(1.1)),
        ),
        replace(drafting, acceptance={"all": acceptance()}),
        verdict(
            "half_precision",
            "16-bit weights and arithmetic (bf16 instead of fp32)",
            effect(
                16,
                VerdictKind.UNKNOWN,
                gain=None,
                predicted=expected(1.3),
                reason="the engine ran out of memory",
            ),
        ),
        verdict(
            "int8_weights",
            QUANTIZED,
            effect(16, VerdictKind.HELPS, gain=span(1.22, 1.15, 1.3)),
        ),
        verdict(
            "short",
            "N-gram speculative decoding (k=2)",
            effect(
                16, VerdictKind.NOT_APPLICABLE, gain=None, reason="the upload holds lengths only"
            ),
        ),
    )


def quality() -> tuple[QualityVerdict, ...]:
    """int8 against the baseline, with the baseline against itself."""

    def figures(top1: float) -> QualityFigures:
        return QualityFigures(
            requests=12,
            tokens=340,
            top1_agreement=span(top1, top1 - 0.02, min(1.0, top1 + 0.015)),
            greedy_agreement=span(0.71, 0.6, 0.8),
            identical=span(0.5, 0.25, 0.75),
        )

    return (
        QualityVerdict(
            technique="int8_weights",
            figures=figures(0.957),
            tolerance=figures(0.991),
            within=True,
            reason="keeps the floor of 0.9; fewer same tokens than the baseline against itself",
        ),
        QualityVerdict(
            technique="half_precision",
            figures=None,
            tolerance=None,
            within=None,
            reason="the engine ran out of memory",
        ),
    )


def memory() -> MemoryPicture:
    """An engine that said everything."""
    return MemoryPicture(
        weight_bytes=538 << 20,
        kv_cache_bytes=2 << 30,
        kv_cache_tokens=46_592,
        kv_bytes_per_token=46_080,
        kv_peak_usage=0.31,
        headroom_bytes=5 << 30,
        device_bytes=8 << 30,
        kv_free_tokens_at_peak=32_100,
    )


def roofline() -> tuple[RooflinePoint, ...]:
    """Decode at three loads and one prefill that was not measured."""
    points = ((1, 0.5, 7e9), (4, 2.0, 26e9), (16, 7.6, 61e9))
    decode = tuple(
        RooflinePoint(
            phase="decode",
            concurrency=load,
            intensity_flops_per_byte=intensity,
            achieved_flops_per_s=achieved,
            attainable_flops_per_s=min(intensity * 20e9, 100e9),
        )
        for load, intensity, achieved in points
    )
    prefill = RooflinePoint(
        phase="prefill",
        concurrency=1,
        intensity_flops_per_byte=110.0,
        achieved_flops_per_s=None,
        attainable_flops_per_s=100e9,
    )
    return (*decode, prefill)


def predictions() -> tuple[Prediction, ...]:
    """What was expected beside what was measured, at two loads."""
    return tuple(
        Prediction(
            title=title,
            concurrency=load,
            predicted=expected(rate * off, 0.3),
            measured=measured(rate, 0.04),
        )
        for title, load, rate, off in (
            ("baseline", 16, 130.0, 1.1),
            ("baseline", 1, 18.0, 0.8),
            (DRAFTING, 16, 110.0, 1.2),
            (DRAFTING, 1, 26.0, 0.95),
            (QUANTIZED, 16, 158.0, 0.7),
        )
    )


def wide_body() -> Recommendation:
    """All of it in one bundle."""
    baseline = ServingConfig().changed({"dtype": "float32"})
    quantized = baseline.changed({"quantization": WeightQuantization()})
    drafting = baseline.changed({"speculative_config": NgramSpeculation(num_speculative_tokens=4)})
    lines = (
        ranked(1, quantized, QUANTIZED, 1.22),
        ranked(2, baseline, "baseline", 1.0),
        replace(
            ranked(3, drafting, DRAFTING, 0.84),
            feasible=False,
            why_not="first token p95 is 2.90 s, 0.40 s above the limit",
        ),
    )
    return replace(
        recommendation("00000000-0000-0000-0000-000000000003"),
        baseline=baseline,
        device=DEVICE,
        ranked=lines,
        verdicts=verdicts(),
        memory=memory(),
        engine=EngineFacts(vllm_version="0.32.0", weight_bytes=538 << 20, dtype="torch.float32"),
        warnings=("one load point was disturbed and repeated",),
        saturation=saturation(),
        paging=PagingPicture(
            block_size=128,
            reserved_tokens=2048,
            paged_share=0.83,
            contiguous_share=0.14,
            paged_requests=131.0,
            contiguous_requests=22.7,
        ),
        quality=quality(),
        confirmation=Confirmation(
            config_hash=quantized.hash,
            concurrency=16,
            requests=24,
            order=("baseline", "finalist", "finalist", "baseline"),
            gain=span(1.19, 1.1, 1.29),
            kind=VerdictKind.HELPS,
            confirmed=True,
            reason="agrees with the study's own gain",
        ),
        predictions=predictions(),
        roofline=roofline(),
        baseline_notes=("--swap-space is not known to this vLLM and is left out",),
    )
