"""The child process that reads an upload: bounded memory and time, frames in, frames out.

``python -m api.reader read`` takes a traffic file on standard input, ``python -m api.reader
tokens`` the stored requests and a tokenizer. The first frame of the answer is JSON: the facts, or
``{"refused": {...}}``; prompt text is in the Parquet frames only.
"""

import argparse
import hashlib
import json
import resource
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

from advisor.canonical import Json, as_json, canonical_bytes
from advisor.errors import InvalidInput, NoUsableRows, RooftuneError, UnreadableFile
from advisor.techniques import draft_lengths
from advisor.traffic.columns import (
    requests_from_parquet,
    requests_to_parquet,
    tokens_to_parquet,
)
from advisor.traffic.formats import read_trace
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import ChatTokenizer, token_columns
from advisor.traffic.trace import Request
from api.frames import read_frames, write_frame

CHUNK_REQUESTS = 2000
BLOCK_SIZE = 16
Facts = dict[str, Json]
Answer = tuple[Facts, Iterator[bytes]]


def read_file(stream: BinaryIO, filename: str, most_rows: int) -> Answer:
    """Facts of a traffic file and its accepted requests as Parquet chunks."""
    trace = read_trace(stream, filename=filename)
    if trace.report.rows > most_rows:
        return {"refused": {"kind": "TooLarge", "rows": trace.report.rows}}, iter(())
    summary = summarise(trace.requests, None, block_size=BLOCK_SIZE)
    facts: Facts = {
        "report": as_json(trace.report),
        "summary": as_json(summary),
        "digest": requests_digest(trace.requests),
        "requests": len(trace.requests),
    }
    return facts, _chunks(trace.requests)


def _chunks(requests: Sequence[Request]) -> Iterator[bytes]:
    for start in range(0, len(requests), CHUNK_REQUESTS):
        yield requests_to_parquet(requests[start : start + CHUNK_REQUESTS])


def requests_digest(requests: Sequence[Request]) -> str:
    """SHA-256 over the canonical bytes of the requests, a line feed after each."""
    sha = hashlib.sha256()
    for request in requests:
        sha.update(canonical_bytes(request))
        sha.update(b"\n")
    return sha.hexdigest()


def count(stream: BinaryIO) -> Answer:
    """Token columns of stored requests: frames settings, ``tokenizer.json``, chunks."""
    frames = read_frames(stream)
    settings = json.loads(next(frames))
    tokenizer = ChatTokenizer(next(frames), settings["template"], settings["special"])
    requests = [request for chunk in frames for request in requests_from_parquet(chunk)]
    tokens = token_columns(requests, tokenizer)
    main, *others = draft_lengths()
    summary = summarise(
        requests, tokens, block_size=BLOCK_SIZE, lookup_tokens=main, other_lookups=others
    )
    facts: Facts = {
        "tokenizer_digest": tokens.tokenizer_digest,
        "template_digest": tokens.template_digest,
        "summary": as_json(summary),
    }
    return facts, iter((tokens_to_parquet(tokens),))


REFUSALS: Mapping[type[RooftuneError], tuple[str, ...]] = {
    NoUsableRows: ("reason", "found", "accepted"),
    UnreadableFile: ("reason", "remedy"),
    InvalidInput: ("field", "message"),
}


def _refusal(error: RooftuneError) -> Facts:
    names = REFUSALS.get(type(error), ())
    data: Facts = {name: as_json(getattr(error, name)) for name in names}
    return {"refused": {"kind": type(error).__name__, **data}}


def answered(work: Callable[[], Answer]) -> Answer:
    """The outermost loop of the child: every end of `work` is an answer."""
    try:
        return work()
    except RooftuneError as error:
        return _refusal(error), iter(())
    except MemoryError:
        return {"refused": {"kind": "TooLarge", "rows": None}}, iter(())
    except Exception as error:  # noqa: BLE001  (the frames travel to the log, the message may not)
        where = "".join(traceback.format_tb(error.__traceback__))
        return {"refused": {"kind": "Fault", "error": type(error).__name__, "at": where}}, iter(())


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reader")
    parser.add_argument("what", choices=["read", "tokens"])
    parser.add_argument("--filename", default="upload")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    return parser.parse_args(arguments)


def main() -> int:
    """Read standard input, answer on standard output."""
    options = _parsed(sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (options.memory, options.memory))
    resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given, answer = sys.stdin.buffer, sys.stdout.buffer
    if options.what == "read":
        facts, bodies = answered(lambda: read_file(given, options.filename, options.rows))
    else:
        facts, bodies = answered(lambda: count(given))
    write_frame(answer, json.dumps(facts).encode())
    for body in bodies:
        write_frame(answer, body)
    answer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
