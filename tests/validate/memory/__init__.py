"""Parameter counts, worked examples and capacities."""

from tests.validate.memory.comparison import validation

__all__ = ["validation"]
