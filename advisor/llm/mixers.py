"""The half of a layer that mixes tokens: attention of all kinds, and recurrent layers.

Counts follow handbook 1.1 and 1.2, cache and state sizes 2.1. Elements are per layer; `hidden` is
the model's hidden size. `matmul_parameters` are matrix weights, `extra_parameters` all others.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

from typing_extensions import override

from advisor.errors import InvalidInput


def causal_pairs(new_tokens: float, cached_tokens: float, window: int | None = None) -> float:
    """Query-key pairs of `new_tokens` after `cached_tokens`; with a window at most so many keys."""
    if window is None or new_tokens + cached_tokens <= window:
        return new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2
    growing = min(new_tokens, max(0.0, window - cached_tokens))
    return causal_pairs(growing, cached_tokens) + (new_tokens - growing) * window


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Multi-head, multi-query or grouped-query attention; `window` None attends to everything.

    `bias` is on query, key and value, `output_bias` on the output; `qk_norm` normalises queries
    and keys per head, `wide_norm` over all heads at once; `sinks` is one weight per head; `gated`
    doubles the query projection.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    window: int | None = None
    bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    wide_norm: bool = False
    sinks: bool = False
    gated: bool = False
    kind: Literal["attention"] = "attention"

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads", "head_dim", "values"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"model.{name}", f"{getattr(self, name)} is below 1")
        if self.heads % self.kv_heads:
            raise InvalidInput(
                "model.kv_heads", f"{self.kv_heads} does not divide {self.heads} heads"
            )
        if self.window is not None and self.window < 1:
            raise InvalidInput("model.window", f"{self.window} is below 1")

    @property
    def values(self) -> int:
        """Elements of one value head."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def matmul_parameters(self, hidden: int) -> int:
        query = self.heads * self.head_dim * (2 if self.gated else 1)
        return hidden * (query + self.kv_elements + self.heads * self.values)

    def extra_parameters(self, hidden: int) -> int:
        query = self.heads * self.head_dim * (2 if self.gated else 1)
        return (
            (query + self.kv_elements if self.bias else 0)
            + (hidden if self.output_bias else 0)
            + (2 * self.head_dim if self.qk_norm else 0)
            + ((self.heads + self.kv_heads) * self.head_dim if self.wide_norm else 0)
            + (self.heads if self.sinks else 0)
        )

    @property
    def kv_elements(self) -> int:
        """Elements of keys and values that one token keeps."""
        return self.kv_heads * (self.head_dim + self.values)

    @property
    def state_elements(self) -> int:
        """Elements kept per request whatever its length: none."""
        return 0

    def decode_flops(self, context: float) -> float:
        """FLOP of one query over `context` keys."""
        keys = context if self.window is None else min(context, self.window)
        return 2 * self.heads * (self.head_dim + self.values) * keys

    def prefill_flops(self, new_tokens: float, cached_tokens: float) -> float:
        """FLOP of causal attention of `new_tokens` after `cached_tokens`."""
        pairs = causal_pairs(new_tokens, cached_tokens, self.window)
        return 2 * self.heads * (self.head_dim + self.values) * pairs

    def live_tokens(self, context: float) -> float:
        """Tokens of the cache that one decoding query reads."""
        return context if self.window is None else min(context, self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): one latent vector per token instead of heads."""

    heads: int
    kv_rank: int
    query_rank: int | None
    nope_dim: int
    rope_dim: int
    value_dim: int
    kind: Literal["latent"] = "latent"

    def matmul_parameters(self, hidden: int) -> int:
        width = self.heads * (self.nope_dim + self.rope_dim)
        rank = self.query_rank
        query = hidden * width if rank is None else hidden * rank + rank * width
        down = hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        return query + down + up + self.heads * self.value_dim * hidden

    def extra_parameters(self, hidden: int) -> int:
        del hidden  # norms of the two latents only
        return (self.query_rank or 0) + self.kv_rank

    @property
    def kv_elements(self) -> int:
        """Elements that one token keeps: the latent and its rotary part."""
        return self.kv_rank + self.rope_dim

    @property
    def state_elements(self) -> int:
        """Elements kept per request whatever its length: none."""
        return 0

    def decode_flops(self, context: float) -> float:
        """FLOP of one query in absorbed form."""
        return 2 * self.heads * (2 * self.kv_rank + self.rope_dim) * context

    def prefill_flops(self, new_tokens: float, cached_tokens: float) -> float:
        """FLOP of causal attention in expanded form."""
        width = self.nope_dim + self.rope_dim + self.value_dim
        return 2 * self.heads * width * causal_pairs(new_tokens, cached_tokens)

    def live_tokens(self, context: float) -> float:
        """Tokens of the cache that one decoding query reads."""
        return context


class _Uncached(ABC):
    """What layers have in common that keep no cache: every token takes the same work."""

    __slots__ = ()

    @property
    def kv_elements(self) -> int:
        """Elements that one more token keeps: none."""
        return 0

    @abstractmethod
    def decode_flops(self, context: float) -> float:
        """FLOP of one token, whatever the context."""

    def prefill_flops(self, new_tokens: float, cached_tokens: float) -> float:
        """FLOP of `new_tokens`, one after the other."""
        return self.decode_flops(cached_tokens) * new_tokens

    def live_tokens(self, context: float) -> float:
        """Tokens of a cache that one token reads: none."""
        del context
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(_Uncached):
    """A state-space layer: its state does not grow with the context."""

    inner: int
    heads: int
    head_dim: int
    state: int
    groups: int
    kernel: int
    kind: Literal["mamba2"] = "mamba2"

    @property
    def convolved(self) -> int:
        """Channels that the convolution covers."""
        return self.inner + 2 * self.groups * self.state

    def matmul_parameters(self, hidden: int) -> int:
        return hidden * (self.inner + self.convolved + self.heads) + self.inner * hidden

    def extra_parameters(self, hidden: int) -> int:
        del hidden  # convolution with bias, A, D and dt of each head, gated norm
        return self.convolved * (self.kernel + 1) + 3 * self.heads + self.inner

    @property
    def state_elements(self) -> int:
        """Elements kept per request: the convolution's tail and the state."""
        return (self.kernel - 1) * self.convolved + self.heads * self.head_dim * self.state

    @override
    def decode_flops(self, context: float) -> float:
        """FLOP of one token: update and read-out of the state."""
        del context
        return 6 * self.heads * self.head_dim * self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet(_Uncached):
    """Linear attention with a gated delta rule (Qwen3-Next)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    kind: Literal["gated_delta"] = "gated_delta"

    @property
    def convolved(self) -> int:
        """Channels that the convolution covers."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def matmul_parameters(self, hidden: int) -> int:
        values = self.value_heads * self.value_dim
        mixed = hidden * (self.convolved + values + 2 * self.value_heads)
        return mixed + values * hidden

    def extra_parameters(self, hidden: int) -> int:
        del hidden  # convolution, A and dt of each head, norm
        return self.convolved * self.kernel + 2 * self.value_heads + self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements kept per request: the convolution's tail and the state."""
        state = self.value_heads * self.value_dim * self.key_dim
        return (self.kernel - 1) * self.convolved + state

    @override
    def decode_flops(self, context: float) -> float:
        """FLOP of one token (handbook 1.2, not re-checked)."""
        del context
        return 6 * self.value_heads * self.key_dim * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMixer(_Uncached):
    """A layer that looks at no other token: a feed-forward network alone, or nothing."""

    kind: Literal["none"] = "none"

    def matmul_parameters(self, hidden: int) -> int:
        del hidden
        return 0

    def extra_parameters(self, hidden: int) -> int:
        del hidden
        return 0

    @property
    def state_elements(self) -> int:
        """Elements kept per request: none."""
        return 0

    @override
    def decode_flops(self, context: float) -> float:
        """FLOP of one token: none."""
        del context
        return 0.0


Mixer: TypeAlias = Attention | LatentAttention | Mamba2 | GatedDeltaNet | NoMixer
