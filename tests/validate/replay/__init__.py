"""Recorded runs, replayed."""

from tests.validate.replay.comparison import validation

__all__ = ["validation"]
