"""The shape of traffic from its columns: `profile`, and what a length limit serves: `fit`."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.traffic.facts import Codes, Facts, Integers
from advisor.traffic.figures import Duplicates, Fit, Mix, Quantiles, Sessions, TrafficProfile
from advisor.traffic.statistics.arrivals import burstiness, diurnal, peaks, rate_timeline
from advisor.traffic.statistics.concurrency import concurrency
from advisor.traffic.statistics.language import LanguageSample
from advisor.traffic.statistics.lengths import context_tokens, counts, joint_lengths, quantiles_of

LIMITS = tuple(1 << power for power in range(10, 21))
NO_TIMES = "fewer than two different times in the upload"


def profile(
    facts: Facts, sample: LanguageSample, *, started_epoch_s: float | None
) -> TrafficProfile:
    """Figures of all requests; those that need what the upload lacks are None (`missing`)."""
    times = arrival_times(facts)
    timed = len(times) > 0 and times[-1] > 0
    return TrafficProfile(
        prompt_counts=counts(facts.prompt_source),
        output_counts=counts(facts.output_source),
        joint_lengths=joint_lengths(facts),
        rate=rate_timeline(times) if timed else None,
        burstiness=burstiness(times) if timed else None,
        peaks=peaks(times) if timed else (),
        diurnal=diurnal(times, started_epoch_s) if timed else None,
        concurrency=concurrency(facts),
        sessions=sessions(facts),
        mix=mix(facts, sample),
        duplicates=duplicates(facts),
        context_tokens=quantiles_of(context_tokens(facts)),
    )


def missing(found: TrafficProfile, facts: Facts, started_epoch_s: float | None) -> dict[str, str]:
    """Why figures of the profile are None, by their names."""
    reasons = {
        "joint_lengths": "no request has both a prompt and an output length",
        "rate": NO_TIMES,
        "burstiness": NO_TIMES if found.rate is None else "the upload spans less than ten windows",
        "diurnal": _no_day(found, started_epoch_s),
        "concurrency": "the upload has no arrival times"
        if np.isnan(facts.arrival_s).all()
        else "the upload does not say how long requests took",
        "sessions": "the upload names no sessions",
        "duplicates": "the upload holds no text",
        "context_tokens": "no request has both a prompt and an output length",
    }
    return {name: why for name, why in reasons.items() if getattr(found, name) is None}


def tick_warnings(found: TrafficProfile) -> Iterator[str]:
    """What a coarse clock makes of the figures of arrivals."""
    tick_s = None if found.burstiness is None else found.burstiness.tick_s
    if tick_s is not None:
        yield (
            f"the clock of the log ticks every {tick_s:.3g} s and most requests share a tick with"
            " another: gaps below a tick are not known, so that the variation of the gaps and the"
            " most simultaneous requests say little; figures of longer windows hold"
        )


def _no_day(found: TrafficProfile, started_epoch_s: float | None) -> str:
    if found.rate is None:
        return NO_TIMES
    if started_epoch_s is None:
        return "the upload's times do not say which hour of the day they are"
    return "the upload spans less than 20 hours"


def arrival_times(facts: Facts) -> NDArray[np.float64]:
    """Ascending, from 0."""
    times = np.sort(facts.arrival_s[~np.isnan(facts.arrival_s)])
    return times - times[0] if len(times) else times


def sessions(facts: Facts) -> Sessions | None:
    """Turns and pauses of conversations; None where no request names its session."""
    named = np.flatnonzero(facts.session >= 0)
    if not len(named):
        return None
    session, times = facts.session[named], facts.arrival_s[named]
    order = np.lexsort((times, session))
    gaps = np.diff(times[order])[np.diff(session[order]) == 0]
    turns = np.bincount(session)
    return Sessions(
        sessions=int((turns > 0).sum()),
        requests=len(named),
        turns=_of_some(turns[turns > 0]),
        think_s=quantiles_of(gaps[~np.isnan(gaps)]),
    )


def _of_some(values: NDArray[np.int64]) -> Quantiles:
    found = quantiles_of(values)
    if found is None:
        raise InvalidInput("values", "none is known")
    return found


def mix(facts: Facts, sample: LanguageSample) -> Mix:
    """Which requests use what."""
    temperature = facts.temperature
    return Mix(
        requests=len(facts),
        tools=int((facts.tools > 0).sum()),
        tool_turns=int((facts.tool_turns > 0).sum()),
        images=int((facts.images > 0).sum()),
        structured=int((facts.structured > 0).sum()),
        greedy=int((temperature == 0).sum()),
        sampled=int((temperature > 0).sum()),
        unknown_temperature=int(np.isnan(temperature).sum()),
        temperature=quantiles_of(temperature),
        read=sample.read,
        languages=sample.languages,
        code=sample.code,
        models=_by_name(facts.model, facts.models),
    )


def _by_name(codes: Codes, names: Sequence[str]) -> Mapping[str, int]:
    found = np.bincount(codes[codes >= 0], minlength=len(names))
    pairs = sorted(zip(names, found.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0]))
    return dict(pairs)


def duplicates(facts: Facts) -> Duplicates | None:
    """Equal prompts by their hashes; None without text."""
    held = facts.content[facts.has_text]
    if not len(held):
        return None
    times = np.unique(held, return_counts=True)[1]
    return Duplicates(
        requests=len(held),
        distinct=len(times),
        repeated=int(times[times > 1].sum()),
        most_often=int(times.max()),
    )


def fit(facts: Facts, max_model_len: int) -> Fit:
    """What a server with this limit serves of the requests whose prompt length is known."""
    prompts, needed = _needs(facts)
    return fit_lengths(prompts, needed, max_model_len)


def _needs(facts: Facts) -> tuple[Integers, Integers]:
    """Prompt tokens, and the length that serves the request, of those whose prompt is known."""
    known = facts.prompt_tokens >= 0
    prompts = facts.prompt_tokens[known]
    limited = np.where(facts.max_tokens >= 0, facts.max_tokens, 1)
    outputs = np.where(facts.output_tokens >= 0, facts.output_tokens, limited)[known]
    # A request that recorded no output still asks for one token: engines refuse 0 (case T-19).
    return prompts, prompts + np.maximum(outputs, 1)


def fit_lengths(prompts: Integers, needed: Integers, max_model_len: int) -> Fit:
    """The same from prompt tokens and the length that each request needs, shape ``[requests]``."""
    if max_model_len < 1:
        raise InvalidInput("max_model_len", f"{max_model_len} is not at least 1")
    fitting = needed <= max_model_len
    return Fit(
        max_model_len=max_model_len,
        requests=len(prompts),
        fitting=int(fitting.sum()),
        prompt_too_long=int((prompts >= max_model_len).sum()),
        prompt_tokens=int(prompts.sum()),
        prompt_tokens_fitting=int(prompts[fitting].sum()),
        needed_max_model_len=int(needed.max(initial=0)),
    )


def fits(facts: Facts, limits: Sequence[int]) -> tuple[Fit, ...]:
    """`limits`, and powers of two from the last that serves none to the first that serves all."""
    prompts, needed = _needs(facts)
    if not len(prompts):
        return ()
    found = [fit_lengths(prompts, needed, limit) for limit in LIMITS]
    some = [item for item in found if 0 < item.fitting < item.requests]
    all_of_it = [item for item in found if item.fitting == item.requests][:1]
    asked = [fit_lengths(prompts, needed, limit) for limit in limits]
    chosen = {item.max_model_len: item for item in (*some, *all_of_it, *asked)}
    return tuple(chosen[limit] for limit in sorted(chosen))
