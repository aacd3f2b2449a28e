"""What attention and recurrent layers read and compute on one rank (handbook 1.2, 1.3, 2.1)."""

from dataclasses import dataclass
from functools import singledispatch
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, NoMixer
from advisor.roofline.step.served import ServedModel

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """`count` equal layers that mix tokens; figures of one layer.

    `key_bytes` are cache bytes of one token, `state_bytes` what a request keeps whatever its
    length (read and written by every step). `decode_flops` are per key of one query, `pair_flops`
    per query-key pair of a prompt, `token_flops` per token whatever its context.
    """

    name: str
    count: int
    key_bytes: float = 0.0
    state_bytes: float = 0.0
    decode_flops: float = 0.0
    pair_flops: float = 0.0
    token_flops: float = 0.0
    window: float = np.inf

    def decode_read_bytes(self, requests: Floats, contexts: Floats) -> Floats:
        """Cache and state bytes of `requests` queries at a mean of `contexts`, one layer."""
        keys = np.minimum(contexts, self.window) * self.key_bytes
        return np.asarray(requests * (keys + 2 * self.state_bytes))

    def decode_computed_flops(self, requests: Floats, contexts: Floats, queries: float) -> Floats:
        """FLOP of them, each request with `queries` positions; one layer."""
        keys = np.minimum(contexts, self.window) * self.decode_flops
        return np.asarray(requests * queries * (keys + self.token_flops))

    def prefill_read_bytes(self, new: Floats, cached: Floats) -> Floats:
        """Cache bytes of a chunk: what it attends to, its own tokens included; one layer."""
        seen = np.minimum(cached, self.window) + new
        return np.asarray(seen * self.key_bytes + 2 * self.state_bytes)

    def prefill_computed_flops(self, new: Floats, cached: Floats) -> Floats:
        """FLOP of causal attention of a chunk, or of a scan over it; one layer."""
        return np.asarray(
            self.pair_flops * pairs(new, cached, self.window) + self.token_flops * new
        )


def pairs(new: Floats, cached: Floats, window: float = np.inf) -> Floats:
    """Query-key pairs of `new` tokens after `cached` ones, with at most `window` keys each."""
    if np.isinf(window):
        return np.asarray(new * cached + new * (new + 1) / 2)
    growing = np.clip(window - cached, 0.0, new)
    return np.asarray(growing * cached + growing * (growing + 1) / 2 + (new - growing) * window)


def mixings(served: ServedModel) -> tuple[Mixing, ...]:
    """All kinds of mixing layers, in the order of the model; layers without a mixer are none."""
    return tuple(
        mixing_of(group.mixer, group.count, served)
        for group in served.model.layers
        if not isinstance(group.mixer, NoMixer)
    )


@singledispatch
def mixing_of(mixer: object, count: int, served: ServedModel) -> Mixing:
    """`count` layers of one kind on one rank."""
    raise NotImplementedError(f"{type(mixer).__name__}, {count}, {served}")


@mixing_of.register
def _attention(mixer: Attention, count: int, served: ServedModel) -> Mixing:
    ranks = served.tensor_parallel_size
    width = mixer.head_dim + mixer.values
    each = 2 * mixer.heads * width / ranks
    return Mixing(
        name="attention",
        count=count,
        key_bytes=served.key_bytes(mixer),
        decode_flops=each,
        pair_flops=each,
        window=np.inf if mixer.window is None else float(mixer.window),
    )


@mixing_of.register
def _latent(mixer: LatentAttention, count: int, served: ServedModel) -> Mixing:
    heads = mixer.heads / served.tensor_parallel_size
    return Mixing(
        name="latent_attention",
        count=count,
        key_bytes=served.key_bytes(mixer),
        decode_flops=2 * heads * (2 * mixer.kv_rank + mixer.rope_dim),
        pair_flops=2 * heads * (mixer.nope_dim + mixer.rope_dim + mixer.value_dim),
    )


@mixing_of.register
def _mamba2(mixer: Mamba2, count: int, served: ServedModel) -> Mixing:
    return _recurrent(mixer, count, served)


@mixing_of.register
def _gated_delta(mixer: GatedDeltaNet, count: int, served: ServedModel) -> Mixing:
    return _recurrent(mixer, count, served)


def _recurrent(mixer: Mamba2 | GatedDeltaNet, count: int, served: ServedModel) -> Mixing:
    ranks = served.tensor_parallel_size
    return Mixing(
        name=mixer.kind,
        count=count,
        state_bytes=mixer.state_elements * served.element_bytes / ranks,
        token_flops=mixer.decode_flops(0.0) / ranks,
    )
