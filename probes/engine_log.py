"""What an engine wrote: kept in the database, bounded and compressed."""

import os
from pathlib import Path

import zstandard


def packed_log(path: Path, limit_bytes: int) -> bytes | None:
    """The last `limit_bytes` of an engine's log as Zstandard; the file is removed.

    None when there is no file, as after a start that failed before the engine was spawned.
    """
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - limit_bytes))
        tail = stream.read()
    path.unlink()
    return zstandard.ZstdCompressor().compress(tail)
