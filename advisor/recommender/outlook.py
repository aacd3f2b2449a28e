"""What an upload promises before anything is started: per technique, memory, the regime."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from advisor.errors import UnknownName
from advisor.estimate import Estimate, Source
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.recommender.cache_share import cache_tokens
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.pictures import paging_picture
from advisor.recommender.recommendation import PagingPicture
from advisor.recommender.screening import (
    Forecast,
    forecast,
    judged,
    lacking,
    loads_of,
)
from advisor.roofline.step.efficiency import prior_efficiency
from advisor.roofline.throughput import served_dtype
from advisor.serving import ServingConfig
from advisor.techniques import TECHNIQUES, Technique
from advisor.traffic.figures import TrafficSummary

_T = TypeVar("_T")
NO_SERVER = "needs a model and a device to say: choose a target"
NO_LENGTHS = "the upload does not say how long requests are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on a device, and the configuration that techniques are toggled against."""

    model: ModelShape
    device: DeviceFacts
    baseline: ServingConfig = field(default_factory=ServingConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueOutlook:
    """One technique with a forecast for the load to serve, then for its own loads."""

    technique: str
    title: str
    suits: str
    breaks: str
    forecasts: tuple[Forecast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """All that an upload says about `concurrency` requests in flight of one served model.

    `static_speedup` is the most that is gained over static batches on these output lengths
    (handbook 5.1). `regime` says in a sentence what holds decoding and prefill.
    `unmeasurable` gives the reason for each of paging, static_speedup and regime that is None.
    """

    concurrency: int
    hardware: str | None
    model: str | None
    techniques: tuple[TechniqueOutlook, ...]
    paging: PagingPicture | None
    static_speedup: Estimate | None
    regime: str | None
    unmeasurable: Mapping[str, str] = field(default_factory=dict)


def outlook(
    traffic: TrafficSummary,
    served: Served | None,
    *,
    concurrency: int,
    techniques: tuple[Technique, ...] = TECHNIQUES,
) -> Outlook:
    """Forecasts for every technique; without `served` only what lengths alone say."""
    reasons: dict[str, str] = {}
    if traffic.static_speedup is None:
        reasons["static_speedup"] = traffic.unmeasurable.get("output_tokens", NO_LENGTHS)
    return Outlook(
        concurrency=concurrency,
        hardware=None if served is None else served.device.name,
        model=None if served is None else served.model.architecture,
        techniques=tuple(
            TechniqueOutlook(
                technique=technique.key,
                title=technique.title,
                suits=technique.suits,
                breaks=technique.breaks,
                forecasts=_forecasts(traffic, served, technique, concurrency),
            )
            for technique in techniques
        ),
        paging=_said(reasons, "paging", _paging(traffic, served)),
        static_speedup=traffic.static_speedup,
        regime=_said(reasons, "regime", _regime(traffic, served, concurrency)),
        unmeasurable=reasons,
    )


@dataclass(frozen=True, slots=True)
class _Unsaid:
    """Why something cannot be said."""

    reason: str


def _said(reasons: dict[str, str], name: str, found: _T | _Unsaid) -> _T | None:
    if isinstance(found, _Unsaid):
        reasons[name] = found.reason
        return None
    return found


def _forecasts(
    traffic: TrafficSummary, served: Served | None, technique: Technique, concurrency: int
) -> tuple[Forecast, ...]:
    if served is None:
        return (_by_lengths(traffic, technique, concurrency),)
    evidence = _evidence(traffic, served, concurrency)
    return tuple(forecast(evidence, technique, load) for load in loads_of(evidence, technique))


def _by_lengths(traffic: TrafficSummary, technique: Technique, concurrency: int) -> Forecast:
    """What can be said without a model: the bound on static batches, and what is missing."""
    if technique.static_slots is not None and traffic.static_speedup is not None:
        return judged(technique, technique.static_slots, traffic.static_speedup)
    reason = lacking(technique, traffic) or NO_SERVER
    if technique.static_slots is not None:
        reason = NO_LENGTHS
    return Forecast(technique=technique.key, concurrency=concurrency, predicted=None, reason=reason)


def _evidence(traffic: TrafficSummary, served: Served, concurrency: int) -> StudyEvidence:
    """A study that has not begun."""
    return StudyEvidence(
        goal=Goal(concurrency=concurrency),
        baseline=served.baseline,
        model=served.model,
        device=served.device,
        traffic=traffic,
        trials=(),
        budget_s=0.0,
        spent_s=0.0,
        requests_per_point=1,
        workload_digest="",
        model_digest="",
        engine_version="",
    )


def _paging(traffic: TrafficSummary, served: Served | None) -> PagingPicture | _Unsaid:
    """Shares of reserved cache that hold tokens; requests only where the cache's size is set."""
    if served is None:
        return _Unsaid(NO_SERVER)
    total = traffic.total_tokens
    if total is None or traffic.paged_share is None or traffic.block_size is None:
        return _Unsaid(NO_LENGTHS)
    functional = served.baseline.functional
    reserved = functional.max_model_len or served.model.max_position_embeddings
    if reserved is None:
        return _Unsaid("the model does not say how long a request may be: set max_model_len")
    if total.max > reserved:
        return _Unsaid(
            f"the longest request has {total.max:.0f} tokens and a request may have {reserved}"
        )
    cache = cache_tokens(served.model, served.device, served.baseline)
    found = paging_picture(traffic, reserved_tokens=reserved, cache_tokens=cache)
    return found or _Unsaid(NO_LENGTHS)


def _regime(traffic: TrafficSummary, served: Served | None, concurrency: int) -> str | _Unsaid:
    """What holds a step: reading the weights or computing on them (handbook 3.2, m*)."""
    if served is None:
        return _Unsaid(NO_SERVER)
    prompt = traffic.overall.prompt_tokens
    dtype = served_dtype(served.model, served.baseline)
    try:
        knee = balance_tokens(served.device, dtype)
    except UnknownName as error:
        return _Unsaid(str(error))
    said = (
        f"On {served.device.name} in {dtype} a step over about {knee.value:.0f} tokens"
        f" ({knee.low:.0f} to {knee.high:.0f}) computes as long as it reads the weights."
        f" With {concurrency} in flight, decoding is {_side(concurrency, knee)}"
    )
    if prompt is None:
        return f"{said}."
    return f"{said}; prefill of a prompt of {prompt.mean:.0f} tokens is {_side(prompt.mean, knee)}."


def balance_tokens(device: DeviceFacts, dtype: str) -> Estimate:
    """Tokens in a step at which linear layers compute as long as they read their weights.

    ``eta_c F b_w / (2 eta_m BW)`` (handbook 3.2), with the shares assumed for the device. Raises
    `UnknownName` where the rate of `dtype` is not known.
    """
    rate, bandwidth = device.rate(dtype), device.bandwidth_bytes_per_s
    shares = prior_efficiency(device)
    half_width = dtype_bytes(dtype) / 2

    def tokens(compute: float, memory: float) -> float:
        return compute * half_width / memory

    return Estimate(
        value=tokens(rate.value * shares.compute.value, bandwidth.value * shares.memory.value),
        low=tokens(rate.low * shares.compute.low, bandwidth.high * shares.memory.high),
        high=tokens(rate.high * shares.compute.high, bandwidth.low * shares.memory.low),
        source=Source.ROOFLINE,
        basis="assumed shares of the device's peaks, at their ends",
    )


def _side(tokens: float, knee: Estimate) -> str:
    if tokens < knee.low:
        return "bound by memory bandwidth"
    if tokens > knee.high:
        return "bound by compute"
    return "near the balance of both"
