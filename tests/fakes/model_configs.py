"""Configurations of published models, as their makers wrote them, reduced to what counts."""

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def decoder(architecture: str, *sizes: int, **others: object) -> dict[str, Any]:
    """Sizes: hidden, layers, heads, KV heads, feed-forward, vocabulary."""
    keys = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    )
    named = dict(zip(keys, sizes, strict=True))
    return {"architectures": [architecture], **named, "torch_dtype": "bfloat16", **others}


LLAMA_31_8B = decoder(
    *("LlamaForCausalLM", 4096, 32, 32, 8, 14336, 128256),
    tie_word_embeddings=False,
    max_position_embeddings=131072,
)
LLAMA_31_70B = {
    **LLAMA_31_8B,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}
LLAMA_32_1B = {
    **LLAMA_31_8B,
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "tie_word_embeddings": True,
}
LLAMA_2_7B = decoder(
    "LlamaForCausalLM", 4096, 32, 32, 32, 11008, 32000, max_position_embeddings=4096
)
LLAMA_68M = decoder("LlamaForCausalLM", 768, 2, 12, 12, 3072, 32000, max_position_embeddings=2048)
MISTRAL_7B = decoder("MistralForCausalLM", 4096, 32, 32, 8, 14336, 32000, sliding_window=4096)
QWEN25_05B = decoder(
    "Qwen2ForCausalLM", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True, sliding_window=32768
)
QWEN3_06B = decoder(
    "Qwen3ForCausalLM", 1024, 28, 16, 8, 3072, 151936, tie_word_embeddings=True, head_dim=128
)
QWEN3_8B = decoder("Qwen3ForCausalLM", 4096, 36, 32, 8, 12288, 151936, head_dim=128)
QWEN3_32B = decoder(
    *("Qwen3ForCausalLM", 5120, 64, 64, 8, 25600, 151936),
    head_dim=128,
    max_position_embeddings=40960,
)
QWEN3_30B_A3B = decoder(
    *("Qwen3MoeForCausalLM", 2048, 48, 32, 4, 6144, 151936),
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    decoder_sparse_step=1,
    mlp_only_layers=[],
)
QWEN15_MOE = decoder(
    *("Qwen2MoeForCausalLM", 2048, 24, 16, 16, 5632, 151936),
    num_experts=60,
    num_experts_per_tok=4,
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632,
)
GEMMA_2B = decoder("GemmaForCausalLM", 2048, 18, 8, 1, 16384, 256000, head_dim=256)
GEMMA2_9B = decoder(
    "Gemma2ForCausalLM", 3584, 42, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096
)
GEMMA3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "intermediate_size": 21504,
        "head_dim": 128,
        "sliding_window": 1024,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "patch_size": 14,
    },
    "mm_tokens_per_image": 256,
    "torch_dtype": "bfloat16",
}
PHI4_MINI = decoder(
    "Phi3ForCausalLM",
    3072,
    32,
    24,
    8,
    8192,
    200064,
    tie_word_embeddings=True,
    sliding_window=262144,
)
MIXTRAL_8X7B = decoder(
    *("MixtralForCausalLM", 4096, 32, 32, 8, 14336, 32000),
    num_local_experts=8,
    num_experts_per_tok=2,
    sliding_window=None,
)
DEEPSEEK_V3 = decoder(
    *("DeepseekV3ForCausalLM", 7168, 61, 128, 128, 18432, 129280),
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    moe_layer_freq=1,
    num_nextn_predict_layers=1,
)
KIMI_K2 = {
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 163840,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}
DEEPSEEK_V2_LITE = decoder(
    *("DeepseekV2ForCausalLM", 2048, 27, 16, 16, 10944, 102400),
    q_lora_rank=None,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=64,
    n_shared_experts=2,
    num_experts_per_tok=6,
    moe_intermediate_size=1408,
    first_k_dense_replace=1,
)
GPT_OSS_20B = decoder(
    *("GptOssForCausalLM", 2880, 24, 64, 8, 2880, 201088),
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 12,
    attention_bias=True,
)
MAMBA2_27B = {
    "architectures": ["Mamba2ForCausalLM"],
    "hidden_size": 2560,
    "num_hidden_layers": 64,
    "num_heads": 80,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "expand": 2,
    "conv_kernel": 4,
    "vocab_size": 50288,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
QWEN3_NEXT_80B = decoder(
    *("Qwen3NextForCausalLM", 2048, 48, 16, 2, 5120, 151936),
    head_dim=256,
    full_attention_interval=4,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
)
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
GPT_J_6B = {
    "architectures": ["GPTJForCausalLM"],
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
    "n_positions": 2048,
    "vocab_size": 50400,
    "tie_word_embeddings": False,
}
OPT_67B = {
    "architectures": ["OPTForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "ffn_dim": 16384,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "word_embed_proj_dim": 4096,
    "torch_dtype": "float16",
}
BLOOM_560M = {
    "architectures": ["BloomForCausalLM"],
    "n_embed": 1024,
    "n_layer": 24,
    "num_attention_heads": 16,
    "vocab_size": 250880,
}
PYTHIA_70M = {
    "architectures": ["GPTNeoXForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "vocab_size": 50304,
    "tie_word_embeddings": False,
}
FALCON_7B = {
    "architectures": ["FalconForCausalLM"],
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "vocab_size": 65024,
}
LLAVA_15_7B = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "text_config": {"model_type": "llama", "vocab_size": 32064, "torch_dtype": "float16"},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}
