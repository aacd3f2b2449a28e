"""Names of the cells in the plain arrays that a closed loop is played on.

Compiled code has no objects: a rule, a counter or a column is a place in an array. A `State` holds
them; compiled code writes them in place.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

# rules: what is fixed in a run
COUNT: Final = 0
SEATS: Final = 1
BUDGET: Final = 2
SPACE: Final = 3
LAG: Final = 4
ROOM: Final = 5
RULES: Final = 6

# counters: what changes while it runs, the requests first, then the step that is made up
STEP: Final = 0
PREEMPTIONS: Final = 1
ASKED: Final = 2
DONE: Final = 3
HEAD: Final = 4
TAIL: Final = 5
LISTED: Final = 6
HEAPED: Final = 7
DECODING: Final = 8
HELD: Final = 9
PARTIAL: Final = 10
PARTIAL_READ: Final = 11
CRAMPED: Final = 12
LEFT: Final = 13
CHUNKS: Final = 14
CHUNK_TOKENS: Final = 15
BOOKED: Final = 16
COMPLETED: Final = 17
COUNTERS: Final = 18

# clock
NOW: Final = 0
CHUNKS_S: Final = 1
DELAY_S: Final = 2
CLOCK: Final = 3

# requests, a column each
PROMPT: Final = 0
OUTPUT: Final = 1
MADE: Final = 2
BEGAN: Final = 3
END: Final = 4
READY_STEP: Final = 5
ASK: Final = 8

# times of requests, a column each
SENT: Final = 0
FIRST: Final = 1
LAST: Final = 2
READY_S: Final = 3
TIME: Final = 4


class State(NamedTuple):
    """A closed loop between two steps.

    `waiting` is a ring of requests, first come first served; `order` the decoding ones as admitted,
    ended ones included; `heap` their ends, least first, as step of the end * requests + request;
    `completed` the prompts that this step finishes reading. Columns of `requests`: `MADE` tokens
    were answered (of a decoding request: when it began to decode, in step `BEGAN`), it is done
    after step `END`, -1 while it does not decode.
    """

    rules: Ints
    counters: Ints
    clock: Floats
    requests: Ints
    times: Floats
    waiting: Ints
    order: Ints
    heap: Ints
    completed: Ints


def new_state(
    lengths: tuple[Ints, Ints], limits: tuple[int, int, int, int], timing: tuple[float, int]
) -> State:
    """The first requests have just been sent; arguments as of `serve`."""
    count = len(lengths[0])
    flight, seats, budget, space = limits
    delay_s, lag_steps = timing
    asked, room = min(flight, count), 2 * count + 1
    rules = np.array([count, seats, budget, space, lag_steps, room], dtype=np.int64)
    counters = np.zeros(COUNTERS, np.int64)
    counters[ASKED] = counters[TAIL] = asked
    counters[PARTIAL] = -1
    requests = np.zeros((count, ASK), np.int64)
    requests[:, PROMPT], requests[:, OUTPUT] = lengths
    requests[:, END] = -1
    times = np.full((count, TIME), np.nan)
    times[:asked, SENT] = 0.0
    times[:asked, READY_S] = delay_s
    return State(
        rules=rules,
        counters=counters,
        clock=np.array([0.0, 0.0, delay_s]),
        requests=requests,
        times=times,
        waiting=np.arange(count),
        order=np.empty(room, np.int64),
        heap=np.empty(room, np.int64),
        completed=np.empty(count, np.int64),
    )
