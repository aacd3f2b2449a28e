"""The child process that reads an upload: bounded memory and time, frames in, frames out.

``python -m api.reader read`` takes a traffic file on standard input, ``python -m api.reader
tokens`` the report and the stored requests of one; ``python -m api.deriver derive`` those of
several. The job is in the file of descriptor ``--job``.
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


# Does a job: standard input, what is asked, where frames go.
Work = Callable[[BinaryIO, Job, Emit], Facts]


def _read(given: BinaryIO, asked: Job, emit: Emit) -> Facts:
    """The secret of an upload is made here and never leaves the process."""
    return read_upload(given, asked, secrets.token_bytes(SECRET_BYTES), emit)


WORKS: Mapping[str, Work] = {"read": _read, "tokens": count_stored}


def _parsed(arguments: Sequence[str], works: Mapping[str, Work]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reader")
    parser.add_argument("what", choices=list(works))
    parser.add_argument("--job", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    return parser.parse_args(arguments)


def main(works: Mapping[str, Work]) -> int:
    """Read standard input, answer on standard output; `works` are the jobs of this program."""
    options = _parsed(sys.argv[1:], works)
    resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer = sys.stdout.buffer

    def emit(tag: bytes, body: bytes) -> None:
        write_frame(answer, body, tag)

    with os.fdopen(options.job, "rb") as job:
        work = works[options.what]
        facts = answered(lambda: work(sys.stdin.buffer, Job.read(job), emit))
    emit(FACTS, json.dumps(facts).encode())
    answer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(WORKS))
