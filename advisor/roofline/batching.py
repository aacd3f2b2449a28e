"""When a batch turns compute-bound, and what a static batch wastes (handbook 4.1 and 5.1)."""

from collections.abc import Sequence


def knee_tokens(ridge_flops_per_byte: float, bytes_per_weight: float) -> float:
    """Tokens in a step at which linear layers turn compute-bound: ridge x bytes / 2."""
    return ridge_flops_per_byte * bytes_per_weight / 2


def static_waste(lengths: Sequence[int]) -> float:
    """Idle share of the slots of one static batch, which ends with its longest request."""
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def resampled_static_waste(lengths: Sequence[int], batch: int) -> float:
    """Idle share expected of static batches of `batch` requests drawn from these lengths.

    One less the mean length over the mean of the longest of `batch` draws with replacement.
    """
    ordered = sorted(lengths)
    count = len(ordered)
    longest = sum(
        length * ((rank / count) ** batch - ((rank - 1) / count) ** batch)
        for rank, length in enumerate(ordered, 1)
    )
    return 1 - sum(ordered) / count / longest
