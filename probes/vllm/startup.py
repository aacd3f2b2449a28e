"""What a started engine said of itself, read from its log and from its cache metric.

The lines' forms are those of vLLM's source (`v1/core/kv_cache_utils.py`, `v1/worker/gpu_worker.py`,
`v1/worker/cpu_worker.py`, `v1/worker/gpu_model_runner.py`, `config/vllm.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from advisor.serving import EngineFacts
from advisor.units import GIB
from probes.vllm.metrics import EngineSnapshot

Value = str | int | float | bool


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _gib(text: str) -> int:
    return round(float(text) * GIB)


def _truth(text: str) -> bool:
    return text == "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A log line: each group of `pattern` is one fact."""

    pattern: re.Pattern[str]
    facts: tuple[tuple[str, Callable[[str], Value]], ...]


_LINES = (
    _Line(
        pattern=re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\)"),
        facts=(("vllm_version", str),),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?, dtype=torch\.(\w+), max_seq_len=(\d+),"),
        facts=(("dtype", str), ("max_model_len", int)),
    ),
    _Line(
        pattern=re.compile(
            r"with config: .*?, enable_prefix_caching=(True|False),"
            r" enable_chunked_prefill=(True|False),"
        ),
        facts=(("prefix_caching", _truth), ("chunked_prefill", _truth)),
    ),
    _Line(
        pattern=re.compile(
            r"with config: .*?, speculative_config=SpeculativeConfig\(method='(\w+)',"
            r" model=.{1,400}?, num_spec_tokens=(\d+)"
        ),
        facts=(("speculative_method", str), ("speculative_tokens", int)),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?, tensor_parallel_size=(\d+),"),
        facts=(("tensor_parallel", int),),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?, quantization=(?!None)(\w[\w\-]*),"),
        facts=(("quantization", str),),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?, kv_cache_dtype=(\w+),"),
        facts=(("kv_cache_dtype", str),),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?'mode': <CompilationMode\.(\w+):"),
        facts=(("compilation_mode", str),),
    ),
    _Line(
        pattern=re.compile(r"with config: .*?'cudagraph_mode': <CUDAGraphMode\.(\w+):"),
        facts=(("graph_mode", str),),
    ),
    # CPU, GPU, XPU: the device's name stands before "KV cache size".
    _Line(
        pattern=re.compile(
            r"KV cache size: ([\d,]+) tokens,"
            r" Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"
        ),
        facts=(("kv_cache_tokens", _count), ("max_concurrency", float)),
    ),
    # Engines before 0.20 wrote the same on two lines.
    _Line(
        pattern=re.compile(r"KV cache size: ([\d,]+) tokens\s*$", re.MULTILINE),
        facts=(("kv_cache_tokens", _count),),
    ),
    _Line(
        pattern=re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
        facts=(("max_concurrency", float),),
    ),
    _Line(
        pattern=re.compile(r"(?:Explicitly|Auto) set \(([\d.]+)/([\d.]+)\) GiB for KV cache"),
        facts=(("kv_cache_bytes", _gib), ("device_memory_bytes", _gib)),
    ),
    _Line(
        pattern=re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
        facts=(("kv_cache_bytes", _gib),),
    ),
    _Line(
        pattern=re.compile(r"Model loading took ([\d.]+) GiB"),
        facts=(("weight_bytes", _gib),),
    ),
    _Line(
        pattern=re.compile(r"Free memory on device \S*\s*\(([\d.]+)/([\d.]+) GiB\)"),
        facts=(("headroom_bytes", _gib), ("device_memory_bytes", _gib)),
    ),
    _Line(
        pattern=re.compile(
            r"Actual usage is ([\d.]+) GiB for consumed memory \(weights \+ non-torch\),"
            r" ([\d.]+) GiB for peak activation, and ([\d.]+) GiB for CUDAGraph memory"
        ),
        facts=(("consumed_bytes", _gib), ("activation_bytes", _gib), ("graph_bytes", _gib)),
    ),
    # Where the KV memory was stated, the summary above is not written.
    _Line(
        pattern=re.compile(r"Graph capturing finished in \d+ secs, took ([\d.]+) GiB"),
        facts=(("graph_bytes", _gib),),
    ),
    _Line(
        pattern=re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)"),
        facts=(("max_num_batched_tokens", int),),
    ),
    _Line(
        pattern=re.compile(r"(?:Using|using the) (V\d) [Mm]odel [Rr]unner"),
        facts=(("model_runner", str),),
    ),
    _Line(
        pattern=re.compile(r"Using (\w+) (?:attention )?backend(?: out of|\.| on V1)"),
        facts=(("attention_backend", str),),
    ),
)
_ASYNC_OFF = re.compile(r"Async(?:hronous)? scheduling .*\b(?:disabled|not supported)\b")
_ASYNC_ON = re.compile(r"Asynchronous scheduling is enabled")
_THREADS = re.compile(r"local_rank=\d+, core ids=\[([\d, ]+)\]")
# "Using MarlinLinearKernel for CompressedTensorsWNA16", "Using 'TRITON' Mxfp8 MoE backend."
_KERNELS = (
    re.compile(r"(?:Using|Selected) (\w+Kernel) for "),
    re.compile(r"(?:Using|Selected) '?(\w+)'? (?:[\w ]+ )?MoE backend"),
)


def read_startup(log_text: str) -> EngineFacts:
    """Facts in a start-up log; one that no line states is None.

    `max_concurrency` is the engine's own figure, not tokens over length: for hybrid models the two
    disagree (case M-06). `headroom_bytes` is what an accelerator has left after all of its uses;
    the CPU build does not say it.
    """
    found: dict[str, Value] = {}
    for line in _LINES:
        match = line.pattern.search(log_text)
        if match is not None:
            for (name, read), text in zip(line.facts, match.groups(), strict=True):
                found.setdefault(name, read(text))
    found.pop("headroom_bytes", None)
    return EngineFacts(
        **found,  # type: ignore[arg-type]
        headroom_bytes=_headroom_bytes(log_text, found),
        async_scheduling=_async_scheduling(log_text),
        kernels=_kernels(log_text),
        threads=_threads(log_text),
    )


def with_cache_info(facts: EngineFacts, snapshot: EngineSnapshot) -> EngineFacts:
    """The facts with what ``vllm:cache_config_info`` states more exactly than the log."""
    info = snapshot.cache_info
    caching = info.get("enable_prefix_caching")
    return replace(
        facts,
        block_size=_whole(info, "block_size", facts.block_size),
        num_blocks=_whole(info, "num_gpu_blocks", facts.num_blocks),
        kv_cache_bytes=_whole(info, "kv_cache_memory_bytes", facts.kv_cache_bytes),
        kv_cache_tokens=_whole(info, "kv_cache_size_tokens", facts.kv_cache_tokens),
        max_concurrency=_ratio(info, "kv_cache_max_concurrency", facts.max_concurrency),
        prefix_caching=facts.prefix_caching if caching is None else caching == "True",
    )


def _headroom_bytes(log_text: str, found: Mapping[str, Value]) -> int | None:
    """Free at start minus weights, activations, graphs and KV (the GPU worker's summary)."""
    free = re.search(r"Free memory on device \S*\s*\(([\d.]+)/", log_text)
    cache = re.search(r"Current kv cache memory in use is ([\d.]+) GiB", log_text)
    used = [found.get(name) for name in ("consumed_bytes", "activation_bytes", "graph_bytes")]
    if free is None or cache is None or None in used:
        return None
    return _gib(free[1]) - sum(int(part or 0) for part in used) - _gib(cache[1])


def _kernels(log_text: str) -> tuple[str, ...]:
    """Each kernel once, in the order of the log."""
    named = (match[1] for pattern in _KERNELS for match in pattern.finditer(log_text))
    return tuple(dict.fromkeys(named))


def _async_scheduling(log_text: str) -> bool | None:
    if _ASYNC_OFF.search(log_text):
        return False
    return True if _ASYNC_ON.search(log_text) else None


def _threads(log_text: str) -> int | None:
    """Cores that the CPU worker computes on."""
    match = _THREADS.search(log_text)
    return len(match[1].split(",")) if match else None


def _whole(info: Mapping[str, str], name: str, otherwise: int | None) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdigit() else otherwise


def _ratio(info: Mapping[str, str], name: str, otherwise: float | None) -> float | None:
    text = info.get(name, "")
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text) else otherwise
