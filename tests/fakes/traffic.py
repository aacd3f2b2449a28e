"""A summary of traffic in which every figure is known: hand-made, small, consistent enough."""

from dataclasses import replace

from advisor.estimate import Estimate, Source
from advisor.traffic.figures import (
    Burstiness,
    Concurrency,
    Counts,
    Duplicates,
    FirstDifference,
    Fit,
    JointLengths,
    LookupAcceptance,
    Mix,
    PeakWindow,
    PrefixReuse,
    RequestClass,
    ReusePoint,
    Sessions,
    SubsetDistance,
    Timeline,
    TrafficProfile,
    TrafficSummary,
)
from advisor.traffic.trace import Reject, TraceReport
from tests.fakes.values import LOOKUP, QUANTILES, SUMMARY, estimate

WHOLE_REPORT = TraceReport(
    format="openai-chat",
    title="OpenAI chat log",
    encoding="utf-8",
    compression="gzip",
    rows=12,
    accepted=4,
    rejected=3,
    rejects=(
        Reject(line=3, field="messages", reason="is not a list"),
        Reject(line=5, field="", reason="is not JSON"),
        Reject(line=9, field="messages", reason="is not a list"),
    ),
    warnings=("usage is zero although there is text",),
    time_unit="ms",
    failed={"408": 4, "500": 1},
    columns={"arrival_s": "created", "messages": "messages"},
    readings={"session_lengths": "cumulative"},
    started_epoch_s=1_700_000_000.0,
    block_tokens=512,
)
PROFILE = TrafficProfile(
    prompt_counts=Counts(reported=1, estimated=3, missing=0),
    output_counts=Counts(reported=0, estimated=3, missing=1),
    joint_lengths=JointLengths(
        prompt_edges=(1.0, 10.0, 100.0, 1000.0),
        output_edges=(1.0, 10.0, 100.0),
        counts=((1, 0), (0, 2), (0, 1)),
        correlation=0.5,
    ),
    rate=Timeline(window_s=10.0, values=(0.1, 0.0, 0.2, 0.1)),
    burstiness=Burstiness(fano_by_window={"1": 1.2, "10": 2.5}, tick_s=1.0),
    peaks=(
        PeakWindow(window_s=1.0, start_s=20.0, requests=2, rate_per_s=2.0),
        PeakWindow(window_s=10.0, start_s=20.0, requests=2, rate_per_s=0.2),
    ),
    diurnal=(0,) * 8 + (1, 2, 1) + (0,) * 13,
    concurrency=Concurrency(
        mean=1.5, p95=2.0, peak=2, known=4, timeline=Timeline(window_s=10.0, values=(1.0, 2.0, 1.5))
    ),
    sessions=Sessions(sessions=2, requests=4, turns=QUANTILES, think_s=QUANTILES),
    mix=Mix(
        requests=4,
        tools=1,
        tool_turns=1,
        images=0,
        structured=2,
        greedy=1,
        sampled=2,
        unknown_temperature=1,
        temperature=QUANTILES,
        read=4,
        languages={"en": 3, "de": 1},
        code=1,
        models={"some-model": 4},
    ),
    duplicates=Duplicates(requests=4, distinct=3, repeated=1, most_often=2),
    context_tokens=QUANTILES,
)
REUSE = PrefixReuse(
    block_size=16,
    origin="tokens",
    ceiling=Estimate(value=0.5, low=0.4, high=0.6, source=Source.MEASURED, basis="resampled"),
    by_class={"chat": estimate(0.7), "batch": estimate(0.1)},
    curve=(
        ReusePoint(capacity_blocks=8, hit_share=0.1),
        ReusePoint(capacity_blocks=32, hit_share=0.3),
        ReusePoint(capacity_blocks=128, hit_share=0.5),
    ),
    lru=(ReusePoint(capacity_blocks=32, hit_share=0.28),),
    distinct_blocks=120,
    first_difference=FirstDifference(
        edges=(0, 16, 64, 256), counts=(2, 1, 1), early=0.5, lost_share=0.2
    ),
    advice=("Half of the prompts differ within their first block: move what changes to the end.",),
)


DISTANCE = SubsetDistance(
    requests=48, of=400, lengths=0.05, reuse=None, classes=0.02, burstiness=0.1, total=0.1
)


def lookup(k: int, window: tuple[int, int] = (2, 4), method: str = "ngram") -> LookupAcceptance:
    """A replay whose acceptance falls with the position."""
    return replace(
        LOOKUP,
        num_speculative_tokens=k,
        per_position=tuple(0.6 / (place + 1) for place in range(k)),
        tokens_per_step=estimate(1.1 + 0.02 * k),
        prompt_lookup_min=window[0],
        prompt_lookup_max=window[1],
        method=method,
    )


CLASSES = (
    RequestClass(
        name="chat",
        origin="label",
        requests=3,
        share=0.75,
        traits=("long prompts", "short answers"),
        description="Long prompts with short answers, in conversations.",
        prompt_tokens=QUANTILES,
        output_tokens=QUANTILES,
    ),
    RequestClass(
        name="batch",
        origin="found",
        requests=1,
        share=0.25,
        traits=("asks for JSON",),
        description="A single prompt that asks for JSON.",
        prompt_tokens=QUANTILES,
        output_tokens=None,
    ),
)


def fit(limit: int, fitting: int) -> Fit:
    """What a limit serves of four requests."""
    return Fit(
        max_model_len=limit,
        requests=4,
        fitting=fitting,
        prompt_too_long=(4 - fitting) // 2,
        prompt_tokens=512,
        prompt_tokens_fitting=128 * fitting,
        needed_max_model_len=4096,
    )


def whole_summary() -> TrafficSummary:
    """Nothing in it is unknown."""
    return replace(
        SUMMARY,
        unmeasurable={},
        total_tokens=QUANTILES,
        profile=PROFILE,
        reuse=REUSE,
        lookup_sweep=(lookup(2), lookup(4), lookup(4, (3, 5))),
        suffix=lookup(4, method="suffix"),
        request_classes=CLASSES,
        fits=(fit(1024, 1), fit(2048, 3), fit(4096, 4)),
    )
