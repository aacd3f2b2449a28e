"""The models of the silicon rows in the sizes that their config.json publishes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.llm import LayerGroup, ModelShape, WeightFormat, weight_format
from advisor.llm.feed_forward import DenseFeedForward, Experts
from advisor.llm.mixers import Attention, LatentAttention
from tests.fakes.published_models import LLAMA_31_70B, QWEN3_32B


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedModel:
    """A model, and whether one expert network per token is chosen."""

    shape: ModelShape
    is_dense: bool


def _shape(
    architecture: str, hidden: int, vocabulary: int, groups: tuple[LayerGroup, ...]
) -> ModelShape:
    return ModelShape(
        architecture=architecture,
        hidden_size=hidden,
        vocab_size=vocabulary,
        layers=groups,
        tied_embeddings=False,
        dtype="bfloat16",
        max_position_embeddings=131072,
    )


def _mixture(
    architecture: str, hidden: int, vocabulary: int, groups: tuple[LayerGroup, ...]
) -> SizedModel:
    return SizedModel(shape=_shape(architecture, hidden, vocabulary, groups), is_dense=False)


_GPT_OSS_EXPERTS = Experts(experts=128, active=4, intermediate=2880, bias=True)
_KIMI_ATTENTION = LatentAttention(
    heads=64, kv_rank=512, query_rank=1536, nope_dim=128, rope_dim=64, value_dim=128
)


def _gpt_oss_group(window: int | None) -> LayerGroup:
    return LayerGroup(
        count=18,
        mixer=Attention(
            heads=64,
            kv_heads=8,
            head_dim=64,
            window=window,
            bias=True,
            output_bias=True,
            sinks=True,
        ),
        feed_forward=_GPT_OSS_EXPERTS,
        plain_mixer=True,
    )


MODELS: Mapping[str, SizedModel] = {
    "meta-llama/Llama-3.1-70B": SizedModel(shape=LLAMA_31_70B, is_dense=True),
    "Qwen/Qwen3-32B": SizedModel(
        shape=replace(QWEN3_32B, max_position_embeddings=131072), is_dense=True
    ),
    "Qwen/Qwen3-235B-A22B-FP8": _mixture(
        "Qwen3MoeForCausalLM",
        4096,
        151936,
        (
            LayerGroup(
                count=94,
                mixer=Attention(heads=64, kv_heads=4, head_dim=128, qk_norm=True),
                feed_forward=Experts(experts=128, active=8, intermediate=1536),
            ),
        ),
    ),
    "MiniMaxAI/MiniMax-M2.5": _mixture(
        "MiniMaxM2ForCausalLM",
        3072,
        200064,
        (
            LayerGroup(
                count=62,
                mixer=Attention(heads=48, kv_heads=8, head_dim=128, qk_norm=True),
                feed_forward=Experts(experts=256, active=8, intermediate=1536),
            ),
        ),
    ),
    "openai/gpt-oss-120b": _mixture(
        "GptOssForCausalLM", 2880, 201088, (_gpt_oss_group(128), _gpt_oss_group(None))
    ),
    "moonshotai/Kimi-K2.5": _mixture(
        "DeepseekV3ForCausalLM",
        7168,
        163840,
        (
            LayerGroup(
                count=1,
                mixer=_KIMI_ATTENTION,
                feed_forward=DenseFeedForward(intermediate=18432),
                plain_mixer=True,
                plain_feed_forward=True,
            ),
            LayerGroup(
                count=60,
                mixer=_KIMI_ATTENTION,
                feed_forward=Experts(
                    experts=384, active=8, intermediate=2048, shared_intermediate=2048
                ),
                plain_mixer=True,
            ),
        ),
    ),
}
# Formats by the data's own words; none is the checkpoint's 16 bit. gpt-oss ships MXFP4 whatever.
_FORMATS: Mapping[str, str | None] = {
    "fp8": "fp8",
    "fp4": "nvfp4",
    "int4": "W4A16",
    "": None,
}


def served_format(model: str, precision: str) -> WeightFormat | None:
    """The format of the block matrices as served."""
    name = "mxfp4" if model.startswith("openai/") else _FORMATS[precision]
    return None if name is None else weight_format(name)
