"""What a known load makes an engine compute and move, summed over its steps (handbook 1.2, 1.3)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.llm.mixers import Attention, LatentAttention
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.mixing import mixing_of
from advisor.roofline.step.operations import Kind, operations
from advisor.roofline.step.served import ServedModel

_PRODUCTS = (Kind.LINEAR, Kind.HEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """FLOP and bytes of so many steps on one rank; sums of works add up.

    `product_bytes` are activations in and out of matrix products, `elementwise_bytes` those of
    norms, residuals and activation functions, unfused: an upper bound, caches hold some of both.
    """

    steps: int = 0
    flops: float = 0.0
    weight_bytes: float = 0.0
    cache_read_bytes: float = 0.0
    cache_written_bytes: float = 0.0
    product_bytes: float = 0.0
    elementwise_bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            steps=self.steps + other.steps,
            flops=self.flops + other.flops,
            weight_bytes=self.weight_bytes + other.weight_bytes,
            cache_read_bytes=self.cache_read_bytes + other.cache_read_bytes,
            cache_written_bytes=self.cache_written_bytes + other.cache_written_bytes,
            product_bytes=self.product_bytes + other.product_bytes,
            elementwise_bytes=self.elementwise_bytes + other.elementwise_bytes,
        )


def work(served: ServedModel, steps: Iterable[StepBatch]) -> Work:
    """The sum over `steps`; sampling and messages between ranks are not in it."""
    total = Work()
    written = written_bytes_per_token(served)
    for batch in steps:
        found = operations(served, batch)
        total += Work(
            steps=1,
            flops=sum(item.flops for item in found),
            weight_bytes=sum(item.weight_bytes for item in found),
            cache_read_bytes=sum(item.cache_bytes for item in found),
            cache_written_bytes=batch.tokens * written,
            product_bytes=sum(item.activation_bytes for item in found if item.kind in _PRODUCTS),
            elementwise_bytes=sum(
                item.activation_bytes for item in found if item.kind is Kind.ELEMENTWISE
            ),
        )
    return total


def written_bytes_per_token(served: ServedModel) -> float:
    """Bytes that one position adds to the KV cache; a recurrent state is overwritten, not added."""
    return sum(
        mixing_of(group.mixer, group.count, served).key_bytes * group.count
        for group in served.model.layers
        if isinstance(group.mixer, Attention | LatentAttention)
    )


def served_alone(
    prompt_tokens: int, output_tokens: int, *, max_num_batched_tokens: int
) -> Iterator[StepBatch]:
    """The steps of a request that nobody shares the engine with; nothing of it is cached.

    The first token comes with the last chunk of the prompt; a query attends to itself too.
    """
    if prompt_tokens < 1 or output_tokens < 1 or max_num_batched_tokens < 1:
        raise InvalidInput("request", "has a prompt token, an output token and room for a chunk")
    for done in range(0, prompt_tokens, max_num_batched_tokens):
        new = min(max_num_batched_tokens, prompt_tokens - done)
        yield StepBatch(prefills=(Prefill(new_tokens=new, cached_tokens=done),))
    for made in range(1, output_tokens):
        yield StepBatch(decode_contexts=(prompt_tokens + made,))
