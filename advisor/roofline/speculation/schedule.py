"""Draft lengths by batch size, as vLLM's ``num_speculative_tokens_per_batch_size`` takes them.

vLLM 0.32, v1/spec_decode/dynamic/utils.py: inclusive ranges from 1, sorted, without overlap, K from
0 up; gaps and the tail carry the K before on; K above ``num_speculative_tokens`` is cut to it. The
batch is the number of requests scheduled in the step. Not with data parallelism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from advisor.errors import InvalidInput
from advisor.roofline.speculation.gain import Speculating, batch_grid

Ranges: TypeAlias = tuple[tuple[int, int, int], ...]
_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSchedule:
    """Checked ranges ``(first batch, last batch, draft tokens)``."""

    ranges: Ranges

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", checked_ranges(self.ranges))

    @property
    def num_speculative_tokens(self) -> int:
        """The longest draft; 0 where none pays at any batch."""
        return max(tokens for _, _, tokens in self.ranges)

    @property
    def is_constant(self) -> bool:
        """Whether every batch drafts alike: then the plain setting will do."""
        return len({tokens for _, _, tokens in self.ranges}) == 1

    def draft_tokens(self, batch: int) -> int:
        """Draft length at a batch, as vLLM looks it up."""
        if batch < 1:
            raise InvalidInput("batch", f"{batch} is below 1")
        return [tokens for first, _, tokens in self.ranges if first <= batch][-1]

    def settings(self) -> dict[str, object]:
        """Entries of ``--speculative-config``, lists as JSON has them; none where none pays.

        A constant schedule is the plain number of tokens.
        """
        if self.num_speculative_tokens == 0:
            return {}
        found: dict[str, object] = {"num_speculative_tokens": self.num_speculative_tokens}
        if not self.is_constant:
            found["num_speculative_tokens_per_batch_size"] = [list(item) for item in self.ranges]
        return found


def checked_ranges(ranges: Sequence[Sequence[int]]) -> Ranges:
    """The ranges in order; what vLLM refuses at start raises `InvalidInput` with its reason."""
    field = "num_speculative_tokens_per_batch_size"
    if not ranges:
        raise InvalidInput(field, "is empty")
    found = tuple(sorted(_checked(item, field) for item in ranges))
    if found[0][0] != 1:
        raise InvalidInput(field, "does not start at batch 1")
    for (_, last, _), (first, _, _) in pairwise(found):
        if first <= last:
            raise InvalidInput(field, f"ranges overlap at batch {first}")
    return found


def _checked(item: Sequence[int], field: str) -> tuple[int, int, int]:
    if len(item) != _PARTS:
        raise InvalidInput(field, f"{item!r} is not a first batch, a last batch and a length")
    first, last, tokens = (int(part) for part in item)
    if not 1 <= first <= last:
        raise InvalidInput(field, f"batches {first} to {last} are no range")
    if tokens < 0:
        raise InvalidInput(field, f"{tokens} draft tokens are below 0")
    return first, last, tokens


def draft_schedule(
    speculating: Speculating, context: float, *, max_num_seqs: int, tolerance: float = 0.01
) -> DraftSchedule:
    """The best draft length by batch at a context, in as few ranges as `tolerance` allows.

    A length goes on while its gain is within `tolerance` of the best one's and above 1; where none
    gains it is 0. Lengths are chosen on a grid of batches and boundaries found between its points.
    """
    if not 0 <= tolerance < 1:
        raise InvalidInput("tolerance", f"{tolerance} is not in [0, 1)")
    ranges: list[tuple[int, int, int]] = []
    start, length, before = 1, speculating.best_draft_tokens(1, context), 1
    for batch in batch_grid(max_num_seqs)[1:]:
        if not _holds(speculating, (batch, context, length), tolerance):
            first = _first_change(speculating, (before, batch), (context, length), tolerance)
            ranges.append((start, first - 1, length))
            start, length = first, speculating.best_draft_tokens(first, context)
        before = batch
    ranges.append((start, max_num_seqs, length))
    return DraftSchedule(ranges=_joined(ranges))


def _holds(speculating: Speculating, at: tuple[int, float, int], tolerance: float) -> bool:
    """Whether a length may go on at a batch."""
    batch, context, length = at
    best = speculating.best_draft_tokens(batch, context)
    if best == length:
        return True
    gain = speculating.gain_at(batch, context, length) if length else 1.0
    most = speculating.gain_at(batch, context, best) if best else 1.0
    return gain >= most * (1 - tolerance) and (gain > 1 or length == 0)


def _first_change(
    speculating: Speculating, span: tuple[int, int], at: tuple[float, int], tolerance: float
) -> int:
    """First batch of a span at which the length does not go on; its end does not hold."""
    low, high = span
    context, length = at
    while high - low > 1:
        middle = (low + high) // 2
        if _holds(speculating, (middle, context, length), tolerance):
            low = middle
        else:
            high = middle
    return high


def _joined(ranges: Sequence[tuple[int, int, int]]) -> Ranges:
    found: list[tuple[int, int, int]] = []
    for first, last, tokens in ranges:
        if found and found[-1][2] == tokens:
            found[-1] = (found[-1][0], last, tokens)
        else:
            found.append((first, last, tokens))
    return tuple(found)
