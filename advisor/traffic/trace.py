"""Values of an uploaded traffic sample: requests, what was wrong with the file, token columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.errors import InvalidInput
from advisor.estimate import Estimate


class RequestKind(StrEnum):
    CHAT = "chat"
    COMPLETION = "completion"
    LENGTHS = "lengths"


class CountSource(StrEnum):
    """Where a token count came from."""

    REPORTED = "reported"
    TOKENISED = "tokenised"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the sample, ordered by arrival (stable), numbered by `index` from 0.

    `messages`, `tools` and `response_format` are the JSON text of what the file held, unchanged,
    so that a replay sends the same. `prompt` is the text of a plain completion. `arrival_s` is the
    offset from the first request. `prompt_tokens` and `output_tokens` are what the file reported
    (None: not reported, or reported as 0 although there is text, see `TraceReport.warnings`).
    `line` is the 1-based line (JSONL) or record (CSV) number in the file; `id` is ours and unique.
    """

    id: str
    index: int
    line: int
    kind: RequestKind
    source_id: str | None = None
    label: str | None = None
    session: str | None = None
    arrival_s: float | None = None
    messages: str | None = None
    prompt: str | None = None
    tools: str | None = None
    response_format: str | None = None
    response: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        if min(self.prompt_tokens or 0, self.output_tokens or 0, self.max_tokens or 0) < 0:
            raise InvalidInput("prompt_tokens, output_tokens, max_tokens", "a count is negative")
        if self.kind is RequestKind.CHAT and self.messages is None:
            raise InvalidInput("messages", "a chat request has messages")
        if self.kind is RequestKind.COMPLETION and self.prompt is None:
            raise InvalidInput("prompt", "a completion request has a prompt")

    @property
    def has_text(self) -> bool:
        """Whether the request can be replayed as text."""
        return self.kind is not RequestKind.LENGTHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A line that was not taken; `reason` never quotes prompt text."""

    line: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """What reading the file found. `rejects` holds the first 1,000 of `rejected`."""

    format: str
    encoding: str
    rows: int
    accepted: int
    rejected: int
    rejects: tuple[Reject, ...]
    warnings: tuple[str, ...]
    time_unit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of one file and the report on it."""

    requests: tuple[Request, ...]
    report: TraceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenColumns:
    """Token ids per request for one tokenizer and template; None where the request has no text.

    `prompts[i]` is the whole rendered prompt of request i (chat template applied, tools included),
    `outputs[i]` the recorded response without special tokens.
    """

    tokenizer_digest: str
    template_digest: str
    prompts: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Linear-interpolated percentiles (numpy's default) of `count` known values."""

    count: int
    unknown: int
    mean: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Rate and burstiness; `interarrival_cv` is 1 for Poisson, above for bursts.

    `burstiness_ratio` is the busiest of 60 equal windows over the mean window.
    """

    span_s: float
    rate_per_s: float
    interarrival_cv: float | None
    peak_rate_per_s: float
    burstiness_ratio: float
    peak_simultaneous: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSharing:
    """Share of prompt tokens that an unlimited prefix cache would serve, in whole blocks."""

    block_size: int
    hit_share: Estimate
    hit_tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupAcceptance:
    """Offline n-gram replay on recorded outputs (handbook 6.4): exact at temperature 0.

    `per_position[i]` is the unconditional survival at position i+1 given a draft;
    `tokens_per_step` counts steps without a draft too (handbook 6.3, "eff").
    """

    num_speculative_tokens: int
    requests: int
    decode_steps: int
    drafts: int
    draft_tokens: int
    accepted: int
    per_position: tuple[float, ...]
    coverage: float
    tokens_per_step: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSummary:
    """Figures of one request class; `label` is the file's own, or "all".

    `other_lookups` are replays with other draft lengths than that of `lookup`.
    """

    label: str
    requests: int
    prompt_tokens: Quantiles | None
    output_tokens: Quantiles | None
    prefix_sharing: PrefixSharing | None
    lookup: LookupAcceptance | None
    other_lookups: tuple[LookupAcceptance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSummary:
    """What the upload alone says. None: not measurable from this upload (never zero).

    `warnings` names what the file and the target's tokenizer do not agree on. `total_tokens` are
    prompt and output of a request together, `paged_share` the used share of a paged cache with
    blocks of `block_size` (handbook 2.4), `static_speedup` the most that continuous batching gains
    over static batches of 4 on these output lengths (handbook 5.1).
    """

    requests: int
    with_text: int
    sessions: int
    count_source: CountSource
    overall: ClassSummary
    classes: tuple[ClassSummary, ...]
    arrivals: Arrivals | None
    unmeasurable: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    total_tokens: Quantiles | None = None
    paged_share: float | None = None
    block_size: int | None = None
    static_speedup: Estimate | None = None
