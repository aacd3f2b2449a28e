"""Which requests of a study each kind of load replays, and which calibrate a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.canonical import digest
from advisor.errors import InvalidInput
from advisor.measurement.records import LoadRole
from advisor.traffic.figures import SubsetDistance
from advisor.traffic.sampling.sample import (
    Probe,
    bins_of,
    fitting_places,
    probe_subset,
    static_subset,
)
from advisor.traffic.sampling.split import held_out
from advisor.traffic.sampling.traits import Bins
from advisor.traffic.trace import Request
from db.tables import StudyRow, TargetRow
from probes.load.plan import ReplayRule
from probes.settings import AgentSettings
from probes.traffic import Traffic, traffic_of
from probes.workplace import Workplace

WARM_TOKENS = 16
UNLIMITED_TOKENS = 1 << 30  # a model that names no limit: the engine has the last word
STATIC_ROLES = frozenset({LoadRole.STATIC, LoadRole.CONTROL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Requests that the trials of a study replay, in the order in which they are sent.

    `output_tokens[i]` is the tokenised length of the recorded answer of request i, None without.
    """

    workload_digest: str
    requests: tuple[Request, ...]
    output_tokens: tuple[int | None, ...]
    rule: ReplayRule

    def first(self, count: int) -> "Sample":
        """The first `count` requests."""
        return replace(
            self, requests=self.requests[:count], output_tokens=self.output_tokens[:count]
        )

    def capped(self, max_tokens: int) -> "Sample":
        """The same requests, to generate `max_tokens` at most and to end where they end."""
        cap = min(max_tokens, self.rule.cap_tokens)
        default = min(cap, self.rule.default_tokens)
        return replace(
            self,
            rule=replace(self.rule, cap_tokens=cap, default_tokens=default, fixed=False),
        )

    def warming(self, count: int) -> "Sample":
        """The `count` requests with the least text, each to generate one token more or so.

        Sent at once they pass through every batch size from `count` to 1.
        """
        order = sorted(range(len(self.requests)), key=lambda i: _text_length(self.requests[i]))
        chosen = order[:count]
        limits = [2 + place * WARM_TOKENS // count for place in range(len(chosen))]
        return replace(
            self,
            requests=tuple(
                replace(self.requests[i], output_tokens=limit)
                for i, limit in zip(chosen, limits, strict=True)
            ),
            output_tokens=tuple(limits),
        )

    @property
    def digest(self) -> str:
        """Names the load: the workload, the requests, and how many tokens each generates."""
        limits = [
            self.rule.limit(request, tokens)
            for request, tokens in zip(self.requests, self.output_tokens, strict=True)
        ]
        indexes = [request.index for request in self.requests]
        return digest({"workload": self.workload_digest, "indexes": indexes, "limits": limits})


def _text_length(request: Request) -> int:
    return len(request.messages or "") + len(request.prompt or "") + (request.prompt_tokens or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What the loads of one trial replay, by role. No request of `held_out` is in the others.

    `held_out` is None where too little could be kept back; `not_held_out` then says why.
    `distance` says how far the usual requests of the probe sample are from the whole upload.
    `not_fitting` requests with text are in none, as they do not fit the model's length (case T-18).
    """

    probe: Sample
    distance: SubsetDistance | None = None
    static: Sample | None = None
    held_out: Sample | None = None
    not_held_out: str | None = None
    not_fitting: int = 0

    def of(self, role: LoadRole) -> Sample:
        """The sample of a load; one that the study does not have raises `InvalidInput`."""
        if role is LoadRole.HELD_OUT:
            return _drawn(self.held_out, self.not_held_out or "this study keeps nothing back")
        if role in STATIC_ROLES:
            return _drawn(self.static, "no request was drawn for static batching")
        return self.probe


def _drawn(sample: Sample | None, reason: str) -> Sample:
    if sample is None:
        raise InvalidInput("sample", reason)
    return sample


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """What the samples of a study are drawn with. `held` are the places that are kept back.

    `bins` are of all requests as they are sent under `rule`.
    """

    traffic: Traffic
    bins: Bins
    settings: AgentSettings
    seed: int
    max_prompt_tokens: int
    rule: ReplayRule
    held: frozenset[int] = frozenset()

    @property
    def fitting(self) -> frozenset[int]:
        """Places of the requests that can be replayed."""
        return fitting_places(
            sent(self.traffic, self.rule),
            self.traffic.tokens,
            max_prompt_tokens=self.max_prompt_tokens,
        )

    @property
    def not_fitting(self) -> int:
        """How many requests with text cannot be replayed."""
        return sum(request.has_text for request in self.traffic.requests) - len(self.fitting)

    @property
    def open(self) -> frozenset[int]:
        """Places of the requests that can be replayed and are not kept back."""
        return self.fitting - self.held

    def closed_loop(self, size: int, among: frozenset[int]) -> Probe:
        """Up to `size` places of `among` that stand for the upload; raises when there is none."""
        return probe_subset(
            sent(self.traffic, self.rule),
            self.traffic.tokens,
            size=size,
            seed=self.seed,
            max_prompt_tokens=self.max_prompt_tokens,
            mean_prompt_limit=self.settings.mean_prompt_limit,
            without=frozenset(range(len(self.traffic.requests))) - among,
            bins=self.bins,
        )

    def probe(self, size: int, largest: int) -> tuple[Sample, SubsetDistance]:
        """The usual subset of `size` requests, and after it more up to `largest`.

        The distance to the whole upload is that of the usual subset.
        """
        usual = self.closed_loop(size, self.open)
        left = self.open - frozenset(usual.places)
        missing = largest - len(usual.places)
        more = self.closed_loop(missing, left).places if left and missing > 0 else ()
        return self.sample((*usual.places, *more), self.rule), usual.distance

    def static(self, size: int) -> Sample:
        """Up to `size` requests with outputs of different length, under a cap of their own."""
        cap = self.settings.static_output_cap
        rule = replace(self.rule, cap_tokens=cap, default_tokens=min(self.rule.default_tokens, cap))
        places = static_subset(
            sent(self.traffic, rule),
            self.traffic.tokens,
            size=size,
            seed=self.seed,
            max_prompt_tokens=self.max_prompt_tokens,
            mean_prompt_limit=self.settings.mean_prompt_limit,
            without=self.held,
        )
        return self.sample(places, rule)

    def sample(self, places: Sequence[int], rule: ReplayRule) -> Sample:
        """The requests at `places` as they are replayed."""
        outputs = self.traffic.tokens.outputs
        return Sample(
            workload_digest=self.traffic.digest,
            requests=tuple(self.traffic.requests[place] for place in places),
            output_tokens=tuple(_length(outputs[place]) for place in places),
            rule=rule,
        )


def sent(traffic: Traffic, rule: ReplayRule) -> list[Request]:
    """All requests with the limits that are sent: what fits is decided with those."""
    lengths = traffic.tokens.outputs.lengths.tolist()
    return [
        replace(request, max_tokens=rule.limit(request, None if length < 0 else length))
        for request, length in zip(traffic.requests, lengths, strict=True)
    ]


def _length(tokens: Sequence[int] | None) -> int | None:
    return None if tokens is None else len(tokens)


def draw_samples(
    place: Workplace, study: StudyRow, target: TargetRow, *, largest: int, gangs: int = 0
) -> Samples:
    """The samples of a study, the same at every call; `gangs` requests for STATIC, 0 for none.

    The probe sample begins with the study's usual subset, in its order, and goes on to `largest`
    requests for the loads that keep more in flight. Raises `InvalidInput` when no request fits
    the model's length.
    """
    drawing, reason = _drawing(place, study, target)
    size = study.requests_per_point
    kept_back = None
    if drawing.held:
        kept = drawing.closed_loop(size, drawing.fitting & drawing.held)
        kept_back = drawing.sample(kept.places, drawing.rule)
    probe, distance = drawing.probe(size, largest)
    return Samples(
        probe=probe,
        distance=distance,
        static=drawing.static(gangs) if gangs else None,
        held_out=kept_back,
        not_held_out=reason,
        not_fitting=drawing.not_fitting,
    )


def calibration_of(
    place: Workplace, study: StudyRow, target: TargetRow
) -> tuple[tuple[int, ...], ...]:
    """Token ids of the requests that are not held out, each prompt with its recorded answer.

    In a seeded order; equal studies of one workload and target give equal sequences.
    """
    drawing, _ = _drawing(place, study, target)
    tokens = drawing.traffic.tokens
    order = np.random.default_rng(study.seed).permutation(len(tokens.prompts))
    rows = (
        (*(tokens.prompts[at] or ()), *(tokens.outputs[at] or ()))
        for at in map(int, order)
        if at not in drawing.held
    )
    return tuple(row for row in rows if row)


def _drawing(place: Workplace, study: StudyRow, target: TargetRow) -> tuple[_Drawing, str | None]:
    """How samples are drawn, and why nothing is held out (None: something is)."""
    if target.shape is None:
        raise InvalidInput("target", "was not inspected")
    settings = place.settings
    traffic = traffic_of(place, study, target)
    rule = ReplayRule(
        cap_tokens=settings.output_token_cap,
        default_tokens=min(settings.default_output_tokens, settings.output_token_cap),
        fixed=True,
        vocab_size=target.shape.vocab_size,
        seed=study.seed,
        tool_parser=target.functional.tool_call_parser is not None,
    )
    drawing = _Drawing(
        traffic=traffic,
        bins=bins_of(sent(traffic, rule), traffic.tokens),
        settings=settings,
        seed=study.seed,
        max_prompt_tokens=(
            target.functional.max_model_len
            or target.shape.max_position_embeddings
            or UNLIMITED_TOKENS
        ),
        rule=rule,
    )
    if not study.options.confirm:
        return drawing, "no confirmation was asked for"
    held = held_out(
        sent(traffic, rule),
        traffic.tokens,
        seed=study.seed,
        max_prompt_tokens=drawing.max_prompt_tokens,
        chains=drawing.bins.traits.chains,
    )
    fit = len(held & drawing.fitting)
    if fit < study.goal.concurrency:
        return drawing, (
            f"only {fit} requests could be kept back from the other loads,"
            f" fewer than the goal's {study.goal.concurrency} in flight"
        )
    return replace(drawing, held=held), None
