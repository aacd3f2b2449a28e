"""Sums over the booked requests from which the time of a step is read."""

from advisor.roofline.step.compiled import inner
from advisor.roofline.step.curves import Curves, chunk_seconds
from advisor.simulator.scheduler.fields import (
    ASKED,
    BOOKED,
    BOOKINGS,
    CHUNK_TOKENS,
    CHUNKS,
    CHUNKS_S,
    COMPUTED,
    CONTEXT,
    DECODES,
    DRAFT,
    DRAFTING,
    KNOWN,
    LONGEST,
    NEW,
    PAIRS,
    PENDING,
    POSITIONS,
    ROWS,
    SEAT,
    State,
)


@inner
def _add_chunk(s: State, curves: Curves, new: int, computed: int) -> None:
    s.clock[ROWS] += 1.0
    s.clock[CHUNKS] += 1.0
    s.clock[CHUNK_TOKENS] += new
    s.clock[PAIRS] += new * (computed + 0.5 * new)
    s.clock[CHUNKS_S] += chunk_seconds(curves, float(new), float(computed))


@inner
def measure(s: State, curves: Curves) -> None:
    """Positions, head rows, decodes with their context, and chunks, into the clock."""
    for cell in range(POSITIONS, LONGEST + 1):
        s.clock[cell] = 0.0
    positions = decodes = context = rows = drafting = longest = 0
    for place in range(s.counters[BOOKED]):
        at = SEAT * s.seats[SEAT * place + BOOKINGS]
        new, computed = s.seats[at + NEW], s.seats[at + COMPUTED]
        known = s.seats[at + KNOWN] + s.seats[at + PENDING]
        positions += new
        if computed + new >= known:
            drafting += 1
        if computed + 1 == known and computed >= s.seats[at + ASKED]:
            decodes += 1
            context += known
            longest = max(longest, known)
            rows += new
        else:
            _add_chunk(s, curves, new, computed)
    s.clock[POSITIONS] = positions
    s.clock[DECODES] = decodes
    s.clock[CONTEXT] = context
    s.clock[LONGEST] = longest
    s.clock[ROWS] += rows
    if s.rules[DRAFT]:
        s.clock[DRAFTING] = drafting
