"""What making drafts costs: seconds of a round for a whole batch (handbook 6.1, D(B, k))."""

from dataclasses import dataclass, replace
from typing import Protocol

from advisor.errors import InvalidInput
from advisor.roofline.speculation.methods import Method, method
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import StepTime


class Drafter(Protocol):
    """A way to draft, with its cost."""

    @property
    def method(self) -> Method:
        """Its method in vLLM."""
        ...

    def seconds(self, batch: int, context: float, draft_tokens: int) -> float:
        """Seconds of drafting so many tokens for every request of a batch at one context."""
        ...

    def at_least(self) -> "Drafter":
        """The cheap end of its cost."""
        ...

    def at_most(self) -> "Drafter":
        """The dear end of its cost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDrafter:
    """``round + passes (pass + request B)``: seconds, and by how much they may be off.

    `spread` is the factor between the centre and either end of the 90 % interval.
    """

    name: str
    round_s: float = 0.0
    pass_s: float = 0.0
    request_s: float = 0.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        if min(self.round_s, self.pass_s, self.request_s) < 0 or self.spread < 1:
            raise InvalidInput("drafter", "costs are not negative and the spread is from 1 up")

    @property
    def method(self) -> Method:
        """Its method in vLLM."""
        return method(self.name)

    def seconds(self, batch: int, context: float, draft_tokens: int) -> float:
        """Seconds of one round of drafting; nothing is drafted at no cost."""
        del context
        if draft_tokens == 0:
            return 0.0
        passes = max(1, self.method.passes(draft_tokens))
        return self.round_s + passes * (self.pass_s + self.request_s * batch)

    def at_least(self) -> "MeasuredDrafter":
        """Every cost divided by the spread."""
        return self._times(1 / self.spread)

    def at_most(self) -> "MeasuredDrafter":
        """Every cost times the spread."""
        return self._times(self.spread)

    def _times(self, factor: float) -> "MeasuredDrafter":
        return replace(
            self,
            round_s=self.round_s * factor,
            pass_s=self.pass_s * factor,
            request_s=self.request_s * factor,
            spread=1.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDrafter:
    """A drafting model with a step model of its own: a pass decodes one token of every request.

    A drafter that makes all tokens at once verifies them in one pass. `spread` as for a measured
    one.
    """

    name: str
    step: StepTime
    spread: float = 1.5

    @property
    def method(self) -> Method:
        """Its method in vLLM."""
        return method(self.name)

    def seconds(self, batch: int, context: float, draft_tokens: int) -> float:
        """Seconds of all its passes; nothing is drafted at no cost."""
        passes = self.method.passes(draft_tokens)
        if passes == 0:
            return 0.0
        wide = draft_tokens - 1 if passes == 1 else 0
        decode = StepBatch(decode_contexts=(context,) * batch, draft_tokens=wide)
        return passes * self.step.seconds(decode)

    def at_least(self) -> "Drafter":
        """Its cost divided by the spread."""
        return _Times(drafter=self, factor=1 / self.spread)

    def at_most(self) -> "Drafter":
        """Its cost times the spread."""
        return _Times(drafter=self, factor=self.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Another drafter's cost times a factor."""

    drafter: ModelDrafter
    factor: float

    @property
    def method(self) -> Method:
        return self.drafter.method

    def seconds(self, batch: int, context: float, draft_tokens: int) -> float:
        return self.factor * self.drafter.seconds(batch, context, draft_tokens)

    def at_least(self) -> Drafter:
        return self

    def at_most(self) -> Drafter:
        return self
