"""The child process that makes a workload of others: `api.reader` with what only that loads.

A program of its own, so that an upload does not wait for the import of what it never needs.
"""

import secrets
import sys
from typing import BinaryIO

from api.derivation import derive
from api.reader import SECRET_BYTES, main
from api.reading import Emit, Facts, Job


def _derive(given: BinaryIO, asked: Job, emit: Emit) -> Facts:
    return derive(given, asked, secrets.token_bytes(SECRET_BYTES), emit)


if __name__ == "__main__":
    sys.exit(main({"derive": _derive}))
