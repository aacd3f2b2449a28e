"""One measurement of one server, whoever made it: ours, from outside, or another tool's file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.measurement.findings import Findings
from advisor.measurement.records import LoadPoint, LoopKind
from advisor.traffic.figures import Quantiles


class Rank(StrEnum):
    """How much a measurement can decide, strongest first.

    OWN_ENGINE: an engine that Rooftune started, supervised and reset between loads. CLIENT_SIDE: a
    server that may not be restarted, seen through its endpoint. IMPORTED: what another tool wrote.
    """

    OWN_ENGINE = "own engine"
    CLIENT_SIDE = "client side"
    IMPORTED = "imported"

    @property
    def source(self) -> Source:
        """The source that its numbers carry."""
        return {
            Rank.OWN_ENGINE: Source.MEASURED,
            Rank.CLIENT_SIDE: Source.MEASURED_OUTSIDE,
            Rank.IMPORTED: Source.IMPORTED,
        }[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Figures of a quantity as a tool stated them; nothing is made up between them.

    `percentiles` maps a percentile (50, 99.9) to its value. `count` None: the tool does not say.
    """

    count: int | None = None
    mean: float | None = None
    sd: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    percentiles: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One load as any tool can state it; None where it does not say (also `kind`).

    Times in seconds. `tpot_s` is (last - first) / (tokens - 1) per request, whatever the tool calls
    it; a tool with another definition leaves it None and has `normalised_latency_s` (end-to-end
    time over output tokens, case S-19) or `chunk_gap_s`. `remarks` say what was read how.
    """

    kind: LoopKind | None
    requests: int
    failed: int
    duration_s: float
    concurrency: float | None = None
    rate_per_s: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    input_tokens_per_s: float | None = None
    prompt_tokens: Distribution | None = None
    output_tokens: Distribution | None = None
    ttft_s: Distribution | None = None
    tpot_s: Distribution | None = None
    chunk_gap_s: Distribution | None = None
    e2e_s: Distribution | None = None
    normalised_latency_s: Distribution | None = None
    usable: bool = True
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.requests < 0 or not 0 <= self.failed <= self.requests:
            raise InvalidInput("point.failed", f"{self.failed} of {self.requests} requests")
        if self.duration_s < 0:
            raise InvalidInput("point.duration_s", f"{self.duration_s} is below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementReport:
    """What was measured of one server.

    `tool` and `tool_version` made it ("rooftune", "vllm bench serve"). `model` is the served
    model's name, `engine` e.g. "vllm 0.32.0", both None where unknown. `started_epoch_s` is in
    seconds since 1970. `points` are in the order of measuring; `loads` are the same in full where
    Rooftune measured them itself. `remarks` hold for all points. `plan_digest` names what was asked
    of which server with which requests: equal ones may be continued. `complete` is False where the
    measuring was ended early. `findings` is what the loads say together.
    """

    rank: Rank
    tool: str
    tool_version: str | None
    model: str | None
    engine: str | None
    started_epoch_s: float | None
    points: tuple[MeasuredPoint, ...]
    loads: tuple[LoadPoint, ...] = ()
    remarks: tuple[str, ...] = ()
    plan_digest: str | None = None
    complete: bool = True
    findings: Findings | None = None


def measured_point(load: LoadPoint) -> MeasuredPoint:
    """A load of ours in the form that any tool's has; its flaws and remarks are kept as remarks."""
    open_loop = load.open_loop
    tokens_per_s = load.throughput_tokens_per_s.value
    return MeasuredPoint(
        kind=LoopKind.CLOSED if open_loop is None else LoopKind.OPEN,
        requests=load.requests,
        failed=load.failed,
        duration_s=load.duration_s,
        concurrency=float(load.concurrency) if open_loop is None else load.in_flight_mean,
        rate_per_s=None if open_loop is None else open_loop.rate_per_s,
        requests_per_s=load.requests_per_s,
        output_tokens_per_s=tokens_per_s,
        input_tokens_per_s=load.prompt_tokens / load.duration_s if load.duration_s > 0 else None,
        prompt_tokens=_mean_of(load.prompt_tokens, load.succeeded),
        output_tokens=_mean_of(load.output_tokens, load.succeeded),
        ttft_s=_distribution(load.ttft_s),
        tpot_s=_distribution(load.tpot_s),
        chunk_gap_s=_distribution(load.chunk_gap_s),
        e2e_s=_distribution(load.e2e_s),
        usable=load.usable,
        remarks=load.flaws,
    )


def _mean_of(total: int, count: int) -> Distribution | None:
    return Distribution(count=count, mean=total / count) if count else None


def _distribution(of: Quantiles | None) -> Distribution | None:
    if of is None:
        return None
    return Distribution(
        count=of.count,
        mean=of.mean,
        maximum=of.max,
        percentiles={5.0: of.p5, 25.0: of.p25, 50.0: of.p50, 75.0: of.p75, 95.0: of.p95},
    )
