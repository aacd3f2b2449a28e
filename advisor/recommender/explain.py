"""A verdict in one sentence: what, by how much, in which regime, why."""

from collections.abc import Sequence

from advisor.estimate import Estimate
from advisor.goal import Objective
from advisor.measurement.crossover import crossovers
from advisor.recommender.recommendation import Effect, VerdictKind
from advisor.techniques import Technique
from advisor.units import percent_text

_FIGURES = {Objective.THROUGHPUT: "throughput", Objective.LATENCY: "speed of a request"}


def interval_text(gain: Estimate) -> str:
    """A gain for a person, e.g. ``+21.0 % (+15.0 % to +27.0 %)``."""
    low, high = percent_text(gain.low), percent_text(gain.high)
    return f"{percent_text(gain.value)} ({low} to {high})"


def sentence(
    technique: Technique,
    effects: Sequence[Effect],
    *,
    objective: Objective,
    idle: str | None = None,
    quality: str | None = None,
) -> str:
    """The verdict on a technique; `effects` begin with the one at the goal's load.

    `idle` says that the technique did nothing although it was on, and takes the place of its
    usual reason. `quality` says what it does to the answers.
    """
    first, others = effects[0], effects[1:]
    why_not = idle or technique.why_not
    parts = [f"{technique.title} {_claim(technique, first, objective, why_not=why_not)}"]
    parts += [text for text in (*map(_elsewhere, others), _turning(effects), quality) if text]
    return "; ".join(parts) + "."


def _claim(technique: Technique, effect: Effect, objective: Objective, *, why_not: str) -> str:
    at = f"at {_load(effect.concurrency)}"
    if effect.measured is None:
        verb = "does not apply" if effect.kind is VerdictKind.NOT_APPLICABLE else "is not judged"
        return f"{verb} {at} because {effect.reason}{_expected(effect)}"
    change = f"{_FIGURES[objective]} {interval_text(effect.measured)} {at}{_expected(effect)}"
    match effect.kind:
        case VerdictKind.HELPS:
            return f"helps: {change}, because {technique.why_helps}"
        case VerdictKind.HURTS:
            return f"hurts: {change}, because {why_not}"
        case VerdictKind.NEUTRAL:
            return f"makes no difference: {change}, because {why_not}"
        case _:
            return f"is not decided: {change}, because {effect.reason}"


def _expected(effect: Effect) -> str:
    if effect.predicted is None:
        return ""
    low, high = percent_text(effect.predicted.low), percent_text(effect.predicted.high)
    return f", predicted {low} to {high}"


def _elsewhere(effect: Effect) -> str:
    """The same technique at another load; nothing to say where nothing was measured."""
    if effect.measured is None:
        return ""
    return (
        f"at {_load(effect.concurrency)} it {_VERBS[effect.kind]}: {interval_text(effect.measured)}"
    )


def _turning(effects: Sequence[Effect]) -> str:
    """Between which measured loads a gain turns into a loss (case E-01); nothing beyond them."""
    gains = {item.concurrency: item.measured for item in effects if item.measured is not None}
    return "; ".join(f"it {found.text}" for found in crossovers(gains))


_VERBS = {
    VerdictKind.HELPS: "helps",
    VerdictKind.HURTS: "hurts",
    VerdictKind.NEUTRAL: "makes no difference",
    VerdictKind.UNKNOWN: "is not decided",
}


def _load(concurrency: int) -> str:
    return f"{concurrency} request{'s' if concurrency > 1 else ''} in flight"
