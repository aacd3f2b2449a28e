"""Where a running engine's memory went, and from which load on its KV cache was too small."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.hardware import DeviceFacts
from advisor.measurement.records import LoadPoint
from advisor.serving import EngineFacts

_NULL_BLOCKS = 1  # vLLM's block 0 never holds a token (handbook 4.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """Bytes of the device by use; None where the engine does not say (its CPU build says little).

    `runtime_bytes` is what the worker holds beside weights and torch's own peak (driver, libraries,
    communication). `other_bytes` is what no known part explains, None unless the headroom and all
    large parts are known. `kv_peak_share` is the highest share of the cache seen in use.
    """

    device_bytes: int | None
    weight_bytes: int | None
    kv_cache_bytes: int | None
    activation_bytes: int | None
    graph_bytes: int | None
    runtime_bytes: int | None
    headroom_bytes: int | None
    other_bytes: int | None
    kv_peak_share: float | None

    @property
    def kv_peak_bytes(self) -> int | None:
        """Bytes of the cache that held tokens at the peak."""
        if self.kv_cache_bytes is None or self.kv_peak_share is None:
            return None
        return round(self.kv_cache_bytes * self.kv_peak_share)


def breakdown(
    facts: EngineFacts, *, device: DeviceFacts | None = None, points: Sequence[LoadPoint] = ()
) -> MemoryBreakdown:
    """The engine's own figures; the device's size is the engine's, else that of `device`."""
    size = facts.device_memory_bytes
    if size is None and device is not None:
        size = device.memory_bytes
    usages = [point.counters.peak_kv_usage for point in points]
    return MemoryBreakdown(
        device_bytes=size,
        weight_bytes=facts.weight_bytes,
        kv_cache_bytes=facts.kv_cache_bytes,
        activation_bytes=facts.activation_bytes,
        graph_bytes=facts.graph_bytes,
        runtime_bytes=_difference(facts.consumed_bytes, facts.weight_bytes),
        headroom_bytes=facts.headroom_bytes,
        other_bytes=_other(facts, size),
        kv_peak_share=max((usage for usage in usages if usage is not None), default=None),
    )


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else max(0, whole - part)


def _other(facts: EngineFacts, size: int | None) -> int | None:
    held = facts.consumed_bytes if facts.consumed_bytes is not None else facts.weight_bytes
    if size is None or held is None or facts.kv_cache_bytes is None or facts.headroom_bytes is None:
        return None
    known = held + facts.kv_cache_bytes + facts.headroom_bytes
    return max(0, size - known - (facts.activation_bytes or 0) - (facts.graph_bytes or 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionOnset:
    """From which number of requests in flight on the engine put some back to compute them again.

    `measured` is the smallest load with a preemption, `clear` the largest below it without one;
    None where there is none. `predicted` is how many requests of the mean length the cache holds at
    their ends, None where the engine does not state its cache.
    """

    measured: int | None
    clear: int | None
    predicted: int | None
    highest: int

    @property
    def safe(self) -> int | None:
        """The largest load known to be free of preemptions, never above what the cache holds.

        A load without a preemption in one short run is no promise where the cache is too small.
        """
        known = [load for load in (self.clear, self.predicted) if load is not None]
        if self.measured is not None:
            known.append(self.measured - 1)
        found = min(known, default=0)
        return found if found >= 1 else None

    @property
    def text(self) -> str:
        """For a person."""
        holds = "" if self.predicted is None else f"; the cache holds {self.predicted} of them"
        if self.measured is None:
            return f"no preemption up to {self.highest} requests in flight{holds}"
        return f"preemptions from {self.measured} requests in flight on{holds}"


def preemption_onset(
    points: Sequence[LoadPoint],
    facts: EngineFacts | None = None,
    *,
    request_tokens: float | None = None,
) -> PreemptionOnset | None:
    """The onset in a ladder of closed loops; None without one whose counters are the engine's.

    `request_tokens` is a mean request at its end, prompt and output; None: as measured.
    """
    loads = [p for p in points if p.open_loop is None and p.counters.known]
    if not loads:
        return None
    preempted = {p.concurrency for p in loads if p.counters.preemptions > 0}
    measured = min(preempted, default=None)
    clear = [
        p.concurrency
        for p in loads
        if p.concurrency not in preempted and (measured is None or p.concurrency < measured)
    ]
    return PreemptionOnset(
        measured=measured,
        clear=max(clear, default=None),
        predicted=_held(facts, _mean_tokens(loads) if request_tokens is None else request_tokens),
        highest=max(p.concurrency for p in loads),
    )


def requests_held(*, num_blocks: int, block_size: int, request_tokens: float) -> int:
    """Requests of a length that a pool of blocks holds at once (handbook 4.1, B_kv)."""
    if min(num_blocks, block_size) < 1 or request_tokens <= 0:
        raise InvalidInput("cache", "blocks and lengths are positive")
    return (num_blocks - _NULL_BLOCKS) // math.ceil(request_tokens / block_size)


def _held(facts: EngineFacts | None, request_tokens: float | None) -> int | None:
    if facts is None or facts.block_size is None or request_tokens is None:
        return None
    blocks = facts.num_blocks
    if blocks is None and facts.kv_cache_tokens is not None:
        blocks = facts.kv_cache_tokens // facts.block_size
    if blocks is None:
        return None
    return requests_held(
        num_blocks=blocks, block_size=facts.block_size, request_tokens=request_tokens
    )


def _mean_tokens(points: Sequence[LoadPoint]) -> float | None:
    """Prompt and output of a mean success."""
    requests = sum(point.succeeded for point in points)
    tokens = sum(point.prompt_tokens + point.output_tokens for point in points)
    return tokens / requests if requests and tokens else None
