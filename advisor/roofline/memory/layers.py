"""What every layer asks of the KV cache, as vLLM's specs say (v1/kv_cache_interface.py)."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from advisor.errors import InvalidInput
from advisor.llm import ModelShape, dtype_bytes
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2
from advisor.roofline.memory.kv_formats import KvFormat, kv_format, kv_token_bytes
from advisor.roofline.memory.settings import CacheSettings
from advisor.roofline.memory.sharding import kv_heads_per_rank, state_elements_per_rank

_KERNEL_BLOCK = 16  # least block of the usual attention kernels
_LATENT_STEP = 128  # blocks of latent attention beside recurrent layers are a multiple of this


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """One layer: `page_bytes` of a block of `block_size` tokens on one rank, padding included.

    `used_bytes` are those of the page that hold something. A recurrent layer's page is one state,
    of which a request holds `state_blocks`. `heads` are KV heads, key and value size: layers that
    differ in them are not of one group. `latent` layers cannot be padded.
    """

    kind: Literal["full", "sliding_window", "mamba"]
    block_size: int
    page_bytes: int
    used_bytes: int
    heads: tuple[int, ...] = ()
    window: int | None = None
    state_blocks: int = 0
    latent: bool = False

    def blocks(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks that a request of `tokens` takes at most (`max_memory_usage_bytes`)."""
        if self.kind == "mamba":
            return self.state_blocks
        if self.window is None:
            return math.ceil(tokens / self.block_size)
        held = min(self.window - 1 + in_flight_tokens, tokens)
        return math.ceil(held / self.block_size) + 1

    def widened(self, page_bytes: int) -> "LayerCache":
        """This layer with pages of `page_bytes`: larger blocks where they divide, else padding."""
        if self.page_bytes == page_bytes:
            return self
        if self.kind != "mamba" and page_bytes % self.page_bytes == 0:
            ratio = page_bytes // self.page_bytes
            return replace(
                self,
                block_size=self.block_size * ratio,
                page_bytes=page_bytes,
                used_bytes=self.used_bytes * ratio,
            )
        if self.latent:
            raise InvalidInput("model", "pages of latent attention cannot be padded to one size")
        return replace(self, page_bytes=page_bytes)


def layer_caches(model: ModelShape, settings: CacheSettings) -> tuple[LayerCache, ...]:
    """One entry per layer that caches anything, layers of a kind together.

    A KV format that does not exist for one of the layers raises `InvalidInput` with the reason.
    """
    fmt = kv_format(settings.kv_cache_dtype, settings.dtype)
    _refuse_mixed(model, fmt)
    block, state_page = hybrid_block(model, settings)
    found: list[LayerCache] = []
    for group in model.layers:
        mixer = group.mixer
        if isinstance(mixer, Attention | LatentAttention):
            found.extend([_attention_cache(mixer, fmt, settings, block)] * group.count)
        elif isinstance(mixer, Mamba2 | GatedDeltaNet):
            state = _state_cache(model, mixer, settings, (block, state_page))
            found.extend([state] * group.count)
    return tuple(found)


def _refuse_mixed(model: ModelShape, fmt: KvFormat) -> None:
    recurrent = any(isinstance(g.mixer, Mamba2 | GatedDeltaNet) for g in model.layers)
    if fmt.plain_ends and not recurrent:
        raise InvalidInput(
            "kv_cache_dtype",
            f"{fmt.name} keeps the first and last {fmt.plain_ends} layers in the model's dtype;"
            " the pages of such a mixture are not modelled",
        )


def _attention_cache(
    mixer: Attention | LatentAttention, fmt: KvFormat, settings: CacheSettings, block: int
) -> LayerCache:
    if isinstance(mixer, LatentAttention):
        page = block * kv_token_bytes(mixer, fmt, kv_heads=1)
        return LayerCache(
            kind="full",
            block_size=block,
            page_bytes=page,
            used_bytes=page,
            heads=(1, mixer.kv_elements),
            latent=True,
        )
    heads = kv_heads_per_rank(mixer.kv_heads, settings.tensor_parallel)
    page = block * kv_token_bytes(mixer, fmt, kv_heads=heads)
    windowed = mixer.window is not None and settings.hybrid_manager
    return LayerCache(
        kind="sliding_window" if windowed else "full",
        block_size=block,
        page_bytes=page,
        used_bytes=page,
        heads=(heads, mixer.head_dim, mixer.values),
        window=mixer.window if windowed else None,
    )


def _state_cache(
    model: ModelShape,
    mixer: Mamba2 | GatedDeltaNet,
    settings: CacheSettings,
    sizes: tuple[int, int],
) -> LayerCache:
    block, page = sizes
    used = state_page_bytes(model, mixer, settings)
    caching = settings.enable_prefix_caching
    return LayerCache(
        kind="mamba",
        block_size=block if caching else settings.max_model_len,
        page_bytes=max(page, used),
        used_bytes=used,
        state_blocks=(2 if caching else 1) + settings.num_speculative_tokens,
    )


def state_page_bytes(
    model: ModelShape, mixer: Mamba2 | GatedDeltaNet, settings: CacheSettings
) -> int:
    """Bytes of one state of one layer on one rank: tail in the served dtype, state in its own."""
    tail, state = state_elements_per_rank(
        mixer, settings.tensor_parallel, settings.num_speculative_tokens
    )
    widths = dtype_bytes(settings.dtype), dtype_bytes(settings.recurrent_dtype(model))
    return tail * widths[0] + state * widths[1]


def hybrid_block(model: ModelShape, settings: CacheSettings) -> tuple[int, int]:
    """Tokens of an attention block and bytes of a state's page.

    Beside recurrent layers vLLM enlarges the block until its page holds a state, then pads states
    to that page (`_align_hybrid_block_size`). Without attention, a page is the state.
    """
    mixers = [group.mixer for group in model.layers]
    states = [
        state_page_bytes(model, mixer, settings)
        for mixer in mixers
        if isinstance(mixer, Mamba2 | GatedDeltaNet)
    ]
    attention = next((m for m in mixers if isinstance(m, Attention | LatentAttention)), None)
    block = settings.block_size
    if not states or attention is None:
        return block, max(states, default=0)
    fmt = kv_format(settings.kv_cache_dtype, settings.dtype)
    heads, step = 1, _LATENT_STEP
    if isinstance(attention, Attention):
        heads, step = kv_heads_per_rank(attention.kv_heads, settings.tensor_parallel), _KERNEL_BLOCK
    token = kv_token_bytes(attention, fmt, kv_heads=heads)
    step = max(step, block)
    block = max(block, step * math.ceil(max(states) / (step * token)))
    return block, block * token
