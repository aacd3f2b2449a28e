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


class LoopKind(StrEnum):
    """How a load submits. CLOSED: so many in flight, the next when one ends. OPEN: at set times."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """What an open loop asked for.

    `arrivals` says where the send times come from: "poisson", "gamma", "recorded", "constant".
    `rate_per_s` is the mean rate asked for, `cv` the variation of the gaps (gamma only), `speed`
    by how much recorded gaps were shortened. `most_in_flight` is the client's own limit, None
    without one.
    """

    arrivals: str
    rate_per_s: float
    cv: float | None = None
    speed: float | None = None
    most_in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """How well the load client itself did over one load.

    `send_delay_*` are seconds from the moment at which a request should have been sent and could
    have been (its slot free) to the moment at which its bytes went out. `loop_delay_p99_s` is how
    late the event loop ran its own timers. `cpu_share` is the CPU time of the busiest client
    process over the load's span, 1.0 for a whole core. `limited` says that the client, not the
    engine, may have set the figures, and `reason` why.
    """

    processes: int
    cpu_share: float
    send_delay_p50_s: float
    send_delay_p99_s: float
    send_delay_max_s: float
    loop_delay_p99_s: float
    frames: int
    limited: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a load that its figures are taken from, in seconds after the first send.

    `left_out` counts requests that count as warm-up or cool-down; `steady` is False where no
    steady part was found (then the window is the whole load); `rule` says how it was chosen.
    """

    since_s: float
    until_s: float
    left_out: int
    steady: bool
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """What the load client saw of one request; times in seconds on its monotonic clock.

    `intended_s` is when the schedule wanted it sent (closed loop: when its slot fell free).
    `first_token_s` is the first frame that carried a token, None if no token was seen.
    `token_ids` are the engine's own (``return_token_ids``), None if it did not return them.
    `frame_times_s` are the arrival times of the frames that carried tokens, `frame_tokens` how many
    each carried (None where the engine names no ids). `error` names the kind of a failure (HTTP
    status, in-band error type, transport), never text of the request.
    With retries `attempts` is above 1, `sent_s` is the first attempt's and `last_sent_s` the last
    one's (case S-08); probes run without. `temperature` is what was sent, None: the engine's
    default applied (case S-22). `turn` counts from 0 within `session`. `wanted_tokens` is the
    limit that was asked for. `accepted_histogram[j]` counts verification steps with j accepted
    draft tokens, None where the engine does not say.
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
    frame_tokens: tuple[int, ...] | None = None
    attempts: int = 1
    last_sent_s: float | None = None
    temperature: float | None = None
    session: str | None = None
    turn: int | None = None
    wanted_tokens: int | None = None
    accepted_histogram: tuple[int, ...] | None = None

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

    @property
    def last_attempt_s(self) -> float:
        """From the last attempt's sending to the end; of a request that was sent once, from its."""
        return self.end_s - (self.sent_s if self.last_sent_s is None else self.last_sent_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Differences of the engine's own counters over one load point (never totals since start).

    `engine_steps` counts steps of the engine that scheduled tokens; `accepted_per_position[i]`
    are accepted tokens at position i+1; `peak_kv_usage` in [0, 1] is the highest sample seen.
    `known` is False where the engine's counters cannot be read: tokens are then the client's count
    and everything else says nothing.
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
    known: bool = True


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
    `usable` is False when the point is disturbed, failed, did not reach its load or was set by the
    client; `flaws` say why.
    `open_loop` is what an open loop asked for, None for a closed one, whose `concurrency` it is (of
    an open loop `concurrency` is the highest number that was in flight). `client` is the health of
    the load client, `window` the steady part. `chunk_gap_s` are gaps between frames, which is not
    time per token (case S-03). `not_fitting` counts requests of the sample that do not fit
    `max_model_len` and were not sent. `acceptance_by` holds acceptance by request class ("class
    code") and by temperature ("temperature 0.7"). `steady_tokens_per_s` are output tokens per
    second in the window, None without a steady one. `intervals` holds "ttft_s p50", "tpot_s mean"
    and the like with 95 % intervals, as far as the requests of the window are enough for one.
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
    open_loop: OpenLoop | None = None
    client: ClientHealth | None = None
    window: Window | None = None
    chunk_gap_s: Quantiles | None = None
    not_fitting: int = 0
    retries: int = 0
    acceptance_by: Mapping[str, AcceptanceFigures] = field(default_factory=dict)
    energy_j: float | None = None
    steady_tokens_per_s: Estimate | None = None
    intervals: Mapping[str, Estimate] = field(default_factory=dict)


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
