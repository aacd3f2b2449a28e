"""A closed loop played through: start-up burst, steady state and end, as a load test sees them."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.events import serve
from advisor.roofline.closed_loop.loop import ClosedLoop, LoopTimes
from advisor.roofline.step.curves import Curves, curves
from advisor.roofline.step.steptime import StepTables

_UNLIMITED = 1 << 60


def run_closed_loop(
    loop: ClosedLoop, tables: StepTables, *, requests: int, seed: int = 0
) -> LoopTimes:
    """Means over the first `requests` requests, the burst at the start and the end included.

    It takes the decisions of vLLM's scheduler (handbook 5.3) for one cache group without shared
    prefixes, counting tokens instead of blocks, and leaps over steps between events: a load test of
    640 requests takes about 2 ms. What needs blocks, priorities or drafts is the simulator's.
    Tables whose attention is joint raise `InvalidInput`.
    """
    if min(loop.concurrency, loop.max_num_seqs) > loop.max_num_batched_tokens:
        raise InvalidInput("loop.max_num_batched_tokens", "is below the requests that run at once")
    if requests < 1:
        raise InvalidInput("requests", f"{requests} is below 1")
    prompts, outputs = (
        _lengths(tokens, loop.shortest, requests, seed + which)
        for which, tokens in enumerate((loop.prompt_tokens, loop.output_tokens))
    )
    space = _UNLIMITED if loop.cache_tokens is None else loop.cache_tokens
    sent, first, last, counts = serve(
        (prompts, outputs),
        (loop.concurrency, loop.max_num_seqs, loop.max_num_batched_tokens, space),
        (loop.delay_s, loop.lag_steps),
        plain_tables(tables),
    )
    following = outputs > 1
    tpot = (last - first)[following] / (outputs[following] - 1)
    duration = float(last.max() - sent.min())
    in_engine = float((last - first).sum())
    return LoopTimes(
        ttft_s=float((first - sent).mean()) + loop.answer_s,
        tpot_s=float(tpot.mean()) if following.any() else 0.0,
        requests_per_s=requests / duration,
        output_tokens_per_s=float(outputs.sum()) / duration,
        running=in_engine / duration,
        preemptions=int(counts[1]),
    )


@lru_cache(maxsize=256)
def _lengths(tokens: int, shortest: float, count: int, seed: int) -> NDArray[np.int64]:
    """Evenly spread over the range, in a random order: no luck of the draw in the mean."""
    if shortest == 1:
        lengths = np.full(count, tokens, dtype=np.int64)
        lengths.flags.writeable = False
        return lengths
    order = np.random.default_rng(seed).permutation(count)
    low = shortest * tokens
    drawn = low + (tokens - low) * (order + 0.5) / count
    lengths = np.maximum(1, np.round(drawn)).astype(np.int64)
    lengths.flags.writeable = False
    return lengths


def plain_tables(tables: StepTables) -> Curves:
    """The arrays that compiled code reads; tables whose attention is joint raise `InvalidInput`."""
    if tables.joint is not None:
        raise InvalidInput("tables.joint", "is not understood by the closed loop")
    return curves(tables)
