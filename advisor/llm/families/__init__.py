"""Families of models: what each architecture's config leaves unsaid, one table."""

from collections.abc import Mapping

from advisor.llm.families.dense import DENSE
from advisor.llm.families.hybrid import HYBRID
from advisor.llm.families.latent import LATENT
from advisor.llm.families.mixture import MIXTURE
from advisor.llm.families.older import OLDER
from advisor.llm.families.parts import Blueprint, Family
from advisor.llm.families.unknown import can_be_counted, unknown
from advisor.llm.families.vision import Tower, tower

__all__ = [
    "BY_MODEL_TYPE",
    "FAMILIES",
    "NESTED_DEFAULTS",
    "Blueprint",
    "Family",
    "Tower",
    "can_be_counted",
    "tower",
    "unknown",
]

FAMILIES: Mapping[str, Family] = {**DENSE, **MIXTURE, **LATENT, **HYBRID, **OLDER}
_LLAMA, _QWEN2, _GEMMA3 = "LlamaForCausalLM", "Qwen2ForCausalLM", "Gemma3ForCausalLM"
# `model_type` of a config, or of the text part of one, to the architecture that reads it.
BY_MODEL_TYPE: Mapping[str, str] = {
    "llama": _LLAMA,
    "mistral": "MistralForCausalLM",
    "ministral": "MinistralForCausalLM",
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": _GEMMA3,
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "bamba": "BambaForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "deci": "DeciLMForCausalLM",
    "nemotron-nas": "DeciLMForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "gptj": "GPTJForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "opt": "OPTForCausalLM",
    "bloom": "BloomForCausalLM",
    "falcon": "FalconForCausalLM",
}
# What transformers takes for keys that the text part of a multimodal config leaves out: such a
# part is saved as its difference from the defaults of its class. None as model type is Llama's.
_LLAMA_DEFAULTS: Mapping[str, object] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
NESTED_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    _LLAMA: _LLAMA_DEFAULTS,
    "MistralForCausalLM": {
        **_LLAMA_DEFAULTS,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    },
    _QWEN2: {
        **_LLAMA_DEFAULTS,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "vocab_size": 151936,
    },
    _GEMMA3: {
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
}
