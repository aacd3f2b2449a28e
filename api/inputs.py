"""What the API accepts: strict pydantic classes, turned into domain values by `to_domain`."""

import json
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from advisor.baseline_command import MOST_LETTERS
from advisor.goal import ClassLimits, Goal, Objective
from advisor.serving import FunctionalSettings, Levers, NgramSpeculation, WeightQuantization
from advisor.traffic.trace import Privacy

# A name ends up in addresses (`/serve/{name}/v1`), file names and tables.
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
UrlName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")]
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RoleName = Literal["viewer", "submitter", "reviewer", "operator", "admin"]
ClassName = Annotated[str, Field(min_length=1, max_length=200)]
FormatName = Annotated[str, Field(max_length=80, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
MOST_COLUMNS = 64


def _object(value: object) -> object:
    """The JSON object in a form's field; its text is never repeated."""
    if not isinstance(value, str):
        return value
    try:
        held = json.loads(value)
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise PydanticCustomError(
            "json_object", "not a JSON object from our field names to the names in the file"
        )
    return held


Column = Annotated[str, Field(min_length=1, max_length=200)]
Columns = Annotated[dict[Column, Column], BeforeValidator(_object), Field(max_length=MOST_COLUMNS)]


class In(BaseModel):
    """Unknown fields and silent conversions are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FunctionalIn(In):
    """Functional settings of a target, kept in every trial; named as vLLM names them."""

    max_model_len: int | None = Field(default=None, ge=1, le=10_000_000)
    chat_template: str | None = Field(default=None, max_length=200_000)
    tool_call_parser: Name | None = None
    reasoning_parser: Name | None = None
    enforce_eager: bool = False
    kv_cache_space_gib: int | None = Field(default=None, ge=1, le=4096)

    def to_domain(self) -> FunctionalSettings:
        """The value that trials carry."""
        return FunctionalSettings(
            max_model_len=self.max_model_len,
            chat_template=self.chat_template,
            tool_call_parser=self.tool_call_parser,
            reasoning_parser=self.reasoning_parser,
            enforce_eager=self.enforce_eager,
            kv_cache_space_gib=self.kv_cache_space_gib,
        )


class TargetIn(In):
    """A model by path under the allow-list or the word ``demo``; without an engine the newest."""

    name: Name
    model: str = Field(min_length=1, max_length=1000)
    engine_id: Identifier | None = None
    device_class: Name | None = None
    functional: FunctionalIn = FunctionalIn()


class ClassLimitsIn(In):
    """Limits of one class of requests, seconds."""

    ttft_p95_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tpot_p95_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    def to_domain(self) -> ClassLimits:
        """The limits that the ranking holds candidates to."""
        return ClassLimits(ttft_p95_s=self.ttft_p95_s, tpot_p95_s=self.tpot_p95_s)


class GoalIn(In):
    """Objective, load and limits, over all requests and by class."""

    objective: Literal["throughput", "latency"] = "throughput"
    concurrency: int = Field(default=16, ge=1, le=1024)
    ttft_p95_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tpot_p95_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    min_top1_agreement: float | None = Field(default=0.9, ge=0, le=1, allow_inf_nan=False)
    class_limits: dict[ClassName, ClassLimitsIn] = Field(default_factory=dict, max_length=64)

    def to_domain(self) -> Goal:
        """The goal that the planner works towards."""
        return Goal(
            objective=Objective(self.objective),
            concurrency=self.concurrency,
            ttft_p95_s=self.ttft_p95_s,
            tpot_p95_s=self.tpot_p95_s,
            min_top1_agreement=self.min_top1_agreement,
            class_limits={name: item.to_domain() for name, item in self.class_limits.items()},
        )


class NgramIn(In):
    """N-gram speculation; fields named as vLLM names them."""

    method: Literal["ngram"] = "ngram"
    num_speculative_tokens: int = Field(ge=1, le=64)
    prompt_lookup_max: int = Field(default=4, ge=1, le=64)
    prompt_lookup_min: int = Field(default=2, ge=1, le=64)

    def to_domain(self) -> NgramSpeculation:
        """The lever's value."""
        return NgramSpeculation(
            num_speculative_tokens=self.num_speculative_tokens,
            prompt_lookup_max=self.prompt_lookup_max,
            prompt_lookup_min=self.prompt_lookup_min,
        )


class QuantizationIn(In):
    """Quantized weights, made of the target's own model by the agent."""

    scheme: Literal["W8A8"] = "W8A8"
    algorithm: Literal["gptq", "rtn"] = "gptq"

    def to_domain(self) -> WeightQuantization:
        """The lever's value."""
        return WeightQuantization(scheme=self.scheme, algorithm=self.algorithm)


class LeversIn(In):
    """Levers of the user's own baseline; what is absent stays at vLLM's default."""

    max_num_seqs: int | None = Field(default=None, ge=1, le=65_536)
    max_num_batched_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    enable_prefix_caching: bool | None = None
    block_size: int | None = Field(default=None, ge=1, le=8192)
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = None
    speculative_config: NgramIn | None = None
    quantization: QuantizationIn | None = None
    kv_cache_dtype: Literal["auto", "fp8", "fp8_e4m3", "fp8_e5m2"] | None = None
    enable_chunked_prefill: bool | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)

    def to_domain(self) -> Levers:
        """The levers that the baseline sets."""
        speculation, quantization = self.speculative_config, self.quantization
        return Levers(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            enable_prefix_caching=self.enable_prefix_caching,
            block_size=self.block_size,
            dtype=self.dtype,
            speculative_config=None if speculation is None else speculation.to_domain(),
            quantization=None if quantization is None else quantization.to_domain(),
            kv_cache_dtype=self.kv_cache_dtype,
            enable_chunked_prefill=self.enable_chunked_prefill,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )


class StudyIn(In):
    """A workload on a target, what to optimise and how much engine time it may take.

    The baseline is given by levers or as the user's own command, not both.
    """

    name: Name
    workload_id: Identifier
    target_id: Identifier
    goal: GoalIn = GoalIn()
    baseline: LeversIn | None = None
    baseline_command: str | None = Field(default=None, min_length=1, max_length=MOST_LETTERS)
    techniques: tuple[Annotated[str, Field(max_length=80)], ...] | None = Field(
        default=None, strict=False, min_length=1, max_length=64
    )
    budget_s: float = Field(default=1800.0, gt=0, le=7 * 86400, allow_inf_nan=False)
    requests_per_point: int = Field(default=48, ge=1, le=100_000)
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    ladder_top: int = Field(default=32, ge=1, le=1024)
    confirm: bool = True

    @model_validator(mode="after")
    def one_baseline(self) -> Self:
        """Two baselines would be two answers to one question."""
        if self.baseline is not None and self.baseline_command is not None:
            raise PydanticCustomError(
                "one_baseline", "give `baseline` or `baseline_command`, not both"
            )
        return self


class ReviewIn(In):
    """A decision about one configuration of exactly this bundle."""

    decision: Literal["approve", "reject", "request_changes"]
    recommendation_hash: Digest
    config_hash: Digest
    comment: str = Field(default="", max_length=4000)


class DeploymentIn(In):
    """An approved configuration to serve under ``/serve/{name}/v1``."""

    name: UrlName
    recommendation_id: Identifier
    config_hash: Digest


class ProjectIn(In):
    """A new project; its creator is a member."""

    name: Name


class UserIn(In):
    """A new user, member of the caller's project."""

    name: Name
    role: RoleName


class KeyIn(In):
    """A new key of a user."""

    label: Name
    # JSON has no time type: this one field takes its text form.
    expires_at: Annotated[datetime, Field(strict=False)] | None = None


class DerivedIn(In):
    """What to make of workloads: at `rate` times the rate, with `requests` drawn anew.

    With `by_time` several are as far apart as their logs were, else they start together.
    `label_by_workload` puts the name before every class; `outputs` makes answers that many times as
    long where there is no text.
    """

    name: Name
    workload_ids: tuple[Identifier, ...] = Field(strict=False, min_length=1, max_length=16)
    rate: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False)
    requests: int | None = Field(default=None, ge=1, le=100_000_000)
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    outputs: float = Field(default=1.0, gt=0, le=1e3, allow_inf_nan=False)
    label_by_workload: bool = False
    by_time: bool = False


class WorkloadIn(In):
    """The fields beside an uploaded traffic file; a form holds texts only.

    `columns` is a JSON object from our names of fields to the file's.
    """

    name: Name
    target_id: Identifier | None = None
    privacy: Literal["raw", "redacted", "hashed", "lengths"] = "raw"
    retention_days: int | None = Field(default=None, strict=False, ge=1, le=36_500)
    columns: Columns = Field(default_factory=dict)
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    session_lengths: Literal["cumulative", "per_turn"] | None = None
    format: FormatName | None = None

    @model_validator(mode="after")
    def hashes_need_a_tokenizer(self) -> Self:
        """Blocks are blocks of tokens."""
        if Privacy(self.privacy) is Privacy.HASHED and self.target_id is None:
            raise PydanticCustomError(
                "hashed_needs_target",
                "privacy `hashed` hashes blocks of tokens: give `target_id`, whose tokenizer makes"
                " them, or choose `lengths`",
            )
        return self
