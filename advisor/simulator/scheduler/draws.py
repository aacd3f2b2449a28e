"""What drafts yield: a recorded chain, or draws that depend on request and step only.

A draw is a hash of seed, request and how many verifications the request has had. So it is the same
whatever the scheduler does, and two configurations are compared on the same luck.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ASK,
    CHAIN,
    CHAIN_AT,
    NAME,
    REQUEST,
    SEAT,
    SEED,
    VERIFIED,
    State,
)

_STEP = -7046029254386353131
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685
_LOW_53 = (1 << 53) - 1


@inner
def _mix(value: int) -> int:
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * _FIRST
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return value ^ ((value >> 31) & 0x1FFFFFFFF)


@inner
def uniform(seed: int, request: int, place: int) -> float:
    """Uniform in [0, 1), the same for the same three numbers (SplitMix64)."""
    value = _mix(_mix(_mix(seed + _STEP) ^ (request * _STEP)) + place * _STEP)
    return ((value >> 11) & _LOW_53) / (_LOW_53 + 1.0)


@inner
def proposed(s: State, seat: int, depth: int) -> int:
    """Drafts that a request gets for its next step: `depth`, or none where nothing was found."""
    request = s.seats[SEAT * seat + REQUEST]
    place = s.requests[ASK * request + VERIFIED]
    if s.requests[ASK * request + CHAIN_AT] >= 0:
        if place < s.requests[ASK * request + CHAIN]:
            return depth if s.chain[s.requests[ASK * request + CHAIN_AT] + place] > 0 else 0
        return depth
    coverage = s.survival[0]
    if (
        coverage < 1.0
        and uniform(s.rules[SEED], s.requests[ASK * request + NAME], 2 * place) >= coverage
    ):
        return 0
    return depth


@inner
def accepted(s: State, seat: int, drafts: int) -> int:
    """How many of a request's drafts are accepted in this step; uses up one link of its chain."""
    request = s.seats[SEAT * seat + REQUEST]
    place = s.requests[ASK * request + VERIFIED]
    s.requests[ASK * request + VERIFIED] = place + 1
    if s.requests[ASK * request + CHAIN_AT] >= 0:
        if place >= s.requests[ASK * request + CHAIN]:
            return 0
        return int(max(0, min(drafts, s.chain[s.requests[ASK * request + CHAIN_AT] + place] - 1)))
    if drafts == 0:
        return 0
    chance = uniform(s.rules[SEED], s.requests[ASK * request + NAME], 2 * place + 1)
    count = 0
    while count < drafts and chance < s.survival[count + 1]:
        count += 1
    return count
