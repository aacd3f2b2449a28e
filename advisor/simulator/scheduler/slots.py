"""Slots of the cache for a request's tokens, in every group of layers, all or nothing.

As `KVCacheManager.allocate_slots` (vLLM v1/core/kv_cache_manager.py and
single_type_kv_cache_manager.py). Without prefix caching blocks have no identity and are counted.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ASK,
    BLOCK,
    BOUNDARY,
    CACHED_FREE,
    CACHING,
    CAP,
    COMPUTED,
    GONE,
    GROUP,
    GROUPS,
    HASHED,
    HELD,
    IDS,
    IDS_AT,
    IN_FLIGHT,
    KIND,
    KNOWN,
    LIST_ROOM,
    LOOKAHEAD,
    MAMBA,
    MAX_LEN,
    OWN,
    PROMPT,
    QUIET,
    REQUEST,
    SEAT,
    SLIDING,
    SLIDING_WINDOW,
    SPAN,
    STATES,
    UNHASHED,
    UNLISTED,
    WINDOW,
    State,
)
from advisor.simulator.scheduler.pool import name_block, release_block, take_block


@inner
def free_blocks(s: State) -> int:
    """Blocks that nobody holds, cached ones included."""
    return int(s.counters[UNHASHED] + s.counters[CACHED_FREE])


@inner
def hash_of(s: State, request: int, place: int, group: int) -> int:
    """Identifier of a whole block of a request in a group: listed ones shared, others its own."""
    if place < s.requests[ASK * request + IDS]:
        identity = s.ids[s.requests[ASK * request + IDS_AT] + place]
    else:
        identity = -(s.requests[ASK * request + OWN] + place) - 1
    return int(identity * s.rules[GROUPS] + group)


@inner
def blocks_for(s: State, group: int, tokens: int) -> int:
    """Blocks that a group's list has for so many tokens, nulls included."""
    if s.groups[GROUP * group + KIND] == MAMBA:
        return int(s.groups[GROUP * group + STATES])
    return int((tokens + s.rules[BLOCK] - 1) // s.rules[BLOCK])


@inner
def blocks_at_most(s: State, group: int, tokens: int) -> int:
    """As `blocks_for`, capped by what a window ever holds: the check of whole prompts."""
    return int(min(blocks_for(s, group, tokens), s.groups[GROUP * group + CAP]))


@inner
def behind_window(s: State, group: int, tokens: int) -> int:
    """Whole blocks that no later token reads when so many are computed."""
    if s.groups[GROUP * group + KIND] != SLIDING_WINDOW:
        return 0
    return int(max(0, tokens - s.groups[GROUP * group + WINDOW] + 1) // s.rules[BLOCK])


@inner
def span_of(s: State, seat: int, group: int) -> int:
    """Where the span of a request's blocks in a group stands."""
    return int(SPAN * (seat * s.rules[GROUPS] + group))


@inner
def list_of(s: State, seat: int, group: int) -> int:
    """Where the list of a request's blocks in a group begins."""
    return int(s.rules[LIST_ROOM] * (seat * s.rules[GROUPS] + group))


@inner
def missing_blocks(s: State, seat: int, tokens: int) -> int:
    """Blocks that a running request lacks for so many tokens."""
    need = 0
    for group in range(s.rules[GROUPS]):
        held = s.spans[span_of(s, seat, group) + HELD]
        need += max(0, blocks_for(s, group, tokens) - held)
    return need


@inner
def extend(s: State, seat: int, tokens: int) -> None:
    """Takes the blocks that a request lacks; they are there."""
    for group in range(s.rules[GROUPS]):
        span = span_of(s, seat, group)
        held, wanted = s.spans[span + HELD], blocks_for(s, group, tokens)
        if wanted <= held:
            continue
        s.spans[span + HELD] = wanted
        if s.rules[CACHING]:
            listed = list_of(s, seat, group)
            for place in range(held, wanted):
                s.tables[listed + place] = take_block(s)
        else:
            s.counters[UNHASHED] -= wanted - held


@inner
def _serves_hits(s: State, seat: int, group: int, place: int) -> bool:
    """A window keeps the blocks that a resend of the prompt, or a shared prefix, reads.

    `reachable_block_mask` with `prefix_cache_retention_interval` 0, the default.
    """
    if s.groups[GROUP * group + KIND] != SLIDING_WINDOW:
        return True
    block = s.rules[BLOCK]
    need = (s.groups[GROUP * group + WINDOW] - 1 + block - 1) // block
    end = (s.requests[ASK * s.seats[SEAT * seat + REQUEST] + PROMPT] - 1) // block
    if end - need <= place < end:
        return True
    shared = s.seats[SEAT * seat + BOUNDARY] // block
    return bool(shared > 0 and shared - need <= place < shared)


@inner
def register(s: State, seat: int, tokens: int) -> None:
    """Hashes whole blocks up to so many tokens; they serve hits from now on."""
    full = tokens // s.rules[BLOCK]
    for group in range(s.rules[GROUPS]):
        span = span_of(s, seat, group)
        if s.groups[GROUP * group + KIND] == MAMBA or s.spans[span + HASHED] >= full:
            continue
        request, listed = s.seats[SEAT * seat + REQUEST], list_of(s, seat, group)
        for place in range(max(s.spans[span + GONE], s.spans[span + HASHED]), full):
            if not _serves_hits(s, seat, group, place):
                continue
            if place >= s.requests[ASK * request + IDS] and not s.rules[SLIDING]:
                s.hashes[s.tables[listed + place]] = UNLISTED
            else:
                name_block(s, s.tables[listed + place], hash_of(s, request, place, group))
        s.spans[span + HASHED] = full


@inner
def list_own(s: State, seat: int) -> None:
    """Before a preemption: the blocks that only this request can find again go to the index."""
    request = s.seats[SEAT * seat + REQUEST]
    for group in range(s.rules[GROUPS]):
        listed, span = list_of(s, seat, group), span_of(s, seat, group)
        for place in range(s.spans[span + GONE], s.spans[span + HASHED]):
            block = s.tables[listed + place]
            if s.hashes[block] == UNLISTED:
                name_block(s, block, hash_of(s, request, place, group))


@inner
def drop_blocks(s: State, seat: int, group: int, until: int) -> None:
    """Gives back the first blocks of a list, up to `until`, last one first."""
    span = span_of(s, seat, group)
    gone = s.spans[span + GONE]
    if until <= gone:
        return
    if s.rules[CACHING]:
        listed = list_of(s, seat, group)
        for place in range(until - 1, gone - 1, -1):
            release_block(s, s.tables[listed + place])
    else:
        s.counters[UNHASHED] += until - gone
    s.spans[span + GONE] = until


@inner
def leave_window(s: State, seat: int, tokens: int) -> None:
    """Gives back what lies behind the windows once so many tokens are computed for good."""
    for group in range(s.rules[GROUPS]):
        held = s.spans[span_of(s, seat, group) + HELD]
        drop_blocks(s, seat, group, min(held, behind_window(s, group, tokens)))


@inner
def release_all(s: State, seat: int) -> None:
    """Gives back everything a request holds."""
    for group in range(s.rules[GROUPS]):
        span = span_of(s, seat, group)
        drop_blocks(s, seat, group, s.spans[span + HELD])
        for cell in range(SPAN):
            s.spans[span + cell] = 0


@inner
def rest(s: State, seat: int) -> None:
    """Notes until which position a request needs no block, no hash and no look at its window."""
    block, quiet = s.rules[BLOCK], s.rules[MAX_LEN]
    for group in range(s.rules[GROUPS]):
        kind, span = s.groups[GROUP * group + KIND], span_of(s, seat, group)
        if kind == MAMBA:
            continue
        quiet = min(quiet, s.spans[span + HELD] * block - s.rules[LOOKAHEAD])
        if s.rules[CACHING]:
            quiet = min(quiet, (s.spans[span + HASHED] + 1) * block - 1)
        if kind == SLIDING_WINDOW:
            window = s.groups[GROUP * group + WINDOW]
            quiet = min(quiet, (s.spans[span + GONE] + 1) * block + window - 2)
    s.seats[SEAT * seat + QUIET] = quiet


@inner
def grow(s: State, seat: int, new: int) -> bool:
    """Slots for `new` more tokens of a running request, and its lookahead; False: none taken."""
    computed = s.seats[SEAT * seat + COMPUTED]
    if computed + new <= s.seats[SEAT * seat + QUIET]:
        return True
    if s.rules[SLIDING]:
        leave_window(s, seat, computed - s.seats[SEAT * seat + IN_FLIGHT])
    slots = min(computed + new + s.rules[LOOKAHEAD], s.rules[MAX_LEN])
    need = missing_blocks(s, seat, slots)
    if need > 0:
        if need > free_blocks(s):
            return False
        extend(s, seat, slots)
    if s.rules[CACHING]:
        register(s, seat, min(computed + new, s.seats[SEAT * seat + KNOWN]))
    rest(s, seat)
    return True
