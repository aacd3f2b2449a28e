"""N-gram drafting replayed on recorded outputs, without an engine (handbook 6.4, 15.1).

At temperature 0 what a prompt-lookup proposer drafts and what of it is accepted follows from the
tokens alone: prompt, output, and the rule "longest suffix n-gram, earliest occurrence".
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.traffic.interval import ratio_interval
from advisor.traffic.trace import LookupAcceptance

LOOKUP_MIN = 2
LOOKUP_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Counts of one request. `decode_steps` leaves out the step that gave the first token.

    `per_position[i]` counts drafts whose token i+1 was accepted with all before it.
    """

    decode_steps: int
    drafts: int
    draft_tokens: int
    accepted: int
    per_position: tuple[int, ...]
    output_tokens: int

    @property
    def decoded_tokens(self) -> int:
        """Tokens that decode steps gave: all but the first."""
        return max(0, self.output_tokens - 1)


class _Index:
    """Earliest position after each n-gram of a growing text, for every n in a range."""

    def __init__(self, tokens: Sequence[int], lookup_min: int, lookup_max: int) -> None:
        self.tokens = list(tokens)
        self._after: dict[int, dict[tuple[int, ...], int]] = {
            n: {} for n in range(lookup_max, lookup_min - 1, -1)
        }
        self._indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens that were accepted or sampled."""
        self.tokens += tokens

    def propose(self, k: int) -> list[int]:
        """Up to k tokens after the earliest earlier occurrence of the longest matching suffix."""
        end = len(self.tokens)
        for n, after in self._after.items():
            for stop in range(max(self._indexed + 1, n), end):
                after.setdefault(tuple(self.tokens[stop - n : stop]), stop)
        # Grams that end at `end` are indexed next time: a suffix must not find itself.
        self._indexed = end - 1
        for n, after in self._after.items():
            if n < end and (found := after.get(tuple(self.tokens[end - n :]))) is not None:
                return self.tokens[found : found + k]
        return []


def replay(
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    k: int,
    lookup_min: int = LOOKUP_MIN,
    lookup_max: int = LOOKUP_MAX,
) -> Replay:
    """Draft, verify greedily, advance: what the engine would do to decode `output`."""
    if not 1 <= lookup_min <= lookup_max or k < 1:
        raise InvalidInput("lookup", f"k={k}, n from {lookup_min} to {lookup_max}")
    steps = drafts = drafted = accepted = 0
    survived = [0] * k
    index = _Index([*prompt, *output[:1]], lookup_min, lookup_max)
    done = 1
    while done < len(output):
        draft = index.propose(k)
        good = 0
        while good < min(len(draft), len(output) - done) and draft[good] == output[done + good]:
            survived[good] += 1
            good += 1
        steps += 1
        drafts += bool(draft)
        drafted += len(draft)
        accepted += good
        index.extend(output[done : done + good + 1])
        done += good + 1
    return Replay(
        decode_steps=steps,
        drafts=drafts,
        draft_tokens=drafted,
        accepted=accepted,
        per_position=tuple(survived),
        output_tokens=len(output),
    )


def acceptance(replays: Sequence[Replay], *, k: int, basis: str) -> LookupAcceptance | None:
    """Figures over several requests; None when none of them had a decode step.

    ``tokens_per_step`` is decoded tokens per decode step with the steps without a draft
    (handbook 6.3, "eff"; case S-14), its interval is bootstrapped by request.
    """
    used = [item for item in replays if item.decode_steps]
    if not used:
        return None
    steps = sum(item.decode_steps for item in used)
    drafts = sum(item.drafts for item in used)
    value, low, high = ratio_interval(
        [item.decoded_tokens for item in used], [item.decode_steps for item in used]
    )
    return LookupAcceptance(
        num_speculative_tokens=k,
        requests=len(used),
        decode_steps=steps,
        drafts=drafts,
        draft_tokens=sum(item.draft_tokens for item in used),
        accepted=sum(item.accepted for item in used),
        per_position=tuple(
            sum(item.per_position[place] for item in used) / max(1, drafts) for place in range(k)
        ),
        coverage=drafts / steps,
        tokens_per_step=Estimate(
            value=value, low=low, high=high, source=Source.SIMULATED, basis=basis
        ),
    )


def overlap(prompt: Sequence[Hashable], output: Sequence[Hashable], n: int = 3) -> float | None:
    """Share of the output's n-grams that occur in the prompt (case E-03); None if it has none."""
    grams = [tuple(output[at : at + n]) for at in range(len(output) - n + 1)]
    if not grams:
        return None
    known = {tuple(prompt[at : at + n]) for at in range(len(prompt) - n + 1)}
    return sum(gram in known for gram in grams) / len(grams)
