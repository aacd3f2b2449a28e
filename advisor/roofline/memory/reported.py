"""What a started engine said of its cache: its maximum concurrency wins (cases M-04, M-06)."""

import math
from dataclasses import dataclass

from advisor.serving import EngineFacts

REPORTED_ROUNDING = 0.02  # the log prints concurrency with two digits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCapacity:
    """Requests of `max_model_len` that the engine says it holds.

    `note` tells that its figure of tokens means something else, None where both agree.
    """

    requests: int
    max_model_len: int
    note: str | None


def reported_capacity(facts: EngineFacts) -> ReportedCapacity | None:
    """The engine's own capacity at its longest request; None where it did not say enough.

    Tokens over length agree with it only where all layers cache alike: a hybrid model's figure of
    tokens is no count of tokens that can be stored.
    """
    longest, tokens = facts.max_model_len, facts.kv_cache_tokens
    if longest is None or (facts.max_concurrency is None and tokens is None):
        return None
    by_tokens = None if tokens is None else tokens / longest
    concurrency = by_tokens if facts.max_concurrency is None else facts.max_concurrency
    if concurrency is None:
        return None
    differs = by_tokens is not None and abs(by_tokens - concurrency) > REPORTED_ROUNDING * max(
        1.0, concurrency
    )
    note = (
        f"{tokens:,} tokens over {longest:,} are {by_tokens:.1f} requests, the engine's own"
        f" maximum concurrency is {concurrency:.2f}: groups of layers cache differently"
        if differs and tokens is not None and by_tokens is not None
        else None
    )
    return ReportedCapacity(requests=math.floor(concurrency), max_model_len=longest, note=note)
