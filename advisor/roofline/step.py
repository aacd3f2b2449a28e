"""Time of one engine step by the serial roofline: a sum of maxima, operation by operation.

Handbook 3.1: operations of a step run one after another, so a compute-bound prefill cannot hide
the cache reads of a decode. Activations, norms and cache writes are left to the efficiency.
"""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.cost import Cost
from advisor.roofline.efficiency import CENTRE, FAST, SLOW, Achieved, Efficiency, achieved


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """A chunk of one prompt: `new_tokens` computed after `cached_tokens` already in the cache."""

    new_tokens: float
    cached_tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.new_tokens <= 0 or self.cached_tokens < 0:
            raise InvalidInput("prefill", "computes more than 0 tokens after 0 or more cached ones")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What one step computes: decoding requests by their context, and prompt chunks.

    `draft_tokens` is the mean number of tokens verified per decoding request beside its own.
    """

    decode_contexts: tuple[float, ...] = ()
    prefills: tuple[Prefill, ...] = ()
    draft_tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.draft_tokens < 0 or any(context < 0 for context in self.decode_contexts):
            raise InvalidInput("batch", "draft tokens and contexts are not negative")

    @property
    def rows(self) -> float:
        """Positions that go through the head: every decoded one and one per prompt chunk."""
        return len(self.decode_contexts) * (1 + self.draft_tokens) + len(self.prefills)

    @property
    def tokens(self) -> float:
        """Positions that go through the blocks."""
        new = sum(prefill.new_tokens for prefill in self.prefills)
        return len(self.decode_contexts) * (1 + self.draft_tokens) + new


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """The operations of one step; weights are read once, however mixed the batch."""

    linear: Cost
    head: Cost
    decode_attention: Cost
    prefill_attention: Cost


def step_costs(
    model: ModelShape, batch: StepBatch, dtype: str, *, linear_bytes: int | None = None
) -> StepCosts:
    """FLOP and bytes of each operation, weights and cache in `dtype` (handbook 1.2, 1.3).

    `linear_bytes` is the width of quantized block weights; embeddings and head keep `dtype`
    (handbook 7.1).
    """
    width = dtype_bytes(dtype)
    cache_bytes = model.kv_bytes_per_token(width)
    context = sum(batch.decode_contexts)
    prompts = batch.prefills
    return StepCosts(
        linear=_matmul(model.linear_parameters, batch.tokens, linear_bytes or width),
        head=_matmul(model.head_parameters, batch.rows, width),
        # The cache is read once per request and shared by the positions it verifies.
        decode_attention=Cost(
            flops=model.attention_flops(context) * (1 + batch.draft_tokens),
            bytes=context * cache_bytes,
        ),
        prefill_attention=Cost(
            flops=sum(
                model.prefill_attention_flops(p.new_tokens, p.cached_tokens) for p in prompts
            ),
            bytes=sum(p.new_tokens + p.cached_tokens for p in prompts) * cache_bytes,
        ),
    )


def _matmul(parameters: int, rows: float, width: int) -> Cost:
    if not rows:
        return Cost()
    return Cost(flops=2 * parameters * rows, bytes=parameters * width)


def step_time_at(
    model: ModelShape,
    batch: StepBatch,
    dtype: str,
    machine: Achieved,
    *,
    linear_bytes: int | None = None,
) -> float:
    """Seconds of one step on a machine whose shares are known; an empty batch takes none."""
    if not batch.rows:
        return 0.0
    costs = step_costs(model, batch, dtype, linear_bytes=linear_bytes)
    return machine.overhead_s + sum(
        cost.time_s(rate_flops_per_s=rate, bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s)
        for cost, rate in (
            (costs.linear, machine.linear_flops_per_s),
            (costs.head, machine.matrix_flops_per_s),
            (costs.decode_attention, machine.attention_flops_per_s),
            (costs.prefill_attention, machine.attention_flops_per_s),
        )
    )


def step_time_s(
    model: ModelShape,
    device: DeviceFacts,
    batch: StepBatch,
    efficiency: Efficiency,
    *,
    dtype: str | None = None,
) -> Estimate:
    """Seconds of one step between the fast and the slow end of all ranges."""
    served = dtype or model.dtype
    fast, centre, slow = (
        step_time_at(model, batch, served, achieved(device, served, efficiency, levels))
        for levels in (FAST, CENTRE, SLOW)
    )
    return Estimate(
        value=centre,
        low=fast,
        high=slow,
        source=Source.ROOFLINE,
        basis="serial roofline, all ranges at their ends",
    )
