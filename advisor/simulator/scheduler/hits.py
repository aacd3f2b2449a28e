"""The longest cached prefix of a newcomer that every group of layers still has.

As the coordinators of vLLM v1/core/kv_cache_coordinator.py and the managers' own
`find_longest_cache_hit`: full attention is looked up from the left, windows from the right, in
groups of one kind and window together, until no group shortens the prefix any more.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ASK,
    ASKING,
    BLOCK,
    CACHING,
    FULL,
    GROUP,
    GROUPS,
    HIT,
    IDS,
    JUNCTION,
    KIND,
    LEADER,
    PREEMPTIONS,
    SLIDING_WINDOW,
    WINDOW,
    State,
)
from advisor.simulator.scheduler.pool import block_of
from advisor.simulator.scheduler.slots import hash_of, list_of


@inner
def _cached(s: State, seat: int, group: int, place: int) -> bool:
    """Whether all groups like `group` have a block; it goes to their lists."""
    for other in range(group, s.rules[GROUPS]):
        if s.groups[GROUP * other + LEADER] != group:
            continue
        block = block_of(s, hash_of(s, s.counters[ASKING], place, other))
        if block == 0:
            return False
        s.tables[list_of(s, seat, other) + place] = block
    return True


@inner
def _from_left(s: State, seat: int, group: int, limit: int) -> int:
    """Full attention: whole blocks from the first one on."""
    for place in range(limit):
        if not _cached(s, seat, group, place):
            return place
    return limit


@inner
def _from_right(s: State, seat: int, group: int, limit: int) -> int:
    """A window: the last run of blocks that fills it, or all from the first one on."""
    block = s.rules[BLOCK]
    need = (s.groups[GROUP * group + WINDOW] - 1 + block - 1) // block
    run = 0
    for place in range(limit - 1, -1, -1):
        if _cached(s, seat, group, place):
            run += 1
            if run >= need:
                return place + run
        else:
            run = 0
    return run


@inner
def _shortest(s: State, seat: int, limit: int) -> int:
    """One look at every kind of group, full attention first; notes the longest single hit."""
    reach = limit
    for kind in (FULL, SLIDING_WINDOW):
        for group in range(s.rules[GROUPS]):
            at = GROUP * group
            if s.groups[at + KIND] != kind or s.groups[at + LEADER] != group:
                continue
            if kind == FULL:
                reach = _from_left(s, seat, group, reach)
            else:
                reach = _from_right(s, seat, group, reach)
            s.counters[JUNCTION] = max(s.counters[JUNCTION], reach)
    return reach


@inner
def find_hits(s: State, request: int, seat: int, known: int) -> None:
    """Cached blocks of a request, at most all but its last token, into the counter `HIT`.

    `JUNCTION` gets the tokens of a shared prefix that some group does not have yet, or 0.
    """
    s.counters[HIT] = 0
    s.counters[JUNCTION] = 0
    s.counters[ASKING] = request
    if not s.rules[CACHING]:
        return
    if s.requests[ASK * request + IDS] == 0 and s.requests[ASK * request + PREEMPTIONS] == 0:
        return
    reach = (known - 1) // s.rules[BLOCK]
    if s.rules[GROUPS] == 1 and s.groups[KIND] == FULL:
        s.counters[HIT] = _from_left(s, seat, 0, reach)
        return
    while True:
        shorter = _shortest(s, seat, reach)
        if shorter >= reach:
            break
        reach = shorter
    longest = s.counters[JUNCTION]
    s.counters[HIT] = reach
    s.counters[JUNCTION] = longest * s.rules[BLOCK] if longest > reach else 0
