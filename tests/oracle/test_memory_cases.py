"""Memory as vLLM accounts it: the cases M-* and E-* that users ran into."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.llm import ModelShape, dense_model, read_config
from advisor.llm.mixers import Attention
from advisor.roofline.memory import (
    CacheSettings,
    DeviceMemory,
    ImageBudget,
    MemoryPlan,
    Verdict,
    available_kv_bytes,
    cache_layout,
    capacity_of,
    fit,
    image_cache_bytes,
    kv_capacity,
    kv_heads_per_rank,
    node_bounds,
    reported_capacity,
    tensor_parallel_sizes,
)
from advisor.serving import EngineFacts
from advisor.units import GIB, MIB
from tests.golden.layouts.cases import shape


def settings(**changes: Any) -> CacheSettings:
    """Settings of the worked examples: 8,192 tokens a step, async scheduling."""
    usual: dict[str, Any] = {
        "dtype": "bfloat16",
        "max_model_len": 32768,
        "max_num_batched_tokens": 8192,
    }
    return CacheSettings(**(usual | changes))


def case(shared: Path, name: str) -> Any:
    """One input of the shared cases."""
    return json.loads((shared / "cases" / name).read_text())


def test_windowed_layers_are_bounded_not_guessed(shared: Path) -> None:
    """Case M-04: windows alone are the least, no hybrid manager the most, worst case between."""
    given = case(shared, "m04_sliding.json")
    ask = given["ask"]
    heads = {"heads": 64, "kv_heads": given["num_key_value_heads"], "head_dim": given["head_dim"]}
    kinds = given["layer_types"]
    windowed = kinds.count("sliding_attention")
    model = shape(
        (windowed, Attention(**heads, window=given["sliding_window"])),
        (len(kinds) - windowed, Attention(**heads)),
    )
    asked = CacheSettings(
        dtype=ask["kv_dtype"],
        max_model_len=ask["max_model_len"],
        max_num_batched_tokens=ask["max_num_batched_tokens"],
        block_size=ask["block_size"],
        async_scheduling=False,
    )
    length, batch = ask["max_model_len"], ask["batch"]
    least = batch * model.cache_read_bytes(length)
    manager = cache_layout(model, asked)
    without = CacheSettings(
        dtype=ask["kv_dtype"], max_model_len=length, block_size=16, hybrid_manager=False
    )
    most = batch * cache_layout(model, without).request_bytes(length)
    assert least / GIB == pytest.approx(6.09, abs=0.005)
    assert most / GIB == pytest.approx(12.00, abs=0.005)
    assert manager.blocks_by_group(length)[0] * 16 == 2_192
    assert manager.request_bytes(length) / MIB == pytest.approx(243, abs=0.5)


def test_the_engines_own_concurrency_wins(shared: Path) -> None:
    """Case M-06: 33 requests, not 290,864 tokens over 32,768; the mismatch is noted."""
    given = case(shared, "m06_hybrid_log.json")
    found = reported_capacity(
        EngineFacts(
            kv_cache_tokens=given["log"]["gpu_kv_cache_size_tokens"],
            max_concurrency=given["log"]["max_concurrency_at_32768"],
            max_model_len=given["max_model_len"],
        )
    )
    assert found is not None
    assert found.requests == 33
    assert found.note is not None
    assert "8.9 requests" in found.note


def test_agreeing_figures_need_no_note() -> None:
    """For plain attention both say the same; without either nothing is known."""
    facts = EngineFacts(kv_cache_tokens=327_680, max_concurrency=2.5, max_model_len=131_072)
    found = reported_capacity(facts)
    assert found is not None
    assert (found.requests, found.note) == (2, None)
    by_tokens = reported_capacity(EngineFacts(kv_cache_tokens=327_680, max_model_len=131_072))
    assert by_tokens is not None
    assert by_tokens.requests == 2
    assert reported_capacity(EngineFacts(max_model_len=131_072)) is None


def test_images_take_cache_and_the_tower_takes_weights(shared: Path) -> None:
    """Case M-11: four times the cache of a grouped model, 288 MiB an image, tower in 16 bit."""
    given = case(shared, "m11_vlm.json")

    def bytes_per_token(text: dict[str, int]) -> int:
        mixer = Attention(heads=32, kv_heads=text["num_key_value_heads"], head_dim=text["head_dim"])
        return shape((text["num_hidden_layers"], mixer)).kv_bytes_per_token()

    own, other = bytes_per_token(given["text_config"]), bytes_per_token(given["compare_with"])
    assert (own, other) == (524_288, 131_072)
    assert image_cache_bytes(given["image_seq_length"], own) == 288 * MIB
    tower = given["vision_config"]["params"]
    plain = shape((1, Attention(heads=32, kv_heads=32, head_dim=128)))
    with_tower = ModelShape(
        architecture="case",
        hidden_size=64,
        vocab_size=1000,
        layers=plain.layers,
        tied_embeddings=True,
        dtype="bfloat16",
        max_position_embeddings=None,
        tower_parameters=tower,
    )
    assert with_tower.weight_bytes() - plain.weight_bytes() == 608_000_000


def test_kv_heads_are_copied_beyond_their_number(shared: Path) -> None:
    """Case M-12: per rank and token 81,920, 40,960 and again 40,960 B."""
    given = case(shared, "m12_tp_kv.json")
    found = []
    for ranks in given["tensor_parallel"]:
        heads = kv_heads_per_rank(given["num_key_value_heads"], ranks)
        found.append(given["num_hidden_layers"] * heads * 2 * given["head_dim"] * given["kv_bytes"])
        model = shape(
            (
                given["num_hidden_layers"],
                Attention(heads=64, kv_heads=8, head_dim=given["head_dim"]),
            )
        )
        layout = cache_layout(model, settings(tensor_parallel=ranks))
        assert layout.bytes_per_block == 16 * found[-1]
    assert found == [81_920, 40_960, 40_960]


def test_absurd_numbers_of_nodes_are_flagged(shared: Path) -> None:
    """Case M-14: 550 GB of weights need one node of eight; eleven is no answer."""
    given = case(shared, "m14_sizing.json")
    gpu = given["gpu"]
    bounds = node_bounds(
        weight_bytes=given["total_params"] * given["bytes_per_param"],
        device_bytes=gpu["hbm_gb"] * 1e9,
        devices_per_node=gpu["per_node"],
        utilization=given["gpu_memory_utilization"],
        throughput_nodes=0.3,
    )
    assert (bounds.memory, bounds.least) == (1, 1)
    assert bounds.is_absurd(11)
    assert not bounds.is_absurd(2)


def test_image_budget_is_profiled_at_the_worst_case(shared: Path) -> None:
    """Case M-15: 196,608 tokens fail at start; with the pixel cap 9,216 fit."""
    given = case(shared, "m15_mm_budget.json")
    worst = ImageBudget(
        images_per_prompt=given["images_per_prompt"],
        worst_tokens=given["worst_case_tokens_per_image"],
        pixels_per_token=given["pixels_per_token"],
    )
    capped = ImageBudget(
        images_per_prompt=given["images_per_prompt"],
        worst_tokens=given["worst_case_tokens_per_image"],
        max_pixels=given["max_pixels_per_image"],
        pixels_per_token=given["pixels_per_token"],
    )
    length = given["max_model_len"]
    assert (worst.prompt_tokens, worst.fits(length)) == (196_608, False)
    assert (capped.tokens_per_image, capped.prompt_tokens) == (768, 9_216)
    assert capped.fits(length)
    most = worst.largest_fitting_pixels(length)
    assert most is not None
    assert most >= given["max_pixels_per_image"]


def test_a_cache_smaller_than_one_request_is_refused(shared: Path) -> None:
    """Case E-10: 3.586 GiB hold 7,344 tokens; 32,768 need 16 GiB; the longest that fits."""
    given = case(shared, "e10_kv_vs_len.json")
    sizes = given["model"]
    mixer = Attention(heads=32, kv_heads=sizes["num_key_value_heads"], head_dim=sizes["head_dim"])
    model = shape((sizes["num_hidden_layers"], mixer))
    layout = cache_layout(model, settings(block_size=given["block_size"]))
    pool = capacity_of(layout, given["available_kv_gib"] * GIB)
    assert (model.kv_bytes_per_token(), pool.num_blocks, pool.tokens) == (524_288, 459, 7_344)
    assert layout.request_bytes(32768) == 16 * GIB
    assert not pool.starts
    # One block stays empty: vLLM 0.32 plans without it.
    assert given["traffic_max_prompt_plus_output"] < pool.longest_request() == 7_344 - 16


def test_a_pool_holds_so_many_requests(shared: Path) -> None:
    """Case E-16: 77,088 tokens are 4,818 blocks, 75 requests of 1,024 tokens."""
    given = case(shared, "e16_preempt.json")
    pool = kv_capacity(
        available_bytes=given["kv_tokens"] * 1024, bytes_per_token=1024, block_size=16
    )
    request = given["avg_prompt_tokens"] + given["avg_output_tokens"]
    assert (pool.num_blocks, pool.requests(request)) == (4_818, 75)


def test_ranks_that_divide_heads_and_widths(shared: Path) -> None:
    """Case E-15: {1,2,4} for three of the models, {1,2,4,8} for the one of 64 heads."""
    given = case(shared, "e15_heads.json")
    found = {}
    for item in given["models"]:
        heads, kv_heads = item["num_attention_heads"], item["num_key_value_heads"]
        model = dense_model(
            architecture="case",
            hidden_size=64,
            num_layers=1,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=128,
            intermediate_size=item["intermediate_size"],
            vocab_size=1000,
            tied_embeddings=True,
            max_position_embeddings=None,
            dtype="bfloat16",
        )
        found[item["id"]] = tensor_parallel_sizes(model, given["max_gpus"])
    assert found == {"A": (1, 2, 4), "B": (1, 2, 4), "C": (1, 2, 4, 8), "D": (1, 2, 4)}


def test_layers_of_a_config_are_laid_out(shared: Path) -> None:
    """Case M-01 through the configuration: 131,072 B a token, blocks of 16."""
    layout = cache_layout(read_config(case(shared, "m01_gqa.json")), settings())
    assert layout.bytes_per_block == 16 * 131_072


def test_a_share_is_of_the_whole_card(shared: Path) -> None:
    """Case E-08: 72 GiB asked with 30 free is refused; at most 0.375, and 12 GiB of cache."""
    given = case(shared, "e08_shared_gpu.json")
    total, free = given["gpu_total_gib"] * GIB, given["gpu_free_gib"] * GIB
    asked = DeviceMemory(
        kind="cuda",
        total_bytes=round(total),
        utilization=given["requested_gpu_memory_utilization"],
        free_bytes=round(free),
    )
    assert asked.is_too_full
    most = free / total
    assert not replace(asked, utilization=most).is_too_full
    left = available_kv_bytes(
        total_bytes=asked.total_bytes,
        utilization=most,
        non_kv_bytes=(given["weights_gib"] + given["non_kv_overhead_gib"]) * GIB,
    )
    assert most == 0.375
    assert left / GIB == pytest.approx(12.0)


def test_weights_that_leave_nothing_for_the_cache(shared: Path) -> None:
    """Case E-09: 26.39 + 4.0 GiB of 30.1: -0.27 GiB, whatever the share; packed weights or TP 2."""
    given = case(shared, "e09_weights_too_big.json")
    sizes = given["model"]
    total = round(given["gpu_total_gib"] * GIB)
    weights = sizes["params"] * sizes["dtype_bytes"]
    left = available_kv_bytes(
        total_bytes=total,
        utilization=given["gpu_memory_utilization"],
        non_kv_bytes=weights + given["activation_and_context_gib"] * GIB,
    )
    assert weights / GIB == pytest.approx(26.39, abs=0.005)
    assert left / GIB == pytest.approx(-0.27, abs=0.01)
    model = dense_model(
        architecture="Qwen2ForCausalLM",
        hidden_size=5120,
        num_layers=sizes["num_hidden_layers"],
        num_heads=40,
        num_kv_heads=sizes["num_key_value_heads"],
        head_dim=sizes["head_dim"],
        intermediate_size=13696,
        vocab_size=152064,
        tied_embeddings=False,
        max_position_embeddings=32768,
        dtype="bfloat16",
        attention_bias=True,
    )
    assert model.parameters == sizes["params"]
    card = DeviceMemory(kind="cuda", total_bytes=total, utilization=given["gpu_memory_utilization"])
    plan = MemoryPlan(
        model=model,
        settings=settings(max_model_len=given["max_model_len"]),
        device=card,
        max_num_seqs=256,
    )
    full, short = fit(plan), fit(replace(plan, settings=settings(max_model_len=8192)))
    assert full.verdict is short.verdict is Verdict.DOES_NOT_FIT
    # At the full length 4-bit weights alone leave too little: a request needs 25 GiB.
    assert "tensor_parallel_size" in {change.setting for change in full.changes}
    remedies = {change.setting for change in short.changes}
    assert {"weights", "tensor_parallel_size"} <= remedies
    assert "gpu_memory_utilization" not in remedies
