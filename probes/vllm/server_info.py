"""The configuration that an engine resolved, as ``GET /server_info`` tells it (development mode).

It states exactly what the log leaves out: defaults that were never written to the command, and what
vLLM switched off by itself without a line.
"""

from collections.abc import Mapping
from dataclasses import replace

from advisor.serving import EngineFacts

SERVER_INFO = "/server_info?config_format=json"


def with_server_info(facts: EngineFacts, info: Mapping[str, object]) -> EngineFacts:
    """The facts with what the resolved configuration states; what it lacks stays as it was."""
    config = _section(info, "vllm_config")
    scheduler, cache = _section(config, "scheduler_config"), _section(config, "cache_config")
    parallel = _section(config, "parallel_config")
    system = _section(info, "system_env")
    return replace(
        facts,
        max_num_seqs=_whole(scheduler, "max_num_seqs", facts.max_num_seqs),
        max_num_batched_tokens=_whole(
            scheduler, "max_num_batched_tokens", facts.max_num_batched_tokens
        ),
        async_scheduling=_truth(scheduler, "async_scheduling", facts.async_scheduling),
        chunked_prefill=_truth(scheduler, "enable_chunked_prefill", facts.chunked_prefill),
        prefix_caching=_truth(cache, "enable_prefix_caching", facts.prefix_caching),
        kv_cache_dtype=_text(cache, "cache_dtype", facts.kv_cache_dtype),
        tensor_parallel=_whole(parallel, "tensor_parallel_size", facts.tensor_parallel),
        executor=_text(parallel, "distributed_executor_backend", facts.executor),
        torch_version=_text(system, "torch_version", facts.torch_version),
        driver_version=_text(system, "nvidia_driver_version", facts.driver_version),
    )


def _section(info: Mapping[str, object], name: str) -> Mapping[str, object]:
    held = info.get(name)
    return held if isinstance(held, Mapping) else {}


def _whole(held: Mapping[str, object], name: str, otherwise: int | None) -> int | None:
    value = held.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _truth(
    held: Mapping[str, object],
    name: str,
    otherwise: bool | None,  # noqa: FBT001
) -> bool | None:
    value = held.get(name)
    return value if isinstance(value, bool) else otherwise


def _text(held: Mapping[str, object], name: str, otherwise: str | None) -> str | None:
    value = held.get(name)
    return value if isinstance(value, str) and value else otherwise
