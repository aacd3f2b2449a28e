"""Worked examples T1.1 and T2.1 to T2.8 of the handbook: what we compute, and what they say."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from advisor.llm import ModelShape, read_config
from advisor.llm.mixers import Attention
from advisor.roofline.memory import (
    CacheSettings,
    KvCapacity,
    available_kv_bytes,
    cache_layout,
    capacity_of,
    contiguous_utilisation,
    kv_format,
    kv_token_bytes,
    paged_utilisation,
)
from advisor.units import GIB
from tests.fakes import model_configs as published
from tests.fakes.published_models import (
    DEEPSEEK_V3,
    GEMMA3_27B,
    GPT_OSS_20B,
    LLAMA_31_8B,
    QWEN3_NEXT_80B,
)
from tests.golden.layouts.cases import shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One number of the handbook; `digits` are the decimals that it prints."""

    name: str
    computed: float
    stated: float
    digits: int = 0

    @property
    def is_met(self) -> bool:
        """Equal as far as the handbook prints it."""
        return round(self.computed - self.stated, self.digits) == 0


def parameter_counts() -> Iterator[Example]:
    """T1.1, exact totals of configurations."""
    for name, config, stated in (
        ("Llama-3.1-8B", published.LLAMA_31_8B, 8_030_261_248),
        ("Qwen2.5-0.5B", published.QWEN25_05B, 494_032_768),
        ("Qwen3-0.6B", published.QWEN3_06B, 596_049_920),
        ("Qwen3-8B", published.QWEN3_8B, 8_190_735_360),
        ("Gemma3-27B", published.GEMMA3_27B, 27_009_346_304),
        ("Mixtral-8x7B", published.MIXTRAL_8X7B, 46_702_792_704),
        ("Qwen3-30B-A3B", published.QWEN3_30B_A3B, 30_532_122_624),
        ("DeepSeek-V3", published.DEEPSEEK_V3, 671_026_404_352),
        ("gpt-oss-20b", published.GPT_OSS_20B, 20_914_757_184),
        ("Mamba2-2.7B", published.MAMBA2_27B, 2_702_599_680),
        ("Qwen3-Next-80B-A3B", published.QWEN3_NEXT_80B, 79_674_391_296),
    ):
        yield Example(name=name, computed=read_config(config).parameters, stated=stated)


_SETTINGS = CacheSettings(
    dtype="bfloat16", max_model_len=32768, max_num_batched_tokens=8192, block_size=16
)


def _pool(model: ModelShape, gib: int, settings: CacheSettings) -> KvCapacity:
    return capacity_of(cache_layout(model, settings), gib * GIB)


def _token(model: ModelShape, name: str) -> int:
    mixer = model.attention
    if mixer is None:
        return 0
    heads = mixer.kv_heads if isinstance(mixer, Attention) else 1
    return model.num_layers * kv_token_bytes(mixer, kv_format(name, model.dtype), kv_heads=heads)


def memory_examples() -> Iterator[Example]:
    """T2.1 to T2.8, each number of them."""
    yield from _token_examples()
    yield from _plain_examples()
    yield from _hybrid_examples()
    yield from _other_examples()


def _token_examples() -> Iterator[Example]:
    for model, name, stated in (
        (LLAMA_31_8B, "auto", 131_072),
        (LLAMA_31_8B, "fp8_per_token_head", 67_584),
        (LLAMA_31_8B, "int4_per_token_head", 34_816),
        (LLAMA_31_8B, "nvfp4", 36_864),
        (DEEPSEEK_V3, "auto", 70_272),
        (DEEPSEEK_V3, "fp8_ds_mla", 40_016),
    ):
        label = f"T2.1 {model.architecture}, {name}"
        yield Example(name=label, computed=_token(model, name), stated=stated)
    states = QWEN3_NEXT_80B.state_bytes()
    yield Example(name="T2.1 states", computed=states, stated=36 * 1_097_728)


def _plain_examples() -> Iterator[Example]:
    for kv_dtype, length, blocks, concurrency in (
        ("auto", 131_072, 20_480, 2.5),
        ("auto", 8192, 20_480, 40.0),
        ("fp8", 8192, 40_960, 80.0),
    ):
        settings = replace(_SETTINGS, kv_cache_dtype=kv_dtype, max_model_len=length)
        pool = _pool(LLAMA_31_8B, 40, settings)
        yield Example(
            name=f"T2.2 blocks, {kv_dtype}, {length}", computed=pool.num_blocks, stated=blocks
        )
        yield Example(
            name=f"T2.2 concurrency, {kv_dtype}, {length}",
            computed=pool.max_concurrency(length),
            stated=concurrency,
            digits=9,
        )
    latent = _pool(DEEPSEEK_V3, 20, replace(_SETTINGS, block_size=64))
    yield Example(name="T2.5 bytes per block", computed=latent.bytes_per_block, stated=4_497_408)
    yield Example(name="T2.5 blocks", computed=latent.num_blocks, stated=4_774)
    yield Example(name="T2.5 tokens", computed=latent.tokens, stated=305_536)


def _hybrid_examples() -> Iterator[Example]:
    gemma = _pool(GEMMA3_27B, 30, _SETTINGS)
    yield Example(name="T2.3 bytes per block", computed=gemma.bytes_per_block, stated=1_310_720)
    yield Example(name="T2.3 blocks", computed=gemma.num_blocks, stated=24_576)
    yield Example(
        name="T2.3 concurrency", computed=gemma.max_concurrency(32768), stated=2.864, digits=3
    )
    yield Example(name="T2.3 tokens", computed=gemma.tokens, stated=93_836)
    oss = _pool(GPT_OSS_20B, 30, replace(_SETTINGS, max_model_len=131_072))
    yield Example(name="T2.4 blocks", computed=oss.num_blocks, stated=81_920)
    yield Example(
        name="T2.4 concurrency", computed=oss.max_concurrency(131_072), stated=8.880, digits=3
    )
    yield Example(name="T2.4 tokens", computed=oss.tokens, stated=1_163_947)


def _other_examples() -> Iterator[Example]:
    left = available_kv_bytes(
        total_bytes=80 * GIB,
        utilization=0.92,
        non_kv_bytes=(15.0 + 1.6 + 1.2) * GIB,
        graph_bytes=0.6 * GIB,
    )
    yield Example(name="T2.6 GiB", computed=left / GIB, stated=55.2, digits=6)
    tiny = shape((4, Attention(heads=4, kv_heads=2, head_dim=32)))
    cpu = _pool(tiny, 1, replace(_SETTINGS, block_size=128, max_model_len=2048))
    yield Example(name="T2.7 blocks", computed=cpu.num_blocks, stated=8_192)
    yield Example(name="T2.7 tokens", computed=cpu.tokens, stated=1_048_576)
    yield Example(name="T2.7 concurrency", computed=cpu.max_concurrency(2048), stated=512, digits=9)
    lengths = (300, 900, 2000)
    contiguous = contiguous_utilisation(lengths, 8192)
    yield Example(name="T2.8 contiguous", computed=contiguous, stated=0.130, digits=3)
    paged = paged_utilisation(lengths, 16)
    yield Example(name="T2.8 paged", computed=paged, stated=0.995, digits=3)
