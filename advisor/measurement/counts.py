"""Where the token counts of a load come from, and whether the engine kept to what was asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.measurement.records import Outcome, RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSources:
    """Successful requests by where their output tokens were counted (case S-21).

    `usage` by the engine's own report, `token_ids` by the ids that it sent, `none` not at all:
    frames are no tokens. `no_token_seen` of them had no frame with a token (case S-04).
    """

    usage: int
    token_ids: int
    none: int
    no_token_seen: int

    @property
    def fallback_share(self) -> float:
        """Share of the successes that were not counted by the engine's usage."""
        every = self.usage + self.token_ids + self.none
        return (self.token_ids + self.none) / every if every else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLengths:
    """Asked against made output tokens of successes where both are known (case T-23)."""

    requests: int
    asked_tokens: int
    made_tokens: int
    shorter: int
    longer: int

    @property
    def limit_ignored(self) -> bool:
        """Whether an answer was longer than the limit that went with its request."""
        return self.longer > 0


def count_sources(records: Sequence[RequestRecord]) -> CountSources:
    """Over the successes of a load."""
    good = [record for record in records if record.outcome is Outcome.OK]
    counted = [record for record in good if record.output_tokens is not None]
    # Usage comes whole: without it the prompt is not counted either.
    by_usage = sum(record.prompt_tokens is not None for record in counted)
    return CountSources(
        usage=by_usage,
        token_ids=len(counted) - by_usage,
        none=len(good) - len(counted),
        no_token_seen=sum(record.first_token_s is None for record in good),
    )


def output_lengths(records: Sequence[RequestRecord]) -> OutputLengths:
    """Over the successes of a load."""
    pairs = [
        (record.wanted_tokens, record.output_tokens)
        for record in records
        if record.outcome is Outcome.OK
        and record.wanted_tokens is not None
        and record.output_tokens is not None
    ]
    return OutputLengths(
        requests=len(pairs),
        asked_tokens=sum(asked for asked, _ in pairs),
        made_tokens=sum(made for _, made in pairs),
        shorter=sum(made < asked for asked, made in pairs),
        longer=sum(made > asked for asked, made in pairs),
    )
