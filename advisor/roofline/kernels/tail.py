"""What unequal contexts cost: the longest decode still runs when the others have finished.

Profilers time attention with equal contexts. A decode kernel gives each request one block of work
per KV head, or per query head beside a prompt chunk, and does not split a context once enough
requests fill the device: the block of the longest request ends last. Its cost beyond the mean is
that of a fixed number of blocks, so of more requests the fewer blocks a request has.
"""

from dataclasses import dataclass

from advisor.errors import InvalidInput

# FlashAttention 2 keeps two blocks on a multiprocessor and does not split contexts once the blocks
# of a batch reach 0.8 of those (num_splits_heuristic).
BLOCKS_PER_MULTIPROCESSOR = 2
SPLIT_BELOW = 0.8
# Share of the device's blocks that the longest request costs on top: medians over published kernel
# times of unequal batches on an RTX PRO 6000 (LLMServingSim, profiler/perf, skew_fit.csv of
# Llama-3.1-8B and of Qwen3-32B on two ranks), as requests x (t - t at the mean) / (t at the longest
# - t at the mean) x blocks per request / blocks of the device. Cells with contexts that differ (a
# gap above 25 %) and no splitting: 30 alone, 92 beside a chunk; a fifth to twice that by shape.
ALONE = 0.095
BESIDE = 0.28


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeTail:
    """Requests' worth of excess context, alone and beside a chunk; none alone below `split_below`.

    See `advisor.roofline.step.joint.effective_contexts`.
    """

    alone: float = 0.0
    beside: float = 0.0
    split_below: float = 0.0

    def __post_init__(self) -> None:
        if min(self.alone, self.beside, self.split_below) < 0:
            raise InvalidInput("tail", "is not negative")


def decode_tail(
    multiprocessors: int, *, query_heads: int, kv_heads: int, level: float = 1.0
) -> DecodeTail:
    """The tail on a device of so many multiprocessors, heads as one rank has them.

    `level` scales it, for the ends of an interval.
    """
    if min(multiprocessors, query_heads, kv_heads) < 1:
        raise InvalidInput("tail", "needs multiprocessors and heads")
    blocks = BLOCKS_PER_MULTIPROCESSOR * multiprocessors
    return DecodeTail(
        alone=level * ALONE * blocks / kv_heads,
        beside=level * BESIDE * blocks / query_heads,
        split_below=SPLIT_BELOW * blocks / kv_heads,
    )
