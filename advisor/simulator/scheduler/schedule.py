"""The parts of vLLM's `Scheduler.schedule`: running requests in order, then those who wait."""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.admission import admit, first_chunk
from advisor.simulator.scheduler.batches import note_admission, open_batch
from advisor.simulator.scheduler.fields import (
    ADMITTED_NOW,
    ASK,
    BOOKED,
    BOOKINGS,
    BUDGET,
    CACHING,
    COMPUTED,
    DRAFT_SLOTS,
    DRAFTS,
    FREE,
    FREE_SEATS,
    GENERATED,
    INPUT_LEFT,
    KNOWN,
    LIMIT,
    MAX_LEN,
    NEW,
    ORDER,
    PENDING,
    PREEMPTED_NOW,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    RANK,
    REQUEST,
    RUNNING,
    SEAT,
    STATIC,
    THRESHOLD,
    TOKENS_LEFT,
    VICTIMS,
    WAITING,
    State,
)
from advisor.simulator.scheduler.queue import give_back
from advisor.simulator.scheduler.slots import grow, list_own, release_all


@inner
def _book(s: State, seat: int, new: int) -> None:
    """The step computes `new` tokens of a request."""
    s.seats[SEAT * seat + NEW] = new
    s.seats[SEAT * s.counters[BOOKED] + BOOKINGS] = seat
    s.counters[BOOKED] += 1
    s.counters[TOKENS_LEFT] -= new
    s.counters[INPUT_LEFT] -= new + s.rules[DRAFT_SLOTS]


@inner
def _unbook(s: State, seat: int) -> None:
    """A victim that was booked already gives its tokens back."""
    for place in range(s.counters[BOOKED]):
        if s.seats[SEAT * place + BOOKINGS] == seat:
            for later in range(place + 1, s.counters[BOOKED]):
                s.seats[SEAT * (later - 1) + BOOKINGS] = s.seats[SEAT * later + BOOKINGS]
            s.counters[BOOKED] -= 1
            s.counters[TOKENS_LEFT] += s.seats[SEAT * seat + NEW]
            s.counters[INPUT_LEFT] += s.seats[SEAT * seat + NEW] + s.rules[DRAFT_SLOTS]
            return


@inner
def _rank(s: State, place: int) -> int:
    """Priority, then arrival, of the request at a place of the running list; higher is later."""
    seat = s.seats[SEAT * place + ORDER]
    return int(s.requests[ASK * s.seats[SEAT * seat + REQUEST] + RANK])


@inner
def _victim(s: State) -> int:
    """Place in the running list of who is preempted: the last one, or the least urgent."""
    last = s.counters[RUNNING] - 1
    if not s.rules[PRIORITY]:
        return int(last)
    worst = 0
    for place in range(1, last + 1):
        if _rank(s, place) > _rank(s, worst):
            worst = place
    return worst


@inner
def leave_seat(s: State, seat: int) -> None:
    """Blocks and seat of a request are free again."""
    release_all(s, seat)
    s.seats[SEAT * s.counters[FREE_SEATS] + FREE] = seat
    s.counters[FREE_SEATS] += 1


@inner
def _preempt(s: State, place: int) -> None:
    """Everything of a running request is given up but its output; it waits again."""
    seat = s.seats[SEAT * place + ORDER]
    request = s.seats[SEAT * seat + REQUEST]
    for later in range(place + 1, s.counters[RUNNING]):
        s.seats[SEAT * (later - 1) + ORDER] = s.seats[SEAT * later + ORDER]
    s.counters[RUNNING] -= 1
    if s.rules[PRIORITY]:
        _unbook(s, seat)
    s.requests[ASK * request + GENERATED] = (
        s.seats[SEAT * seat + KNOWN] - s.requests[ASK * request + PROMPT]
    )
    s.requests[ASK * request + PREEMPTIONS] += 1
    if s.rules[CACHING]:
        list_own(s, seat)
    s.seats[SEAT * seat + REQUEST] = -1
    leave_seat(s, seat)
    give_back(s, request)
    s.seats[SEAT * s.counters[PREEMPTED_NOW] + VICTIMS] = request
    s.counters[PREEMPTED_NOW] += 1


@inner
def _wanted(s: State, seat: int, cap: int) -> int:
    """Tokens that a running request gets if there is room for them."""
    at = SEAT * seat
    computed, pending = s.seats[at + COMPUTED], s.seats[at + PENDING]
    if pending > 0 and computed + 2 - pending >= s.seats[at + LIMIT]:
        return 0  # its last token is in flight
    new = s.seats[at + KNOWN] + s.seats[at + DRAFTS] + pending - computed
    if cap > 0:
        new = min(new, cap)
    room = min(s.counters[TOKENS_LEFT], s.counters[INPUT_LEFT] - s.rules[DRAFT_SLOTS])
    return int(min(new, room, s.rules[MAX_LEN] - 1 - computed))


@inner
def _make_room(s: State, place: int, new: int) -> int:
    """Preempts until the request at a place has its slots; its place, or -1 when it went too."""
    seat = s.seats[SEAT * place + ORDER]
    while not grow(s, seat, new):
        victim = _victim(s)
        _preempt(s, victim)
        if victim == place:
            return -1
        if victim < place:
            place -= 1
    return place


@inner
def continue_running(s: State, cap: int) -> None:
    """Running requests in order, half-read prompts included; preempts where blocks lack."""
    place = 0
    while place < s.counters[RUNNING] and s.counters[TOKENS_LEFT] > 0:
        if s.counters[INPUT_LEFT] <= s.rules[DRAFT_SLOTS]:
            return
        seat = s.seats[SEAT * place + ORDER]
        new = _wanted(s, seat, cap)
        if new > 0:
            place = _make_room(s, place, new)
            if place < 0:
                return
            _book(s, seat, new)
        place += 1


@inner
def admit_waiting(s: State, cap: int) -> None:
    """Those who wait, unless somebody was preempted in this step."""
    if s.counters[PREEMPTED_NOW] > 0:
        return
    while s.counters[TOKENS_LEFT] > 0 and s.counters[INPUT_LEFT] > s.rules[DRAFT_SLOTS]:
        if s.rules[STATIC] and not open_batch(s):
            return
        seat = admit(s, cap)
        if s.rules[STATIC]:
            note_admission(s, seat)
        if seat < 0:
            return
        left = s.seats[SEAT * seat + KNOWN] - s.seats[SEAT * seat + COMPUTED]
        _book(s, seat, first_chunk(s, left, cap))


@inner
def open_step(s: State) -> int:
    """Nothing is booked yet; the cap on a chunk of prompt, 0 for none."""
    s.counters[BOOKED] = 0
    s.counters[PREEMPTED_NOW] = 0
    s.counters[ADMITTED_NOW] = 0
    s.counters[TOKENS_LEFT] = s.rules[BUDGET]
    s.counters[INPUT_LEFT] = s.rules[BUDGET]
    return s.rules[THRESHOLD] if s.counters[RUNNING] + s.counters[WAITING] > 1 else 0
