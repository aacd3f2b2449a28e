"""The requests that the trials of a study replay, and those kept back for its confirmation."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, TokenColumns

HELD_OUT_SHARE = 1 / 3
STATIC_DRAWS = 64


def output_limit(request: Request, output: Sequence[int] | None) -> int | None:
    """Tokens to allow a replayed request: its own limit, else what was recorded (case T-23).

    At least 1: a request that recorded no output is prefill only, and engines refuse 0.
    """
    recorded = request.output_tokens
    if recorded is None and output is not None:
        recorded = len(output)
    found = request.max_tokens if request.max_tokens is not None else recorded
    return None if found is None else max(1, found)


def probe_subset(
    requests: Sequence[Request],
    tokens: TokenColumns,
    *,
    size: int,
    seed: int,
    max_prompt_tokens: int,
    mean_prompt_limit: float | None,
    without: Collection[int] = (),
) -> tuple[int, ...]:
    """Indexes of up to `size` requests with text, shuffled; equal arguments give equal subsets.

    None of `without` is among them. Classes keep their shares (largest remainders, each at least
    once when `size` allows). No prompt with its output limit passes `max_prompt_tokens`. With
    `mean_prompt_limit` long prompts give way to shorter ones of their class until the mean holds,
    or nothing shorter is left.
    Raises `InvalidInput` when no request fits.
    """
    if size < 1:
        raise InvalidInput("size", f"{size} is not at least 1")
    lengths = _eligible(requests, tokens, max_prompt_tokens, without)
    if not lengths:
        raise InvalidInput(
            "workload", f"no request with text fits into {max_prompt_tokens} tokens with its output"
        )
    rng = np.random.default_rng(seed)
    pools: dict[str, list[int]] = {}
    for place in lengths:
        pools.setdefault(requests[place].label or "", []).append(place)
    shares = _shares({label: len(pool) for label, pool in sorted(pools.items())}, size)
    chosen: dict[str, list[int]] = {}
    for label, wanted in shares.items():
        order = [pools[label][at] for at in rng.permutation(len(pools[label]))]
        chosen[label] = order[:wanted]
        pools[label] = order[wanted:]
    if mean_prompt_limit is not None:
        _shorten(chosen, pools, lengths, mean_prompt_limit)
    picked = sorted(place for places in chosen.values() for place in places)
    return tuple(picked[at] for at in rng.permutation(len(picked)))


def fitting_places(
    requests: Sequence[Request], tokens: TokenColumns, *, max_prompt_tokens: int
) -> frozenset[int]:
    """Indexes of the requests with text that fit with their output limit."""
    return frozenset(_eligible(requests, tokens, max_prompt_tokens, ()))


def held_out(
    requests: Sequence[Request], tokens: TokenColumns, *, seed: int, max_prompt_tokens: int
) -> frozenset[int]:
    """Indexes of the requests that nothing but the confirmation may see.

    Requests of one session, and requests with one prompt, are a group that stays together. Groups
    are held out in a seeded order until `HELD_OUT_SHARE` of the requests that fit is reached,
    first by class, then over all; a group that would overshoot stays. Empty where no group is
    small enough.
    """
    fitting = _eligible(requests, tokens, max_prompt_tokens, ())
    groups = [
        (group, Counter(requests[place].label or "" for place in group if place in fitting))
        for group in _groups(requests, tokens)
    ]
    groups = [(group, counts) for group, counts in groups if counts]
    order = np.random.default_rng(seed).permutation(len(groups))
    counts = Counter(requests[place].label or "" for place in fitting)
    wanted = {label: HELD_OUT_SHARE * count for label, count in counts.items()}
    chosen: set[int] = set()
    taken: Counter[str] = Counter()
    for distance in (_class_distance, _whole_distance):
        for at in map(int, order):
            more = groups[at][1]
            if at not in chosen and distance(taken + more, wanted) < distance(taken, wanted):
                chosen.add(at)
                taken += more
    return frozenset(place for at in chosen for place in groups[at][0])


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


def _groups(requests: Sequence[Request], tokens: TokenColumns) -> list[tuple[int, ...]]:
    """Places that share a session or a prompt, directly or by others, in order of their first."""
    leader: dict[int, int] = {}
    known: dict[Hashable, int] = {}

    def root(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    for place, request in enumerate(requests):
        leader[place] = place
        for key in _shared_keys(request, tokens.prompts[place]):
            other = root(known.setdefault(key, place))
            mine = root(place)
            leader[max(other, mine)] = min(other, mine)
    groups: dict[int, list[int]] = {}
    for place in leader:
        groups.setdefault(root(place), []).append(place)
    return [tuple(group) for group in groups.values()]


def _shared_keys(request: Request, prompt: tuple[int, ...] | None) -> Iterable[Hashable]:
    """What makes two requests belong together."""
    if request.session is not None:
        yield "session", request.session
    if request.has_text:
        yield "text", request.messages, request.prompt
    if prompt:
        yield "tokens", prompt


def _class_distance(taken: Counter[str], wanted: Mapping[str, float]) -> float:
    return sum(abs(taken[label] - count) for label, count in wanted.items())


def _whole_distance(taken: Counter[str], wanted: Mapping[str, float]) -> float:
    return abs(taken.total() - sum(wanted.values()))


def _eligible(
    requests: Sequence[Request],
    tokens: TokenColumns,
    max_prompt_tokens: int,
    without: Collection[int],
) -> dict[int, int]:
    """Prompt tokens of every request that fits and is not left out, by index."""
    lengths: dict[int, int] = {}
    for place, request in enumerate(requests):
        prompt = tokens.prompts[place]
        if not request.has_text or not prompt or place in without:
            continue
        if len(prompt) + (output_limit(request, tokens.outputs[place]) or 1) <= max_prompt_tokens:
            lengths[place] = len(prompt)
    return lengths


def _shares(counts: Mapping[str, int], size: int) -> dict[str, int]:
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


def _shorten(
    chosen: dict[str, list[int]],
    pools: dict[str, list[int]],
    lengths: Mapping[int, int],
    mean_limit: float,
) -> None:
    """Swap the longest chosen prompt for a shorter one of its class until the mean holds."""
    count = sum(map(len, chosen.values()))
    excess = sum(lengths[place] for places in chosen.values() for place in places)
    excess -= int(mean_limit * count)
    while excess > 0:
        swap = _swap(chosen, pools, lengths)
        if swap is None:
            return
        label, out, into = swap
        chosen[label][chosen[label].index(out)] = into
        pools[label].remove(into)
        excess -= lengths[out] - lengths[into]


def _swap(
    chosen: Mapping[str, list[int]], pools: Mapping[str, list[int]], lengths: Mapping[int, int]
) -> tuple[str, int, int] | None:
    """Class, its longest chosen prompt and the next shorter one left; of the longest such."""
    swaps = []
    for label, places in chosen.items():
        if not places:
            continue
        out = max(places, key=lambda place: (lengths[place], place))
        shorter = [place for place in pools[label] if lengths[place] < lengths[out]]
        if shorter:
            into = max(shorter, key=lambda place: (lengths[place], -place))
            swaps.append((lengths[out], label, out, into))
    if not swaps:
        return None
    _, label, out, into = max(swaps)
    return label, out, into
