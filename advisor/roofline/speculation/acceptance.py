"""How many tokens a verified draft yields: by position, request, and sampling (handbook 6.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.roofline.speculation.closed_form import expected_tokens

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What is known of drafts: `survival[i]` is the chance that position i+1 is accepted at all.

    Given a draft; it must not rise with the position (centres). `coverage` is the share of decode
    steps that get a draft (look-up misses some), None: all of them.
    """

    survival: tuple[Estimate, ...]
    coverage: Estimate | None = None

    def __post_init__(self) -> None:
        if not self.survival:
            raise InvalidInput("survival", "has no position")
        for item in (*self.survival, *(() if self.coverage is None else (self.coverage,))):
            if not 0 <= item.low <= item.high <= 1:
                raise InvalidInput("survival", "is a share of drafts, from 0 to 1")
        values = [item.value for item in self.survival]
        if any(later > earlier for earlier, later in pairwise(values)):
            raise InvalidInput("survival", "rises with the position")

    @property
    def longest(self) -> int:
        """Draft tokens up to which acceptance is known."""
        return len(self.survival)

    def drafted(self, draft_tokens: int) -> float:
        """Draft tokens per request and step in the mean, steps without a draft included."""
        return draft_tokens * (1.0 if self.coverage is None else self.coverage.value)

    def tokens(self, draft_tokens: int) -> tuple[float, float, float]:
        """Tokens of one decode step with drafts of so many tokens: low, centre, high.

        A draft longer than what is known raises `InvalidInput`.
        """
        if not 0 <= draft_tokens <= self.longest:
            raise InvalidInput(
                "draft_tokens", f"{draft_tokens} is not within what is known, {self.longest}"
            )
        low, centre, high = (
            sum(getattr(item, end) for item in self.survival[:draft_tokens])
            for end in ("low", "value", "high")
        )
        share = self.coverage
        if share is None:
            return 1 + low, 1 + centre, 1 + high
        return 1 + share.low * low, 1 + share.value * centre, 1 + share.high * high

    def scaled(self, factor: Estimate) -> "Acceptance":
        """With every conditional acceptance multiplied by `factor`, at most 1.

        That is how another temperature or a quantized target is carried over from a measured
        acceptance: position i falls with the i-th power.
        """
        if factor.low < 0:
            raise InvalidInput("factor", "is negative")
        ends = [
            _scaled([getattr(item, end) for item in self.survival], getattr(factor, end))
            for end in ("low", "value", "high")
        ]
        survival = tuple(
            replace(
                item,
                value=value,
                low=min(low, value),
                high=max(high, value),
                basis=f"{item.basis}; {factor.basis}",
            )
            for item, low, value, high in zip(self.survival, *ends, strict=True)
        )
        return replace(self, survival=survival)


def _scaled(survival: Sequence[float], factor: float) -> list[float]:
    found, chance, before = [], 1.0, 1.0
    for share in survival:
        conditional = share / before if before > 0 else 0.0
        chance *= min(1.0, conditional * factor)
        found.append(chance)
        before = share
    return found


def conditional(survival: Sequence[float]) -> tuple[float, ...]:
    """Chance of each position given that all before it were accepted; 0 after a certain end."""
    before = (1.0, *survival)
    return tuple(
        after / first if first > 0 else 0.0 for first, after in zip(before, survival, strict=False)
    )


def geometric(acceptance: Estimate, draft_tokens: int) -> Acceptance:
    """Survival of independent positions with one acceptance: a prior, never for look-up drafts."""
    if draft_tokens < 1:
        raise InvalidInput("draft_tokens", "a draft has at least one token")
    return Acceptance(
        survival=tuple(
            replace(
                acceptance,
                value=acceptance.value**position,
                low=max(0.0, acceptance.low) ** position,
                high=min(1.0, acceptance.high) ** position,
                basis=f"{acceptance.basis}; independent positions",
            )
            for position in range(1, draft_tokens + 1)
        )
    )


def tokens_over_requests(acceptances: Sequence[float], draft_tokens: int) -> float:
    """Mean tokens of a verification over requests of different acceptance.

    It is at least that at the mean acceptance, and more from two draft tokens on (Jensen): a mean
    acceptance alone understates the mean and hides the slow requests.
    """
    if not acceptances:
        raise InvalidInput("acceptances", "are empty")
    return sum(expected_tokens(value, draft_tokens) for value in acceptances) / len(acceptances)


def tempered(probabilities: Floats, temperature: float) -> Floats:
    """Distributions of temperature 1, one per row, at another; 0 is their largest entry alone."""
    if temperature < 0 or probabilities.ndim != 2 or bool((probabilities < 0).any()):  # noqa: PLR2004
        raise InvalidInput("temperature", "needs rows of probabilities and a value from 0 up")
    if temperature == 0:
        found = np.zeros_like(probabilities)
        found[np.arange(len(found)), probabilities.argmax(axis=1)] = 1.0
        return found
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities) / temperature
    weights: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def one_hot_acceptance(
    probabilities: Floats, drafted: NDArray[np.int64], temperature: float = 1.0
) -> float:
    """Acceptance of one drafted token per row: the target's own probability of it.

    So are drafts of look-up methods and greedy drafters accepted; it falls as the temperature rises
    where the drafted token is the likeliest.
    """
    at = tempered(probabilities, temperature)
    return float(at[np.arange(len(at)), drafted].mean())


def sampled_acceptance(target: Floats, draft: Floats) -> float:
    """Acceptance of drafts sampled from `draft`: the overlap of both (Leviathan, Theorem 3.5)."""
    if target.shape != draft.shape:
        raise InvalidInput("draft", "has other rows or tokens than the target")
    return float(np.minimum(target, draft).sum(axis=1).mean())
