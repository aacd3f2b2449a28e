"""Values that a probe records: one per request, one per load point."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.traffic.figures import Quantiles


class LoadRole(StrEnum):
    """What a load point is for, and so which requests it replays and how it submits them.

    PROBE: the study's subset in a closed loop; verdicts and ranking use only these. HELD_OUT: a
    closed loop over requests that no other point saw. STATIC: gangs of `concurrency` requests,
    each gang submitted at once and waited for; CONTROL: a closed loop over the requests of STATIC.
    """

    PROBE = "probe"
    HELD_OUT = "held out"
    STATIC = "static"
    CONTROL = "control"


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What the load client saw of one request; times in seconds on its monotonic clock.

    `intended_s` is when the schedule wanted it sent (closed loop: when its slot fell free).
    `first_token_s` is the first frame that carried a token, None if no token was seen.
    `token_ids` are the engine's own (``return_token_ids``), None if it did not return them.
    `frame_times_s` are the arrival times of the frames that carried tokens. `error` names the kind
    of a failure (HTTP status, in-band error type, transport), never text of the request.
    """

    request_id: str
    label: str | None
    outcome: Outcome
    intended_s: float
    sent_s: float
    end_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    frame_times_s: tuple[float, ...] = ()
    token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.intended_s <= self.sent_s <= self.end_s:
            raise InvalidInput("record", "times run backwards")

    @property
    def ttft_s(self) -> float | None:
        """Time to first token from the intended send time; None when no token was seen."""
        return None if self.first_token_s is None else self.first_token_s - self.intended_s

    @property
    def tpot_s(self) -> float | None:
        """(last - first) / (tokens - 1) (handbook 12); None below two tokens."""
        gaps = (self.output_tokens or 0) - 1
        if self.first_token_s is None or self.last_token_s is None or gaps <= 0:
            return None
        return (self.last_token_s - self.first_token_s) / gaps

    @property
    def e2e_s(self) -> float:
        """End to end from the intended send time."""
        return self.end_s - self.intended_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Differences of the engine's own counters over one load point (never totals since start).

    `engine_steps` counts steps of the engine that scheduled tokens; `accepted_per_position[i]`
    are accepted tokens at position i+1; `peak_kv_usage` in [0, 1] is the highest sample seen.
    """

    prompt_tokens: int
    generation_tokens: int
    engine_steps: int | None
    prefix_queries: int
    prefix_hits: int
    preemptions: int
    drafts: int
    draft_tokens: int
    accepted: int
    accepted_per_position: tuple[int, ...]
    peak_kv_usage: float | None
    peak_running: int | None
    peak_waiting: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What else the machine did during the point; CPU seconds of processes that are not ours."""

    load_average_before: float
    load_average_after: float
    neighbour_cpu_s: float
    neighbours: tuple[str, ...]
    steal_share: float | None
    disturbed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceFigures:
    """Acceptance of a draft method, by position; None where nothing was drafted (case S-18).

    `tokens_per_step` counts steps without a draft (case S-14); `acceptance_length` is vLLM's,
    per drafted step.
    """

    num_speculative_tokens: int
    drafts: int
    draft_tokens: int
    accepted: int
    per_position: tuple[Estimate, ...] | None
    acceptance_rate: float | None
    acceptance_length: float | None
    coverage: float | None
    tokens_per_step: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """Latency of one request class at one load point."""

    label: str
    requests: int
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    e2e_s: Quantiles | None
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One measured load on one running engine.

    `throughput_tokens_per_s` counts output tokens of successful requests over the point's span
    (first send to last end). `in_flight_mean` is the time-weighted number of requests in flight:
    a closed loop that did not reach its concurrency is not usable (case S-24).
    `longest_output_tokens` is the longest answer of a success. `loaded_tokens_per_s` leaves out how
    a finite replay drains: output tokens per second from when the load was full until the last
    request was sent; None for gangs, and where fewer requests followed than began the load.
    `usable` is False when the point is disturbed, failed or did not reach its load; `flaws` say
    why.
    """

    concurrency: int
    repeat: int
    subset_digest: str
    requests: int
    succeeded: int
    failed: int
    failures: Mapping[str, int]
    duration_s: float
    throughput_tokens_per_s: Estimate
    requests_per_s: float
    output_tokens: int
    prompt_tokens: int
    ttft_s: Quantiles | None
    tpot_s: Quantiles | None
    e2e_s: Quantiles | None
    classes: tuple[ClassFigures, ...]
    acceptance: AcceptanceFigures | None
    tokens_per_engine_step: float | None
    prefix_hit_share: float | None
    in_flight_mean: float
    counters: EngineCounters
    host: HostLoad
    usable: bool
    flaws: tuple[str, ...] = field(default=())
    role: LoadRole = LoadRole.PROBE
    longest_output_tokens: int | None = None
    loaded_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityAnswer:
    """One prompt under one engine, as token ids of the engine.

    `greedy` is its own continuation at temperature 0. `forced` is its most likely token at each
    position of the reference's continuation (teacher forcing, handbook 7.3), None where no
    reference was given or the engine did not say.
    """

    request_id: str
    label: str | None
    greedy: tuple[int, ...]
    forced: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPass:
    """Answers of one engine to the quality prompts; `subset_digest` names prompts and lengths."""

    subset_digest: str
    answers: tuple[QualityAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRecord:
    """Finished passes of one trial. Token ids are the user's text: never log or show them."""

    passes: tuple[QualityPass, ...] = field(default=(), repr=False)
