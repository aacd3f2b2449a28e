"""What families of decoders share: layers one by one, attention, windows, experts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from advisor.errors import InvalidInput
from advisor.llm.feed_forward import DenseFeedForward, Experts, FeedForward
from advisor.llm.keys import Keys
from advisor.llm.mixers import Attention
from advisor.llm.shape import LayerGroup

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a family reads of a config: layers in their order, and all that is beside them.

    `norm_parameters` are norms outside of the layers in units of the hidden size.
    """

    layers: tuple[LayerGroup, ...]
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    max_position_embeddings: int | None
    final_norms: int = 1
    position_parameters: int = 0
    head_bias: bool = False
    notes: tuple[str, ...] = ()


Family: TypeAlias = Callable[[Keys], Blueprint]


def blueprint(keys: Keys, layers: Sequence[LayerGroup], *, tied: bool) -> Blueprint:
    """A decoder with the usual keys; `tied` is what the family does where the config is silent."""
    return Blueprint(
        layers=tuple(layers),
        hidden_size=keys.count("hidden_size"),
        vocab_size=keys.count("vocab_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", default=tied),
        max_position_embeddings=keys.optional("max_position_embeddings"),
    )


def attention(keys: Keys, *, heads: int | None = None, kv_heads: int | None = None) -> Attention:
    """Grouped-query attention with the usual keys, without biases, norms or window."""
    heads = heads or keys.count("num_attention_heads")
    kv_heads = kv_heads or keys.optional("num_key_value_heads") or heads
    if heads % kv_heads:
        raise InvalidInput(
            keys.name("num_key_value_heads"), f"{kv_heads} does not divide {heads} heads"
        )
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim(keys, heads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a config of a family with grouped-query attention leaves unsaid.

    `tied`: what is done where `tie_word_embeddings` is not written. `qkv_bias` is always there
    (Qwen2); elsewhere `attention_bias` adds one to all four projections. The norms are those of
    `Attention`.
    """

    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    wide_norm: bool = False

    def attention(self, keys: Keys) -> Attention:
        """The usual attention with the family's biases and norms, without window."""
        all_four = keys.flag("attention_bias", default=False) and not self.qkv_bias
        return replace(
            attention(keys),
            bias=self.qkv_bias or all_four,
            output_bias=all_four,
            qk_norm=self.qk_norm,
            wide_norm=self.wide_norm,
        )


def head_dim(keys: Keys, heads: int) -> int:
    """The stated size of a head, else hidden size over heads as transformers divides."""
    stated = keys.optional("head_dim")
    if stated is not None:
        return stated
    hidden = keys.count("hidden_size")
    if hidden % heads:
        raise InvalidInput(keys.name("head_dim"), f"is missing, and {heads} heads share {hidden}")
    return hidden // heads


def layer_kinds(keys: Keys, count: int) -> tuple[str, ...] | None:
    """`layer_types` of the config, one for each layer; None where they are not written."""
    kinds = keys.words("layer_types")
    if kinds is not None and len(kinds) != count:
        raise InvalidInput(keys.name("layer_types"), f"{len(kinds)} kinds for {count} layers")
    return kinds


def windows(keys: Keys, count: int, usual: Sequence[str] | None = None) -> tuple[int | None, ...]:
    """The window of each layer, None where it has none.

    `usual` are the kinds of the layers where the config does not say them.
    """
    kinds = layer_kinds(keys, count) or usual or (FULL,) * count
    # 0 switches the window off, as vLLM reads it.
    reach = {FULL: None, SLIDING: keys.optional_number("sliding_window") or None}
    if CHUNKED in kinds:
        reach[CHUNKED] = keys.optional("attention_chunk_size")
    unknown = sorted(set(kinds) - set(reach))
    if unknown:
        raise InvalidInput(keys.name("layer_types"), f"{unknown[0]!r} is not known here")
    return tuple(reach[kind] for kind in kinds)


def every(count: int, period: int, *, first: str = SLIDING, last: str = FULL) -> tuple[str, ...]:
    """`last` in every `period`-th layer, `first` in all others."""
    return tuple(last if (layer + 1) % period == 0 else first for layer in range(count))


def gated(keys: Keys, *, bias: bool = False, key: str = "intermediate_size") -> DenseFeedForward:
    """A gated network of the stated width."""
    return DenseFeedForward(intermediate=keys.count(key), bias=bias)


def routed_experts(keys: Keys) -> Experts:
    """Routed experts, and shared ones of the same width each (DeepSeek, GLM-4.5)."""
    width = keys.count("moe_intermediate_size")
    return Experts(
        experts=keys.count("n_routed_experts"),
        active=keys.count("num_experts_per_tok"),
        intermediate=width,
        shared_intermediate=width * (keys.optional_number("n_shared_experts") or 0),
    )


def sparse_layers(keys: Keys, count: int) -> tuple[bool, ...]:
    """Which layers have experts by `decoder_sparse_step` and `mlp_only_layers` (Qwen)."""
    step = keys.optional("decoder_sparse_step") or 1
    dense = keys.numbers("mlp_only_layers") or ()
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(count))


def late_layers(keys: Keys, count: int) -> tuple[bool, ...]:
    """Which layers have experts by `first_k_dense_replace` and `moe_layer_freq` (DeepSeek)."""
    first = keys.optional_number("first_k_dense_replace") or 0
    period = keys.optional("moe_layer_freq") or 1
    return tuple(layer >= first and layer % period == 0 for layer in range(count))


def networks(
    sparse: Sequence[bool], experts: Experts, dense: Callable[[], FeedForward]
) -> tuple[FeedForward, ...]:
    """The feed-forward of each layer; `dense` is only asked where some layer has no experts."""
    plain = experts if all(sparse) else dense()
    return tuple(experts if chosen else plain for chosen in sparse)


def attending(
    mixer: Attention,
    reach: Sequence[int | None],
    feed_forwards: Sequence[FeedForward],
    *,
    norms: int = 2,
) -> list[LayerGroup]:
    """Layers of one attention, each with its own window of `reach` and its own feed-forward."""
    return [
        LayerGroup(count=1, mixer=replace(mixer, window=window), feed_forward=network, norms=norms)
        for window, network in zip(reach, feed_forwards, strict=True)
    ]
