"""Why an engine did not start or died, from its log: patterns are data.

The texts are those of vLLM 0.31 and 0.32: `config/{vllm,model,scheduler,compilation}.py`,
`platforms/interface.py`, `v1/core/kv_cache_utils.py`, `v1/worker/gpu_worker.py`,
`v1/worker/gpu_model_runner.py`, `v1/worker/cpu_worker.py`, `model_executor/layers/quantization`.
"""

import re
import signal
from dataclasses import dataclass

from advisor.errors import EngineFailed
from advisor.states import FailureKind

LAST_LINES = 12
_LINE_CHARS = 300
# Progress bars and the banner say nothing about a failure.
_NOISE = re.compile(r"Loading .*checkpoint shards|\[api_utils\.py:\d+\]\s*[█▄▀ ]*$|^\s*$")
# From here on the log holds what clients sent wrong as well: of it only the memory's end counts.
_SERVING = "Application startup complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A named failure. `setting` and `bound`: lower that setting to at most `bound` and retry.

    `detail` is one line on what was found, then the log's last lines; engines log no prompts at
    the level that Rooftune runs them at.
    """

    kind: FailureKind
    detail: str
    setting: str | None = None
    bound: int | None = None

    def error(self, kind: FailureKind | None = None) -> EngineFailed:
        """To be raised, under another `kind` where the log does not know it."""
        return EngineFailed(kind or self.kind, self.detail, setting=self.setting, bound=self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """`bound` in the expression names the highest value of `setting` that would have worked.

    `what` in it is quoted behind `says`: the engine's own words on what it refuses.
    """

    expression: re.Pattern[str]
    kind: FailureKind
    says: str
    setting: str | None = None


def _pattern(expression: str, kind: FailureKind, says: str, setting: str | None = None) -> _Pattern:
    return _Pattern(
        expression=re.compile(expression, re.IGNORECASE), kind=kind, says=says, setting=setting
    )


# In order: the first that matches names the failure, so causes stand before their consequences
# ("Engine core initialization failed" follows almost everything).
_PATTERNS = (
    _pattern(
        r"max_num_seqs \(\d+\) (?:exceeds available|is above the number of) Mamba cache\s+blocks"
        r"\s*\((?P<bound>\d+)\)",
        FailureKind.INVALID_SETTING,
        "max_num_seqs too high for the state cache",
        "max_num_seqs",
    ),
    _pattern(
        r"No available memory for the cache blocks",
        FailureKind.NO_KV_MEMORY,
        "no memory is left for the KV cache",
    ),
    _pattern(
        r"model's max seq len \(\d+\).{0,200}?larger than the available KV cache memory"
        r"(?:.{0,200}?estimated maximum model length is (?P<bound>\d+))?",
        FailureKind.NO_KV_MEMORY,
        "one request of max_model_len does not fit the KV cache",
        "max_model_len",
    ),
    _pattern(
        r"on kv cache allocation is less than requested memory",
        FailureKind.NO_KV_MEMORY,
        "the machine has less free memory than the KV cache asks for",
    ),
    _pattern(
        r"Cannot auto-fit max_model_len: not enough GPU memory|not enough device memory for the"
        r" cache",
        FailureKind.NO_KV_MEMORY,
        "no memory is left for the KV cache",
    ),
    _pattern(
        r"on startup is less than desired \w+ memory utilization",
        FailureKind.OUT_OF_MEMORY,
        "the device has less free memory than the engine asks for",
    ),
    _pattern(
        r"(?P<what>The quantization method \S+ is not supported for the current GPU"
        r"|Quantization scheme is not supported for the current GPU"
        r"|Quantization method specified in the model config \([^)]*\) does not match the"
        r" quantization method specified in the `quantization` argument \([^)]*\)"
        r"|Unknown quantization method: \S+"
        r"|\S+ quantization is currently not supported in \w+"
        r"|\S+ is not supported for quantization method [\w-]+"
        r"|The quantization method \S+ (?:is deprecated|does not support)"
        r"|Cannot find the config file for \w+"
        r"|No compressed-tensors compatible scheme was found"
        r"|Failed to find a kernel that can implement the [\w ]+ layer"
        r"|argument --quantization\S*: invalid choice: \S+)",
        FailureKind.UNSUPPORTED_QUANTIZATION,
        "quantized weights that this engine cannot serve here",
        "quantization",
    ),
    _pattern(
        r"(?P<what>argument --kv-cache-dtype: invalid choice: \S+"
        r"|(?:fp8\S*|\S+) kv[- _]cache(?: dtype)? is not supported[^\n]{0,80})",
        FailureKind.UNSUPPORTED_QUANTIZATION,
        "a key-value cache format that this engine does not have here",
        "kv_cache_dtype",
    ),
    _pattern(
        r"address already in use|Errno 98|EADDRINUSE",
        FailureKind.PORT_IN_USE,
        "the port is taken",
    ),
    _pattern(
        r"is not a local folder and is not a valid model identifier"
        r"|Repo id must (?:be|use)|Repository Not Found|Cannot find any model weights"
        r"|Invalid repository ID or local directory|No such file or directory: '[^']*config\.json'"
        r"|does not appear to have a file named config\.json|LocalEntryNotFoundError"
        r"|We couldn't connect to|outgoing traffic has been disabled|Can't load the configuration",
        FailureKind.MODEL_NOT_FOUND,
        "the model was not found",
    ),
    _pattern(
        r"SafetensorError|invalid header|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|Error while deserializing|There is no module or parameter named"
        r"|size mismatch|weights were not initialized|shape mismatch",
        FailureKind.BAD_WEIGHTS,
        "the weights cannot be loaded",
    ),
    _pattern(
        r"max_num_batched_tokens \((?P<bound>\d+)\) must be greater than or equal to max_num_seqs",
        FailureKind.INVALID_SETTING,
        "max_num_seqs above max_num_batched_tokens",
        "max_num_seqs",
    ),
    _pattern(
        r"max_num_batched_tokens \((?P<bound>\d+)\) is smaller than max_model_len",
        FailureKind.INCOMPATIBLE_SETTINGS,
        "without chunked prefill max_model_len may not be above max_num_batched_tokens",
        "max_model_len",
    ),
    _pattern(
        r"User-specified max_model_len \(\d+\) is greater than the derived max_model_len"
        r" \(?[^)]*?=(?P<bound>\d+)",
        FailureKind.INVALID_SETTING,
        "max_model_len above what the model has positions for",
        "max_model_len",
    ),
    _pattern(
        r"No common block size for \d+",
        FailureKind.INVALID_SETTING,
        "no attention backend takes this block_size",
        "block_size",
    ),
    _pattern(
        r"(?:Value ?Error,?:?|AssertionError:|NotImplementedError:|error:)"
        r" *(?P<what>[^\n]{0,160}?(?:mutually exclusive|cannot be (?:enabled|used|set) together"
        r"|(?:is|are) incompatible with|(?:is|are) not compatible with"
        r"|(?:is|are) not supported (?:with|together)|cannot be used with|does not support"
        r" speculative decoding|not allowed with argument|cannot be other value than 1 or target"
        r"|must be divisible by tensor parallel size|should have the same vocabulary size"
        r"|must be <= prompt_lookup_max)[^\n]{0,80})",
        FailureKind.INCOMPATIBLE_SETTINGS,
        "the engine refuses a pair of settings",
    ),
    _pattern(
        r"error: (?P<what>unrecognized arguments: [^\n]{1,120}|argument .{1,80}?: [^\n]{1,80})",
        FailureKind.INVALID_SETTING,
        "the engine refuses a setting",
    ),
    _pattern(
        r"validation errors? for \w+|NotImplementedError|Unknown speculative|ValueError:",
        FailureKind.INVALID_SETTING,
        "the engine refuses a setting",
    ),
)
# How the engine's own allocators and the kernel's say that memory ended.
_NO_MEMORY = re.compile(
    r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError|DefaultCPUAllocator: can't allocate"
    r"|Failed to load model - not enough GPU memory|MemoryError|Cannot allocate memory"
    r"|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
# What was tried when memory ended, in the words and the traceback around the error.
_PROFILING = re.compile(
    r"warming up (?:sampler|pooler)|in (?:profile_run|_dummy_run|_dummy_sampler_run|capture_model"
    r"|determine_available_memory|profile_cudagraph_memory|compile_or_warm_up_model|warm_up_model"
    r"|initialize_from_config|initialize_kv_cache\w*|profile_multimodal_run)\b"
)
_LOADING = re.compile(
    r"Failed to load model - not enough|in (?:load_model|load_weights|initialize_model)\b"
)
_LOADED = re.compile(r"Model loading took|Loading weights took|Available KV cache memory")
_BEGUN = re.compile(r"Starting to load model|Loading \S*checkpoint shards")
_PHASES = {
    FailureKind.OUT_OF_MEMORY_SERVING: "while it served",
    FailureKind.OUT_OF_MEMORY_PROFILING: "in the profile run, after the weights were loaded",
    FailureKind.OUT_OF_MEMORY_LOADING: "while the weights were loaded",
    FailureKind.OUT_OF_MEMORY: "in a phase that its log does not name",
}
_BY_SIGNAL = 128


def classify(log_text: str, *, exit_code: int | None, served: bool = False) -> Failure:
    """Name the failure that `log_text` ends in; `exit_code` is None for one that still runs.

    `served` says that it was ready before, if its log should not.
    """
    tail = last_lines(log_text)
    start, ready, _ = log_text.partition(_SERVING)
    served = served or bool(ready)
    if not served:
        for pattern in _memory_last(start):
            match = pattern.expression.search(start)
            if match is not None:
                return _named(pattern, match, exit_code, tail)
    if _NO_MEMORY.search(log_text):
        kind = _memory_kind(log_text, served=served)
        return Failure(kind=kind, detail=_detail(f"out of memory {_PHASES[kind]}", exit_code, tail))
    killed = _signal(exit_code) == signal.SIGKILL
    if killed and not served:
        kind = _memory_kind(log_text, served=False)
        said = f"killed, as the kernel does when memory ends, {_PHASES[kind]}"
        return Failure(kind=kind, detail=_detail(said, exit_code, tail))
    # A served engine that is killed has all its memory already: as likely it was by hand.
    said = "killed, by hand or by the kernel" if killed else "it gave no known reason"
    return Failure(kind=FailureKind.EXITED, detail=_detail(said, exit_code, tail))


def last_lines(log_text: str, count: int = LAST_LINES) -> tuple[str, ...]:
    """The last `count` lines that say something, cut to a readable length."""
    kept = [line.rstrip() for line in log_text.splitlines() if not _NOISE.search(line)]
    return tuple(line[:_LINE_CHARS] for line in kept[-count:])


def _memory_last(text: str) -> tuple[_Pattern, ...]:
    """The patterns to try. Where memory ended, a ``ValueError`` near it is a consequence."""
    general = _PATTERNS[-1:]
    return _PATTERNS[: -len(general)] if _NO_MEMORY.search(text) else _PATTERNS


def _memory_kind(log_text: str, *, served: bool) -> FailureKind:
    """In which phase memory ended: what the error's traceback names, else how far the log came."""
    if served:
        return FailureKind.OUT_OF_MEMORY_SERVING
    kinds = (
        (_LOADING, FailureKind.OUT_OF_MEMORY_LOADING),
        (_PROFILING, FailureKind.OUT_OF_MEMORY_PROFILING),
        (_LOADED, FailureKind.OUT_OF_MEMORY_PROFILING),
        (_BEGUN, FailureKind.OUT_OF_MEMORY_LOADING),
    )
    return next((kind for told, kind in kinds if told.search(log_text)), FailureKind.OUT_OF_MEMORY)


def _named(
    pattern: _Pattern, match: re.Match[str], exit_code: int | None, tail: tuple[str, ...]
) -> Failure:
    groups = match.groupdict()
    bound = int(groups["bound"]) if groups.get("bound") else None
    said = pattern.says if bound is None else f"{pattern.says}: at most {bound}"
    said = f"{said}: {groups['what'].strip()}" if groups.get("what") else said
    return Failure(
        kind=pattern.kind,
        detail=_detail(said, exit_code, tail),
        setting=pattern.setting,
        bound=bound,
    )


def _signal(exit_code: int | None) -> signal.Signals | None:
    """The signal that ended it: -n of a child, 128 + n of a shell or guardian."""
    if exit_code is None:
        return None
    number = -exit_code if exit_code < 0 else exit_code - _BY_SIGNAL
    return signal.Signals(number) if number in set(signal.Signals) else None


def _detail(said: str, exit_code: int | None, tail: tuple[str, ...]) -> str:
    ended = "still running" if exit_code is None else f"exit code {exit_code}"
    number = _signal(exit_code)
    ended = ended if number is None else f"{ended}, signal {number.name}"
    return "\n".join((f"{said} ({ended})", *tail))
