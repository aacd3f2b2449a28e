"""What an upload alone says: the values that `summarise` gives. None is "not measurable"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.estimate import Estimate
from advisor.traffic.trace import Privacy


class CountSource(StrEnum):
    """Where a token count came from."""

    REPORTED = "reported"
    TOKENISED = "tokenised"
    UNKNOWN = "unknown"


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
    `tokens_per_step` counts steps without a draft too (handbook 6.3, "eff"). `method` is "ngram"
    or "suffix"; the bounds of the lookup are vLLM's names and mean nothing for the latter.
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
    method: str = "ngram"
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many requests have a token count, by where it comes from."""

    reported: int
    estimated: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JointLengths:
    """Requests by prompt and output length: ``counts[i][j]`` lie in prompt bin i, output bin j.

    Bin i spans ``prompt_edges[i]`` (included) to ``prompt_edges[i + 1]`` tokens. `correlation` is
    Spearman's of the two lengths, None where one of them does not vary.
    """

    prompt_edges: tuple[float, ...]
    output_edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    correlation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Something over time: ``values[i]`` belongs to the window from ``i * window_s``."""

    window_s: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burstiness:
    """How unevenly requests arrive. `fano` is variance over mean of the counts of one window.

    `fano_by_window` maps a window's length in seconds to it (1 for Poisson at every length).
    `tick_s` is set where the log's clock is so coarse that gaps within a tick are an artefact:
    then `interarrival_cv` of the arrivals means little and the Fano factors of longer windows hold.
    """

    fano_by_window: Mapping[str, float]
    tick_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakWindow:
    """The busiest stretch of one length."""

    window_s: float
    start_s: float
    requests: int
    rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Requests in flight over time, from the durations that the log measured."""

    mean: float
    p95: float
    peak: int
    known: int
    timeline: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Conversations: `turns` per session, `think_s` from one arrival to the next within one."""

    sessions: int
    requests: int
    turns: Quantiles
    think_s: Quantiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How many requests have which property; each count is of `requests`.

    `greedy` sample at temperature 0, `sampled` above, `unknown_temperature` do not say.
    `structured` ask for JSON or a schema. `languages` and `code` are of the `read` requests whose
    text was looked at: a request counts as code where most of its text is.
    """

    requests: int
    tools: int
    tool_turns: int
    images: int
    structured: int
    greedy: int
    sampled: int
    unknown_temperature: int
    temperature: Quantiles | None
    read: int = 0
    languages: Mapping[str, int] = field(default_factory=dict)
    code: int = 0
    models: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Prompts that are equal to the last character; `requests` are those with text."""

    requests: int
    distinct: int
    repeated: int
    most_often: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a length limit serves (case T-18). Unknown outputs count with `max_tokens`, else 1.

    `prompt_too_long` do not fit by their prompt alone. `needed_max_model_len` serves all.
    """

    max_model_len: int
    requests: int
    fitting: int
    prompt_too_long: int
    prompt_tokens: int
    prompt_tokens_fitting: int
    needed_max_model_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficProfile:
    """The shape of the traffic. None: the upload does not say (see `unmeasurable`)."""

    prompt_counts: Counts
    output_counts: Counts
    joint_lengths: JointLengths | None
    rate: Timeline | None
    burstiness: Burstiness | None
    peaks: tuple[PeakWindow, ...]
    diurnal: tuple[int, ...] | None
    concurrency: Concurrency | None
    sessions: Sessions | None
    mix: Mix
    duplicates: Duplicates | None
    context_tokens: Quantiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusePoint:
    """Share of prompt tokens served by a prefix cache of `capacity_blocks` blocks."""

    capacity_blocks: int
    hit_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """Where prompts stop sharing: the token at which a prompt leaves all earlier ones.

    ``counts[i]`` prompts leave them between ``edges[i]`` and ``edges[i + 1]`` tokens (to the token
    for a part of them, else to the block). `early` is the share of prompts that do so although
    more tokens than they share occur in an earlier prompt behind that place, in stretches of at
    least 16; `lost_share` is the share of all prompt tokens that stands in such stretches. Both are
    None where only block ids are known, which do not show it.
    """

    edges: tuple[int, ...]
    counts: tuple[int, ...]
    early: float | None
    lost_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixReuse:
    """Prefix sharing as a function of the KV cache (handbook 8).

    `ceiling` is that of an unlimited cache. `curve` follows from stack distances in one pass,
    `lru` is a replay of vLLM's free queue at some of its capacities. `origin` says what blocks
    were made of: "tokens" or "block ids of the file". `advice` are sentences for people.
    """

    block_size: int
    origin: str
    ceiling: Estimate
    by_class: Mapping[str, Estimate]
    curve: tuple[ReusePoint, ...]
    lru: tuple[ReusePoint, ...]
    distinct_blocks: int
    first_difference: FirstDifference | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """A class of requests, described in words from its own figures.

    `origin` is "label" (the file's own) or "found" (clustered). `traits` are the words,
    `description` one sentence.
    """

    name: str
    origin: str
    requests: int
    share: float
    traits: tuple[str, ...]
    description: str
    prompt_tokens: Quantiles | None
    output_tokens: Quantiles | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetDistance:
    """How far a subset is from the whole upload: 0 is equal, 1 as far as can be.

    `lengths`, `reuse` and `classes` are total variation distances between the shares of joint
    bins, `burstiness` is the relative difference of the variation of the gaps (at most 1), None
    where the upload has no times or the subset is sent without them. `reuse` is None where neither
    text nor block ids are known. `total` is their largest.
    """

    requests: int
    of: int
    lengths: float
    reuse: float | None
    classes: float
    burstiness: float | None
    total: float


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
    over static batches of 4 on these output lengths (handbook 5.1). `privacy` says how much of the
    text is kept. `lookup_sweep` are n-gram replays by draft length and lookup window, `suffix` one
    of a look-up over past outputs, `fits` what some length limits serve.
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
    privacy: Privacy = Privacy.RAW
    profile: TrafficProfile | None = None
    reuse: PrefixReuse | None = None
    lookup_sweep: tuple[LookupAcceptance, ...] = ()
    suffix: LookupAcceptance | None = None
    request_classes: tuple[RequestClass, ...] = ()
    fits: tuple[Fit, ...] = ()
