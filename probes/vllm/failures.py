"""Why an engine did not start or died, from its log: patterns are data."""

import re
from dataclasses import dataclass

from advisor.states import FailureKind

LAST_LINES = 12
_LINE_CHARS = 300
# Progress bars and the banner say nothing about a failure.
_NOISE = re.compile(r"Loading .*checkpoint shards|\[api_utils\.py:\d+\]\s*[█▄▀ ]*$|^\s*$")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """`bound` in the expression names the highest value of `setting` that would have worked."""

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
        r"max_num_seqs \(\d+\) (?:exceeds available|is above the number of) Mamba cache blocks"
        r" ?\((?P<bound>\d+)\)",
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
        r"on startup is less than desired \w+ memory utilization",
        FailureKind.OUT_OF_MEMORY,
        "the device has less free memory than the engine asks for",
    ),
    _pattern(
        r"CUDA out of memory|torch\.OutOfMemoryError|DefaultCPUAllocator: can't allocate"
        r"|Failed to load model - not enough GPU memory|MemoryError|Cannot allocate memory",
        FailureKind.OUT_OF_MEMORY,
        "out of memory",
    ),
    _pattern(
        r"not enough device memory for the cache",
        FailureKind.NO_KV_MEMORY,
        "no memory is left for the KV cache",
    ),
    _pattern(
        r"address already in use|Errno 98|EADDRINUSE",
        FailureKind.PORT_IN_USE,
        "the port is taken",
    ),
    _pattern(
        r"is not a local folder and is not a valid model identifier"
        r"|Repo id must be|Repository Not Found|Cannot find any model weights"
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
        FailureKind.INVALID_SETTING,
        "max_model_len above max_num_batched_tokens",
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
        r"error: (?:unrecognized arguments|argument .{1,80}?: )|validation errors? for \w+"
        r"|NotImplementedError|Unknown (?:quantization|speculative)|ValueError:",
        FailureKind.INVALID_SETTING,
        "the engine refuses a setting",
    ),
)
_KILLED = frozenset({-9, 137})


def classify(log_text: str, *, exit_code: int | None) -> Failure:
    """Name the failure that `log_text` ends in; `exit_code` is None for one that still runs."""
    tail = last_lines(log_text)
    for pattern in _PATTERNS:
        match = pattern.expression.search(log_text)
        if match is not None:
            groups = match.groupdict()
            bound = int(groups["bound"]) if groups.get("bound") else None
            return Failure(
                kind=pattern.kind,
                detail=_detail(_found(pattern, bound), exit_code, tail),
                setting=pattern.setting,
                bound=bound,
            )
    if exit_code in _KILLED:
        return Failure(
            kind=FailureKind.OUT_OF_MEMORY,
            detail=_detail("killed, as the kernel does when memory ends", exit_code, tail),
        )
    said = "it gave no known reason"
    return Failure(kind=FailureKind.EXITED, detail=_detail(said, exit_code, tail))


def last_lines(log_text: str, count: int = LAST_LINES) -> tuple[str, ...]:
    """The last `count` lines that say something, cut to a readable length."""
    kept = [line.rstrip() for line in log_text.splitlines() if not _NOISE.search(line)]
    return tuple(line[:_LINE_CHARS] for line in kept[-count:])


def _found(pattern: _Pattern, bound: int | None) -> str:
    return pattern.says if bound is None else f"{pattern.says}: at most {bound}"


def _detail(said: str, exit_code: int | None, tail: tuple[str, ...]) -> str:
    ended = "still running" if exit_code is None else f"exit code {exit_code}"
    return "\n".join((f"{said} ({ended})", *tail))
