"""How the KV cache stores one token of one layer, by ``--kv-cache-dtype`` (handbook 2.1).

Checked against vLLM 0.32: v1/kv_cache_interface.py and `customize_spec` of the attention backends.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput, UnknownName
from advisor.llm.formats import BITS_PER_BYTE, dtype_bytes
from advisor.llm.mixers import Attention, LatentAttention

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """One way to store keys and values.

    `key_bits` and `value_bits` are the width of an element, `key_extra_bytes` and
    `value_extra_bytes` what one head adds per token (scales, norms), `scale_group` so many elements
    that share a scale byte. `latent_bytes` is the whole token of a latent layer where the format
    packs it; `heads` and `latent` say for which layers it exists, `refusal` why not for others.
    `slot_bytes` is what the packed token of a head is rounded up to, `plain_ends` how many layers
    at each end of a dense model keep the model's dtype.
    """

    name: str
    key_bits: int
    value_bits: int
    key_extra_bytes: int = 0
    value_extra_bytes: int = 0
    scale_group: int | None = None
    slot_bytes: int = 1
    latent_bytes: int | None = None
    heads: bool = True
    latent: bool = True
    refusal: str = ""
    plain_ends: int = 0

    def head_bytes(self, key_dim: int, value_dim: int) -> int:
        """Bytes of one token in one KV head."""
        sides = (
            (key_dim, self.key_bits, self.key_extra_bytes),
            (value_dim, self.value_bits, self.value_extra_bytes),
        )
        packed = sum(
            math.ceil(size * bits / BITS_PER_BYTE) + extra + self._scales(size)
            for size, bits, extra in sides
        )
        return math.ceil(packed / self.slot_bytes) * self.slot_bytes

    def _scales(self, size: int) -> int:
        return 0 if self.scale_group is None else size // self.scale_group

    def latent_token_bytes(self, elements: int) -> int:
        """Bytes of one token of a latent layer of so many elements."""
        if self.latent_bytes is not None:
            return self.latent_bytes
        extra = self.key_extra_bytes + self.value_extra_bytes
        return math.ceil(elements * self.key_bits / BITS_PER_BYTE) + extra


def _per_token_head(name: str, bits: int) -> KvFormat:
    # One float32 scale for keys and one for values of each head and token.
    return KvFormat(
        name=name, key_bits=bits, value_bits=bits, key_extra_bytes=4, value_extra_bytes=4
    )


def _turboquant(name: str, key_bits: int, value_bits: int) -> KvFormat:
    # Keys below 8 bits carry a 16-bit norm, values a 16-bit scale and zero point.
    return KvFormat(
        name=name,
        key_bits=key_bits,
        value_bits=value_bits,
        key_extra_bytes=0 if key_bits == BITS_PER_BYTE else 2,
        value_extra_bytes=4,
        slot_bytes=2,
        latent=False,
        refusal="turboquant packs keys and values of a head, a latent cache has none",
        plain_ends=2,
    )


def _fp4(name: str) -> KvFormat:
    return KvFormat(
        name=name,
        key_bits=4,
        value_bits=4,
        scale_group=16,
        latent=False,
        refusal="nvfp4 KV does not work with latent attention (MLA); nvfp4_ds_mla does",
    )


def _ds_mla(name: str, token_bytes: int) -> KvFormat:
    return KvFormat(
        name=name,
        key_bits=8,
        value_bits=8,
        latent_bytes=token_bytes,
        heads=False,
        refusal="is a layout of sparse latent attention (MLA) only",
    )


KV_FORMATS: Mapping[str, KvFormat] = {
    item.name: item
    for item in (
        *(
            KvFormat(name=name, key_bits=bits, value_bits=bits)
            for name, bits in (
                ("float32", 32),
                ("bfloat16", 16),
                ("float16", 16),
                ("fp8", 8),
                ("fp8_e4m3", 8),
                ("fp8_e5m2", 8),
                ("fp8_inc", 8),
            )
        ),
        _per_token_head("int8_per_token_head", 8),
        _per_token_head("fp8_per_token_head", 8),
        _per_token_head("int4_per_token_head", 4),
        _fp4("nvfp4"),
        _fp4("nvfp4_4over6"),
        _ds_mla("fp8_ds_mla", 656),
        _ds_mla("nvfp4_ds_mla", 352),
        _turboquant("turboquant_k8v4", 8, 4),
        _turboquant("turboquant_4bit_nc", 4, 4),
        _turboquant("turboquant_k3v4_nc", 3, 4),
        _turboquant("turboquant_3bit_nc", 3, 3),
    )
}


def kv_format(name: str | None, dtype: str) -> KvFormat:
    """The format of a `kv_cache_dtype`; None and ``auto`` store the model's own `dtype`.

    A name that is none of vLLM's raises `UnknownName` with the known ones.
    """
    if name is None or name == AUTO:
        dtype_bytes(dtype)
        return KV_FORMATS[dtype]
    try:
        return KV_FORMATS[name]
    except KeyError:
        raise UnknownName("kv_cache_dtype", name, (AUTO, *KV_FORMATS)) from None


def kv_token_bytes(mixer: Attention | LatentAttention, fmt: KvFormat, *, kv_heads: int) -> int:
    """Bytes that one token keeps in one layer with `kv_heads` heads on a rank.

    A latent layer has one latent whatever `kv_heads`. A format that does not exist for this kind
    of layer raises `InvalidInput` with the reason.
    """
    if isinstance(mixer, LatentAttention):
        if not fmt.latent:
            raise InvalidInput("kv_cache_dtype", fmt.refusal)
        return fmt.latent_token_bytes(mixer.kv_elements)
    if not fmt.heads:
        raise InvalidInput("kv_cache_dtype", f"{fmt.name} {fmt.refusal}")
    if fmt.scale_group is not None and mixer.head_dim != mixer.values:
        raise InvalidInput("kv_cache_dtype", f"{fmt.name} needs keys and values of one size")
    return kv_heads * fmt.head_bytes(mixer.head_dim, mixer.values)
