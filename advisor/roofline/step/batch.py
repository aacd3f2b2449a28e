"""What one step of an engine computes."""

from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """A chunk of one prompt: `new_tokens` computed after `cached_tokens` already in the cache."""

    new_tokens: float
    cached_tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.new_tokens <= 0 or self.cached_tokens < 0:
            raise InvalidInput("prefill", "computes more than 0 tokens after 0 or more cached ones")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """What one step computes: decoding requests by their context, and prompt chunks.

    `draft_tokens` is the mean number of tokens verified per decoding request beside its own.
    """

    decode_contexts: tuple[float, ...] = ()
    prefills: tuple[Prefill, ...] = ()
    draft_tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.draft_tokens < 0 or any(context < 0 for context in self.decode_contexts):
            raise InvalidInput("batch", "draft tokens and contexts are not negative")

    @property
    def requests(self) -> int:
        """Requests in the step."""
        return len(self.decode_contexts) + len(self.prefills)

    @property
    def rows(self) -> float:
        """Positions that go through the head: every decoded one and one per prompt chunk."""
        return len(self.decode_contexts) * (1 + self.draft_tokens) + len(self.prefills)

    @property
    def tokens(self) -> float:
        """Positions that go through the blocks."""
        new = sum(prefill.new_tokens for prefill in self.prefills)
        return len(self.decode_contexts) * (1 + self.draft_tokens) + new
