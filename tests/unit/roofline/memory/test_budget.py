"""Where the memory of a device goes, whether an engine starts, and what would help."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Source
from advisor.hardware import datasheet
from advisor.roofline.memory import (
    BEFORE_0_21,
    CacheSettings,
    DeviceMemory,
    ImageBudget,
    MemoryPlan,
    Verdict,
    cache_layout,
    capacity_of,
    fit,
    kv_capacity,
    memory_budget,
    node_bounds,
    pool_waste,
)
from advisor.roofline.memory_plan import memory_plan
from advisor.serving import EngineFacts, FunctionalSettings, Levers, ServingConfig
from advisor.units import GIB
from tests.fakes.published_models import LLAMA_31_8B
from tests.golden.layouts.cases import CASES


def plan(
    total_gib: float = 80.0,
    *,
    max_model_len: int = 8192,
    ranks: int = 1,
    kind: str = "cuda",
    **device: Any,
) -> MemoryPlan:
    """Llama-3.1-8B on one device."""
    return MemoryPlan(
        model=LLAMA_31_8B,
        settings=CacheSettings(
            dtype="bfloat16", max_model_len=max_model_len, tensor_parallel=ranks
        ),
        device=DeviceMemory(kind=kind, total_bytes=round(total_gib * GIB), **device),
        max_num_seqs=256,
    )


def test_terms_and_cache_are_the_requested_memory() -> None:
    """Nothing is lost: the centres add up to the share of the device."""
    budget = memory_budget(plan())
    parts = sum(term.size_bytes.value for term in budget.terms) + budget.kv_bytes.value
    assert parts == pytest.approx(budget.requested_bytes)
    assert budget.headroom_bytes == pytest.approx(80 * GIB - budget.requested_bytes)
    assert [term.name for term in budget.terms] == [
        "weights",
        "activations",
        "CUDA graphs",
        "other",
    ]


def test_every_term_says_where_it_comes_from() -> None:
    """Priors are literature, weights arithmetic, the cache the weaker of them, all 90 %."""
    budget = memory_budget(plan(ranks=2))
    assert budget.term("weights").source is Source.ROOFLINE
    assert budget.term("communication").source is Source.LITERATURE
    assert budget.kv_bytes.source is Source.LITERATURE
    assert "90 %" in budget.kv_bytes.basis
    assert budget.kv_bytes.not_modelled
    with pytest.raises(UnknownName, match="activations"):
        budget.term("heap")


def test_measured_facts_replace_priors() -> None:
    """Reported bytes and blocks leave no interval; reported weights replace the count."""
    facts = EngineFacts(weight_bytes=16 * GIB, kv_cache_bytes=50 * GIB, num_blocks=25_600)
    budget = memory_budget(plan(), facts)
    assert budget.kv_bytes.low == budget.kv_bytes.high == 50 * GIB
    assert budget.kv_bytes.source is budget.term("weights").source is Source.MEASURED
    assert budget.tokens.low == budget.tokens.high == 25_600 * 16
    blocks = memory_budget(plan(), EngineFacts(num_blocks=1000))
    assert blocks.kv_bytes.value == 1000 * 16 * 131_072


def test_a_stated_cache_overrides_the_share() -> None:
    """kv_cache_memory_bytes, and the CPU's space, set the cache whatever the share."""
    stated = memory_budget(plan(kv_cache_memory_bytes=4 * GIB))
    assert stated.kv_bytes.value == 4 * GIB
    on_cpu = memory_budget(plan(64, kind="cpu", kv_cache_memory_bytes=GIB))
    assert on_cpu.tokens.value == GIB // 131_072
    assert on_cpu.headroom_bytes < 64 * GIB - GIB


def test_the_cpu_takes_a_share_less_what_the_process_holds() -> None:
    """Without a stated space: node memory times the share, less resident memory."""
    budget = memory_budget(plan(64, kind="cpu"))
    assert [term.name for term in budget.terms] == ["weights", "process"]
    assert budget.kv_bytes.low < budget.kv_bytes.value < budget.kv_bytes.high


def test_older_engines_do_not_subtract_graphs() -> None:
    """Before 0.21 graphs came on top; eager engines have none."""
    older = memory_budget(replace(plan(), prior=BEFORE_0_21))
    eager = memory_budget(replace(plan(), enforce_eager=True))
    for budget in (older, eager):
        assert "CUDA graphs" not in [term.name for term in budget.terms]


def test_images_are_profiled_too() -> None:
    """Encoded images of one batch are a term of their own."""
    images = ImageBudget(images_per_prompt=2, worst_tokens=4096)
    budget = memory_budget(replace(plan(), images=images))
    assert budget.term("encoded images").value == 4096 * 4096 * 2
    assert images.largest_fitting_pixels(1024) is None
    with pytest.raises(InvalidInput, match="pixels_per_token"):
        ImageBudget(images_per_prompt=1, worst_tokens=10, max_pixels=100)
    with pytest.raises(InvalidInput, match="at least one token"):
        ImageBudget(images_per_prompt=1, worst_tokens=0)


def test_what_fits_surely_needs_no_change() -> None:
    """An 8B model on an 80 GiB card."""
    found = fit(plan())
    assert found.verdict is Verdict.FITS
    assert found.changes == ()
    assert found.missing_bytes < 0
    assert found.text.startswith("fits: ")


def test_weights_that_leave_nothing() -> None:
    """Case E-09: the weights bind; packed ones or two ranks help, a higher share is no advice."""
    found = fit(plan(16.0))
    assert (found.verdict, found.binding) == (Verdict.DOES_NOT_FIT, "weights")
    settings = [change.setting for change in found.changes]
    assert {"weights", "tensor_parallel_size"} <= set(settings)
    assert "gpu_memory_utilization" not in settings
    assert "max_model_len" not in settings
    assert all(change.spare_bytes >= 0 for change in found.changes)


def test_a_request_that_is_too_long() -> None:
    """The cache binds; the nearest change shortens the model by what is missing."""
    found = fit(plan(24.0, max_model_len=65536))
    assert (found.verdict, found.binding) == (Verdict.DOES_NOT_FIT, "KV cache of one request")
    nearest = {change.setting: change for change in found.changes}
    length = int(nearest["max_model_len"].value)
    assert length % 16 == 0
    assert fit(plan(24.0, max_model_len=length)).verdict is Verdict.FITS
    assert fit(plan(24.0, max_model_len=2 * length)).verdict is not Verdict.FITS
    steps = [change.step for change in found.changes]
    assert steps == sorted(steps)


def test_between_the_ends_it_may_not_fit() -> None:
    """A request that fits at the high end only."""
    low, high = memory_budget(plan(24.0)).tokens.low, memory_budget(plan(24.0)).tokens.high
    found = fit(plan(24.0, max_model_len=int((low + high) / 2)))
    assert found.verdict is Verdict.UNCERTAIN
    assert found.changes


def test_memory_that_others_use_is_named() -> None:
    """Case E-08: 0.9 of 80 GiB with 30 free fails; at most 0.375 starts, never a higher share."""
    crowded = plan(80.0, utilization=0.9, free_bytes=30 * GIB)
    found = fit(crowded)
    assert (found.verdict, found.binding) == (
        Verdict.DOES_NOT_FIT,
        "memory that others use",
    )
    (share,) = [c for c in found.changes if c.setting == "gpu_memory_utilization"]
    assert float(share.value) <= 0.375
    assert fit(replace(crowded, device=replace(crowded.device, utilization=0.375))).verdict in {
        Verdict.FITS,
        Verdict.UNCERTAIN,
    }


def test_a_huge_batch_binds_by_its_activations() -> None:
    """Fewer tokens a step or fewer slots are among the changes then."""
    crowded = plan(24.0)
    wide = replace(crowded.settings, max_num_batched_tokens=131_072)
    found = fit(replace(crowded, settings=wide))
    assert (found.verdict, found.binding) == (Verdict.DOES_NOT_FIT, "activations")
    assert "max_num_batched_tokens" in {change.setting for change in found.changes}


def test_a_plan_takes_the_engines_defaults() -> None:
    """Unset levers are vLLM's own; set ones are kept."""
    device = datasheet("h100-sxm")
    usual = memory_plan(LLAMA_31_8B, device, ServingConfig())
    assert usual.settings.max_model_len == 131_072
    assert usual.device.utilization == 0.92
    assert usual.settings.async_scheduling
    levers = Levers(max_num_seqs=7, gpu_memory_utilization=0.5, kv_cache_dtype="fp8", block_size=32)
    functional = FunctionalSettings(max_model_len=1000, kv_cache_space_gib=2)
    own = memory_plan(LLAMA_31_8B, device, ServingConfig(functional=functional, levers=levers))
    assert (own.max_num_seqs, own.settings.block_size, own.settings.max_model_len) == (7, 32, 1000)
    assert memory_budget(own).kv_bytes.value == 2 * GIB


def test_no_cache_below_two_blocks() -> None:
    """A device too small holds no token and no request."""
    budget = memory_budget(plan(8.0))
    assert budget.tokens.value == budget.requests(100).value == 0
    with pytest.raises(InvalidInput, match="hold 1 blocks"):
        kv_capacity(available_bytes=100, bytes_per_token=1, block_size=64)


def test_devices_and_nodes_are_checked() -> None:
    """Nothing below 1, no share above it."""
    with pytest.raises(UnknownName, match="kind of device"):
        DeviceMemory(kind="tpu", total_bytes=1)
    with pytest.raises(InvalidInput, match="share"):
        DeviceMemory(kind="cuda", total_bytes=1, utilization=1.5)
    with pytest.raises(InvalidInput, match="positive"):
        node_bounds(weight_bytes=1, device_bytes=1, devices_per_node=0, utilization=0.9)


def test_a_pool_wastes_its_null_block_dead_layers_and_copies() -> None:
    """Gemma-3-27B: 8 dead layers of 70; 16 ranks on 8 heads hold everything twice."""
    gemma, settings = CASES["gemma-3-27b, usual"]
    pool = capacity_of(cache_layout(gemma, settings), 30 * GIB)
    alone = pool_waste(pool)
    assert alone.null_bytes == pool.bytes_per_block
    assert alone.padding_bytes == pytest.approx(
        (pool.num_blocks - 1) * pool.bytes_per_block * 8 / 70
    )
    assert alone.copied_bytes == 0
    twice = pool_waste(pool, ranks=16, replicas=2)
    assert twice.share == pytest.approx(0.5 + alone.share / 2, rel=1e-3)
    with pytest.raises(InvalidInput, match="replicas"):
        pool_waste(pool, ranks=2, replicas=4)


def test_the_engines_concurrency_wins_over_our_layout() -> None:
    """Cases M-04 and M-06: where both disagree capacity follows the engine, and a note says so."""
    agreeing = EngineFacts(num_blocks=25_600, max_concurrency=50.0, max_model_len=8192)
    budget = memory_budget(plan(), agreeing)
    assert (budget.num_blocks, budget.notes) == (25_600, ())
    other = memory_budget(plan(), replace(agreeing, max_concurrency=33.04))
    assert other.requests(8192).value == 33
    assert "33.04 requests of 8,192 tokens" in other.notes[0]
    alone = memory_budget(plan(), replace(agreeing, num_blocks=None))
    assert alone.num_blocks == 25_600
