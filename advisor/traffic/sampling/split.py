"""Which requests are kept back for the confirmation of a study, without leakage."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.reuse.kinship import Chains, Places, chains_of, family_keys, weld
from advisor.traffic.sampling.sample import fitting_places
from advisor.traffic.trace import Request, TokenColumns

HELD_OUT_SHARE = 1 / 3


def held_out(
    requests: Sequence[Request],
    tokens: TokenColumns,
    *,
    seed: int,
    max_prompt_tokens: int,
    chains: Chains | None = None,
) -> frozenset[int]:
    """Indexes of the requests that nothing but the confirmation may see.

    Requests that `groups_of` joins stay together. Groups are held out in a seeded order until
    `HELD_OUT_SHARE` of the requests that fit is reached, first by class, then over all; a group
    that would overshoot stays. Empty where no group is small enough. `chains` are those of these
    requests, if they were computed before.
    """
    fitting = fitting_places(requests, tokens, max_prompt_tokens=max_prompt_tokens)
    groups = [
        (group, Counter(_class(requests[place]) for place in group if place in fitting))
        for group in (group.tolist() for group in groups_of(requests, tokens, chains))
    ]
    groups = [(group, counts) for group, counts in groups if counts]
    order = np.random.default_rng(seed).permutation(len(groups))
    counts = Counter(_class(requests[place]) for place in fitting)
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


def groups_of(
    requests: Sequence[Request], tokens: TokenColumns, chains: Chains | None = None
) -> list[Places]:
    """Places of what is held out together or not at all, in order of their first.

    One session, one prompt (as text or as tokens), or one family of `kinship.family_keys`, directly
    or by others: a document that two requests ask about is in both, a system prompt that most of
    the traffic or of a class shares joins nobody.
    """
    found = chains or chains_of(requests, tokens)
    names = sorted({_class(request) for request in requests})
    classes = np.array([names.index(_class(request)) for request in requests], dtype=np.int32)
    families: Sequence[Collection[Hashable]] = (
        [()] * len(requests) if found is None else family_keys(found, classes)
    )
    return weld(
        [
            {*_shared_keys(request, tokens.prompts.array(place)), *families[place]}
            for place, request in enumerate(requests)
        ]
    )


def _class(request: Request) -> str:
    return request.class_name or ""


def _shared_keys(request: Request, prompt: NDArray[np.int32] | None) -> Iterable[Hashable]:
    """What makes two requests belong together, whatever else there is."""
    if request.session is not None:
        yield "session", request.session
    if request.has_text:
        yield "text", request.messages, request.prompt
    if prompt is not None and len(prompt):
        yield "tokens", prompt.tobytes()


def _class_distance(taken: Counter[str], wanted: Mapping[str, float]) -> float:
    return sum(abs(taken[label] - count) for label, count in wanted.items())


def _whole_distance(taken: Counter[str], wanted: Mapping[str, float]) -> float:
    return abs(taken.total() - sum(wanted.values()))
