"""N-gram drafting replayed on recorded outputs, without an engine (handbook 6.4, 15.1).

At temperature 0 what a prompt-lookup proposer drafts and what of it is accepted follows from the
tokens alone: prompt, output, and the rule "longest suffix n-gram, earliest occurrence".
"""

import hashlib
import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.traffic.drafting.drafts import Decoding, Drafts, Replay, Replays, replays
from advisor.traffic.drafting.grams import NOWHERE, Integers, Texts, Tokens, first_places, gram_ids
from advisor.traffic.drafting.suffix import SUFFIX_TOKENS, suffix_drafts
from advisor.traffic.figures import LookupAcceptance
from advisor.traffic.statistics.interval import ratio_interval
from advisor.traffic.trace import Request

LOOKUP_MIN = 2
LOOKUP_MAX = 4
Pair = tuple[Tokens, Tokens]  # prompt and output
Window = tuple[int, int]  # prompt_lookup_min and prompt_lookup_max
# Ours, vLLM's default, that of published tables (handbook 6.4), and the shortest that pays.
WINDOWS: tuple[Window, ...] = ((LOOKUP_MIN, LOOKUP_MAX), (5, 5), (3, 7), (2, 2))
DRAFT_LENGTHS = tuple(range(1, 9))
_BATCH_REQUESTS, _BATCH_TOKENS = 256, 500_000
_SAMPLE_REQUESTS, _SAMPLE_TOKENS = 256, 500_000
_HASH_BYTES = 8


def ngram_replays(
    texts: Texts,
    lengths: Sequence[int],
    windows: Sequence[Window] = ((LOOKUP_MIN, LOOKUP_MAX),),
    *,
    max_model_len: int | None = None,
) -> dict[Window, dict[int, Replays]]:
    """Replays of vLLM's n-gram proposer by look-up window and draft length.

    The earliest occurrence of every n-gram is looked up once for all windows. An n-gram may
    overlap the suffix that it is compared with, and a draft ends with the text so far. No draft
    reaches beyond `max_model_len` (vllm/v1/spec_decode/ngram_proposer.py and the scheduler, which
    keeps one place for the token sampled after it).
    """
    for low, high in windows:
        if not 1 <= low <= high or min(lengths) < 1:
            raise InvalidInput("lookup", f"k={min(lengths)}, n from {low} to {high}")
    at = Decoding.of(texts)
    sizes = {n for low, high in windows for n in range(low, high + 1)}
    span = int(texts.tokens.max(initial=0)) + 1
    ids = gram_ids(texts.owner * span + texts.tokens, sizes)
    sources = {n: _source(at, first_places(ids[n]), n) for n in sizes}
    room = np.full(len(at.places), np.iinfo(np.int64).max)
    if max_model_len is not None:
        room = max_model_len - 1 - (at.places - at.starts)
    found = {}
    for low, high in windows:
        source = np.full(len(at.places), NOWHERE, dtype=np.int64)
        for n in range(high, low - 1, -1):
            source = np.where(source == NOWHERE, sources[n], source)
        drafts = Drafts(source, np.minimum(at.places - source, room))
        found[low, high] = replays(texts, at, drafts, lengths)
    return found


def _source(at: Decoding, first: Integers, n: int) -> Integers:
    """Where a draft begins: behind the earliest occurrence of the last n tokens of a text."""
    begin = at.places - n
    fits = np.flatnonzero(begin >= at.starts)
    found = np.full(len(begin), NOWHERE, dtype=np.int64)
    earliest = first[begin[fits]]
    earlier = earliest < begin[fits]
    found[fits[earlier]] = earliest[earlier] + n
    return found


def replay(
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    k: int,
    lookup_min: int = LOOKUP_MIN,
    lookup_max: int = LOOKUP_MAX,
    max_model_len: int | None = None,
) -> Replay:
    """Draft, verify greedily, advance: what the engine would do to decode `output`."""
    texts = Texts.of([(_array(prompt), _array(output))])
    window = (lookup_min, lookup_max)
    found = ngram_replays(texts, (k,), (window,), max_model_len=max_model_len)
    return found[window][k].row(0)


def _array(tokens: Sequence[int]) -> Tokens:
    return np.asarray(tokens, dtype=np.int32)


def acceptance(found: Sequence[Replay], *, k: int, basis: str) -> LookupAcceptance | None:
    """Figures over several requests; None when none of them had a decode step."""
    rows = [
        Replays(
            *(
                np.array([value], dtype=np.int64)
                for value in (
                    *(item.decode_steps, item.drafts, item.draft_tokens),
                    *(item.accepted, item.output_tokens, item.per_position),
                    item.cut or (0,) * k,
                )
            )
        )
        for item in found
    ]
    return accepted(Replays.joined(rows), k=k, basis=basis) if rows else None


def accepted(
    found: Replays,
    *,
    k: int,
    basis: str,
    window: Window = (LOOKUP_MIN, LOOKUP_MAX),
    method: str = "ngram",
) -> LookupAcceptance | None:
    """Figures over the rows that decoded something; None when there are none.

    ``tokens_per_step`` is decoded tokens per decode step with the steps without a draft
    (handbook 6.3, "eff"; case S-14), its interval is bootstrapped by request. ``per_position``
    leaves out of each position the drafts that the end of the output cut there.
    """
    used = found.take(np.flatnonzero(found.decode_steps > 0))
    if len(used.decode_steps) == 0:
        return None
    steps, drafts = int(used.decode_steps.sum()), int(used.drafts.sum())
    value, low, high = ratio_interval((used.output_tokens - 1).tolist(), used.decode_steps.tolist())
    return LookupAcceptance(
        num_speculative_tokens=k,
        requests=len(used.decode_steps),
        decode_steps=steps,
        drafts=drafts,
        draft_tokens=int(used.draft_tokens.sum()),
        accepted=int(used.accepted.sum()),
        per_position=_survival(drafts, used.per_position.sum(axis=0), used.cut.sum(axis=0)),
        coverage=drafts / steps,
        tokens_per_step=Estimate(
            value=value, low=low, high=high, source=Source.SIMULATED, basis=basis
        ),
        method=method,
        prompt_lookup_min=window[0],
        prompt_lookup_max=window[1],
    )


def _survival(drafts: int, survived: Integers, cut: Integers) -> tuple[float, ...]:
    """Share of the drafts that are accepted up to each position (Kaplan and Meier, 1958).

    The engine verifies its last draft to the end and counts tokens that it then throws away: so
    the fate of a draft that the limit of an output cuts is what it was for the others.
    """
    found, share, before = [], 1.0, drafts
    for good, lost in zip(survived.tolist(), cut.tolist(), strict=True):
        share *= good / (before - lost) if before > lost else 0.0
        before = good
        found.append(share)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Replays of an upload, and the figures that need no members.

    ``rows[i]`` is the place of request i, in the order that `finish` was given, in the replays, -1
    where it has no text. `reason` says why there is nothing at all.
    """

    rows: Integers
    temperatures: NDArray[np.float64]
    replays: Mapping[int, Replays]
    sweep: tuple[LookupAcceptance, ...]
    suffix: LookupAcceptance | None
    reason: str | None = None

    def of(self, members: Sequence[int] | Integers, k: int) -> LookupAcceptance | None:
        """Acceptance over some requests (by place in the order), drafts of k tokens."""
        if self.reason is not None:
            return None
        chosen = np.asarray(members, dtype=np.int64)
        chosen = chosen[self.rows[chosen] >= 0]
        warm = self.temperatures[chosen]
        greedy, sampled = int((warm == 0).sum()), int((warm > 0).sum())
        basis = (
            f"replay of {len(chosen)} recorded outputs, k={k}, n-grams of {LOOKUP_MIN} to"
            f" {LOOKUP_MAX} tokens, bootstrap by request; temperature 0 for {greedy}, above 0 for"
            f" {sampled}, not recorded for {len(chosen) - greedy - sampled}; exact for the model"
            " that wrote the outputs at temperature 0"
        )
        return accepted(self.replays[k].take(self.rows[chosen]), k=k, basis=basis)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A request of the sample, chosen by a hash of its tokens: rows may come in any order."""

    key: int
    place: int
    pair: Pair
    capped: bool

    def __lt__(self, other: "_Kept") -> bool:
        return (self.key, self.place) > (other.key, other.place)


class LookupTally:
    """Replays n-gram drafting request by request, and keeps a sample for the other settings."""

    def __init__(self, draft_lengths: Sequence[int] = (4,)) -> None:
        self._lengths = tuple(draft_lengths)
        self._temperatures: list[float] = []
        self._rows: list[int] = []
        self._pending: list[Pair] = []
        self._capped: list[bool] = []
        self._pending_tokens = 0
        self._parts: dict[int, list[Replays]] = {k: [] for k in self._lengths}
        self._count = 0
        self._sample: list[_Kept] = []  # a heap, the largest key first

    def add(self, request: Request, prompt: Tokens | None, output: Tokens | None) -> None:
        """One more request; without tokens of both it counts as one that cannot be replayed."""
        warm = request.temperature
        self._temperatures.append(np.nan if warm is None else warm)
        if prompt is None or output is None:
            self._rows.append(-1)
            return
        self._rows.append(self._count)
        self._count += 1
        pair = (prompt, output)
        most = request.max_tokens
        capped = most is not None and len(output) >= most
        self._keep(pair, capped=capped)
        self._pending.append(pair)
        self._capped.append(capped)
        self._pending_tokens += len(prompt) + len(output)
        if len(self._pending) >= _BATCH_REQUESTS or self._pending_tokens >= _BATCH_TOKENS:
            self._replay()

    def _keep(self, pair: Pair, *, capped: bool) -> None:
        if len(pair[1]) <= 1:  # nothing is drafted for the first token
            return
        hashed = hashlib.blake2b(digest_size=_HASH_BYTES)
        for part in pair:
            hashed.update(np.ascontiguousarray(part, dtype=np.int32).tobytes())
        kept = _Kept(int.from_bytes(hashed.digest()), len(self._rows) - 1, pair, capped)
        full = len(self._sample) >= _SAMPLE_REQUESTS
        if full and not self._sample[0] < kept:
            return
        # Copies: the rows are parts of larger arrays, which would stay with them.
        kept = replace(kept, pair=(pair[0].copy(), pair[1].copy()))
        if full:
            heapq.heapreplace(self._sample, kept)
        else:
            heapq.heappush(self._sample, kept)

    def _replay(self) -> None:
        if not self._pending:
            return
        [found] = ngram_replays(Texts.of(self._pending, self._capped), self._lengths).values()
        for k, part in found.items():
            self._parts[k].append(part)
        self._pending, self._capped, self._pending_tokens = [], [], 0

    def finish(self, order: Sequence[int] | Integers) -> Lookups:
        """Replays in `order` (places as they were added)."""
        self._replay()
        places = np.asarray(order, dtype=np.int64)
        rows = np.asarray(self._rows, dtype=np.int64)[places]
        warm = np.asarray(self._temperatures)[places]
        if self._count == 0:
            return Lookups(
                rows=rows,
                temperatures=warm,
                replays={},
                sweep=(),
                suffix=None,
                reason="no request has both a prompt and a recorded output as tokens",
            )
        rank = np.empty(len(places), dtype=np.int64)
        rank[places] = np.arange(len(places))
        sample = self._chosen(rank)
        return Lookups(
            rows=rows,
            temperatures=warm,
            replays={k: Replays.joined(parts) for k, parts in self._parts.items()},
            sweep=_sweep(sample, self._count),
            suffix=_suffix(sample, self._count),
        )

    def _chosen(self, rank: Integers) -> Texts:
        """The sample in order of arrival, as many of it as the bound on tokens allows."""
        tokens = 0
        kept: list[_Kept] = []
        for item in sorted(self._sample, reverse=True):
            tokens += sum(map(len, item.pair))
            if kept and tokens > _SAMPLE_TOKENS:
                break
            kept.append(item)
        kept.sort(key=lambda item: int(rank[item.place]))
        return Texts.of([item.pair for item in kept], [item.capped for item in kept])


def _sweep(sample: Texts, count: int) -> tuple[LookupAcceptance, ...]:
    """Every draft length with every window, on the sample."""
    basis = (
        f"replay of {_of(sample, count)}, bootstrap by request; exact at temperature 0 for the"
        " model that wrote the outputs"
    )
    found = (
        accepted(rows, k=k, basis=basis, window=window)
        for window, by_length in ngram_replays(sample, DRAFT_LENGTHS, WINDOWS).items()
        for k, rows in by_length.items()
    )
    return tuple(item for item in found if item is not None)


def _suffix(sample: Texts, count: int) -> LookupAcceptance | None:
    at = Decoding.of(sample)
    [(k, rows)] = replays(sample, at, suffix_drafts(sample, at), (SUFFIX_TOKENS,)).items()
    basis = (
        f"replay of {_of(sample, count)} in order of arrival, bootstrap by request; an"
        " approximation of suffix decoding: the latest occurrence of the longest match in the"
        " request's own text and in earlier outputs of these requests, where the engine follows"
        " the most frequent one"
    )
    return accepted(rows, k=k, basis=basis, method="suffix")


def _of(sample: Texts, count: int) -> str:
    if len(sample.ends) == count:
        return f"{count} recorded outputs"
    return f"{len(sample.ends)} of {count} recorded outputs, chosen by a hash of their tokens"


def overlap(prompt: Sequence[Hashable], output: Sequence[Hashable], n: int = 3) -> float | None:
    """Share of the output's n-grams that occur in the prompt (case E-03); None if it has none."""
    grams = [tuple(output[at : at + n]) for at in range(len(output) - n + 1)]
    if not grams:
        return None
    known = {tuple(prompt[at : at + n]) for at in range(len(prompt) - n + 1)}
    return sum(gram in known for gram in grams) / len(grams)
