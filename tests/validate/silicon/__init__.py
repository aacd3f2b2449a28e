"""Closed loops on H100, H200 and B200, and llm-d."""

from tests.validate.silicon.comparison import validation

__all__ = ["validation"]
