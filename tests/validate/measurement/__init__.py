"""The measurement protocol on planted engines, whose truth is known."""

from tests.validate.measurement.proof import validation

__all__ = ["validation"]
