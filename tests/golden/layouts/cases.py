"""Models and settings whose cache layout the installed vLLM was asked for."""

from collections.abc import Mapping

from advisor.llm import LayerGroup, ModelShape
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, Mixer
from advisor.roofline.memory import CacheSettings

AVAILABLE_BYTES = 30 << 30
_LATENT = LatentAttention(
    heads=128, kv_rank=512, query_rank=1536, nope_dim=128, rope_dim=64, value_dim=128
)
_GATED = GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, kernel=4)
_STATE = Mamba2(inner=10240, heads=128, head_dim=80, state=128, groups=8, kernel=4)


def _heads(
    kv_heads: int, head_dim: int, *, window: int | None = None, heads: int = 32
) -> Attention:
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, window=window)


def shape(*layers: tuple[int, Mixer]) -> ModelShape:
    """A model of so many layers of each kind; what does not touch the cache is small."""
    return ModelShape(
        architecture="case",
        hidden_size=64,
        vocab_size=1000,
        layers=tuple(LayerGroup(count=count, mixer=mixer) for count, mixer in layers),
        tied_embeddings=True,
        dtype="bfloat16",
        max_position_embeddings=None,
    )


_MODELS: Mapping[str, ModelShape] = {
    "llama-8b": shape((32, _heads(8, 128))),
    "gemma-3-27b": shape((52, _heads(16, 128, window=1024)), (10, _heads(16, 128))),
    "gpt-oss-20b": shape((12, _heads(8, 64, window=128, heads=64)), (12, _heads(8, 64, heads=64))),
    "gpt-oss-eagle": shape(
        (12, _heads(8, 64, window=128, heads=64)), (13, _heads(8, 64, heads=64))
    ),
    "wide-and-narrow": shape((20, _heads(8, 128)), (6, _heads(4, 256)), (3, _heads(2, 96))),
    "two-windows": shape(
        (9, _heads(8, 128, window=512)), (21, _heads(8, 128, window=4096)), (10, _heads(8, 128))
    ),
    "unlike-heads": shape((25, _heads(8, 256, window=1024)), (5, _heads(2, 512))),
    "odd-heads": shape((10, _heads(8, 96, window=1024)), (5, _heads(8, 128))),
    "deepseek-v3": shape((61, _LATENT)),
    "qwen3-next": shape((36, _GATED), (12, _heads(2, 256, heads=16))),
    "nemotron-like": shape((24, _STATE), (4, _heads(8, 128))),
    "mamba2": shape((64, _STATE)),
}
_SETTINGS: Mapping[str, CacheSettings] = {
    "usual": CacheSettings(dtype="bfloat16", max_model_len=32768, max_num_batched_tokens=8192),
    "narrow": CacheSettings(
        dtype="bfloat16",
        max_model_len=131072,
        kv_cache_dtype="fp8",
        tensor_parallel=4,
        enable_prefix_caching=False,
        block_size=32,
    ),
    "drafts": CacheSettings(
        dtype="bfloat16",
        max_model_len=4000,
        max_num_batched_tokens=512,
        async_scheduling=False,
        num_speculative_tokens=3,
        tensor_parallel=2,
    ),
    "packed": CacheSettings(
        dtype="bfloat16", max_model_len=8192, kv_cache_dtype="int8_per_token_head", block_size=64
    ),
}
CASES: Mapping[str, tuple[ModelShape, CacheSettings]] = {
    f"{model}, {settings}": (_MODELS[model], _SETTINGS[settings])
    for model in _MODELS
    for settings in _SETTINGS
}
