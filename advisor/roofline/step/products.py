"""The matrix products of a model's layers on one rank, and what each of them moves and computes.

Handbook 1.1 gives the matrices, 1.2 their FLOP, 1.3 the bytes; a rank of tensor parallelism holds
its slice of columns or rows, key-value heads are replicated beyond their number, MLA's latent
projections and routers are whole on every rank.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.llm.feed_forward import DenseFeedForward, Experts
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, NoMixer
from advisor.llm.shape import LayerGroup
from advisor.roofline.memory.sharding import kv_heads_per_rank
from advisor.roofline.step.served import ServedModel

Floats: TypeAlias = NDArray[np.float64]
# Router and gate stay in the model's dtype in every quantized checkpoint.
_PLAIN = ("router", "shared_gate")
_VOCABULARY_PAD = 64  # vLLM pads the vocabulary to so many rows per rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A weight matrix on one rank; `routed` says how many experts of how many each token takes."""

    name: str
    inputs: float
    outputs: float
    routed: tuple[int, int] | None = None
    share: float = 1.0

    @property
    def weights(self) -> float:
        """Parameters on this rank, of all its experts."""
        experts = 1 if self.routed is None else self.routed[1]
        return self.inputs * self.outputs * experts * self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product that `count` layers run in every step.

    `packed` says that the weights are in the quantized format, of `weight_bytes` each; activations
    have `element_bytes`.
    """

    matrix: Matrix
    count: int
    weight_bytes: float
    element_bytes: int
    packed: bool

    def flops(self, tokens: Floats) -> Floats:
        """FLOP for so many positions, all layers."""
        each = 2 * self.matrix.inputs * self.matrix.outputs * self.count * self.matrix.share
        return np.asarray(tokens * (each * (1 if self.matrix.routed is None else self._active)))

    @property
    def _active(self) -> int:
        return 1 if self.matrix.routed is None else self.matrix.routed[0]

    def read_bytes(self, tokens: Floats, routing: float) -> Floats:
        """Weight bytes that a step with so many positions reads; idle experts are not read."""
        whole = self.matrix.inputs * self.matrix.outputs * self.count * self.weight_bytes
        if self.matrix.routed is None:
            return np.asarray(np.where(tokens > 0, whole, 0.0))
        active, experts = self.matrix.routed
        # The first position always reads its own experts, however skewed the routing.
        routed = np.minimum(tokens, np.maximum(1.0, tokens * routing))
        untouched = np.power(1 - active / experts, routed)
        return np.asarray(whole * self.matrix.share * experts * (1 - untouched))

    def moved_bytes(self, tokens: Floats) -> Floats:
        """Bytes of activations in and out."""
        width = (self.matrix.inputs + self.matrix.outputs) * self.element_bytes * self.count
        return np.asarray(tokens * (width * self._active * self.matrix.share))


def layer_products(served: ServedModel) -> tuple[Product, ...]:
    """All products of the blocks, in the order of the layers."""
    plain, packed = float(served.element_bytes), served.format.bytes_per_parameter
    found: list[Product] = []
    for group in served.model.layers:
        for matrix, kept in _group_matrices(group, served):
            found.append(
                Product(
                    matrix=matrix,
                    count=group.count,
                    weight_bytes=plain if kept else packed,
                    element_bytes=served.element_bytes,
                    packed=not kept,
                )
            )
    return tuple(found)


def head_product(served: ServedModel) -> Product:
    """The output head: a slice of the padded vocabulary on each rank."""
    model, ranks = served.model, served.tensor_parallel_size
    rows = float(model.vocab_size)
    if ranks > 1:
        pad = _VOCABULARY_PAD * ranks
        rows = math.ceil(model.vocab_size / pad) * pad / ranks
    packed = model.quantized_head and not model.tied_embeddings
    return Product(
        matrix=Matrix(name="lm_head", inputs=float(model.hidden_size), outputs=rows),
        count=1,
        weight_bytes=served.format.bytes_per_parameter if packed else float(served.element_bytes),
        element_bytes=served.element_bytes,
        packed=packed,
    )


def _group_matrices(group: LayerGroup, served: ServedModel) -> Iterator[tuple[Matrix, bool]]:
    hidden, ranks = served.model.hidden_size, served.tensor_parallel_size
    for matrix in mixer_matrices(group.mixer, hidden, ranks):
        yield matrix, group.plain_mixer
    match group.feed_forward:
        case None:
            return
        case DenseFeedForward():
            for matrix in _dense(group.feed_forward, hidden, ranks):
                yield matrix, group.plain_feed_forward
        case Experts():
            for matrix in _experts(group.feed_forward, hidden, served):
                yield matrix, group.plain_feed_forward or matrix.name in _PLAIN


@singledispatch
def mixer_matrices(mixer: object, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    """Matrices of one layer's token mixer on one rank."""
    raise NotImplementedError(f"{type(mixer).__name__}, {hidden}, {ranks}")


@mixer_matrices.register
def _nothing(mixer: NoMixer, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    del mixer, hidden, ranks
    return ()


@mixer_matrices.register
def _attention(mixer: Attention, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    query = mixer.heads * mixer.head_dim * (2 if mixer.gated else 1) / ranks
    cached = kv_heads_per_rank(mixer.kv_heads, ranks) * (mixer.head_dim + mixer.values)
    return (
        Matrix(name="qkv", inputs=hidden, outputs=query + cached),
        Matrix(name="attention_out", inputs=mixer.heads * mixer.values / ranks, outputs=hidden),
    )


@mixer_matrices.register
def _latent(mixer: LatentAttention, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    width = mixer.heads * (mixer.nope_dim + mixer.rope_dim) / ranks
    latent = mixer.kv_rank + mixer.rope_dim
    up = mixer.heads * (mixer.nope_dim + mixer.value_dim) / ranks
    queries: tuple[Matrix, ...]
    if mixer.query_rank is None:
        queries = (
            Matrix(name="query", inputs=hidden, outputs=width),
            Matrix(name="kv_down", inputs=hidden, outputs=latent),
        )
    else:
        queries = (
            Matrix(name="query_kv_down", inputs=hidden, outputs=mixer.query_rank + latent),
            Matrix(name="query_up", inputs=mixer.query_rank, outputs=width),
        )
    return (
        *queries,
        Matrix(name="kv_up", inputs=mixer.kv_rank, outputs=up),
        Matrix(name="attention_out", inputs=mixer.heads * mixer.value_dim / ranks, outputs=hidden),
    )


@mixer_matrices.register
def _mamba2(mixer: Mamba2, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    wide = (mixer.inner + mixer.convolved + mixer.heads) / ranks
    return (
        Matrix(name="state_in", inputs=hidden, outputs=wide),
        Matrix(name="state_out", inputs=mixer.inner / ranks, outputs=hidden),
    )


@mixer_matrices.register
def _gated_delta(mixer: GatedDeltaNet, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    values = mixer.value_heads * mixer.value_dim
    return (
        Matrix(name="state_in", inputs=hidden, outputs=(mixer.convolved + values) / ranks),
        Matrix(name="state_gates", inputs=hidden, outputs=2 * mixer.value_heads / ranks),
        Matrix(name="state_out", inputs=values / ranks, outputs=hidden),
    )


def _dense(network: DenseFeedForward, hidden: int, ranks: int) -> tuple[Matrix, ...]:
    wide = network.intermediate / ranks
    return (
        Matrix(name="up", inputs=hidden, outputs=(2 if network.gated else 1) * wide),
        Matrix(name="down", inputs=wide, outputs=hidden),
    )


def _experts(network: Experts, hidden: int, served: ServedModel) -> tuple[Matrix, ...]:
    ranks = served.tensor_parallel_size
    routed = (network.active, network.experts)
    # A rank has a slice of each expert, or its part of them whole.
    slices, share = (1, 1 / ranks) if served.expert_parallel else (ranks, 1.0)
    wide, sides = network.intermediate / slices, 2 if network.gated else 1
    found = [
        Matrix(name="router", inputs=hidden, outputs=network.experts),
        Matrix(name="experts_up", inputs=hidden, outputs=sides * wide, routed=routed, share=share),
        Matrix(name="experts_down", inputs=wide, outputs=hidden, routed=routed, share=share),
    ]
    if network.shared_intermediate:
        shared = network.shared_intermediate / ranks
        found += [
            Matrix(name="shared_up", inputs=hidden, outputs=sides * shared),
            Matrix(name="shared_down", inputs=shared, outputs=hidden),
        ]
    if network.shared_gate:
        found.append(Matrix(name="shared_gate", inputs=hidden, outputs=1))
    return tuple(found)
