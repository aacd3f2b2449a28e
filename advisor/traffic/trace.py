"""Values of an uploaded traffic sample: requests, what was wrong with the file, token columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.errors import InvalidInput
from advisor.traffic.ragged import Ragged


class RequestKind(StrEnum):
    CHAT = "chat"
    COMPLETION = "completion"
    LENGTHS = "lengths"


class Privacy(StrEnum):
    """How much of the text of an upload is kept.

    RAW: all of it. REDACTED: values that name a person or open a door are replaced by others of
    the same form and length. HASHED: keyed hashes of token blocks and counts, no text. LENGTHS:
    counts and times only.
    """

    RAW = "raw"
    REDACTED = "redacted"
    HASHED = "hashed"
    LENGTHS = "lengths"

    @property
    def keeps_text(self) -> bool:
        """Whether prompts can be replayed, and tokenised again."""
        return self in {Privacy.RAW, Privacy.REDACTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the sample, ordered by arrival (stable), numbered by `index` from 0.

    `messages`, `tools` and `response_format` are the JSON text of what the file held, unchanged,
    so that a replay sends the same. `prompt` is the text of a plain completion. `arrival_s` is the
    offset from the first request. `prompt_tokens` and `output_tokens` are what the file reported
    (None: not reported, or reported as 0 although there is text, see `TraceReport.warnings`).
    `line` is the 1-based line (JSONL) or record (CSV) number in the file; `id` is ours and unique.
    `label` is the file's own class, `cluster` the class that we found where it names none.
    `images` counts the parts of the messages that are not text (they are not kept).
    `duration_s` and `ttft_s` are what the log measured. `block_ids` name the blocks of the prompt
    in order, each with everything before it, `TraceReport.block_tokens` tokens a block.
    `prompt_ids` and `output_ids` are the token ids of the very run, where the log holds them.
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
    model: str | None = None
    cluster: str | None = None
    images: int = 0
    duration_s: float | None = None
    ttft_s: float | None = None
    block_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] | None = None

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

    @property
    def class_name(self) -> str | None:
        """The class that statistics and verdicts use: the file's own, else the one found."""
        return self.label or self.cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A line that was not taken; `reason` never quotes prompt text."""

    line: int
    field: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """What reading the file found. `rejects` holds the first 1,000 of `rejected`.

    ``rows == accepted + rejected + sum(failed.values())``: `failed` counts requests that the log
    says failed, by status ("408"); they are no part of the requests. `title` names the format for
    people, `line_unit` says what `Reject.line` counts ("line", "record"). `columns` maps our fields
    to the names that the file has for them. `readings` are choices that the file left open and that
    can be overridden, e.g. ``{"session_lengths": "cumulative"}``. `started_epoch_s` is the moment
    of the first request in seconds since 1970 (UTC where the file names no zone).
    `block_tokens` is the number of tokens behind one of `Request.block_ids`.
    """

    format: str
    encoding: str
    rows: int
    accepted: int
    rejected: int
    rejects: tuple[Reject, ...]
    warnings: tuple[str, ...]
    time_unit: str | None
    title: str = ""
    compression: str | None = None
    line_unit: str = "line"
    failed: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    started_epoch_s: float | None = None
    block_tokens: int | None = None


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
    prompts: Ragged
    outputs: Ragged

    @classmethod
    def of(
        cls,
        *,
        tokenizer_digest: str,
        template_digest: str,
        prompts: Iterable[Sequence[int] | None],
        outputs: Iterable[Sequence[int] | None],
    ) -> "TokenColumns":
        """From rows of token ids."""
        return cls(
            tokenizer_digest=tokenizer_digest,
            template_digest=template_digest,
            prompts=Ragged.of(prompts),
            outputs=Ragged.of(outputs),
        )

    @classmethod
    def joined(cls, parts: "Sequence[TokenColumns]") -> "TokenColumns":
        """The columns of consecutive parts of one upload, at least one."""
        return cls(
            tokenizer_digest=parts[0].tokenizer_digest,
            template_digest=parts[0].template_digest,
            prompts=Ragged.joined([part.prompts for part in parts]),
            outputs=Ragged.joined([part.outputs for part in parts]),
        )
