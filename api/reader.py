"""The child process that reads an upload: bounded memory and time, frames in, frames out.

``python -m api.reader read`` takes a traffic file on standard input, ``python -m api.reader
tokens`` the report and the stored requests of one, ``derive`` those of several (`api.derivation`);
the job is in the file of descriptor ``--job``.
The last frame of the answer is JSON: the facts, or ``{"refused": {...}}``; prompt text is in the
Parquet frames only.
"""

import argparse
import json
import os
import resource
import secrets
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from advisor.canonical import as_json
from advisor.errors import (
    FileTooLong,
    InvalidInput,
    NoUsableRows,
    RooftuneError,
    UnknownName,
    UnreadableFile,
)
from api.derivation import derive
from api.frames import FACTS, write_frame
from api.reading import Emit, Facts, Job, count_stored, read_upload

SECRET_BYTES = 32
REFUSALS: Mapping[type[RooftuneError], tuple[str, ...]] = {
    NoUsableRows: ("reason", "found", "accepted", "rejects"),
    UnreadableFile: ("reason", "remedy"),
    FileTooLong: ("reason", "remedy"),
    InvalidInput: ("field", "message"),
    UnknownName: ("kind", "name", "known"),
}


def _refusal(error: RooftuneError) -> Facts:
    names = REFUSALS.get(type(error), ())
    data: Facts = {name: as_json(getattr(error, name)) for name in names}
    return {"refused": {**data, "error": type(error).__name__}}


def answered(work: Callable[[], Facts]) -> Facts:
    """The outermost loop of the child: every end of `work` is an answer."""
    try:
        return work()
    except RooftuneError as error:
        return _refusal(error)
    except MemoryError:
        return {"refused": {"error": "TooLarge", "rows": None}}
    except Exception as error:  # noqa: BLE001  (the frames travel to the log, the message may not)
        where = "".join(traceback.format_tb(error.__traceback__))
        return {"refused": {"error": "Fault", "type": type(error).__name__, "at": where}}


def worked(what: str, given: BinaryIO, job: BinaryIO, emit: Emit) -> Facts:
    """Do the job. The secret of an upload is made here and never leaves the process."""
    asked = Job.read(job)
    if what == "read":
        return read_upload(given, asked, secrets.token_bytes(SECRET_BYTES), emit)
    if what == "derive":
        return derive(given, asked, secrets.token_bytes(SECRET_BYTES), emit)
    return count_stored(given, asked, emit)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reader")
    parser.add_argument("what", choices=["read", "tokens", "derive"])
    parser.add_argument("--job", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    return parser.parse_args(arguments)


def main() -> int:
    """Read standard input, answer on standard output."""
    options = _parsed(sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = sys.stdout.buffer

    def emit(tag: bytes, body: bytes) -> None:
        write_frame(answer, body, tag)

    with os.fdopen(options.job, "rb") as job:
        facts = answered(lambda: worked(options.what, sys.stdin.buffer, job, emit))
    emit(FACTS, json.dumps(facts).encode())
    answer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
