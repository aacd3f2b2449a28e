"""Whether an engine starts on a device, what stands in its way, and the nearest change that helps.

vLLM refuses to start unless one request of `max_model_len` fits beside the null block
(`_check_enough_kv_cache_memory`, v1/core/kv_cache_utils.py, 0.32).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from advisor.errors import InvalidInput
from advisor.llm import weight_format
from advisor.roofline.memory.budget import WEIGHTS, MemoryBudget, MemoryPlan, memory_budget
from advisor.roofline.memory.capacity import NULL_BLOCKS, KvCapacity
from advisor.roofline.memory.kv_formats import kv_format
from advisor.roofline.memory.sharding import tensor_parallel_sizes
from advisor.units import bytes_text

CACHE = "KV cache of one request"
OTHERS = "memory that others use"
_MOST_RANKS = 8
_LEAST_TOKENS = 256
_LEAST_SEQS = 8
_FULL_BITS = 16


class Verdict(StrEnum):
    """Whether it fits at both ends of the interval, at one, or at none."""

    FITS = "fits"
    UNCERTAIN = "may not fit"
    DOES_NOT_FIT = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting, by vLLM's name, and a value with which the plan fits at the low end.

    `spare_bytes` is what is then left over, `step` how far the value is from the present one, as a
    ratio (2: half or double).
    """

    setting: str
    value: str
    step: float
    spare_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The verdict on a plan; `missing_bytes` at the centre, negative where there is room.

    `binding` names the largest term in the way, and the term that would run out first where it
    fits. `changes` come nearest first; each alone makes the plan fit.
    """

    verdict: Verdict
    binding: str
    needed_bytes: int
    missing_bytes: float
    budget: MemoryBudget
    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        """The verdict for a person."""
        kv = self.budget.kv_bytes
        room = f"{bytes_text(kv.low)} to {bytes_text(kv.high)} are left for the cache"
        return f"{self.verdict}: {room}, one request needs {bytes_text(self.needed_bytes)}"


def fit(plan: MemoryPlan) -> Fit:
    """The verdict on a plan, with changes where it does not surely fit.

    A setting that cannot be at all (ranks, KV format) raises `InvalidInput`.
    """
    budget = memory_budget(plan)
    needed = _needed_bytes(plan)
    verdict = _verdict(plan, budget, needed)
    return Fit(
        verdict=verdict,
        binding=_binding(plan, budget, needed),
        needed_bytes=needed,
        missing_bytes=needed - budget.kv_bytes.value,
        budget=budget,
        changes=() if verdict is Verdict.FITS else changes(plan),
    )


def _needed_bytes(plan: MemoryPlan) -> int:
    layout = plan.layout
    blocks = layout.request_blocks(plan.settings.max_model_len) + NULL_BLOCKS
    return blocks * layout.bytes_per_block


def _verdict(plan: MemoryPlan, budget: MemoryBudget, needed: int) -> Verdict:
    if plan.device.is_too_full or budget.kv_bytes.high < needed:
        return Verdict.DOES_NOT_FIT
    return Verdict.FITS if budget.kv_bytes.low >= needed else Verdict.UNCERTAIN


def _binding(plan: MemoryPlan, budget: MemoryBudget, needed: int) -> str:
    if plan.device.is_too_full:
        return OTHERS
    least = 2 * plan.layout.bytes_per_block
    weights = budget.term(WEIGHTS).value
    if plan.device.kv_cache_memory_bytes is None and budget.requested_bytes - weights < least:
        return WEIGHTS
    if budget.kv_bytes.value >= least:
        return CACHE
    others = [term for term in budget.terms if term.name != WEIGHTS]
    largest = max(others, key=lambda term: term.size_bytes.value)
    return largest.name if largest.size_bytes.value > needed else CACHE


def changes(plan: MemoryPlan) -> tuple[Change, ...]:
    """Single settings that make the plan fit even at the low end, nearest first."""
    found = []
    for setting, candidates in _candidates(plan):
        for value, step, changed in candidates:
            spare = _spare(changed)
            if spare is not None and spare >= 0:
                found.append(Change(setting=setting, value=value, step=step, spare_bytes=spare))
                break
    return tuple(sorted(found, key=lambda change: change.step))


_Candidate = tuple[str, float, MemoryPlan]


def _spare(plan: MemoryPlan) -> float | None:
    """Bytes left at the low end beside one request; None where the plan cannot be."""
    try:
        budget, needed = memory_budget(plan), _needed_bytes(plan)
    except InvalidInput:
        return None
    return None if plan.device.is_too_full else budget.kv_bytes.low - needed


def _candidates(plan: MemoryPlan) -> Iterator[tuple[str, Iterator[_Candidate]]]:
    if plan.device.is_too_full:
        yield "gpu_memory_utilization", _smaller_shares(plan)
    yield "max_model_len", _shorter(plan)
    yield "kv_cache_dtype", _narrower(plan)
    yield "tensor_parallel_size", _more_ranks(plan)
    yield "weights", _packed(plan)
    if plan.device.kind == "cuda" and plan.device.kv_cache_memory_bytes is None:
        yield "max_num_batched_tokens", _smaller_batches(plan)
        yield "max_num_seqs", _fewer_slots(plan)


def _smaller_shares(plan: MemoryPlan) -> Iterator[_Candidate]:
    device = plan.device
    share = math.floor((device.free_bytes or 0) / device.total_bytes * 1000) / 1000
    if share > 0:
        smaller = replace(device, utilization=share)
        yield f"{share:g}", device.utilization / share, replace(plan, device=smaller)


def _shorter(plan: MemoryPlan) -> Iterator[_Candidate]:
    """The longest request that the low end holds, in whole blocks."""
    settings, layout = plan.settings, plan.layout
    blocks = math.floor(memory_budget(plan).kv_bytes.low / max(1, layout.bytes_per_block))
    if blocks <= NULL_BLOCKS:
        return
    longest = KvCapacity(num_blocks=blocks, layout=layout).longest_request()
    whole = longest // layout.block_size * layout.block_size
    length = whole if layout.is_plain and whole else longest
    if length >= _LEAST_TOKENS:
        shorter = replace(plan, settings=replace(settings, max_model_len=length))
        yield str(length), settings.max_model_len / length, shorter


def _narrower(plan: MemoryPlan) -> Iterator[_Candidate]:
    settings = plan.settings
    if kv_format(settings.kv_cache_dtype, settings.dtype).key_bits >= _FULL_BITS:
        yield "fp8", 2.0, replace(plan, settings=replace(settings, kv_cache_dtype="fp8"))


def _more_ranks(plan: MemoryPlan) -> Iterator[_Candidate]:
    ranks = plan.settings.tensor_parallel
    if plan.device.kind != "cuda":
        return
    for size in tensor_parallel_sizes(plan.model, _MOST_RANKS):
        if size > ranks:
            wider = replace(plan, settings=replace(plan.settings, tensor_parallel=size))
            yield str(size), size / ranks, wider


def _packed(plan: MemoryPlan) -> Iterator[_Candidate]:
    if plan.model.weights is not None:
        return
    for name, step in (("fp8", 2.0), ("W4A16", 4.0)):
        model = replace(plan.model, weights=weight_format(name))
        yield name, step, replace(plan, model=model)


def _smaller_batches(plan: MemoryPlan) -> Iterator[_Candidate]:
    present = tokens = plan.settings.max_num_batched_tokens
    while tokens // 2 >= _LEAST_TOKENS:
        tokens //= 2
        smaller = replace(plan.settings, max_num_batched_tokens=tokens)
        yield str(tokens), present / tokens, replace(plan, settings=smaller)


def _fewer_slots(plan: MemoryPlan) -> Iterator[_Candidate]:
    slots = plan.max_num_seqs
    while slots // 2 >= _LEAST_SEQS:
        slots //= 2
        yield str(slots), plan.max_num_seqs / slots, replace(plan, max_num_seqs=slots)
