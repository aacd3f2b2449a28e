"""Acceptance of drafts from single requests: by position, class and temperature.

Requests differ more than their tokens do, so intervals are made by resampling requests, those of a
session together, never tokens (handbook 6.1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.acceptance import figures, wilson
from advisor.measurement.clusters import assumed_count, effective_count
from advisor.measurement.records import (
    AcceptanceFigures,
    EngineCounters,
    Outcome,
    RequestRecord,
)

Floats = NDArray[np.float64]

RESAMPLES = 1000
# Counters are read a moment before and after the load; warm-up requests may be in them.
_AGREES = 0.02
_FRAMES = (
    "from frames of 1 + a tokens taken as steps: a step without a draft and one whose draft was"
    " refused look alike, so that positions count per step, and frames must not be packed"
)


def request_figures(
    records: Sequence[RequestRecord], *, num_speculative_tokens: int, seed: int = 0
) -> AcceptanceFigures | None:
    """Figures of the successes that say how many draft tokens each of their steps accepted.

    Where no engine says so, the frames stand in (`histogram_of_frames`); None where neither is
    known. `per_position` counts per draft, at drafts of `num_speculative_tokens` tokens; it is None
    where nothing was drafted. `draft_tokens` takes every draft for a full one, so that
    `acceptance_rate` is a lower bound for methods that draft fewer.
    """
    good = [record for record in records if record.outcome is Outcome.OK]
    by_frames = all(record.accepted_histogram is None for record in good)
    told = [
        (record, histogram)
        for record in good
        if (histogram := _histogram(record, by_frames=by_frames)) is not None
        and record.output_tokens
    ]
    if not told:
        return None
    sample = _sample(told, num_speculative_tokens)
    drafts, accepted = float(sample.drafts.sum()), float(sample.survived.sum())
    generated = float(sample.generated.sum())
    steps = generated - accepted
    drafted = drafts > 0
    return AcceptanceFigures(
        num_speculative_tokens=num_speculative_tokens,
        drafts=int(drafts),
        draft_tokens=int(drafts) * num_speculative_tokens,
        accepted=int(accepted),
        per_position=sample.positions(seed, by_frames=by_frames) if drafted else None,
        acceptance_rate=accepted / (drafts * num_speculative_tokens) if drafted else None,
        acceptance_length=1 + accepted / drafts if drafted else None,
        coverage=None if by_frames or not drafted or steps <= 0 else min(1.0, drafts / steps),
        tokens_per_step=generated / steps if steps > 0 else None,
        reason=None if drafted else f"nothing was drafted in {generated:.0f} tokens",
    )


def point_figures(
    records: Sequence[RequestRecord], counters: EngineCounters, *, num_speculative_tokens: int
) -> tuple[AcceptanceFigures, str | None]:
    """Figures of one load by the engine's counters, and what its requests say against them.

    Positions and their intervals are the requests' own where the engine names the steps of each;
    else the counters' with intervals for as many requests, whose likeness is assumed.
    """
    engines = figures(counters, num_speculative_tokens=num_speculative_tokens)
    good = [record for record in records if record.outcome is Outcome.OK]
    if engines.per_position is None or not good:
        return engines, None
    told = [record for record in good if record.accepted_histogram is not None]
    mine = request_figures(told, num_speculative_tokens=num_speculative_tokens)
    if mine is None or mine.per_position is None:
        worth = assumed_count(counters.drafts, len(good))
        basis = f"{counters.drafts} drafts of {len(good)} requests worth {worth:.0f}, Wilson"
        shares = (share.value for share in engines.per_position)
        widened = tuple(wilson(share * worth, worth, basis=basis) for share in shares)
        return replace(engines, per_position=widened), None
    return replace(engines, per_position=mine.per_position), cross_check(mine, engines)


def histogram_of_frames(frame_tokens: Sequence[int]) -> tuple[int, ...]:
    """Steps by accepted tokens, a frame of 1 + a tokens taken for a step that accepted a.

    The first frame belongs to the prompt's own step, which verifies nothing. It is wrong where the
    server packs steps into frames (``stream_interval``) or a gateway joins frames.
    """
    sizes = [tokens for tokens in frame_tokens[1:] if tokens > 0]
    counts = np.bincount([tokens - 1 for tokens in sizes]) if sizes else np.zeros(1, dtype=int)
    return tuple(int(count) for count in counts)


def acceptance_by(
    records: Sequence[RequestRecord], *, num_speculative_tokens: int, seed: int = 0
) -> dict[str, AcceptanceFigures]:
    """Figures by request class ("class code") and by temperature ("temperature 0.7").

    Requests without a temperature were sampled as the engine defaults: "temperature default".
    """
    groups: dict[str, list[RequestRecord]] = {}
    for record in records:
        if record.label is not None:
            groups.setdefault(f"class {record.label}", []).append(record)
        groups.setdefault(f"temperature {_temperature(record.temperature)}", []).append(record)
    found = {
        name: request_figures(members, num_speculative_tokens=num_speculative_tokens, seed=seed)
        for name, members in sorted(groups.items())
    }
    return {name: of_group for name, of_group in found.items() if of_group is not None}


def cross_check(by_request: AcceptanceFigures, by_counters: AcceptanceFigures) -> str | None:
    """What the requests and the engine's counters disagree on, None where they agree.

    Both count every step, with a draft or without, so tokens per step must be the same.
    """
    mine, engines = by_request.tokens_per_step, by_counters.tokens_per_step
    if mine is None or engines is None or abs(mine - engines) <= _AGREES * engines:
        return None
    return (
        f"acceptance does not add up: {mine:.3f} tokens per step by the requests, {engines:.3f} by"
        " the engine's counters; other requests ran beside these, or frames were packed"
    )


def alone_check(by_request: AcceptanceFigures, counters: EngineCounters) -> str | None:
    """The same against the engine's own count of steps, for a load of one request in flight.

    A prompt computed in several steps makes the engine's figure smaller.
    """
    if not counters.engine_steps:
        return None
    engines = counters.generation_tokens / counters.engine_steps
    mine = by_request.tokens_per_step
    if mine is None or abs(mine - engines) <= _AGREES * engines:
        return None
    return f"{mine:.3f} tokens per step by the requests, {engines:.3f} per step of the engine"


def temperature_gap(
    measured: Iterable[float | None], traffic: Iterable[float | None]
) -> str | None:
    """Which part of the traffic the measured temperatures say nothing about; None: none of it.

    Drafts are accepted more often the more certain the target is, so that figures at temperature 0
    do not speak for traffic at 1 (case S-22). None is the engine's default, a value of its own.
    """
    seen, wanted = {_temperature(value) for value in measured}, list(map(_temperature, traffic))
    missing = [name for name in wanted if name not in seen]
    if not missing:
        return None
    return (
        f"acceptance was measured at temperature {_listed(seen)}; {len(missing) / len(wanted):.0%}"
        f" of the traffic is sampled at {_listed(set(missing))}, which that does not speak for"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceKey:
    """What an acceptance was measured with; it may be reused only for an equal key (case E-28).

    `engine` and `engine_version` e.g. "vllm" and "0.32.0". Digests name the target's weights, the
    chat template and what drafts (the draft's weights; None for methods without any).
    """

    engine: str
    engine_version: str
    model_digest: str
    template_digest: str | None
    draft_method: str
    draft_digest: str | None
    num_speculative_tokens: int

    def differs(self, wanted: "AcceptanceKey") -> str | None:
        """Why figures of this key say nothing about `wanted`, None where they may be reused.

        One draft length less is not excused here: figures by position of a longer draft hold for
        shorter ones only where the method drafts alike, which the caller must know.
        """
        names = [
            item.name
            for item in fields(self)
            if getattr(self, item.name) != getattr(wanted, item.name)
        ]
        if not names:
            return None
        return f"measured with another {', '.join(name.replace('_', ' ') for name in names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Counts per group of requests, shapes ``[groups]``; `survived` is ``[groups, positions]``."""

    drafts: Floats
    survived: Floats
    generated: Floats
    requests: int

    def positions(self, seed: int, *, by_frames: bool) -> tuple[Estimate, ...]:
        """Share of drafts whose position was accepted, with request-level intervals."""
        shares = self.survived.sum(axis=0) / self.drafts.sum()
        low, high = self._resampled(seed)
        source = f"; {_FRAMES}" if by_frames else ""
        return tuple(
            self._estimate(position, shares[position], (low[position], high[position]), source)
            for position in range(len(shares))
        )

    def _estimate(
        self, position: int, share: float, ends: tuple[float, float], source: str
    ) -> Estimate:
        """The wider of the bootstrap and a Wilson interval of the drafts' effective number.

        Few requests that happen to agree leave a bootstrap nothing to vary.
        """
        worth = effective_count(self.survived[:, position], self.drafts)
        plain = wilson(float(share) * worth, worth)
        return Estimate(
            value=float(share),
            low=min(plain.low, float(share), max(0.0, ends[0])),
            high=max(plain.high, float(share), min(1.0, ends[1])),
            source=Source.MEASURED,
            basis=(
                f"{self.requests} requests in {len(self.drafts)} groups with"
                f" {self.drafts.sum():.0f} drafts worth {worth:.0f}, bootstrap by request{source}"
            ),
        )

    def _resampled(self, seed: int) -> tuple[Floats, Floats]:
        """Ends of the bootstrap over groups, spread by the t quantile where groups are few."""
        groups = len(self.drafts)
        shares = self.survived.sum(axis=0) / self.drafts.sum()
        if groups == 1:
            return np.zeros_like(shares), np.ones_like(shares)
        rng = np.random.default_rng(seed)
        weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)
        drafts = weights @ self.drafts
        kept = drafts > 0
        resampled = (weights[kept] @ self.survived) / drafts[kept][:, np.newaxis]
        low, high = np.percentile(resampled, (2.5, 97.5), axis=0)
        few = float(stdtrit(groups - 1, 0.975) / ndtri(0.975)) * np.sqrt(groups / (groups - 1))
        return shares - few * (shares - low), shares + few * (high - shares)


def _sample(told: Sequence[tuple[RequestRecord, tuple[int, ...]]], longest: int) -> _Sample:
    groups: dict[tuple[str, str], list[int]] = {}
    for index, (record, _) in enumerate(told):
        alone = record.session is None
        key = ("request", str(index)) if alone else ("session", str(record.session))
        groups.setdefault(key, []).append(index)
    survived = np.zeros((len(told), longest))
    drafts, generated = np.zeros(len(told)), np.zeros(len(told))
    for index, (record, histogram) in enumerate(told):
        if len(histogram) > longest + 1 and any(histogram[longest + 1 :]):
            raise InvalidInput("accepted_histogram", f"accepts more than {longest} draft tokens")
        counts = np.zeros(longest + 1)
        counts[: min(len(histogram), longest + 1)] = histogram[: longest + 1]
        drafts[index] = counts.sum()
        survived[index] = counts[::-1].cumsum()[::-1][1:]
        generated[index] = record.output_tokens or 0
    members = [np.array(indices) for indices in groups.values()]
    return _Sample(
        drafts=np.array([drafts[m].sum() for m in members]),
        survived=np.array([survived[m].sum(axis=0) for m in members]),
        generated=np.array([generated[m].sum() for m in members]),
        requests=len(told),
    )


def _histogram(record: RequestRecord, *, by_frames: bool) -> tuple[int, ...] | None:
    if not by_frames:
        return record.accepted_histogram
    return None if record.frame_tokens is None else histogram_of_frames(record.frame_tokens)


def _temperature(value: float | None) -> str:
    return "default" if value is None else f"{value:g}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
