"""The engine's own counters, read from its Prometheus text and compared before and after a load."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from advisor.errors import EngineFailed, InvalidInput, RooftuneError
from advisor.measurement.records import EngineCounters
from probes.repeating import repeated

SAMPLE_PERIOD_S = 0.5
# Histogram buckets are nine tenths of the text and none is read here.
_SKIPPED = re.compile(r"_(?:bucket|created)\{")

_PROMPT_TOKENS = "vllm:prompt_tokens_total"
_GENERATION_TOKENS = "vllm:generation_tokens_total"
_STEPS = "vllm:iteration_tokens_total_count"
_PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
_PREFIX_HITS = "vllm:prefix_cache_hits_total"
_PREEMPTIONS = "vllm:num_preemptions_total"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_KV_USAGE = "vllm:kv_cache_usage_perc"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_CACHE_INFO = "vllm:cache_config_info"

# What earlier versions called the same: 0.8 to 0.10 named the device, before the V1 engine was all
# there is; the mean time per output token of 0.10 and before is today's gap between tokens.
_FORMER_NAMES = {
    "vllm:gpu_cache_usage_perc": _KV_USAGE,
    "vllm:gpu_prefix_cache_queries_total": _PREFIX_QUERIES,
    "vllm:gpu_prefix_cache_hits_total": _PREFIX_HITS,
    "vllm:time_per_output_token_seconds_sum": "vllm:inter_token_latency_seconds_sum",
    "vllm:time_per_output_token_seconds_count": "vllm:inter_token_latency_seconds_count",
}

Number = TypeVar("Number", int, float)

_ALWAYS_THERE = (_PROMPT_TOKENS, _GENERATION_TOKENS, _PREFIX_QUERIES, _PREFIX_HITS, _PREEMPTIONS)
_COUNTERS = (*_ALWAYS_THERE, _STEPS, _DRAFTS, _DRAFT_TOKENS, _ACCEPTED)


class UnusableCounters(RooftuneError):
    """Counters of which no difference can be taken: one is missing or went down."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """Counters since the engine's start and its gauges, of an engine without data parallelism.

    `totals` maps vLLM's counter names to values; a counter that the engine does not export (no
    speculation, say) is absent. `accepted_per_position` is ordered by position. `cache_info` are
    the labels of ``vllm:cache_config_info``.
    """

    totals: Mapping[str, float]
    accepted_per_position: tuple[int, ...]
    kv_usage: float | None
    running: int | None
    waiting: int | None
    cache_info: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugePeaks:
    """Highest samples of the gauges over a load; None where no sample was taken."""

    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None

    def with_sample(self, snapshot: EngineSnapshot) -> "GaugePeaks":
        """The peaks after one more sample."""
        return GaugePeaks(
            kv_usage=_higher(self.kv_usage, snapshot.kv_usage),
            running=_higher(self.running, snapshot.running),
            waiting=_higher(self.waiting, snapshot.waiting),
        )


def parse_metrics(text: str) -> EngineSnapshot:
    """Read the text of an engine's ``/metrics``; a missing counter raises `UnusableCounters`."""
    sums: dict[str, float] = {}
    former: dict[str, float] = {}
    positions: dict[int, float] = {}
    cache_info: dict[str, str] = {}
    for sample in _samples(text):
        if sample.name == _ACCEPTED_PER_POSITION:
            position = int(sample.labels["position"])
            positions[position] = positions.get(position, 0.0) + sample.value
        elif sample.name == _CACHE_INFO:
            cache_info = dict(sample.labels)
        elif sample.name in _FORMER_NAMES:
            name = _FORMER_NAMES[sample.name]
            former[name] = former.get(name, 0.0) + sample.value
        else:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    sums = former | sums  # a version that has both means today's name
    for name in _ALWAYS_THERE:
        if name not in sums:
            raise UnusableCounters(name, "is not among the engine's metrics")
    return EngineSnapshot(
        totals={name: sums[name] for name in _COUNTERS if name in sums},
        accepted_per_position=tuple(int(positions[index]) for index in sorted(positions)),
        kv_usage=sums.get(_KV_USAGE),
        running=_whole(sums.get(_RUNNING)),
        waiting=_whole(sums.get(_WAITING)),
        cache_info=cache_info,
    )


def difference(
    before: EngineSnapshot, after: EngineSnapshot, gauges: GaugePeaks | None
) -> EngineCounters:
    """What the engine counted between two snapshots of one start.

    A counter that went down means that the engine was restarted in between, so the difference
    says nothing: `UnusableCounters`. Samples can miss the height of a short load, so that the
    peak of running requests is never below their mean over the steps.
    """
    peaks = gauges or GaugePeaks()
    return EngineCounters(
        prompt_tokens=_grown(before, after, _PROMPT_TOKENS),
        generation_tokens=_grown(before, after, _GENERATION_TOKENS),
        engine_steps=_grown(before, after, _STEPS) if _STEPS in after.totals else None,
        prefix_queries=_grown(before, after, _PREFIX_QUERIES),
        prefix_hits=_grown(before, after, _PREFIX_HITS),
        preemptions=_grown(before, after, _PREEMPTIONS),
        drafts=_grown(before, after, _DRAFTS),
        draft_tokens=_grown(before, after, _DRAFT_TOKENS),
        accepted=_grown(before, after, _ACCEPTED),
        accepted_per_position=_grown_positions(before, after),
        peak_kv_usage=peaks.kv_usage,
        peak_running=_higher(peaks.running, _mean_running(before, after)),
        peak_waiting=peaks.waiting,
    )


@dataclass
class GaugeSampler:
    """Polls the gauges in a thread while a load runs: ``with GaugeSampler(engine.snapshot) as s``.

    A sample that cannot be had is skipped: whoever drives the load notices a dead engine itself.
    """

    fetch: Callable[[], EngineSnapshot]
    period_s: float = SAMPLE_PERIOD_S
    peaks: GaugePeaks = field(default_factory=GaugePeaks)
    _polling: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        if self.period_s <= 0:
            raise InvalidInput("period_s", f"{self.period_s} is not above 0")

    def __enter__(self) -> Self:
        self._polling.enter_context(
            repeated(self._sample, period_s=self.period_s, name="gauge-sampler")
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._polling.close()

    def _sample(self) -> None:
        with suppress(EngineFailed, UnusableCounters):
            self.peaks = self.peaks.with_sample(self.fetch())


def _samples(text: str) -> Iterator[Sample]:
    kept = [
        line for line in text.splitlines() if line.startswith("vllm:") and not _SKIPPED.search(line)
    ]
    for family in text_string_to_metric_families("\n".join(kept) + "\n"):
        yield from family.samples


def _grown(before: EngineSnapshot, after: EngineSnapshot, name: str) -> int:
    growth = after.totals.get(name, 0.0) - before.totals.get(name, 0.0)
    if growth < 0:
        raise UnusableCounters(name, "went down: the engine was restarted")
    return int(growth)


def _mean_running(before: EngineSnapshot, after: EngineSnapshot) -> int | None:
    """Requests per step, rounded up: but for accepted drafts, a request gets one token a step."""
    if not (steps := _grown(before, after, _STEPS)):
        return None
    return math.ceil(
        (_grown(before, after, _GENERATION_TOKENS) - _grown(before, after, _ACCEPTED)) / steps
    )


def _grown_positions(before: EngineSnapshot, after: EngineSnapshot) -> tuple[int, ...]:
    earlier = before.accepted_per_position or (0,) * len(after.accepted_per_position)
    if len(earlier) != len(after.accepted_per_position):
        raise UnusableCounters(_ACCEPTED_PER_POSITION, "has another number of positions")
    grown = tuple(new - old for old, new in zip(earlier, after.accepted_per_position, strict=True))
    if any(growth < 0 for growth in grown):
        raise UnusableCounters(_ACCEPTED_PER_POSITION, "went down: the engine was restarted")
    return grown


def _higher(first: Number | None, second: Number | None) -> Number | None:
    known = [value for value in (first, second) if value is not None]
    return max(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
