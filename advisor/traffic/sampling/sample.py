"""The requests that the trials of a study replay."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.facts import Codes, Integers
from advisor.traffic.figures import SubsetDistance
from advisor.traffic.reuse.kinship import Places, chains_of
from advisor.traffic.sampling.subset import FAMILY_SHARE, choose, units_of
from advisor.traffic.sampling.traits import Bins, Traits
from advisor.traffic.trace import Request, TokenColumns

STATIC_DRAWS = 64


def output_limit(request: Request, output: Sized | None) -> int | None:
    """Tokens to allow a replayed request: its own limit, else what was recorded (case T-23).

    At least 1: a request that recorded no output is prefill only, and engines refuse 0.
    """
    recorded = request.output_tokens
    if recorded is None and output is not None:
        recorded = len(output)
    found = request.max_tokens if request.max_tokens is not None else recorded
    return None if found is None else max(1, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Indexes of the chosen requests in the order of sending, and how far they are from all.

    `cut` counts the sessions and families of which only the beginning is among them.
    """

    places: tuple[int, ...]
    distance: SubsetDistance
    cut: int


def bins_of(requests: Sequence[Request], tokens: TokenColumns) -> Bins:
    """What subsets of these requests keep; classes are numbered in the order of their names."""
    names = {name: code for code, name in enumerate(sorted({_class(item) for item in requests}))}
    sessions: dict[str | None, int] = {None: -1}
    for item in requests:
        sessions.setdefault(item.session, len(sessions) - 1)
    prompts = _known(tokens.prompts.lengths, [item.prompt_tokens for item in requests])
    outputs = _known(
        np.full(len(requests), -1),
        [output_limit(item, tokens.outputs.array(place)) for place, item in enumerate(requests)],
    )
    return Bins.of(
        Traits(
            arrival_s=np.array(
                [math.nan if item.arrival_s is None else item.arrival_s for item in requests]
            ),
            prompt_tokens=prompts,
            output_tokens=outputs,
            classes=np.array([names[_class(item)] for item in requests], dtype=np.int32),
            session=np.array([sessions[item.session] for item in requests], dtype=np.int32),
            chains=chains_of(requests, tokens),
        )
    )


def _class(request: Request) -> str:
    return request.class_name or ""


def _known(first: Integers, second: Sequence[int | None]) -> Integers:
    """The first counts where they are known, else the second, else -1."""
    other = np.array([-1 if count is None else count for count in second], dtype=np.int64)
    found: Integers = np.where(first >= 0, first, other)
    return found


def probe_subset(
    requests: Sequence[Request],
    tokens: TokenColumns,
    *,
    size: int,
    seed: int,
    max_prompt_tokens: int,
    mean_prompt_limit: float | None,
    without: Collection[int] = (),
    bins: Bins | None = None,
) -> Probe:
    """Up to `size` requests with text that stand for all; equal arguments give equal subsets.

    None of `without` is among them. Classes keep their shares (largest remainders, each at least
    once when `size` allows); within those seats the joint lengths and the reuse of prefixes come
    next to those of the whole upload, sessions and small families of prompts whole where the seats
    allow, else cut at their end. No prompt with its output limit passes `max_prompt_tokens`. With
    `mean_prompt_limit` long prompts give way to shorter ones of their class until the mean holds,
    or nothing shorter is left. The order is shuffled, the turns of a session keep theirs.
    `bins` are those of these requests, if they were computed before.
    Raises `InvalidInput` when no request fits.
    """
    if size < 1:
        raise InvalidInput("size", f"{size} is not at least 1")
    fitting = _eligible(requests, tokens, max_prompt_tokens, without)
    if not fitting:
        raise InvalidInput(
            "workload", f"no request with text fits into {max_prompt_tokens} tokens with its output"
        )
    drawing = _Drawing.of(bins or bins_of(requests, tokens), fitting, size)
    chosen = drawing.chosen(min(size, len(fitting)), seed)
    if mean_prompt_limit is not None:
        drawing.shorten(chosen, mean_prompt_limit)
    order = drawing.order(chosen, seed)
    return Probe(
        places=tuple(order),
        distance=drawing.bins.distance(np.array(order, dtype=np.int64), None),
        cut=sum(0 < count < len(unit) for count, unit in zip(chosen, drawing.units, strict=True)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawing:
    """All requests in bins, what is taken together of those that fit, seats by class."""

    bins: Bins
    units: list[Places]
    seats: Integers

    @classmethod
    def of(cls, bins: Bins, fitting: Collection[int], size: int) -> "_Drawing":
        members = np.array(sorted(fitting), dtype=np.int64)
        open_to = np.zeros(len(bins.traits), dtype=bool)
        open_to[members] = True
        units = [unit[open_to[unit]] for unit in units_of(bins.traits, FAMILY_SHARE * size)]
        counts = np.bincount(bins.traits.classes[members])
        shares = _shares({code: int(count) for code, count in enumerate(counts) if count}, size)
        return cls(
            bins=bins,
            units=[unit for unit in units if len(unit)],
            seats=np.array([shares.get(code, 0) for code in range(len(counts))], dtype=np.int64),
        )

    def chosen(self, size: int, seed: int) -> list[int]:
        """How many requests of each unit, from its beginning.

        A seat stays empty where its class comes only behind others; any request then has it.
        """
        classes = self.bins.traits.classes
        costs = np.eye(len(self.seats))[np.minimum(classes, len(self.seats) - 1)]
        first = choose(self.bins, self.units, costs, self.seats.astype(float), seed=seed).places
        found = set(first)
        short = size - len(found)
        if short:
            tails = [unit[[at not in found for at in unit.tolist()]] for unit in self.units]
            left = [tail for tail in tails if len(tail)]
            ones = np.ones((len(classes), 1))
            found |= set(choose(self.bins, left, ones, np.array([short]), seed=seed).places)
        return [sum(at in found for at in unit.tolist()) for unit in self.units]

    def shorten(self, chosen: list[int], mean_limit: float) -> None:
        """Swap the longest last request of a unit for a shorter next one of its class."""
        lengths = self.bins.traits.prompt_tokens
        taken = [at for unit, n in zip(self.units, chosen, strict=True) for at in unit[:n].tolist()]
        excess = int(lengths[taken].sum()) - int(mean_limit * len(taken))
        while excess > 0:
            swap = self._swap(chosen, lengths, self.bins.traits.classes)
            if swap is None:
                return
            out, into = swap
            excess -= int(lengths[self.units[out][chosen[out] - 1]])
            chosen[out] -= 1
            excess += int(lengths[self.units[into][chosen[into]]])
            chosen[into] += 1

    def _swap(
        self, chosen: Sequence[int], lengths: Integers, classes: Codes
    ) -> tuple[int, int] | None:
        """Unit that gives up its last request and unit that takes one more, both by number."""
        units = self.units
        lasts = [(int(units[at][n - 1]), at) for at, n in enumerate(chosen) if n]
        nexts = [(int(units[at][n]), at) for at, n in enumerate(chosen) if n < len(units[at])]
        for last, out in sorted(lasts, key=lambda item: (-int(lengths[item[0]]), item[0])):
            shorter = [
                (int(lengths[more]), -more, into)
                for more, into in nexts
                if classes[more] == classes[last] and lengths[more] < lengths[last] and into != out
            ]
            if shorter:
                return out, max(shorter)[2]
        return None

    def order(self, chosen: Sequence[int], seed: int) -> list[int]:
        """The chosen places shuffled, those of one unit in their own order."""
        owners = np.repeat(np.arange(len(chosen)), chosen)
        queues = [iter(unit.tolist()) for unit in self.units]
        return [next(queues[at]) for at in np.random.default_rng(seed).permutation(owners)]


def fitting_places(
    requests: Sequence[Request], tokens: TokenColumns, *, max_prompt_tokens: int
) -> frozenset[int]:
    """Indexes of the requests with text that fit with their output limit."""
    return frozenset(_eligible(requests, tokens, max_prompt_tokens, ()))


def static_subset(
    requests: Sequence[Request],
    tokens: TokenColumns,
    *,
    size: int,
    seed: int,
    max_prompt_tokens: int,
    mean_prompt_limit: float | None,
    without: Collection[int],
) -> tuple[int, ...]:
    """Indexes of up to `size` requests whose output lengths are spread as all of them are.

    The lengths are `max_tokens`, which every request must have here. One request is drawn from
    each of `size` equal parts of the requests in order of length; of `STATIC_DRAWS` such draws the
    one counts whose longest over mean output comes next to that of all. With `mean_prompt_limit`
    the longest prompts are left aside until the mean of the others holds. Equal arguments give
    equal subsets in an equal, random order.
    """
    fitting = _eligible(requests, tokens, max_prompt_tokens, without)
    pool = sorted(fitting, key=lambda place: (fitting[place], place))
    total = sum(fitting.values())
    while (
        mean_prompt_limit is not None
        and len(pool) > size
        and total > (mean_prompt_limit * len(pool))
    ):
        total -= fitting[pool.pop()]
    lengths = {place: _stated_limit(requests[place]) for place in pool}
    if len(pool) > size:
        pool.sort(key=lambda place: (lengths[place], place))
        rng = np.random.default_rng(seed)
        draws = [_one_of_each_part(pool, size, rng) for _ in range(STATIC_DRAWS)]
        aim = _longest_over_mean(lengths[place] for place in pool)
        pool = min(
            draws,
            key=lambda draw: abs(_longest_over_mean(lengths[place] for place in draw) - aim),
        )
    pool = sorted(pool)
    return tuple(pool[at] for at in np.random.default_rng(seed).permutation(len(pool)))


def _one_of_each_part(pool: Sequence[int], parts: int, rng: np.random.Generator) -> list[int]:
    edges = np.linspace(0, len(pool), parts + 1).astype(int)
    return [pool[int(rng.integers(low, high))] for low, high in pairwise(edges)]


def _longest_over_mean(lengths: Iterable[int]) -> float:
    known = list(lengths)
    return max(known) * len(known) / sum(known)


def _stated_limit(request: Request) -> int:
    if request.max_tokens is None:
        raise InvalidInput("max_tokens", "a static subset needs the length of every output")
    return max(1, request.max_tokens)


def _eligible(
    requests: Sequence[Request],
    tokens: TokenColumns,
    max_prompt_tokens: int,
    without: Collection[int],
) -> dict[int, int]:
    """Prompt tokens of every request that fits and is not left out, by index."""
    lengths: dict[int, int] = {}
    prompts = tokens.prompts.lengths.tolist()
    for place, request in enumerate(requests):
        if not request.has_text or prompts[place] <= 0 or place in without:
            continue
        limit = output_limit(request, tokens.outputs.array(place)) or 1
        if prompts[place] + limit <= max_prompt_tokens:
            lengths[place] = prompts[place]
    return lengths


def _shares(counts: Mapping[int, int], size: int) -> dict[int, int]:
    """`size` seats by class size, never more than a class has, at least one each if possible."""
    total = sum(counts.values())
    size = min(size, total)
    floor = 1 if size >= len(counts) else 0
    exact = {label: size * count / total for label, count in counts.items()}
    shares = {label: max(floor, int(share)) for label, share in exact.items()}
    while (left := size - sum(shares.values())) != 0:
        step = 1 if left > 0 else -1
        able = [
            label
            for label in counts
            if (shares[label] < counts[label] if step > 0 else shares[label] > floor)
        ]
        label = max(able, key=lambda name: step * (exact[name] - shares[name]))
        shares[label] += step
    return shares
