"""What others published of techniques before anything was measured here: priors with a source."""

from advisor.estimate import Estimate, Source
from advisor.hardware import Card


def _published(value: float, low: float, high: float, basis: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, source=Source.LITERATURE, basis=basis)


# Chance that one drafted token is accepted given that those before it were.
DRAFT_MODEL_ACCEPTANCE = _published(
    0.55,
    0.52,
    0.70,
    "llama-68m for LLaMA-7B by data set, sampled from 0.52, greedy to 0.70 (SpecInfer, 2305.09781)",
)
EAGLE3_ACCEPTANCE = _published(
    0.50, 0.44, 0.54, "EAGLE-3 heads of Qwen3 1.7B to 32B: 1.8 to 2.2 tokens a step (handbook 6.5)"
)
# Seconds that drafting with an EAGLE head adds to a verification, as a share of a decode step of
# one request of its target.
EAGLE_ROUND_SHARE = _published(
    0.30, 0.20, 0.40, "2.1 ms of 7.1 ms for an 8B target on an H100 (handbook 0 and 6.1)"
)
# What vLLM's engine before V1 served of what V1 serves.
FIRST_ENGINE_SHARE = _published(
    0.77,
    0.59,
    1.0,
    "up to 1.7 times the throughput of V0 (vLLM's announcement of V1, January 2025)",
)
# Bytes per second that a cache in host memory is read and written at, by generation of the link.
HOST_LINK_BYTES_PER_S = {
    4: _published(26e9, 12e9, 28e9, "PCIe 4.0 x16, pinned memory at the high end"),
    5: _published(55e9, 25e9, 57e9, "PCIe 5.0 x16 (handbook 9)"),
}
# How much longer decode attention takes in kernels that read the cache once per query head instead
# of once per group of them.
UNGROUPED_READS = _published(
    2.5, 2.0, 3.0, "FlashInfer against vLLM's PagedAttention with grouped queries (2024)"
)
# And where the card cannot convert 8-bit floats: about eight integer operations an element, once
# per query head or once per key-value head, against an A100's 9.7 T of them a second.
_COUNTED = "no conversion of e4m3 before compute capability 8.9 (PTX), operations counted"
SOFTWARE_CONVERSION = _published(1.3, 1.0, 2.0, _COUNTED)
UNGROUPED_CONVERSION = _published(2.0, 1.0, 4.0, _COUNTED)
# Share of Hopper's rate that kernels with the instructions of Ampere reach (mma.sync, no wgmma):
# Marlin, and weight-only kernels of TensorRT-LLM before 1.0. Machete has Hopper's own.
AMPERE_KERNELS_ON_HOPPER = _published(
    0.62, 0.55, 0.70, "mma.sync against wgmma on an H100 (2402.13499; Machete's announcement, 2024)"
)
_HOPPER = (9, 0)
# From 0.8 on vLLM has attention kernels for an 8-bit cache that read it once per group: those of
# FlashAttention 3 on Hopper, FlashInfer's and Triton's elsewhere.
_GROUPED_SINCE = (0, 8)
_CONVERTING_CAPABILITY = (8, 9)
_SIXTEEN_BIT_BYTES = 2
_BITS_PER_BYTE = 8


def on_unlike_text(acceptance: Estimate) -> Estimate:
    """Acceptance where the text is not like what the draft learned, such as random tokens.

    Anything between nothing and what was published, half of it at the centre: an assumption for
    planning, which a look at the traffic itself replaces.
    """
    return Estimate(
        value=acceptance.value / 2,
        low=0.0,
        high=acceptance.high,
        source=Source.LITERATURE,
        basis=f"assumed between none and: {acceptance.basis}",
    )


def narrow_cache_slowdown(release: tuple[int, int], card: Card, *, grouped: bool) -> Estimate:
    """How much slower a byte of an 8-bit cache is read than one of a 16-bit cache.

    1 where the card converts 8-bit floats and the release reads grouped. Earlier releases fell back
    to kernels that read a cache once per query head.
    """
    converts = card.meets(*_CONVERTING_CAPABILITY)
    if release >= _GROUPED_SINCE or not grouped:
        return (
            _published(1.0, 1.0, 1.0, "converted in hardware") if converts else SOFTWARE_CONVERSION
        )
    if converts:
        return UNGROUPED_READS
    return _published(
        UNGROUPED_READS.value * UNGROUPED_CONVERSION.value,
        UNGROUPED_READS.low * UNGROUPED_CONVERSION.low,
        UNGROUPED_READS.high * UNGROUPED_CONVERSION.high,
        f"{UNGROUPED_READS.basis}; {_COUNTED}",
    )


def ampere_kernel_share(card: Card) -> Estimate:
    """Share of a 16-bit kernel's compute that an unpacking kernel of Ampere's keeps on the card."""
    if card.compute_capability == ".".join(map(str, _HOPPER)):
        return AMPERE_KERNELS_ON_HOPPER
    return _published(1.0, 1.0, 1.0, "the card's own instructions")


def unfused_unpack_s(parameters: int, bits: float, memory_bytes_per_s: float) -> float:
    """Seconds that a step spends unpacking weights for which no fused kernel exists.

    Such a format (bitsandbytes) is read, written in 16 bit to memory and read again by the product,
    which then runs as without quantization.
    """
    moved = parameters * (bits / _BITS_PER_BYTE + _SIXTEEN_BIT_BYTES)
    return moved / memory_bytes_per_s
