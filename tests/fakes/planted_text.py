"""What a planted engine writes: vLLM's bodies, metrics, log lines and flags. Standard library."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes.planted_core import PlantedCore
from tests.fakes.planted_truth import Settings, Truth, text_ids

VERSION = "0.32.0"
GIB = 1 << 30
_ASYNC_OFF = (
    "Async scheduling not supported with ngram-based speculative decoding and will be disabled."
)


def prompt_of(body: Mapping[str, Any], vocab_size: int) -> tuple[tuple[int, ...], str]:
    """Token ids and text of a request's prompt, all turns and tools included."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return tuple(prompt), ""
    if isinstance(prompt, str):
        return text_ids(prompt, vocab_size), prompt
    parts = [str(body["tools"])] if body.get("tools") else []
    for message in body["messages"]:
        content = message.get("content")
        texts = content if isinstance(content, list) else [{"text": content or ""}]
        parts += [f"<{message['role']}>", *(item.get("text", "") for item in texts)]
    text = " ".join([*parts, "<assistant>"])
    return text_ids(text, vocab_size), text


def words(token_ids: Sequence[int]) -> str:
    """The text of generated tokens."""
    return "".join(f" w{token}" for token in token_ids)


def chunk(
    key: str,
    model: str,
    content: Mapping[str, Any] | Sequence[int],
    *,
    chat: bool = True,
    ids: bool = False,
    finish: str | None = None,
    whole: bool = False,
) -> dict[str, Any]:
    """A frame of a stream, or the `whole` answer; `content` is a delta or generated tokens."""
    kind = "chat.completion" if chat else "text_completion"
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if isinstance(content, Mapping):
        choice["delta"] = dict(content)
    elif not chat:
        choice["text"] = words(content)
    else:
        message = {"content": words(content)}
        choice |= {"message": {"role": "assistant", **message}} if whole else {"delta": message}
    if ids and not isinstance(content, Mapping):
        choice["token_ids"] = list(content)
    suffix = ".chunk" if chat and not whole else ""
    return {"id": key, "object": kind + suffix, "model": model, "choices": [choice]}


def usage(prompt: int, completion: int, cached: int | None) -> dict[str, Any]:
    """OpenAI's usage object."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return counts


def metrics_text(core: PlantedCore, model: str) -> str:
    """Prometheus text with vLLM's names."""
    counters = core.counters
    label = f'{{engine="0",model_name="{model}"}}'
    values: dict[str, float] = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "prefix_cache_queries_total": counters.prefix_queries,
        "prefix_cache_hits_total": counters.prefix_hits,
        "num_preemptions_total": counters.preemptions,
        "iteration_tokens_total_count": counters.steps,
        "iteration_tokens_total_sum": counters.step_tokens,
        "num_requests_running": len(core.running),
        "num_requests_waiting": len(core.waiting),
        "kv_cache_usage_perc": core.kv_usage,
    }
    if core.settings.speculative_tokens:
        values |= {
            "spec_decode_num_drafts_total": counters.drafts,
            "spec_decode_num_draft_tokens_total": counters.draft_tokens,
            "spec_decode_num_accepted_tokens_total": counters.accepted,
        }
    lines = [f"vllm:{name}{label} {float(value)}" for name, value in values.items()]
    for position, count in enumerate(counters.per_position):
        labels = f'{{engine="0",model_name="{model}",position="{position}"}}'
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f"{name}{labels} {float(count)}")
    tokens = core.pool.count * core.settings.block_size
    info = {
        "block_size": core.settings.block_size,
        "enable_prefix_caching": core.settings.prefix_caching,
        "engine": 0,
        "kv_cache_max_concurrency": tokens / core.settings.max_model_len,
        "kv_cache_size_tokens": tokens,
        "num_gpu_blocks": core.pool.count,
    }
    labels = ",".join(f'{name}="{value}"' for name, value in info.items())
    return "\n".join([*lines, f"vllm:cache_config_info{{{labels}}} 1.0", ""])


def startup_lines(truth: Truth, chosen: Settings, model: str) -> tuple[list[str], list[str]]:
    """vLLM's log lines before and after the time that a start takes."""
    core = "(EngineCore pid=1) INFO 11-29 13:05:27 "
    worker = "(Worker pid=1) INFO 11-29 13:05:38 "
    drafted = chosen.speculative_tokens
    speculation = (
        f"SpeculativeConfig(method='ngram', model=None, num_spec_tokens={drafted})"
        if drafted
        else None
    )
    tokens = truth.num_blocks * truth.block_size
    length, budget = chosen.max_model_len, chosen.max_num_batched_tokens
    config = (
        f"model='{model}', speculative_config={speculation}, tokenizer='{model}',"
        f" dtype=torch.{chosen.dtype}, max_seq_len={length}, download_dir=None,"
        f" enable_prefix_caching={chosen.prefix_caching}, enable_chunked_prefill=True,"
    )
    chunked = f"Chunked prefill is enabled with max_num_batched_tokens={budget}."
    capacity = (
        f"CPU KV cache size: {tokens:,} tokens, Maximum concurrency for {length:,} tokens per"
        f" request: {tokens / length:.2f}x"
    )
    before = [
        f"{core}[core.py:133] Initializing a V1 LLM engine (v{VERSION}) with config: {config}",
        f"{core}[scheduler.py:308] {chunked}",
        f"{worker}[cpu_model_runner.py:68] Starting to load model {model}...",
    ]
    if speculation is not None:
        before.append(f"(APIServer pid=1) WARNING 11-29 13:05:17 [vllm.py:1605] {_ASYNC_OFF}")
    after = [
        f"{worker}[gpu_model_runner.py:5150] Model loading took {truth.weight_gib} GiB memory",
        f"{core}[kv_cache_utils.py:2327] {capacity}",
    ]
    return before, after


def flags_document(flags: Mapping[str, bool]) -> dict[str, Any]:
    """What the flag script prints for this engine; `flags` says which are boolean."""
    return {
        "vllm_version": VERSION,
        "distribution": "planted",
        "build": "cpu",
        "serve_module": ["planted"],
        "flags": {name: {"type": "bool" if boolean else "str"} for name, boolean in flags.items()},
    }


def device_document(truth: Truth, threads: int) -> dict[str, Any]:
    """What the micro-benchmark prints for this engine's device: its planted rates."""

    def rate(value: float, unit: str) -> dict[str, Any]:
        return {f"value_{unit}": value, "low": value, "high": value, "samples": 5}

    return {
        "device": "cpu",
        "device_name": "planted device",
        "threads": threads,
        "cpu_features": [],
        "total_memory_bytes": 16 * GIB,
        "memory_bandwidth": {
            **rate(truth.bandwidth_bytes_per_s, "bytes_per_s"),
            "kernel": "planted",
            "kernels": {},
        },
        "matrix_rate": {
            "bf16": rate(truth.bf16_flops_per_s, "flops_per_s"),
            "fp32": rate(truth.fp32_flops_per_s, "flops_per_s"),
        },
    }
