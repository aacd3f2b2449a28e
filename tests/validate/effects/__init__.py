"""Techniques that others toggled."""

from tests.validate.effects.comparison import validation

__all__ = ["validation"]
