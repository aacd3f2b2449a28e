"""What speculation gains at a batch and a context, with any model of step time (handbook 6.1).

``S(B, s, k) = AL(k) t(B, s) / (t(B (1 + k), s) + D(B, k))``: a verification computes 1 + k tokens
per request and reads the cache of each request once. A step model that counts distinct experts
shows the extra weights that verified tokens touch in a mixture.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.errors import InvalidInput
from advisor.estimate import Prediction, Source, weaker
from advisor.llm.feed_forward import Experts
from advisor.roofline.memory import KvCapacity
from advisor.roofline.speculation.acceptance import Acceptance
from advisor.roofline.speculation.drafting import Drafter
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import StepTime

NOT_MODELLED = (
    "requests of one batch whose acceptance differs (their rounds end together)",
    "prompts computed beside the verification",
    "acceptance at another temperature or of a quantized target, unless scaled beforehand",
    "the model runner and graph mode that a method may switch",
)
_CLOSE = 1e-3  # relative width at which a search between two batches ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculating:
    """A target with a drafter under steady decode.

    `steps` are step models of the target: the centre first, then the corners of what is uncertain;
    both sides of a gain are taken at one corner. `lost_async_s` is host time per step, as a range
    of low, centre and high, that shows once a method switches async scheduling off; it counts only
    for such methods, and only against a baseline that has it.
    """

    steps: tuple[StepTime, ...]
    acceptance: Acceptance
    drafter: Drafter
    lost_async_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    _ends: tuple[Drafter, Drafter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidInput("steps", "has no model of step time")
        low, centre, high = self.lost_async_s
        if not 0 <= low <= centre <= high:
            raise InvalidInput("lost_async_s", "does not rise from 0")
        ends = (self.drafter.at_least(), self.drafter.at_most())
        object.__setattr__(self, "_ends", ends)

    def plain_s(self, batch: int, context: float, step: StepTime | None = None) -> float:
        """Seconds of a decode step without drafts."""
        return (step or self.steps[0]).seconds(_decode(batch, context, 0.0))

    def round_s(self, batch: int, context: float, draft_tokens: int) -> float:
        """Seconds of drafting and verifying at the centre."""
        return self._round_s(self.steps[0], self.drafter, (batch, context, draft_tokens), 1)

    def gain_at(self, batch: int, context: float, draft_tokens: int) -> float:
        """Output tokens per second over those without speculation, at the centre."""
        tokens = self.acceptance.tokens(draft_tokens)[1]
        plain = self.plain_s(batch, context)
        return tokens * plain / self.round_s(batch, context, draft_tokens)

    def gain(
        self,
        batch: int,
        context: float,
        draft_tokens: int,
        *,
        plain_batch: int | None = None,
    ) -> Prediction:
        """The gain with its 90 % interval: ends of acceptance and drafting at every corner.

        `plain_batch` is the batch of the other side where the cache limits both (drafts and a
        drafter's own cache leave room for fewer requests): then throughputs are compared.
        """
        beside = batch if plain_batch is None else plain_batch
        values = list(self._values((batch, context, draft_tokens), beside))
        source = Source.ROOFLINE
        for item in self.acceptance.survival[:draft_tokens]:
            source = weaker(source, item.source)
        return Prediction(
            value=values[0],
            low=min(values),
            high=max(values),
            source=source,
            basis="acceptance by position over step time; 90 % ends of acceptance and drafting at"
            f" {len(self.steps)} corners of the step model",
            not_modelled=(*NOT_MODELLED, *self.steps[0].not_modelled),
        )

    def _values(self, at: tuple[int, float, int], beside: int) -> Iterator[float]:
        """The centre, then every corner with all ends of acceptance and drafting."""
        batch, context, draft_tokens = at
        low, centre, high = self.acceptance.tokens(draft_tokens)
        cheap, dear = self._ends
        ends = ((centre, self.drafter, 1), (low, dear, 2), (high, cheap, 0))
        for step in self.steps:
            plain = beside / self.plain_s(beside, context, step)
            for tokens, drafter, host in ends:
                yield batch * tokens / self._round_s(step, drafter, at, host) / plain

    def _round_s(
        self, step: StepTime, drafter: Drafter, at: tuple[int, float, int], host: int
    ) -> float:
        batch, context, draft_tokens = at
        drafted = self.acceptance.drafted(draft_tokens)
        verified = step.seconds(_decode(batch, context, drafted))
        if not drafter.method.keeps_async:
            # Looked-up drafts switch async scheduling off even where nothing is drafted.
            verified += self.lost_async_s[host]
        return verified + drafter.seconds(batch, context, draft_tokens)

    # ------------------------------------------------------------------ choices

    def best_draft_tokens(self, batch: int, context: float) -> int:
        """Draft length of the largest gain at the centre; 0 where none pays."""
        lengths = range(1, self.acceptance.longest + 1)
        best = max(lengths, key=lambda count: self.gain_at(batch, context, count))
        return best if self.gain_at(batch, context, best) > 1 else 0

    def break_even_batch(
        self, context: float, draft_tokens: int, *, most: int = 4096
    ) -> float | None:
        """Batch from which speculation loses at the centre; None where it gains up to `most`.

        Found on a rising grid and then between its points, so that any step model will do; of a
        mixture of experts, whose gain may fall and rise again, it is the first such batch. 0: it
        loses at batch 1 already.
        """
        before = 0
        for batch in batch_grid(most):
            if self.gain_at(batch, context, draft_tokens) < 1:
                return self._between(context, draft_tokens, (before, batch))
            before = batch
        return None

    def _between(self, context: float, draft_tokens: int, span: tuple[int, int]) -> float:
        """Where the gain passes 1, linear between the last whole batches around it."""
        low, high = span
        if low == 0:
            return 0.0
        while high - low > 1:
            middle = (low + high) // 2
            if self.gain_at(middle, context, draft_tokens) < 1:
                high = middle
            else:
                low = middle
        above = self.gain_at(low, context, draft_tokens) - 1
        below = 1 - self.gain_at(high, context, draft_tokens)
        return low + above / max(above + below, _CLOSE**3)


def _decode(batch: int, context: float, drafted: float) -> StepBatch:
    if batch < 1:
        raise InvalidInput("batch", f"{batch} is below 1")
    return StepBatch(decode_contexts=(context,) * batch, draft_tokens=drafted)


def batch_grid(most: int) -> tuple[int, ...]:
    """Whole batches from 1 to `most`, all of them up to 16 and then a tenth further each."""
    if most < 1:
        raise InvalidInput("most", f"{most} is below 1")
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, round(found[-1] * 1.1))))
    return tuple(found)


# ---------------------------------------------------------------------- room for requests


def speculating_requests(
    pool: KvCapacity, tokens_per_request: float, *, lookahead: int, draft_share: float = 0.0
) -> int:
    """Requests that a pool holds with drafts: lookahead slots, and a drafter's own cache.

    `draft_share` is the drafter's cache per token over the target's (0.77 of Qwen3-0.6B beside an
    8B model, handbook 2.4): both share the memory.
    """
    if lookahead < 0 or draft_share < 0:
        raise InvalidInput("lookahead", "slots and shares are not negative")
    blocks = int(pool.num_blocks / (1 + draft_share))
    smaller = KvCapacity(num_blocks=blocks, layout=pool.layout)
    return max(0, smaller.requests(tokens_per_request + lookahead))


def verified_experts(experts: Experts, batch: float, draft_tokens: float) -> float:
    """Distinct experts of a verification over those of a plain step (handbook 6.1, MoE).

    Nearly 1 + k at small batches and 1 once all experts work anyway.
    """
    return experts.distinct(batch * (1 + draft_tokens)) / experts.distinct(batch)
