"""Formats of traffic uploads. A format is one module here and a branch in `reader`."""

from advisor.traffic.formats.reader import read_trace

__all__ = ["read_trace"]
