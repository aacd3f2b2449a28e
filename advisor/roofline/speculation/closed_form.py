"""Speculative decoding in closed form (handbook 6.1; Leviathan et al., 2023).

`acceptance` is the chance that a draft token is accepted given that all before it were;
`survival[i]` is the chance that draft position i+1 is accepted at all.
"""

from collections.abc import Sequence

from scipy.optimize import brentq

from advisor.errors import InvalidInput

_MAX_DRAFT = 64


def _checked(acceptance: float, draft_tokens: int) -> None:
    if not 0 <= acceptance <= 1:
        raise InvalidInput("acceptance", f"{acceptance} is not a probability")
    if draft_tokens < 0:
        raise InvalidInput("draft_tokens", f"{draft_tokens} is negative")


def expected_tokens(acceptance: float, draft_tokens: int) -> float:
    """Tokens of one verification, the bonus token included: (1-a^(k+1))/(1-a)."""
    _checked(acceptance, draft_tokens)
    # Summed rather than divided: the quotient loses all digits near acceptance 1.
    return float(sum(acceptance**position for position in range(draft_tokens + 1)))


def tokens_from_survival(survival: Sequence[float]) -> float:
    """Tokens of one verification from measured positions: 1 and their sum."""
    return 1 + sum(survival)


def speedup(acceptance: float, draft_tokens: int, draft_cost: float) -> float:
    """Gain at batch 1, a draft token costing `draft_cost` of a step (Theorem 3.8)."""
    return expected_tokens(acceptance, draft_tokens) / (draft_tokens * draft_cost + 1)


def operations_factor(acceptance: float, draft_tokens: int, draft_cost: float) -> float:
    """Arithmetic per token against no speculation (Theorem 3.11)."""
    spent = draft_tokens * draft_cost + draft_tokens + 1
    return spent / expected_tokens(acceptance, draft_tokens)


def best_draft_tokens(acceptance: float, draft_cost: float) -> int:
    """Draft length of the largest `speedup`; 0 when no draft pays."""
    return max(range(_MAX_DRAFT + 1), key=lambda count: speedup(acceptance, count, draft_cost))


def best_draft_tokens_measured(survival: Sequence[float], cost_per_draft_token: float) -> int:
    """Draft length of the largest gain by measured positions; 0 when no draft pays."""
    return max(
        range(len(survival) + 1),
        key=lambda count: (
            tokens_from_survival(survival[:count]) / (1 + cost_per_draft_token * count)
        ),
    )


def break_even_acceptance(draft_tokens: int, draft_cost: float) -> float | None:
    """Acceptance at which speculation at batch 1 costs what it saves; None if it never does."""
    _checked(0.0, draft_tokens)
    if speedup(1.0, draft_tokens, draft_cost) < 1:
        return None
    return float(brentq(lambda value: speedup(value, draft_tokens, draft_cost) - 1, 0.0, 1.0))


def acceptance_from_survival(survival: Sequence[float]) -> float:
    """Maximum-likelihood acceptance of a censored geometric: accepted over tried positions."""
    tried = 1 + sum(survival[:-1])
    return sum(survival) / tried


def batch_speedup(
    *,
    batch: float,
    tokens_per_verification: float,
    draft_tokens: int,
    fixed_s: float,
    token_s: float,
    context_s: float = 0.0,
    draft_s: float = 0.0,
) -> float:
    """Gain at a batch for an engine whose step takes ``fixed + token x T + context x batch``.

    `context_s` is the cache-read time of one request, which speculation does not repeat.
    """
    plain = fixed_s + batch * (token_s + context_s)
    verifying = fixed_s + draft_s + batch * (token_s * (1 + draft_tokens) + context_s)
    return tokens_per_verification * plain / verifying


def break_even_batch(
    *,
    tokens_per_verification: float,
    draft_tokens: int,
    fixed_s: float,
    token_s: float,
    context_s: float = 0.0,
    draft_s: float = 0.0,
) -> float | None:
    """Batch above which speculation loses; None where it does not lose at large batches.

    Long contexts can win ever more with the batch: verification is then bound by cache reads. Dear
    drafts may lose at small batches even so.
    """
    gained = tokens_per_verification - 1
    slope = token_s * (1 + draft_tokens - tokens_per_verification) - gained * context_s
    if slope <= 0:
        return None
    return max(0.0, (gained * fixed_s - draft_s) / slope)
