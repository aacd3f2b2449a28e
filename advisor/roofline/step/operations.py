"""The operations of one step with what each of them computes and moves (handbook 1.2 and 1.3)."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from advisor.llm.feed_forward import DenseFeedForward
from advisor.llm.shape import LayerGroup
from advisor.roofline.cost import Cost
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.mixing import mixings
from advisor.roofline.step.products import Floats, Product, head_product, layer_products
from advisor.roofline.step.served import ServedModel

# Reading logits, their softmax and the choice: bytes per row and token of the vocabulary
# (handbook 3.1 gives 4 to 12).
SAMPLING_BYTES = 8.0
# Reductions of a layer under tensor parallelism: after attention, after feed-forward.
REDUCTIONS = 2


class Kind(StrEnum):
    """What bounds an operation, and which efficiency applies."""

    LINEAR = "linear"
    HEAD = "head"
    DECODE_ATTENTION = "decode attention"
    PREFILL_ATTENTION = "prefill attention"
    ELEMENTWISE = "elementwise"
    SAMPLING = "sampling"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a step, of all layers that run it, on one rank.

    Bytes by what they are: weights, cache (and recurrent state) read, activations in and out.
    `count` is how many kernels or messages it is; a message has `activation_bytes` in all.
    """

    name: str
    kind: Kind
    count: int
    flops: float = 0.0
    weight_bytes: float = 0.0
    cache_bytes: float = 0.0
    activation_bytes: float = 0.0

    @property
    def cost(self) -> Cost:
        """FLOP and bytes that the memory must move: activations may stay in a cache."""
        return Cost(flops=self.flops, bytes=self.weight_bytes + self.cache_bytes)


def operations(
    served: ServedModel, batch: StepBatch, *, routing: float | None = None
) -> tuple[Operation, ...]:
    """What one step runs, operation by operation; an empty batch runs none.

    `routing` scales the tokens that touch experts, None: the centre of the model's own range.
    """
    if not batch.rows:
        return ()
    skew = served.routing.value if routing is None else routing
    tokens, rows = np.array([batch.tokens]), np.array([batch.rows])
    return (
        *(_product(item, tokens, skew, Kind.LINEAR) for item in layer_products(served)),
        _product(head_product(served), rows, skew, Kind.HEAD),
        *_attention(served, batch),
        Operation(
            name="norms, rotation, activation",
            kind=Kind.ELEMENTWISE,
            count=served.model.num_layers,
            activation_bytes=batch.tokens * elementwise_bytes(served),
        ),
        Operation(
            name="sampling",
            kind=Kind.SAMPLING,
            count=1,
            activation_bytes=batch.rows * sampling_bytes(served),
        ),
        *_messages(served, batch),
    )


def _product(product: Product, tokens: Floats, routing: float, kind: Kind) -> Operation:
    return Operation(
        name=product.matrix.name,
        kind=kind,
        count=product.count,
        flops=float(product.flops(tokens)[0]),
        weight_bytes=float(product.read_bytes(tokens, routing)[0]),
        activation_bytes=float(product.moved_bytes(tokens)[0]),
    )


def _attention(served: ServedModel, batch: StepBatch) -> list[Operation]:
    found: list[Operation] = []
    contexts = np.array(batch.decode_contexts, dtype=np.float64)
    new = np.array([p.new_tokens for p in batch.prefills], dtype=np.float64)
    cached = np.array([p.cached_tokens for p in batch.prefills], dtype=np.float64)
    one = np.ones_like(contexts)
    for kind in mixings(served):
        if len(contexts):
            read = kind.decode_read_bytes(one, contexts).sum()
            done = kind.decode_computed_flops(one, contexts, 1 + batch.draft_tokens).sum()
            found.append(
                Operation(
                    name=f"{kind.name} of decodes",
                    kind=Kind.DECODE_ATTENTION,
                    count=kind.count,
                    flops=float(done) * kind.count,
                    cache_bytes=float(read) * kind.count,
                )
            )
        if len(new):
            read = kind.prefill_read_bytes(new, cached).sum()
            done = kind.prefill_computed_flops(new, cached).sum()
            found.append(
                Operation(
                    name=f"{kind.name} of prompts",
                    kind=Kind.PREFILL_ATTENTION,
                    count=kind.count,
                    flops=float(done) * kind.count,
                    cache_bytes=float(read) * kind.count,
                )
            )
    return found


def _messages(served: ServedModel, batch: StepBatch) -> list[Operation]:
    if served.tensor_parallel_size == 1:
        return []
    reductions = REDUCTIONS * served.model.num_layers
    return [
        Operation(
            name="all-reduce",
            kind=Kind.MESSAGE,
            count=reductions,
            activation_bytes=batch.tokens * message_bytes(served) * reductions,
        ),
        Operation(
            name="gather of logits",
            kind=Kind.MESSAGE,
            count=1,
            activation_bytes=batch.rows * served.model.vocab_size * served.element_bytes,
        ),
    ]


def message_bytes(served: ServedModel) -> float:
    """Bytes of one all-reduce per position."""
    return float(served.model.hidden_size * served.element_bytes)


def sampling_bytes(served: ServedModel) -> float:
    """Bytes that choosing one token reads and writes."""
    return served.model.vocab_size * SAMPLING_BYTES


def elementwise_bytes(served: ServedModel) -> float:
    """Bytes per position of norms, rotation, residuals and activation functions, unfused.

    Handbook 1.3: ``T (8h + 3I) 2 B`` per layer; the width of a network is shared by the ranks.
    """
    return sum(group.count * _elementwise(group, served) for group in served.model.layers)


def _elementwise(group: LayerGroup, served: ServedModel) -> float:
    network = group.feed_forward
    if network is None:
        wide = 0.0
    elif isinstance(network, DenseFeedForward):
        wide = float(network.intermediate)
    else:
        wide = float(network.active * network.intermediate + network.shared_intermediate)
    width = 8 * served.model.hidden_size + 3 * wide / served.tensor_parallel_size
    return width * served.element_bytes
