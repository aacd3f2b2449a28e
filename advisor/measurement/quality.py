"""How far a change of the engine changes its answers, on the user's own prompts (handbook 7.3)."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.acceptance import wilson
from advisor.measurement.records import QualityAnswer, QualityPass
from advisor.traffic.statistics.interval import ratio_interval

# Correlation of agreement between the positions of one answer (the example of handbook 7.3).
# Where every position agrees it cannot be estimated.
_CORRELATION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFigures:
    """One pass against the reference's, on the requests that both answered.

    `top1_agreement` is the share of positions of the reference's answers at which the most likely
    token is the same, given the same text before it (teacher forcing). `greedy_agreement` is the
    mean share of an answer before its first different token, `identical` the share of answers
    without any. `tokens` counts positions of the reference's answers. Intervals by bootstrap over
    requests, and never narrower than Wilson's on the effective number of samples.
    """

    requests: int
    tokens: int
    top1_agreement: Estimate | None
    greedy_agreement: Estimate
    identical: Estimate


def design_effect(samples_per_cluster: float, correlation: float) -> float:
    """How many clustered samples say as much as one independent one: ``1 + (m - 1) rho``."""
    return 1 + max(0.0, samples_per_cluster - 1) * correlation


def compare(reference: QualityPass, other: QualityPass, *, seed: int = 0) -> QualityFigures:
    """Figures of `other`; passes without a request in common raise `InvalidInput`."""
    known = {answer.request_id: answer for answer in reference.answers}
    pairs = [
        (known[answer.request_id], answer) for answer in other.answers if answer.request_id in known
    ]
    if not pairs:
        raise InvalidInput("quality.answers", "the two passes have no request in common")
    before_miss = [_share_before_miss(first.greedy, second.greedy) for first, second in pairs]
    equal = [float(first.greedy == second.greedy) for first, second in pairs]
    ones = [1.0] * len(pairs)
    return QualityFigures(
        requests=len(pairs),
        tokens=sum(len(first.greedy) for first, _ in pairs),
        top1_agreement=_top1(pairs, seed),
        greedy_agreement=_share(before_miss, ones, effective=len(pairs), seed=seed),
        identical=_share(equal, ones, effective=len(pairs), seed=seed),
    )


def _share_before_miss(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Where one answer ends and the other goes on, they differ."""
    longest = max(len(first), len(second))
    if not longest:
        return 1.0
    pairs = enumerate(zip(first, second, strict=False))
    shortest = min(len(first), len(second))
    return next((index for index, (a, b) in pairs if a != b), shortest) / longest


def _top1(pairs: Sequence[tuple[QualityAnswer, QualityAnswer]], seed: int) -> Estimate | None:
    """Agreement over the positions at which the other engine said its most likely token."""
    agreed, positions = [], []
    for first, second in pairs:
        forced = second.forced or ()
        matches = [a == b for a, b in zip(first.greedy, forced, strict=False)]
        if matches:
            agreed.append(float(sum(matches)))
            positions.append(float(len(matches)))
    if not positions:
        return None
    total = sum(positions)
    effective = total / design_effect(total / len(positions), _CORRELATION)
    return _share(agreed, positions, effective=effective, seed=seed)


def _share(
    numerators: Sequence[float], denominators: Sequence[float], *, effective: float, seed: int
) -> Estimate:
    """A share with both intervals united: where all agree, resamples do not differ at all."""
    value, low, high = ratio_interval(numerators, denominators, seed=seed)
    wide = wilson(value * effective, effective)
    return Estimate(
        value=value,
        low=min(low, wide.low),
        high=min(1.0, max(high, wide.high)),
        source=Source.MEASURED,
        basis=f"{len(numerators)} requests, bootstrap by request and Wilson",
    )
