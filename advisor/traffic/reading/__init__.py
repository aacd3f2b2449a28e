"""From a file to requests: unpacked, decoded, framed, read row by row, put in order."""

from advisor.traffic.reading.reader import OpenTrace, open_trace, read_trace

__all__ = ["OpenTrace", "open_trace", "read_trace"]
