"""A file being sent, whose reader learns how far it is."""

import io
from collections.abc import Callable
from typing import BinaryIO

Told = Callable[[int], None]


class Watched:
    """The parts of a binary file that an HTTP client needs; `told` hears how much was read."""

    def __init__(self, file: BinaryIO, told: Told) -> None:
        self._file = file
        self._told = told

    def read(self, size: int = -1) -> bytes:
        """As the file's."""
        found = self._file.read(size)
        self._told(self._file.tell())
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As the file's."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As the file's."""
        return self._file.tell()

    def fileno(self) -> int:
        """As the file's: its size is asked of the system."""
        return self._file.fileno()
