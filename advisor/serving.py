"""Serving configurations in vLLM's own words, and the facts an engine reports of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

from advisor.canonical import as_json, digest
from advisor.errors import InvalidInput, UnknownName

DTYPES = ("auto", "bfloat16", "float16", "float32")
KV_CACHE_DTYPES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")
SCHEMES = ("W8A8",)
ALGORITHMS = ("gptq", "rtn")
# Tokens in a KV block where no lever sets it, by kind of device (vLLM 0.32).
_BLOCK_SIZES: Mapping[str, int] = {"cpu": 128, "cuda": 16}


def default_block_size(kind: str | None) -> int:
    """Tokens in a block of vLLM's KV cache on that kind of device, unless a lever says other.

    Where the device is not known (None) it is that of most: a GPU's.
    """
    if kind is None:
        return _BLOCK_SIZES["cuda"]
    if kind not in _BLOCK_SIZES:
        raise UnknownName("kind of device", kind, sorted(_BLOCK_SIZES))
    return _BLOCK_SIZES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSpeculation:
    """vLLM's ``--speculative-config`` with method ngram; field names are vLLM's."""

    num_speculative_tokens: int
    prompt_lookup_max: int = 4
    prompt_lookup_min: int = 2
    method: Literal["ngram"] = "ngram"

    def __post_init__(self) -> None:
        if self.num_speculative_tokens < 1:
            raise InvalidInput("num_speculative_tokens", "a draft has at least one token")
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max:
            raise InvalidInput("prompt_lookup_min", "must lie between 1 and prompt_lookup_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelSpeculation:
    """vLLM's ``--speculative-config`` with a second model that drafts; field names are vLLM's.

    `model` is the folder of the draft model, which shares the served model's vocabulary.
    """

    model: str
    num_speculative_tokens: int
    method: Literal["draft_model"] = "draft_model"

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidInput("speculative_config.model", "a draft model has a folder")
        if self.num_speculative_tokens < 1:
            raise InvalidInput("num_speculative_tokens", "a draft has at least one token")


Speculation: TypeAlias = NgramSpeculation | DraftModelSpeculation


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantization:
    """The target's own model with quantized weights, which vLLM reads as ``compressed-tensors``.

    The agent makes the checkpoint (llm-compressor), calibrated on the study's workload. `scheme`
    is llm-compressor's name of a preset, `algorithm` how weights are rounded.
    """

    scheme: str = "W8A8"
    algorithm: str = "gptq"

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise UnknownName("quantization scheme", self.scheme, SCHEMES)
        if self.algorithm not in ALGORITHMS:
            raise UnknownName("quantization algorithm", self.algorithm, ALGORITHMS)


LeverValue: TypeAlias = bool | int | float | str | Speculation | WeightQuantization | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalSettings:
    """What the target must keep in every trial; never tuned.

    `enforce_eager` and `kv_cache_space_gib` belong here because all trials of a study must share
    them: start-up mode and memory are the device's conditions, not levers of this study.
    """

    max_model_len: int | None = None
    chat_template: str | None = None
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    enforce_eager: bool = False
    kv_cache_space_gib: int | None = None

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1:
            raise InvalidInput("max_model_len", f"{self.max_model_len} is below 1")
        if self.kv_cache_space_gib is not None and self.kv_cache_space_gib < 1:
            raise InvalidInput("kv_cache_space_gib", f"{self.kv_cache_space_gib} is below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Levers:
    """One value for every lever; None is vLLM's own default and is not written to its command."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    block_size: int | None = None
    dtype: str | None = None
    speculative_config: Speculation | None = None
    quantization: WeightQuantization | None = None
    kv_cache_dtype: str | None = None
    enable_chunked_prefill: bool | None = None
    gpu_memory_utilization: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInput(name, f"{value} is below 1")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise UnknownName("dtype", self.dtype, DTYPES)
        if self.kv_cache_dtype is not None and self.kv_cache_dtype not in KV_CACHE_DTYPES:
            raise UnknownName("kv_cache_dtype", self.kv_cache_dtype, KV_CACHE_DTYPES)
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise InvalidInput("gpu_memory_utilization", f"{share} is not in (0, 1]")


LEVER_NAMES = tuple(item.name for item in fields(Levers))
# Levers that came after the first version. Where they are not set they are not hashed, so that an
# approved configuration keeps its hash when Rooftune learns a new lever.
_LATER_LEVERS = (
    *("quantization", "kv_cache_dtype"),
    *("enable_chunked_prefill", "gpu_memory_utilization"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig:
    """Functional settings and one value for every lever."""

    functional: FunctionalSettings = field(default_factory=FunctionalSettings)
    levers: Levers = field(default_factory=Levers)

    @property
    def shares_blocks(self) -> bool:
        """Whether a request may use cached blocks of another; the engine's default."""
        return self.levers.enable_prefix_caching is not False

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON; what a review approves and a deployment may run."""
        unset = {name for name in _LATER_LEVERS if getattr(self.levers, name) is None}
        levers = {
            name: as_json(getattr(self.levers, name)) for name in LEVER_NAMES if name not in unset
        }
        return digest({"functional": self.functional, "levers": levers})

    def overrides(self) -> dict[str, LeverValue]:
        """The levers that differ from vLLM's default, by vLLM's name."""
        values = {name: getattr(self.levers, name) for name in LEVER_NAMES}
        return {name: value for name, value in values.items() if value is not None}

    def changed(self, changes: Mapping[str, LeverValue]) -> "ServingConfig":
        """This configuration with some levers set; an unknown lever raises `UnknownName`."""
        for name in changes:
            if name not in LEVER_NAMES:
                raise UnknownName("lever", name, LEVER_NAMES)
        return replace(self, levers=replace(self.levers, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What a started engine said of itself; a fact that it did not report is None.

    `kv_cache_tokens` and `max_concurrency` are the engine's own figures for one full-length
    request (handbook 2.2); `headroom_bytes` is the device memory left after weights and KV.
    `checkpoint_digest` names a quantized checkpoint that was served instead of the target's own.

    `start_phases` are the parts of the start in order, (name, seconds), which add up to `start_s`.
    `consumed_bytes` (weights and what torch does not hold), `activation_bytes` (the peak of the
    profiling run) and `graph_bytes` are an accelerator's, as its worker sums them up; the CPU build
    states none. `graph_mode` and `compilation_mode` are vLLM's names, `kernels` those that the log
    names for quantized layers. `executor` is how workers run (mp, uni, ray). Clocks are those of
    the first GPU once the engine was ready.
    """

    vllm_version: str | None = None
    start_s: float | None = None
    weight_bytes: int | None = None
    kv_cache_bytes: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    model_runner: str | None = None
    attention_backend: str | None = None
    checkpoint_digest: str | None = None
    threads: int | None = None
    device_memory_bytes: int | None = None
    headroom_bytes: int | None = None
    start_phases: tuple[tuple[str, float], ...] = ()
    graph_mode: str | None = None
    compilation_mode: str | None = None
    kernels: tuple[str, ...] = ()
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    chunked_prefill: bool | None = None
    speculative_method: str | None = None
    speculative_tokens: int | None = None
    tensor_parallel: int | None = None
    executor: str | None = None
    consumed_bytes: int | None = None
    activation_bytes: int | None = None
    graph_bytes: int | None = None
    vllm_commit: str | None = None
    torch_version: str | None = None
    cuda_version: str | None = None
    driver_version: str | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None


FACT_NAMES = tuple(item.name for item in fields(EngineFacts))
