"""Names of the rows and cells in the plain arrays that the compiled simulator works on.

Compiled code has no objects: a rule, a counter or a column is a place in an array. A `State` holds
them; every field is an array that compiled code writes in place.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.int32]

# rules: what the scheduler is told, fixed in a run
USABLE: Final = 0
SEATS: Final = 1
BUDGET: Final = 2
MAX_LEN: Final = 3
BLOCK: Final = 4
THRESHOLD: Final = 5
CHUNKED: Final = 6
RESERVE: Final = 7
WATERMARK: Final = 8
PRIORITY: Final = 9
CACHING: Final = 10
GROUPS: Final = 11
SLIDING: Final = 12
DRAFT: Final = 13
LOOKAHEAD: Final = 14
DRAFT_SLOTS: Final = 15
AHEAD: Final = 16
STATIC: Final = 17
CONCURRENCY: Final = 18
SEED: Final = 19
TRACED: Final = 20
INDEX_MASK: Final = 24
LIST_ROOM: Final = 25
SAMPLE_ROOM: Final = 26
TRACE_ROOM: Final = 27
DEEPEST: Final = 28
RULES: Final = 32

# counters: what changes while it runs
TOTAL: Final = 0
ARRIVED: Final = 1
NEXT: Final = 2
WAITING: Final = 3
RETURNED: Final = 4
RUNNING: Final = 5
FREE_SEATS: Final = 6
UNHASHED: Final = 7
CACHED_FREE: Final = 8
TOKENS_LEFT: Final = 9
INPUT_LEFT: Final = 10
BOOKED: Final = 11
PREEMPTED_NOW: Final = 12
ADMITTED_NOW: Final = 13
STEPS: Final = 14
DONE: Final = 15
DRAFTED: Final = 16
ACCEPTED: Final = 17
STRIDE: Final = 18
SAMPLES: Final = 19
TRACE_END: Final = 20
IDLE_STEPS: Final = 21
HIT: Final = 22
PARITY: Final = 23
FLYING: Final = 24
RECORDED: Final = 28
DONE_BEFORE: Final = 30
ASKING: Final = 31
BATCHED: Final = 25
JUNCTION: Final = 26
COUNTERS: Final = 32

# clock
NOW: Final = 0
BUSY: Final = 1
POSITIONS: Final = 2
ROWS: Final = 3
DECODES: Final = 4
CONTEXT: Final = 5
CHUNKS: Final = 6
CHUNK_TOKENS: Final = 7
PAIRS: Final = 8
CHUNKS_S: Final = 9
DRAFTING: Final = 10
LONGEST: Final = 11
LAST_END: Final = 12
ENDS_AT: Final = 13
PATIENCE: Final = 15
CLOCK: Final = 16

# requests, a column each
PROMPT: Final = 0
OUTPUT: Final = 1
RANK: Final = 2
OWN: Final = 3
IDS_AT: Final = 4
IDS: Final = 5
CHAIN_AT: Final = 6
CHAIN: Final = 7
REFUSED: Final = 8
GENERATED: Final = 9
PREEMPTIONS: Final = 10
CACHED: Final = 11
VERIFIED: Final = 12
OVER: Final = 13
NAME: Final = 14
ASK: Final = 16

# times of requests, a column each
ARRIVAL: Final = 0
SENT: Final = 1
SCHEDULED: Final = 2
FIRST: Final = 3
LAST: Final = 4
TIME: Final = 5

# seats: cells of each request that runs, the busiest first; lists of seats are cells too
ORDER: Final = 0
BOOKINGS: Final = 1
COMPUTED: Final = 2
KNOWN: Final = 3
NEW: Final = 4
DRAFTS: Final = 5
PENDING: Final = 6
QUIET: Final = 7
ASKED: Final = 8
STOP: Final = 9
LIMIT: Final = 10
REQUEST: Final = 11
PROPOSED: Final = 12
IN_FLIGHT: Final = 13
ENDED: Final = 14
BOUNDARY: Final = 15
FREE: Final = 16
BACK: Final = 17
VICTIMS: Final = 18
RECORDS: Final = 19
SEAT: Final = 32

# records of a step in flight, from row `RECORDS + RECORD * parity` of the seats on
RECORD_SEAT: Final = 0
RECORD_REQUEST: Final = 1
RECORD_NEW: Final = 2
RECORD_DRAFTS: Final = 3
RECORD_GAIN: Final = 4
RECORD: Final = 5

# spans of blocks: row `kind * groups + group`, a column per seat
HELD: Final = 0
GONE: Final = 1
HASHED: Final = 2
SPAN: Final = 4

# groups, a column each
KIND: Final = 0
WINDOW: Final = 1
STATES: Final = 2
CAP: Final = 3
LEADER: Final = 4
GROUP: Final = 8
FULL: Final = 0
SLIDING_WINDOW: Final = 1
MAMBA: Final = 2

# blocks, a column each; block 0 is the null block and the anchor of the list of free ones
BEFORE: Final = 0
AFTER: Final = 1
REFERENCES: Final = 2
SAME: Final = 3
STACK: Final = 4
CELL: Final = 5

# samples of the queue over time, a column per sampled step
SAMPLE_TOKENS: Final = 0
SAMPLE_RUNNING: Final = 1
SAMPLE_WAITING: Final = 2
SAMPLE_USED: Final = 3
SAMPLE: Final = 4

NO_HASH: Final = -(2**62)
UNLISTED: Final = NO_HASH + 1
"""A hash that only its own request can ask for, and only after a preemption: not in the index."""


class State(NamedTuple):
    """A simulation between two steps. Shapes by the row names above."""

    rules: Ints
    counters: Ints
    clock: Floats
    requests: Ints
    times: Floats
    seats: Ints
    spans: Ints
    groups: Ints
    tables: Places
    blocks: Places
    hashes: Ints
    hashed_at: Places
    ids: Ints
    chain: Ints
    survival: Floats
    depths: Ints
    heap: Ints
    samples: Ints
    sample_s: Floats
    trace: Ints
    trace_s: Floats
