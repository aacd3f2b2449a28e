"""Models of the published comparisons, and how a served model runs on a card at three levels."""

from collections.abc import Iterator
from dataclasses import replace

from advisor.hardware import CATALOGUE, DATASHEETS, all_reduce
from advisor.llm import ModelShape, WeightFormat, weight_format
from advisor.llm.mixers import Attention
from advisor.roofline.published import ampere_kernel_share, narrow_cache_slowdown
from advisor.roofline.step.efficiency import CENTRE, FAST, SLOW, machine, prior_efficiency
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel
from tests.fakes import published_models as published

CURRENT = (0, 32)
LEVELS = (CENTRE, FAST, SLOW)


def _half(model: ModelShape) -> ModelShape:
    return replace(model, dtype="float16", max_position_embeddings=8192)


LLAMA_3_8B = _half(published.LLAMA_31_8B)
LLAMA_3_70B = _half(published.LLAMA_31_70B)
LLAMA_2_7B = _half(published.LLAMA_2_7B)
LLAMA_68M = _half(published.LLAMA_68M)
MIXTRAL = replace(published.MIXTRAL_8X7B, dtype="float16")
QWEN3_8B = replace(published.QWEN3_8B, max_position_embeddings=40960)

# 4-bit weights whose products run in 8-bit float units.
W4_FLOAT8 = replace(weight_format("W4A16"), name="W4AFP8", units="float8")


def served(
    model: ModelShape,
    weights: WeightFormat | None = None,
    *,
    cache: str | None = None,
    ranks: int = 1,
) -> ServedModel:
    """The model with weights in another format, a cache dtype and so many ranks."""
    return ServedModel(
        model=model,
        dtype=model.dtype,
        weights=weights,
        kv_cache_dtype=cache,
        tensor_parallel_size=ranks,
    )


def machines(card: str, runs: ServedModel) -> list[Machine]:
    """The card under this model at the centre of all ranges and at both ends."""
    device = DATASHEETS[card]
    efficiency = prior_efficiency(device)
    ranks = runs.tensor_parallel_size
    table = all_reduce(card, ranks) if ranks > 1 else None
    return [machine(device, runs, efficiency, level, all_reduce=table) for level in LEVELS]


def steps(
    card: str,
    runs: ServedModel,
    release: tuple[int, int] = CURRENT,
    *,
    drafted: int = 0,
    ampere_kernels: bool = False,
) -> list[RooflineStep]:
    """Step models on those machines, under a release of vLLM.

    `ampere_kernels`: weights are unpacked by kernels that know no later instructions.
    """
    share = ampere_kernel_share(CATALOGUE[card])
    kept = (share.value, share.high, share.low) if ampere_kernels else (1.0, 1.0, 1.0)
    return [
        RooflineStep(served=runs, machine=_kept(found, part), drafted=float(drafted))
        for found, part in zip(_in_release(card, runs, release), kept, strict=True)
    ]


def _kept(found: Machine, part: float) -> Machine:
    """The machine whose quantized products reach only that part of their rate."""
    if part == 1:
        return found
    whole = found.compute if found.packed_compute is None else found.packed_compute
    return replace(found, packed_compute=part * whole)


def _in_release(card: str, runs: ServedModel, release: tuple[int, int]) -> Iterator[Machine]:
    """An 8-bit cache is read as the release can on the card."""
    found = machines(card, runs)
    if runs.kv_cache_dtype is None:
        yield from found
        return
    mixer = runs.model.attention
    grouped = isinstance(mixer, Attention) and mixer.heads > mixer.kv_heads
    slower = narrow_cache_slowdown(release, CATALOGUE[card], grouped=grouped)
    if release == CURRENT or slower.value == 1:
        yield from found
        return
    wide = machines(card, replace(runs, kv_cache_dtype=None))
    ends = (slower.value, slower.low, slower.high)
    for one, plain, factor in zip(found, wide, ends, strict=True):
        yield replace(
            one, cache=plain.cache / factor, attention_latency_s=plain.attention_latency_s
        )
