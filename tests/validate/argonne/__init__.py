"""Offline batches of vLLM on one GPU (Argonne)."""

from tests.validate.argonne.comparison import validation

__all__ = ["validation"]
