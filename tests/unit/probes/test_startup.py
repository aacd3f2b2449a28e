"""Facts that an engine states in its start-up log and cache metric."""

import json
from pathlib import Path

import pytest

from advisor.serving import EngineFacts
from advisor.units import GIB
from probes.vllm.metrics import parse_metrics
from probes.vllm.startup import read_startup, with_cache_info
from tests.fakes.planted_text import startup_lines
from tests.fakes.planted_truth import Truth, settings

# Written from the format strings of vLLM 0.32's GPU worker, which are those of 0.31.
GPU_LOG = (
    Path(__file__).parents[2] / "golden" / "engine" / "synthetic-startup-0.32.0-cuda.log"
).read_text()


def test_the_cpu_builds_log_is_read(shared: Path) -> None:
    """The lines of a real start; what they do not say is None."""
    log = (shared / "engine" / "vllm-0.32.0-cpu-startup-and-serve.log").read_text()

    assert read_startup(log) == EngineFacts(
        vllm_version="0.32.0",
        kv_cache_bytes=2 * GIB,
        kv_cache_tokens=93184,
        max_concurrency=45.5,
        dtype="bfloat16",
        max_model_len=2048,
        prefix_caching=True,
        model_runner="V1",
        threads=1,
        device_memory_bytes=round(20.96 * GIB),
        graph_mode="NONE",
        compilation_mode="NONE",
        kv_cache_dtype="auto",
        chunked_prefill=True,
        tensor_parallel=1,
    )


def test_the_cache_metric_is_more_exact_than_the_log(shared: Path) -> None:
    """Blocks and bytes are in the metric only."""
    metrics = (shared / "engine" / "vllm-0.32.0-cpu-metrics.txt").read_text()
    facts = with_cache_info(EngineFacts(dtype="bfloat16"), parse_metrics(metrics))

    assert facts == EngineFacts(
        dtype="bfloat16",
        kv_cache_bytes=2147483648,
        kv_cache_tokens=93184,
        max_concurrency=45.5,
        block_size=128,
        num_blocks=728,
        prefix_caching=True,
    )


def test_the_gpu_builds_log_is_read() -> None:
    """Weights, KV memory, graphs and what is left over."""
    facts = read_startup(GPU_LOG)

    assert facts.weight_bytes == round(14.99 * GIB)
    assert facts.kv_cache_bytes == round(110.25 * GIB)
    assert facts.kv_cache_tokens == 903152
    assert facts.device_memory_bytes == round(139.80 * GIB)
    assert facts.headroom_bytes == pytest.approx((138.5 - 15.4 - 1.2 - 0.61 - 110.25) * GIB, abs=8)
    assert facts.attention_backend == "FLASH_ATTN"
    assert facts.max_num_batched_tokens == 8192
    assert facts.async_scheduling is None
    assert facts.model_runner == "V2"
    assert facts.consumed_bytes == round(15.40 * GIB)
    assert facts.activation_bytes == round(1.20 * GIB)
    assert facts.graph_bytes == round(0.61 * GIB)
    assert (facts.graph_mode, facts.compilation_mode) == ("FULL_AND_PIECEWISE", "VLLM_COMPILE")
    assert (facts.speculative_method, facts.speculative_tokens) == ("eagle3", 3)
    assert (facts.quantization, facts.kv_cache_dtype) == ("compressed-tensors", "fp8_e4m3")
    assert facts.kernels == ("CutlassFP8ScaledMMLinearKernel", "MarlinLinearKernel", "TRITON")


def test_graphs_are_known_where_the_summary_is_not_written() -> None:
    """With a stated KV memory the worker sums nothing up."""
    lines = [line for line in GPU_LOG.splitlines() if "Free memory on device" not in line]
    facts = read_startup("\n".join(lines))

    assert facts.graph_bytes == round(0.61 * GIB)
    assert (facts.consumed_bytes, facts.headroom_bytes) == (None, None)


def test_the_engines_own_concurrency_wins(shared: Path) -> None:
    """Case M-06: for hybrid models tokens over length (8.9) is not what fits (33)."""
    case = json.loads((shared / "cases" / "m06_hybrid_log.json").read_text())
    tokens, concurrency = case["log"].values()
    log = (
        f"INFO [kv_cache_utils.py:1] GPU KV cache size: {tokens:,} tokens, Maximum concurrency for"
        f" {case['max_model_len']:,} tokens per request: {concurrency}x"
    )
    facts = read_startup(log)

    assert facts.max_concurrency == 33.04
    assert facts.kv_cache_tokens == 290864


def test_speculation_by_lookup_switches_async_scheduling_off() -> None:
    """The engine warns of it; the verdict on a technique has to know."""
    log = (
        "WARNING [vllm.py:1605] Async scheduling not supported with ngram-based speculative"
        " decoding and will be disabled."
    )

    assert read_startup(log).async_scheduling is False


def test_a_log_without_facts_gives_none() -> None:
    """Nothing is made up."""
    assert read_startup("hello\n") == EngineFacts()


def test_the_planted_engine_writes_lines_of_the_same_form() -> None:
    """What reads it reads the real one."""
    truth = Truth(num_blocks=100, block_size=16)
    chosen = settings(truth, {"speculative_config": {"num_speculative_tokens": 2}})
    before, after = startup_lines(truth, chosen, "m")
    facts = read_startup("\n".join([*before, *after]))

    assert (facts.kv_cache_tokens, facts.max_concurrency) == (1600, 0.39)
    assert facts.dtype == "bfloat16"
    assert facts.async_scheduling is False
    assert facts.weight_bytes == GIB // 4
