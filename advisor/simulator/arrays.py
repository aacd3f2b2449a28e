"""A load and settings as the plain arrays that compiled code runs on."""

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.simulator.load import Load
from advisor.simulator.scheduler import fields as f
from advisor.simulator.settings import SchedulerSettings

_KINDS = {"full": f.FULL, "sliding_window": f.SLIDING_WINDOW, "mamba": f.MAMBA}
_RANK_SHIFT = 40
_LARGEST_ID = 2**40
_UNBOUNDED = 2**40


def new_state(
    load: Load,
    settings: SchedulerSettings,
    *,
    seed: int = 0,
    samples: int = 4096,
    trace: int = 0,
) -> f.State:
    """Everything at rest before the first request; `trace` is the room for a trace of steps.

    Raises `InvalidInput` for recurrent states with prefix caching: vLLM then keeps states at block
    boundaries (`mamba_cache_mode` "align"), which is not simulated.
    """
    if settings.enable_prefix_caching and any(g.kind == "mamba" for g in settings.groups):
        raise InvalidInput(
            "enable_prefix_caching", "of recurrent states (mamba) is not simulated; turn it off"
        )
    rules = _rules(load, settings, seed, traced=trace > 0)
    groups = _groups(settings)
    requests = _requests(load, settings, rules, groups)
    seats = np.zeros((settings.max_num_seqs, f.SEAT), np.int64)
    seats[:, f.FREE] = np.arange(settings.max_num_seqs)[::-1]
    lists = settings.max_num_seqs * len(settings.groups)
    named = settings.num_blocks if settings.enable_prefix_caching else 1
    room, depths = 2 * max(1, samples // 2), _depths(settings)
    index = 1 << (2 * named).bit_length()
    rules[f.LIST_ROOM] = _widest(load, settings, rules) if named > 1 else 0
    rules[f.INDEX_MASK], rules[f.DEEPEST] = index - 1, len(depths) - 1
    rules[f.SAMPLE_ROOM], rules[f.TRACE_ROOM] = room, trace
    return f.State(
        rules=rules,
        counters=_counters(load, settings),
        clock=_clock(load, settings),
        requests=requests,
        times=_times(load),
        seats=seats,
        spans=np.zeros((lists, f.SPAN), np.int64),
        groups=groups,
        tables=np.empty((lists, rules[f.LIST_ROOM]), np.int32),
        blocks=_blocks(named),
        hashes=np.full(named, f.NO_HASH, np.int64),
        hashed_at=np.zeros(index, np.int32),
        ids=_ids(load),
        chain=_column(load.accepted),
        survival=_survival(settings),
        depths=depths,
        heap=np.empty(len(load) if rules[f.PRIORITY] else 1, np.int64),
        samples=np.zeros((room, f.SAMPLE), np.int64),
        sample_s=np.zeros(room),
        trace=np.empty(max(1, trace), np.int64),
        trace_s=np.empty(max(1, trace), np.float64),
    )


def _rules(load: Load, settings: SchedulerSettings, seed: int, *, traced: bool) -> f.Ints:
    rules = np.zeros(f.RULES, np.int64)
    rules[f.USABLE] = settings.num_blocks - 1
    rules[f.SEATS] = settings.max_num_seqs
    rules[f.BUDGET] = settings.max_num_batched_tokens
    rules[f.MAX_LEN] = settings.max_model_len
    rules[f.BLOCK] = settings.block_size
    rules[f.THRESHOLD] = settings.long_prefill_token_threshold
    rules[f.CHUNKED] = settings.enable_chunked_prefill
    rules[f.RESERVE] = settings.reserve_full_isl
    rules[f.WATERMARK] = int(settings.watermark * settings.num_blocks)
    rules[f.PRIORITY] = settings.scheduling_policy == "priority"
    rules[f.CACHING] = settings.enable_prefix_caching
    rules[f.GROUPS] = len(settings.groups)
    rules[f.SLIDING] = any(group.kind == "sliding_window" for group in settings.groups)
    rules[f.AHEAD] = settings.async_scheduling
    rules[f.STATIC] = settings.static_batch or 0
    rules[f.CONCURRENCY] = load.concurrency or 0
    rules[f.SEED] = seed
    rules[f.TRACED] = traced
    drafts = settings.speculation
    if drafts is not None:
        rules[f.DRAFT] = drafts.num_speculative_tokens
        rules[f.DRAFT_SLOTS] = drafts.draft_slots
        given = drafts.lookahead
        rules[f.LOOKAHEAD] = drafts.num_speculative_tokens if given is None else given
    return rules


def _groups(settings: SchedulerSettings) -> f.Ints:
    """Kind, window, states and the most blocks that a request is counted for at admission."""
    groups = np.zeros((len(settings.groups), f.GROUP), np.int64)
    in_flight = settings.max_num_batched_tokens * (2 if settings.async_scheduling else 1)
    for place, group in enumerate(settings.groups):
        groups[place, f.KIND] = _KINDS[group.kind]
        groups[place, f.WINDOW] = group.window or 0
        groups[place, f.STATES] = group.state_blocks
        groups[place, f.CAP] = _UNBOUNDED
        groups[place, f.LEADER] = next(
            first
            for first, other in enumerate(settings.groups)
            if (other.kind, other.window) == (group.kind, group.window)
        )
        if group.window is not None:
            kept = min(group.window - 1 + in_flight, settings.max_model_len)
            groups[place, f.CAP] = -(-kept // settings.block_size) + 1
    return groups


def _requests(load: Load, settings: SchedulerSettings, rules: f.Ints, groups: f.Ints) -> f.Ints:
    requests = np.zeros((len(load), f.ASK), np.int64)
    requests[:, f.PROMPT] = load.prompt_tokens
    requests[:, f.OUTPUT] = load.output_tokens
    requests[:, f.RANK] = requests[:, f.NAME] = np.arange(len(load))
    if load.priority is not None:
        requests[:, f.RANK] += (load.priority - load.priority.min()) << _RANK_SHIFT
    whole = (load.prompt_tokens + load.output_tokens) // settings.block_size
    if settings.enable_prefix_caching:
        requests[1:, f.OWN] = np.cumsum(whole + 1)[:-1]
    if load.block_ids is not None and load.block_starts is not None:
        requests[:, f.IDS_AT] = load.block_starts[:-1]
        requests[:, f.IDS] = np.minimum(np.diff(load.block_starts), whole)
    requests[:, f.CHAIN_AT] = -1
    if load.accepted is not None and load.accepted_starts is not None:
        requests[:, f.CHAIN_AT] = load.accepted_starts[:-1]
        requests[:, f.CHAIN] = np.diff(load.accepted_starts)
    requests[:, f.REFUSED] = _refused(load, settings, rules, groups)
    return requests


def _refused(
    load: Load, settings: SchedulerSettings, rules: f.Ints, groups: f.Ints
) -> NDArray[np.bool_]:
    """Longer than the model, or than the whole pool even alone."""
    last = np.minimum(load.prompt_tokens + load.output_tokens - 1, settings.max_model_len - 1)
    slots = np.minimum(last + rules[f.LOOKAHEAD], settings.max_model_len)
    blocks = np.zeros(len(load), np.int64)
    for place in range(len(groups)):
        if groups[place, f.KIND] == f.MAMBA:
            blocks += groups[place, f.STATES]
        else:
            blocks += np.minimum(-(-slots // settings.block_size), groups[place, f.CAP])
    too_long = load.prompt_tokens >= settings.max_model_len
    return np.asarray(too_long | (blocks > rules[f.USABLE]), dtype=np.bool_)


def _widest(load: Load, settings: SchedulerSettings, rules: f.Ints) -> int:
    """Blocks of the longest list of blocks that a request of this load can have."""
    if not len(load):
        return 1
    longest = int((load.prompt_tokens + load.output_tokens).max())
    longest += int(rules[f.LOOKAHEAD] + rules[f.DRAFT])
    most = max(group.state_blocks for group in settings.groups)
    return min(longest, settings.max_model_len) // settings.block_size + 2 + most


def _counters(load: Load, settings: SchedulerSettings) -> f.Ints:
    counters = np.zeros(f.COUNTERS, np.int64)
    counters[f.TOTAL] = len(load)
    counters[f.FREE_SEATS] = settings.max_num_seqs
    counters[f.UNHASHED] = settings.num_blocks - 1
    counters[f.STRIDE] = 1
    return counters


def _clock(load: Load, settings: SchedulerSettings) -> f.Floats:
    clock = np.zeros(f.CLOCK)
    clock[f.PATIENCE] = np.inf if settings.static_wait_s is None else settings.static_wait_s
    clock[f.NOW] = load.arrival_s[0] if len(load) else 0.0
    return clock


def _times(load: Load) -> f.Floats:
    times = np.full((len(load), f.TIME), np.nan)
    times[:, f.ARRIVAL] = load.arrival_s
    return times


def _blocks(named: int) -> f.Places:
    """All blocks but block 0 are free, without a hash, lowest number taken first."""
    blocks = np.zeros((named, f.CELL), np.int32)
    blocks[: named - 1, f.STACK] = np.arange(named - 1, 0, -1)
    return blocks


def _column(values: f.Ints | None) -> f.Ints:
    return np.zeros(1, np.int64) if values is None else np.ascontiguousarray(values, np.int64)


def _ids(load: Load) -> f.Ints:
    """Identifiers from 0 on, so that those of blocks that are not shared can be below 0."""
    ids = _column(load.block_ids)
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= _LARGEST_ID):
        return np.unique(ids, return_inverse=True)[1].astype(np.int64)
    return ids


def _survival(settings: SchedulerSettings) -> f.Floats:
    """Coverage, then survival by position."""
    drafts = settings.speculation
    return np.array([1.0] if drafts is None else [drafts.coverage, *drafts.survival])


def _depths(settings: SchedulerSettings) -> f.Ints:
    """Drafted tokens by number of requests in the step that proposes them.

    Between two ranges of a schedule, and after the last, the one before goes on.
    """
    drafts = settings.speculation
    if drafts is None:
        return np.zeros(1, np.int64)
    if not drafts.schedule:
        return np.full(1, drafts.num_speculative_tokens, np.int64)
    depths = np.zeros(settings.max_num_seqs + 1, np.int64)
    for first, _, depth in sorted(drafts.schedule):
        depths[first:] = min(depth, drafts.num_speculative_tokens)
    return depths
