"""Decoders whose layers choose among experts, with grouped-query attention."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.llm.families.parts import (
    CHUNKED,
    FULL,
    SLIDING,
    Blueprint,
    Family,
    Habits,
    attending,
    attention,
    blueprint,
    every,
    gated,
    late_layers,
    networks,
    routed_experts,
    sparse_layers,
    windows,
)
from advisor.llm.feed_forward import Experts
from advisor.llm.keys import Keys

_SPELLINGS = ("num_experts", "num_local_experts")
_NOPE_PERIOD = 4  # Llama 4: every fourth layer has no rotary positions and attends to everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse(Habits):
    """Experts in the layers that `decoder_sparse_step` and `mlp_only_layers` choose, or in all.

    `shared` reads Qwen2-MoE's gated shared expert; `switched` binds the window only with
    `use_sliding_window`.
    """

    experts: str
    width: str
    shared: bool = False
    switched: bool = False

    def __call__(self, keys: Keys) -> Blueprint:
        """Layers of the config."""
        count = keys.count("num_hidden_layers")
        experts = Experts(
            experts=keys.count(self.experts, *_SPELLINGS),
            active=keys.count("num_experts_per_tok"),
            intermediate=keys.count(self.width),
            shared_intermediate=keys.count("shared_expert_intermediate_size") if self.shared else 0,
            shared_gate=self.shared,
        )
        mixer = self.attention(keys)
        feed_forwards = networks(sparse_layers(keys, count), experts, lambda: gated(keys))
        layers = attending(mixer, self._windows(keys, count), feed_forwards)
        return blueprint(keys, layers, tied=self.tied)

    def _windows(self, keys: Keys, count: int) -> tuple[int | None, ...]:
        if self.switched and not keys.flag("use_sliding_window", default=False):
            return (None,) * count
        return windows(keys, count, (SLIDING,) * count)


def _gpt_oss(keys: Keys) -> Blueprint:
    """Biases and sinks everywhere; a window in every other layer, from the first on."""
    count = keys.count("num_hidden_layers")
    bias = keys.flag("attention_bias", default=True)
    experts = Experts(
        experts=keys.count("num_local_experts", "num_experts"),
        active=keys.count("num_experts_per_tok", "experts_per_token"),
        intermediate=keys.count("intermediate_size"),
        bias=True,
    )
    mixer = replace(attention(keys), bias=bias, output_bias=bias, sinks=True)
    layers = attending(mixer, windows(keys, count, every(count, 2)), (experts,) * count)
    return blueprint(keys, layers, tied=False)


def _glm4(keys: Keys) -> Blueprint:
    """Dense layers first, then routed and shared experts (GLM-4.5)."""
    count = keys.count("num_hidden_layers")
    experts = routed_experts(keys)
    mixer = replace(
        attention(keys),
        bias=keys.flag("attention_bias", default=False),
        qk_norm=keys.flag("use_qk_norm", default=False),
    )
    feed_forwards = networks(late_layers(keys, count), experts, lambda: gated(keys))
    return blueprint(keys, attending(mixer, (None,) * count, feed_forwards), tied=False)


def _llama4(keys: Keys) -> Blueprint:
    """Experts beside a shared one in every n-th layer; attention in chunks in three of four."""
    count = keys.count("num_hidden_layers")
    width = keys.count("intermediate_size")
    experts = Experts(
        experts=keys.count("num_local_experts"),
        active=keys.count("num_experts_per_tok"),
        intermediate=width,
        shared_intermediate=width,
    )
    step = keys.optional("interleave_moe_layer_step") or 1
    stated = keys.numbers("moe_layers")
    sparse = tuple(
        (layer + 1) % step == 0 if stated is None else layer in stated for layer in range(count)
    )
    rotary = keys.numbers("no_rope_layers")
    usual = (
        tuple(CHUNKED if turns else FULL for turns in rotary)
        if rotary
        else every(count, keys.optional("no_rope_layer_interval") or _NOPE_PERIOD, first=CHUNKED)
    )
    reach = windows(keys, count, usual)
    feed_forwards = networks(sparse, experts, lambda: gated(keys, key="intermediate_size_mlp"))
    found = blueprint(keys, attending(attention(keys), reach, feed_forwards), tied=False)
    chunked = "attention in chunks is counted as a window of the same size, which is never less"
    return replace(found, notes=(chunked,) if any(reach) else ())


MIXTURE: Mapping[str, Family] = {
    "MixtralForCausalLM": Sparse(experts="num_local_experts", width="intermediate_size"),
    "Qwen2MoeForCausalLM": Sparse(
        experts="num_experts",
        width="moe_intermediate_size",
        shared=True,
        qkv_bias=True,
        switched=True,
    ),
    "Qwen3MoeForCausalLM": Sparse(
        experts="num_experts", width="moe_intermediate_size", qk_norm=True, switched=True
    ),
    "OlmoeForCausalLM": Sparse(experts="num_experts", width="intermediate_size", wide_norm=True),
    "GraniteMoeForCausalLM": Sparse(experts="num_local_experts", width="intermediate_size"),
    "MiniMaxM2ForCausalLM": Sparse(
        experts="num_local_experts", width="intermediate_size", wide_norm=True
    ),
    "GptOssForCausalLM": _gpt_oss,
    "Glm4MoeForCausalLM": _glm4,
    "Llama4ForCausalLM": _llama4,
}
