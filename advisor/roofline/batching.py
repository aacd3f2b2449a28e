"""When a batch turns compute-bound (handbook 4.1)."""


def knee_tokens(ridge_flops_per_byte: float, bytes_per_weight: float) -> float:
    """Tokens in a step at which linear layers turn compute-bound: ridge x bytes / 2."""
    return ridge_flops_per_byte * bytes_per_weight / 2
