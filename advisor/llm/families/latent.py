"""DeepSeek V2 and V3 and what took their form: latent attention, dense layers before experts."""

from collections.abc import Mapping
from dataclasses import replace

from advisor.llm.families.parts import (
    Blueprint,
    Family,
    blueprint,
    gated,
    late_layers,
    networks,
    routed_experts,
)
from advisor.llm.keys import Keys
from advisor.llm.mixers import LatentAttention
from advisor.llm.shape import LayerGroup


def latent_attention(keys: Keys) -> LatentAttention:
    """Ranks and head sizes; without `q_lora_rank` queries are projected in one step."""
    return LatentAttention(
        heads=keys.count("num_attention_heads"),
        kv_rank=keys.count("kv_lora_rank"),
        query_rank=keys.optional("q_lora_rank"),
        nope_dim=keys.count("qk_nope_head_dim"),
        rope_dim=keys.count("qk_rope_head_dim"),
        value_dim=keys.count("v_head_dim"),
    )


def deepseek(keys: Keys) -> Blueprint:
    """The heads for drafting (`num_nextn_predict_layers`) are loaded only to draft: left out."""
    count = keys.count("num_hidden_layers")
    experts = routed_experts(keys)
    mixer = latent_attention(keys)
    feed_forwards = networks(late_layers(keys, count), experts, lambda: gated(keys))
    layers = [LayerGroup(count=1, mixer=mixer, feed_forward=network) for network in feed_forwards]
    found = blueprint(keys, layers, tied=False)
    if keys.flag("attention_bias", default=False):
        note = "attention_bias adds vectors to the latent projections that are not counted"
        return replace(found, notes=(note,))
    return found


LATENT: Mapping[str, Family] = {
    "DeepseekV2ForCausalLM": deepseek,
    "DeepseekV3ForCausalLM": deepseek,
}
