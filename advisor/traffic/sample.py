"""The requests that every trial of a study replays."""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, TokenColumns


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
) -> tuple[int, ...]:
    """Indexes of up to `size` requests with text, shuffled; equal arguments give equal subsets.

    Classes keep their shares (largest remainders, each at least once when `size` allows). No
    prompt with its output limit passes `max_prompt_tokens`. With `mean_prompt_limit` long prompts
    give way to shorter ones of their class until the mean holds, or nothing shorter is left.
    Raises `InvalidInput` when no request fits.
    """
    if size < 1:
        raise InvalidInput("size", f"{size} is not at least 1")
    lengths = _eligible(requests, tokens, max_prompt_tokens)
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


def _eligible(
    requests: Sequence[Request], tokens: TokenColumns, max_prompt_tokens: int
) -> dict[int, int]:
    """Prompt tokens of every request that fits, by index."""
    lengths: dict[int, int] = {}
    for place, request in enumerate(requests):
        prompt = tokens.prompts[place]
        if not request.has_text or not prompt:
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
