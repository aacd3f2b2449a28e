"""An architecture nobody described, counted from the usual keys, or refused."""

from dataclasses import replace

from advisor.llm.families.latent import latent_attention
from advisor.llm.families.parts import (
    FULL,
    SLIDING,
    Blueprint,
    attention,
    blueprint,
    gated,
    late_layers,
    networks,
)
from advisor.llm.feed_forward import Experts
from advisor.llm.keys import Keys
from advisor.llm.mixers import LatentAttention, Mixer
from advisor.llm.shape import LayerGroup

_USUAL = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
# Parts of keys that only models with other layers than attention and networks have.
_FOREIGN = (
    *("mamba", "ssm", "conv", "linear_num", "lru_", "rwkv", "time_mix", "per_layer_input"),
    *("altup", "laurel", "block_configs", "hybrid", "lightning", "attn_type", "cross_attention"),
    *("index_topk", "encoder", "retention", "hyena", "recurrent", "kda"),
)
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_WIDTHS = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")


def can_be_counted(keys: Keys) -> bool:
    """Whether the keys are those of a decoder made of attention and feed-forward networks."""
    if any(keys.raw(key) is None for key in (*_USUAL, "vocab_size")):
        return False
    foreign = any(
        part in key and keys.raw(key) not in (None, False, 0)
        for key in keys.values
        for part in _FOREIGN
    )
    kinds = keys.words("layer_types") or ()
    return not foreign and set(kinds) <= {FULL, SLIDING}


def unknown(keys: Keys, architecture: str) -> Blueprint:
    """Never less than such a decoder has: full attention, biases, norms, an untied head."""
    count = keys.count("num_hidden_layers")
    latent = keys.optional("kv_lora_rank") is not None
    mixer: Mixer = latent_attention(keys) if latent else _attention(keys)
    experts = _experts(keys)
    plain = gated(keys, bias=True)
    if experts is None:
        feed_forwards = networks(
            (False,) * count, Experts(experts=1, active=1, intermediate=1), lambda: plain
        )
    else:
        feed_forwards = networks(late_layers(keys, count), experts, lambda: plain)
    layers = [
        LayerGroup(count=1, mixer=mixer, feed_forward=network, norms=4, norm_bias=True)
        for network in feed_forwards
    ]
    kind = "latent attention" if isinstance(mixer, LatentAttention) else "full attention"
    note = (
        f"architecture {architecture} is not described: counted as a decoder with {kind} and"
        f" {'experts' if experts else 'gated networks'} of the sizes in its config, with biases and"
        " norms; a figure of it is an upper estimate, not exact"
    )
    found = blueprint(keys, layers, tied=False)
    return replace(found, final_norms=2, head_bias=True, notes=(note,))


def _attention(keys: Keys) -> Mixer:
    return replace(attention(keys), bias=True, output_bias=True, wide_norm=True)


def _experts(keys: Keys) -> Experts | None:
    routed = keys.optional_number(*_EXPERTS)
    if not routed:
        return None
    width = keys.count(*_WIDTHS)
    beside = keys.optional_number("shared_expert_intermediate_size", "shared_intermediate_size")
    if beside is None:
        beside = width * (keys.optional_number("n_shared_experts", "num_shared_experts") or 0)
    return Experts(
        experts=routed,
        active=keys.count("num_experts_per_tok", "num_experts_per_token", "moe_topk"),
        intermediate=width,
        shared_intermediate=beside,
        shared_gate=bool(beside),
        bias=True,
    )
