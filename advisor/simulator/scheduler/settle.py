"""What a step did to its requests: tokens, rejected drafts, ends.

As `Scheduler.update_from_output` (vLLM v1/core/sched/scheduler.py).
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.draws import accepted, proposed
from advisor.simulator.scheduler.fields import (
    ACCEPTED,
    ASK,
    ASKED,
    BOOKED,
    BOOKINGS,
    COMPUTED,
    DEEPEST,
    DONE,
    DRAFT,
    DRAFTED,
    DRAFTS,
    ENDED,
    FIRST,
    GENERATED,
    KNOWN,
    LAST,
    NEW,
    NOW,
    ORDER,
    OVER,
    PROMPT,
    PROPOSED,
    REQUEST,
    RUNNING,
    SEAT,
    STOP,
    TIME,
    State,
)
from advisor.simulator.scheduler.schedule import leave_seat


@inner
def yielded(s: State, seat: int, drafts: int) -> int:
    """Tokens that a request which computed all it had gets from the step."""
    if s.rules[DRAFT] == 0 or s.seats[SEAT * seat + PROPOSED] == 0:
        return 1
    taken = accepted(s, seat, drafts)
    s.counters[DRAFTED] += drafts
    s.counters[ACCEPTED] += taken
    return 1 + taken


@inner
def finish(s: State, seat: int) -> None:
    """A request is done: its blocks are free at once, its place in the list a moment later."""
    request = s.seats[SEAT * seat + REQUEST]
    s.times[TIME * request + LAST] = s.clock[NOW]
    s.requests[ASK * request + GENERATED] = (
        s.seats[SEAT * seat + KNOWN] - s.requests[ASK * request + PROMPT]
    )
    s.requests[ASK * request + OVER] = 1
    s.seats[SEAT * seat + ENDED] = 1
    s.seats[SEAT * seat + REQUEST] = -1
    s.counters[DONE] += 1
    leave_seat(s, seat)


@inner
def settle_request(s: State, seat: int, depth: int) -> int:
    """Applies a step to one request; 1 when it is done."""
    seats = s.seats
    before, new, known = (
        seats[SEAT * seat + COMPUTED],
        seats[SEAT * seat + NEW],
        seats[SEAT * seat + KNOWN],
    )
    computed = before + new
    seats[SEAT * seat + COMPUTED] = computed
    seats[SEAT * seat + DRAFTS] = 0
    if computed < known:
        seats[SEAT * seat + PROPOSED] = 0
        return 0
    drafts = computed - known
    gained = yielded(s, seat, drafts)
    seats[SEAT * seat + COMPUTED] = known + gained - 1
    if known == seats[SEAT * seat + ASKED]:
        s.times[TIME * seats[SEAT * seat + REQUEST] + FIRST] = s.clock[NOW]
    known = min(known + gained, seats[SEAT * seat + STOP])
    seats[SEAT * seat + KNOWN] = known
    if known >= seats[SEAT * seat + STOP]:
        finish(s, seat)
        return 1
    if s.rules[DRAFT]:
        seats[SEAT * seat + PROPOSED] = 1
        seats[SEAT * seat + DRAFTS] = proposed(s, seat, depth)
    return 0


@inner
def remove_ended(s: State) -> None:
    """Takes requests that are done out of the running list."""
    kept = 0
    for place in range(s.counters[RUNNING]):
        seat = s.seats[SEAT * place + ORDER]
        if s.seats[SEAT * seat + ENDED]:
            s.seats[SEAT * seat + ENDED] = 0
        else:
            s.seats[SEAT * kept + ORDER] = seat
            kept += 1
    s.counters[RUNNING] = kept


@inner
def settle(s: State) -> None:
    """Applies the step that was booked last."""
    count = s.counters[BOOKED]
    depth = s.depths[min(count, s.rules[DEEPEST])]
    ended = 0
    for place in range(count):
        ended += settle_request(s, s.seats[SEAT * place + BOOKINGS], depth)
    if ended > 0:
        remove_ended(s)
