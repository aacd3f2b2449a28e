"""Acceptance of speculative drafts, from differences of the engine's counters."""

import math

from scipy.special import ndtri

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.records import AcceptanceFigures, EngineCounters

_Z95 = float(ndtri(0.975))


def figures(counters: EngineCounters, *, num_speculative_tokens: int) -> AcceptanceFigures:
    """What the counters of one load point say about its drafts.

    A request's decode step yields one token and the accepted ones, so there were
    ``generation - accepted`` such steps, with a draft or without (case S-14). With no draft at
    all every rate is None with the reason, and a step yields one token (case S-18).
    """
    generated, accepted = counters.generation_tokens, counters.accepted
    steps = generated - accepted
    tokens_per_step = generated / steps if steps > 0 else None
    drafted = counters.drafts > 0
    return AcceptanceFigures(
        num_speculative_tokens=num_speculative_tokens,
        drafts=counters.drafts,
        draft_tokens=counters.draft_tokens,
        accepted=accepted,
        per_position=_survival(counters) if drafted else None,
        acceptance_rate=accepted / counters.draft_tokens if counters.draft_tokens else None,
        acceptance_length=1 + accepted / counters.drafts if drafted else None,
        coverage=counters.drafts / steps if drafted and steps > 0 else None,
        tokens_per_step=tokens_per_step,
        reason=None if drafted else f"nothing was drafted in {generated} tokens",
    )


def _survival(counters: EngineCounters) -> tuple[Estimate, ...]:
    return tuple(wilson(accepted, counters.drafts) for accepted in counters.accepted_per_position)


def wilson(successes: float, trials: float, *, basis: str | None = None) -> Estimate:
    """A measured share with Wilson's 95 % score interval (Wilson, 1927).

    Not whole numbers are effective counts: of samples that are not independent. `basis` says what
    was tried; None: drafts.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise InvalidInput("share", f"{successes} of {trials}")
    share, z2 = successes / trials, _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    spread = math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    half = _Z95 * spread / (1 + z2 / trials)
    return Estimate(
        value=share,
        low=min(share, max(0.0, centre - half)),
        high=max(share, min(1.0, centre + half)),
        source=Source.MEASURED,
        basis=f"{trials} drafts, Wilson interval" if basis is None else basis,
    )
